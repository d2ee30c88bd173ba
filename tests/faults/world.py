"""A small federation that every command finds its inputs in, and a command line for each of them.

The lines are as one types them in the federation's folder. A line with a world of its own begins from what an earlier
line left; all others begin from the finished federation.
"""

import shlex
import shutil
from dataclasses import dataclass

# Fresh from the operating system: bytes that no second call can give again.
RANDOM = ("keygen", "secagg keys", "secagg shares", "federate join", "federate step")

_CLIENT, _OTHER, _DOWN = "clients/00", "clients/01", "server/outbox"
_MODEL = "public/model-0000.safetensors"
_DATA = f"{_CLIENT}/private/data.parquet"
_ROSTER = "--roster public/roster.json"
_DP = "--noise-multiplier 1 --sampling-rate 0.5 --batch-size 8"
_FEDLAP = "--method fedlap --images-per-class 1 --batches 1 --points 1 --image-steps 1 --radius-steps 1"
_FEDDM = "--method feddm --images-per-class 1 --iterations 1"
_SOFTMAX = "--set init-model.arch=softmax --set init-model.width=null --set init-model.depth=null"
_TINY = f"{_SOFTMAX} --set partition.source=source.parquet --set partition.clients=2 --set partition.alpha=null"
_TINY += " --set partition.scheme=iid --set train-client.local_epochs=1 --set train-client.batch_size=8"
_GENERATOR = "--family vae --steps 3"

# By what it leads to, in this order: the federation that all begin from.
BUILT = [
    "partition source.parquet --clients 2 --held-out 0.1 -o .",
    f"init-model --arch softmax --like public/test.parquet -o {_MODEL}",
    "identity -o server/private/identity.json",
    *(
        line
        for place in (_CLIENT, _OTHER)
        for line in (
            f"identity -o {place}/private/identity.json",
            f"train-client {_MODEL} {place}/private/data.parquet --local-epochs 1 "
            f"-o {place}/private/update-0001.safetensors",
            f"encode {_MODEL} {place}/private/update-0001.safetensors -o {place}/outbox/message-0001.safetensors",
            f"train-generator {place}/private/data.parquet {_GENERATOR} -o {place}/private/generator.safetensors",
            f"synthesize {place}/private/generator.safetensors --count 6 -o {place}/outbox/synthetic.parquet",
            f"encode {_MODEL} {place}/private/data.parquet {_FEDDM} -o {place}/outbox/surrogate-0001.safetensors",
        )
    ),
    "roster clients/00/private/identity.json clients/01/private/identity.json server/private/identity.json "
    "-o public/roster.json",
    f"aggregate {_MODEL} {_CLIENT}/outbox/message-0001.safetensors {_OTHER}/outbox/message-0001.safetensors "
    f"-o {_DOWN}/model-0001.safetensors",
    f"evaluate {_DOWN}/model-0001.safetensors public/test.parquet -o metrics/round-0001.json",
    *(
        f"receipt ask --round 1 {_ROSTER} -o {place}/outbox/head-0001.intoto.jsonl" for place in (_CLIENT, _OTHER)
    ),
    f"receipt give {_CLIENT}/outbox/head-0001.intoto.jsonl {_OTHER}/outbox/head-0001.intoto.jsonl {_ROSTER} "
    f"-o {_DOWN}/receipts-0001.intoto.jsonl",
    f"sign {_CLIENT}/outbox/message-0001.safetensors {_ROSTER}",
    f"synthesize {_CLIENT}/private/generator.safetensors --count 6 --gate -o {_CLIENT}/outbox/held.parquet",
    f"run fedavg {_TINY} --rounds 1 --workers 1 -o run",
]  # fmt: skip

_MESSAGES = f"{_CLIENT}/outbox/message-0001.safetensors {_OTHER}/outbox/message-0001.safetensors"
_SURROGATES = f"{_CLIENT}/outbox/surrogate-0001.safetensors {_OTHER}/outbox/surrogate-0001.safetensors"
_UPDATE = f"{_CLIENT}/private/update-0001.safetensors"

LINES = {
    "keygen": "keygen -o new/private/client.key",
    "ingest": "ingest source.parquet --client x -o new/x/private/data.parquet",
    "identity": f"identity --key {_CLIENT}/private/client.key --client 00 -o new/identity.json",
    "train-client": f"train-client {_MODEL} {_DATA} --local-epochs 1 -o {_CLIENT}/private/new.safetensors",
    "train-client with a state": f"train-client {_MODEL} {_DATA} --algorithm scaffold --local-epochs 1 "
    f"--state-out {_CLIENT}/private/state.safetensors -o {_CLIENT}/private/new.safetensors",
    "train-client, DP": f"train-client {_MODEL} {_DATA} --local-steps 2 {_DP} -o {_CLIENT}/private/new.safetensors",
    "encode": f"encode {_MODEL} {_UPDATE} -o {_CLIENT}/outbox/new.safetensors",
    "encode, replacing": f"encode {_MODEL} {_UPDATE} --tell-examples --force "
    f"-o {_CLIENT}/outbox/message-0001.safetensors",
    "encode, held": f"encode {_MODEL} {_UPDATE} --gate -o {_CLIENT}/outbox/new.safetensors",
    "encode, DP": f"encode {_MODEL} {_UPDATE} --clip-norm 1 --noise-multiplier 1 --least-clients 2 "
    f"-o {_CLIENT}/outbox/new.safetensors",
    "encode fedlap": f"encode {_MODEL} {_DATA} {_FEDLAP} --metrics {_CLIENT}/private/matching.json "
    f"-o {_CLIENT}/outbox/new.safetensors",
    "encode fedlap, DP": f"encode {_MODEL} {_DATA} --method fedlap --images-per-class 1 --batches 1 --points 1 "
    f"--image-steps 1 --radius 1 {_DP} -o {_CLIENT}/outbox/new.safetensors",
    "encode feddm": f"encode {_MODEL} {_DATA} {_FEDDM} -o {_CLIENT}/outbox/new.safetensors",
    "encode tofu": f"encode {_MODEL} {_UPDATE} --method tofu --images 2 --iterations 2 --least-cosine 0 "
    f"-o {_CLIENT}/outbox/new.safetensors",
    "train-generator": f"train-generator {_DATA} --family vae --steps 4 --keep-at 2 --checkpoint-every 1 "
    f"-o {_CLIENT}/private/new.safetensors",
    "train-generator, DP": f"train-generator {_DATA} --family vae --steps 2 {_DP} -o {_CLIENT}/private/new.safetensors",
    "synthesize": f"synthesize {_CLIENT}/private/generator.safetensors --count 6 --sheet {_CLIENT}/private/sheet.png "
    f"-o {_CLIENT}/outbox/new.parquet",
    "release by a person": f"release {_CLIENT}/pending/held.parquet --yes --not-seen-private",
    "release, rejected": f"release {_CLIENT}/pending/held.parquet --reject --not-seen-private",
    "release of a folder": f"release {_CLIENT} --yes --seen-private",
    "sign": f"sign {_OTHER}/outbox/message-0001.safetensors {_OTHER}/outbox/synthetic.parquet {_ROSTER}",
    "receipt ask": f"receipt ask --round 2 {_ROSTER} -o {_CLIENT}/outbox/head-0002.intoto.jsonl",
    "receipt give": f"receipt give {_CLIENT}/outbox/head-0001.intoto.jsonl {_OTHER}/outbox/head-0001.intoto.jsonl "
    f"{_ROSTER} -o {_DOWN}/new.intoto.jsonl",
    "receipt keep": f"receipt keep {_DOWN}/receipts-0001.intoto.jsonl {_ROSTER} "
    f"-o {_CLIENT}/private/receipt-0001.intoto.jsonl",
    "init-model": "init-model --arch softmax --like public/test.parquet -o new/model.safetensors",
    "sample-clients": "sample-clients 00 01 --sampling-rate 0.5 --round 1 -o server/private/clients-0001.json",
    "aggregate": f"aggregate {_MODEL} {_MESSAGES} -o {_DOWN}/new.safetensors",
    "aggregate, replacing": f"aggregate {_MODEL} {_MESSAGES} --server-rate 0.5 --force "
    f"-o {_DOWN}/model-0001.safetensors",
    "aggregate feddyn": f"aggregate {_MODEL} {_MESSAGES} --rule feddyn --alpha 0.1 --clients 2 "
    f"--state-out server/private/h.safetensors -o {_DOWN}/new.safetensors",
    "aggregate, DP": f"aggregate {_MODEL} {_MESSAGES} --rule dp-mean --clip-norm 1 --noise-multiplier 1 "
    f"--sampling-rate 0.5 --clients 2 -o {_DOWN}/new.safetensors",
    "aggregate feddm": f"aggregate {_MODEL} {_SURROGATES} --rule feddm --server-epochs 1 "
    f"--metrics server/private/steps.json -o {_DOWN}/new.safetensors",
    "receipt compare": f"receipt compare {_DOWN}/receipts-0001.intoto.jsonl {_DOWN} {_ROSTER}",
    "receipt prove": f"receipt prove {_CLIENT}/outbox/message-0001.safetensors "
    f"--head {_DOWN}/receipts-0001.intoto.jsonl {_ROSTER} -o new/proof.json",
    "budget show": f"budget show {_CLIENT}",
    "decode": f"decode {_MODEL} {_CLIENT}/outbox/message-0001.safetensors -o new/update.safetensors",
    "decode, applied": f"decode {_MODEL} {_CLIENT}/outbox/message-0001.safetensors --apply -o new/model.safetensors",
    "shuffle": f"shuffle {_CLIENT}/outbox/synthetic.parquet {_OTHER}/outbox/synthetic.parquet --parts 2 -o {_DOWN}",
    "evaluate": f"evaluate {_DOWN}/model-0001.safetensors public/test.parquet --curve metrics/curve.csv "
    "--picture metrics/curve.png --confusion metrics/confusion.png -o metrics/new.json",
    "evaluate memorisation": f"evaluate {_CLIENT}/outbox/synthetic.parquet {_DATA} --pairs {_CLIENT}/private/pairs.png "
    f"-o {_CLIENT}/private/memorisation.json",
    "evaluate runs": "evaluate run --csv metrics/runs.csv --picture metrics/runs.png -o metrics/runs.json",
    "evaluate heterogeneity": "evaluate run --heterogeneity --picture private/h.png -o private/h.json",
    "evaluate clipping": "evaluate run --clipping 1 --picture private/c.png -o private/c.json",
    "evaluate gap": "evaluate run --gap -o private/gap.json",
    "evaluate surface": f"evaluate {_DOWN}/model-0001.safetensors public/test.parquet --surface new/surface.png "
    "--points 3 -o new/surface.json",
    "evaluate surrogates": "evaluate . --surrogates --sheet server/private/sheet.png --picture server/private/s.png "
    "-o server/private/surrogates.json",
    "evaluate matching": f"evaluate {_MODEL} {_DATA} --matching {_CLIENT}/outbox/surrogate-0001.safetensors "
    f"--matching-steps 1 --csv {_CLIENT}/private/m.csv --picture {_CLIENT}/private/m.png -o {_CLIENT}/private/m.json",
    "evaluate attack": f"evaluate {_MODEL} {_CLIENT}/outbox/message-0001.safetensors --attack inverting-gradients "
    f"--against {_DATA} --images 1 --attack-steps 1 --restarts 1 --picture {_CLIENT}/private/a.png "
    f"-o {_CLIENT}/private/attack.json",
    "inspect": f"inspect {_CLIENT}/outbox/synthetic.parquet --images new/sheet.png",
    "audit": "audit .",
    "audit, replayed": "audit . --replay",
    "roster": "roster clients/00/private/identity.json clients/01/private/identity.json -o new/roster.json",
    "verify": f"verify {_CLIENT}/outbox/message-0001.safetensors {_ROSTER}",
    "account": "account run --delta 1e-5 --csv new/epsilon.csv --picture new/epsilon.png",
    "report": "report run -o new/report.html",
    "export": "export run --format dp-card -o new/card.json",
    "export of a folder": "export run --format ro-crate --date 2026-01-31 --license x --publisher y --url z -o new",
    "export of a file": f"export {_CLIENT}/outbox/synthetic.parquet --format croissant --date 2026-01-31 --license x "
    "--publisher y --url z -o new/set.json",
    "partition": "partition source.parquet --clients 2 -o new",
    "run": f"run fedavg {_TINY} --rounds 1 --workers 1 -o new",
    "run of a sweep": f"run fedavg {_TINY} --rounds 1 --workers 1 --sweep seed=0,1 -o new",
    "tune": f"tune fedavg {_TINY} --rounds 1 --workers 1 --grid train-client.learning_rate=0.1,0.2 -o new",
    "recipe": "recipe fedavg --format dvc -o new",
    "recipe as a script": "recipe fedavg --format sh -o new.sh",
    "federate app": "federate app fedavg --clients a,b -o new",
    "batch": "batch lines.txt",
}  # fmt: skip

# A round of secure aggregation; each line begins from what those before it left.
_KEYS = f"--keys {_DOWN}/secagg-keys-0001.safetensors"


def _step(name, step, read=""):
    return [f"secagg {name} {read} -o {place}/outbox/secagg-{step}-0001.safetensors" for place in (_CLIENT, _OTHER)]


def _sent(step):
    return " ".join(f"{place}/outbox/secagg-{step}-0001.safetensors" for place in (_CLIENT, _OTHER))


SECURE = [
    *_step("keys", "keys", "--round 1"),
    f"secagg collect {_sent('keys')} {_ROSTER} --range 4 -o {_DOWN}/secagg-keys-0001.safetensors",
    *_step("shares", "shares", f"{_DOWN}/secagg-keys-0001.safetensors {_ROSTER}"),
    f"secagg collect {_sent('shares')} {_ROSTER} {_KEYS} -o {_DOWN}/secagg-shares-0001.safetensors",
    *(
        f"secagg mask {_DOWN}/secagg-shares-0001.safetensors {_MODEL} {place}/private/update-0001.safetensors "
        f"-o {place}/outbox/secagg-masked-0001.safetensors"
        for place in (_CLIENT, _OTHER)
    ),
    f"secagg collect {_sent('masked')} {_ROSTER} {_KEYS} -o {_DOWN}/secagg-survivors-0001.safetensors",
    *_step("confirm", "survivors", f"{_DOWN}/secagg-survivors-0001.safetensors"),
    f"secagg collect {_sent('survivors')} {_ROSTER} {_KEYS} -o {_DOWN}/secagg-confirmed-0001.safetensors",
    *_step("unmask", "unmask", f"{_DOWN}/secagg-confirmed-0001.safetensors"),
    f"secagg sum {_sent('masked')} {_sent('unmask')} {_ROSTER} {_KEYS} --shares {_DOWN}/secagg-shares-0001.safetensors "
    f"--survivors {_DOWN}/secagg-confirmed-0001.safetensors -o server/private/secure.safetensors",
]

# A federation through a drop folder, likewise. Its roster is carried into each home as soon as it is there.
_TERMS, _HOMES = "app/fedsynth_app/federation.yaml", ("hs", "ha", "hb")
FEDERATED = [
    f"federate app fedavg {_SOFTMAX} --set train-client.local_epochs=1 --rounds 1 --clients a,b -o app",
    f"federate join {_TERMS} --home hs --data source.parquet",
    *(
        f"federate join {_TERMS} --home h{client} --client {client} --data source.parquet --like hs/public/test.parquet"
        for client in "ab"
    ),
    f"roster {' '.join(f'{home}/identity.json' for home in _HOMES)} -o roster.json",
    "federate units --home ha --drop drop -o units",
    *(f"federate step --home {home} --drop drop -q" for home in ("hs", "ha", "hb", "hs", "ha")),
    "federate status --home hs",
]
WAITING = 75  # others must do something first


@dataclass(frozen=True)
class Case:
    """A command line, the folder that it begins from, and the exit code if nothing fails."""

    name: str
    words: tuple[str, ...]
    world: str
    code: int = 0

    @property
    def examines(self):
        return self.words[0] in ("audit", "report", "export")

    @property
    def is_random(self):
        return self.name.startswith(RANDOM)


def cases():
    """Every command that writes, or reads what others wrote."""
    found = [Case(name, tuple(shlex.split(line)), "federation") for name, line in LINES.items()]
    for number, line in enumerate(SECURE):
        words = tuple(shlex.split(line))
        if _OTHER not in words[-1]:
            found.append(Case(f"secagg {words[1]} of {words[-1].rpartition('/')[2]}", words, f"secure-{number:02}"))
    steps = [number for number, line in enumerate(FEDERATED) if line.startswith("federate step")]
    for number, line in enumerate(FEDERATED):
        words = tuple(shlex.split(line))
        if words[0] == "federate" and words[1] != "app" and "hb" not in words:
            code = WAITING if number in steps[:3] else 0
            found.append(Case(f"{' '.join(words[:2])}, {number}", words, f"federated-{number:02}", code))
    return found


def build(folder, call, source, *, lines=BUILT, secure=SECURE, federated=FEDERATED):
    """Make the worlds in `folder`; `call(folder, words)` calls the command line there."""
    home = folder / "federation"
    home.mkdir()
    shutil.copyfile(source, home / "source.parquet")
    (home / "lines.txt").write_text(f"{LINES['init-model']}\n{LINES['roster']} && {LINES['verify']}\n")
    for line in lines:
        call(home, shlex.split(line))
    going = folder / "secure"
    for number, line in enumerate(secure):
        if not number:
            shutil.copytree(home, going)
        if _OTHER not in line.rpartition(" ")[2]:
            shutil.copytree(going, folder / f"secure-{number:02}")
        call(going, shlex.split(line))
    if federated:
        _federate(folder, call, source, federated)


def _federate(folder, call, source, lines):
    going = folder / "federated"
    (going / "drop").mkdir(parents=True)
    shutil.copyfile(source, going / "source.parquet")
    for number, line in enumerate(lines):
        shutil.copytree(going, folder / f"federated-{number:02}")
        call(going, shlex.split(line))
        for home in _HOMES if line.startswith("roster") else ():
            shutil.copyfile(going / "roster.json", going / home / "public/roster.json")
