"""Command lines that read every input which a command has, in the folder that `world.py` makes.

Not a test. A new command, or a new input of one, is a line here.
"""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A command line, run in the world's folder, and the files among its inputs whose place others take.

    `leaves` are files that it may write although it fails: a page that shows the failure. `code` is the exit code if
    nobody hurts it: some lines end where what follows would take long. `streams`: it reads pipes too, as it should.
    """

    words: str
    inputs: tuple[str, ...]
    leaves: tuple[str, ...] = ()
    code: int = 0
    streams: bool = False

    def split(self):
        return shlex.split(self.words)


def line(words, *inputs, leaves=(), code=0, streams=False):
    return Line(words, inputs, tuple(leaves), code, streams)


_M, _C = "run/public/model-0000.safetensors", "run/clients/00"
_MSG, _MSG1 = f"{_C}/outbox/message-0001.safetensors", "run/clients/01/outbox/message-0001.safetensors"
_UPD, _DATA, _KEY = (f"{_C}/private/{name}" for name in ("update-0001.safetensors", "data.parquet", "client.key"))
_DP = "--noise-multiplier 1 --sampling-rate 0.1 --clip-norm 1 --local-steps 1"
_SIGNED, _ROSTER = "sign/clients/a/outbox/message-0001.safetensors", "sign/public/roster.json"
_AGG = "agg/server/outbox/secagg-"
_UP = "agg/clients/a/outbox/secagg-"
_ALL = {s: " ".join(f"agg/clients/{c}/outbox/secagg-{s}-0001.safetensors" for c in "abc") for s in
        ("keys", "shares", "masked", "survivors", "unmask")}  # fmt: skip
# A federation through a drop folder: the server has asked, b has answered, a not yet. `FEDERATION` is in its roster.
FEDERATION = "0123456789abcdef" * 2
_ASKED = f"fed/drop/{FEDERATION}.000001-server-to-a.sealed"
_ANSWERED = f"fed/drop/{FEDERATION}.000001-b-to-server.sealed"
_RUN = (
    _MSG, _M, "run/server/outbox/model-0001.safetensors", f"{_C}/egress.jsonl", "run/server/private/egress.jsonl",
    _DATA, _UPD, _KEY, "run/metrics/round-0001.json", "run/simulation/recipe.yaml", "run/simulation/partition.json",
    "run/public/test.parquet",
)  # fmt: skip
_SIGNED_RUN = (
    _SIGNED, f"{_SIGNED}.intoto.jsonl", "sign/clients/a/outbox/head-0001.intoto.jsonl",
    "sign/server/outbox/receipts-0001.intoto.jsonl", "sign/clients/a/private/receipt-0001.intoto.jsonl", _ROSTER,
    "sign/clients/a/egress.jsonl", "sign/clients/a/private/spend.jsonl",
)  # fmt: skip

LINES = {
    "keygen": line(f"keygen -o {_C}/private/second.key", f"{_C}/private/spend.jsonl"),
    "ingest": line("ingest img/foreign.parquet -o new/09/private/d.parquet", "img/foreign.parquet"),
    "ingest-folder": line("ingest img/folder -o new/09/private/d.parquet", "img/folder/cat/0.png"),
    "ingest-like": line("ingest img/foreign.parquet --like run/public/test.parquet -o new/09/private/d.parquet",
                        "run/public/test.parquet"),
    "identity": line(f"identity -o {_C}/private/me.json", _KEY),
    "train-client": line(f"train-client {_M} {_DATA} --params conf/params.yaml -o {_C}/private/new.safetensors",
                         _M, _DATA, "conf/params.yaml"),
    "train-client-dp": line(f"train-client {_M} dp/00/private/data.parquet {_DP} -o dp/00/private/new.safetensors",
                            *(f"dp/00/private/{name}" for name in ("client.key", "spend.jsonl", "budget.yaml")),
                            "dp/00/private/data.parquet"),
    "train-client-state": line(
        "train-client scaf/server/outbox/model-0001.safetensors scaf/clients/00/private/data.parquet --algorithm "
        "scaffold --local-epochs 1 --state scaf/clients/00/private/state-0001.safetensors --server-state "
        "scaf/server/outbox/state-0001.safetensors --state-out scaf/clients/00/private/s.safetensors "
        "-o scaf/clients/00/private/u.safetensors",
        "scaf/clients/00/private/state-0001.safetensors", "scaf/server/outbox/state-0001.safetensors"),
    "encode": line(f"encode {_M} {_UPD} --params conf/params.yaml -o {_C}/outbox/new.safetensors",
                   _M, _UPD, "conf/params.yaml", _KEY, f"{_C}/egress.jsonl"),
    "encode-surrogate": line(
        "encode surr/public/model-0000.safetensors surr/clients/00/private/data.parquet --method feddm "
        "--images-per-class 1 --iterations 1 -o surr/clients/00/outbox/new.safetensors",
        "surr/public/model-0000.safetensors", "surr/clients/00/private/data.parquet"),
    "encode-previous": line(
        "encode surr/server/outbox/model-0001.safetensors surr/clients/00/private/data.parquet --method fedlap "
        "--images-per-class 2 --points 1 --batches 1 --image-steps 1 --model-steps 1 --radius-steps 1 "
        "--init previous --previous surr/clients/00/outbox/surrogate-0001.safetensors "
        "-o surr/clients/00/outbox/new.safetensors",
        "surr/clients/00/outbox/surrogate-0001.safetensors"),
    "train-generator": line("train-generator gen/clients/00/private/data.parquet --family vae --steps 1 --filters 2 "
                            "--hidden-size 4 --batch-size 4 -o gen/clients/00/private/new.safetensors",
                            "gen/clients/00/private/data.parquet"),
    "synthesize": line("synthesize gen/clients/00/private/vae.safetensors --count 3 "
                       "-o gen/clients/00/private/new.parquet", "gen/clients/00/private/vae.safetensors"),
    "synthesize-reviewed": line(
        "synthesize gen/clients/00/private/vae.safetensors --count 3 "
        "--reviewed gen/clients/00/private/reviewed.parquet -o gen/clients/00/outbox/new.parquet",
        "gen/clients/00/private/reviewed.parquet"),
    "secagg-keys": line("secagg keys --round 2 -o agg/clients/a/outbox/new.safetensors",
                        "agg/clients/a/private/client.key", "agg/clients/a/egress.jsonl",
                        leaves=[f"agg/clients/a/private/{name}" for name in  # secrets come before what is sent
                                ("secagg-0001.json", "secagg-0002.json", "secagg.jsonl")]),
    "secagg-shares": line(
        "secagg shares agg-keys/server/outbox/secagg-keys-0001.safetensors --roster agg-keys/public/roster.json -o "
        "agg-keys/clients/a/outbox/new.safetensors", "agg-keys/server/outbox/secagg-keys-0001.safetensors",
        "agg-keys/public/roster.json", "agg-keys/clients/a/private/client.key"),
    "secagg-mask": line(
        "secagg mask agg-shares/server/outbox/secagg-shares-0001.safetensors agg-shares/public/model.safetensors "
        "agg-shares/clients/a/private/update-0001.safetensors -o agg-shares/clients/a/outbox/new.safetensors",
        "agg-shares/server/outbox/secagg-shares-0001.safetensors", "agg-shares/public/model.safetensors",
        "agg-shares/clients/a/private/update-0001.safetensors",
        "agg-shares/clients/a/private/secagg-0001.json", "agg-shares/clients/a/private/secagg.jsonl"),
    "secagg-confirm": line(
        "secagg confirm agg-masked/server/outbox/secagg-survivors-0001.safetensors -o "
        "agg-masked/clients/a/outbox/new.safetensors", "agg-masked/server/outbox/secagg-survivors-0001.safetensors"),
    "secagg-unmask": line(
        "secagg unmask agg-confirmed/server/outbox/secagg-confirmed-0001.safetensors -o "
        "agg-confirmed/clients/a/outbox/new.safetensors",
        "agg-confirmed/server/outbox/secagg-confirmed-0001.safetensors"),
    "secagg-collect": line(f"secagg collect {_ALL['keys']} --roster agg/public/roster.json --range 1 --params "
                           "conf/params.yaml -o agg/server/outbox/new.safetensors",
                           f"{_UP}keys-0001.safetensors", "agg/public/roster.json", "conf/params.yaml"),
    "secagg-collect-shares": line(
        f"secagg collect {_ALL['shares']} --roster agg/public/roster.json --keys {_AGG}keys-0001.safetensors "
        "-o agg/server/outbox/new.safetensors", f"{_UP}shares-0001.safetensors", f"{_AGG}keys-0001.safetensors"),
    "secagg-collect-masked": line(
        f"secagg collect {_ALL['masked']} --roster agg/public/roster.json --keys {_AGG}keys-0001.safetensors "
        "-o agg/server/outbox/new.safetensors", f"{_UP}masked-0001.safetensors"),
    "secagg-sum": line(
        f"secagg sum {_ALL['masked']} {_ALL['unmask']} --roster agg/public/roster.json --keys "
        f"{_AGG}keys-0001.safetensors --shares {_AGG}shares-0001.safetensors --survivors "
        f"{_AGG}confirmed-0001.safetensors -o agg/server/private/new.safetensors",
        f"{_UP}masked-0001.safetensors", f"{_UP}unmask-0001.safetensors", f"{_AGG}shares-0001.safetensors",
        f"{_AGG}confirmed-0001.safetensors"),
    "release": line("release gate/clients/00", "gate/clients/00/pending/message.safetensors",
                    "gate/clients/00/private/policy.yaml", "gate/clients/00/private/gate.jsonl"),
    "release-yes": line("release gate/clients/00/pending/message.safetensors --yes",
                        "gate/clients/00/pending/message.safetensors", "gate/clients/00/private/gate.jsonl"),
    "sign": line(f"sign {_SIGNED} --roster {_ROSTER} --force", _SIGNED, _ROSTER,
                 "sign/clients/a/private/client.key", "sign/clients/a/egress.jsonl"),
    "receipt-ask": line(f"receipt ask --roster {_ROSTER} --round 2 -o sign/clients/a/outbox/new.intoto.jsonl",
                        _ROSTER, "sign/clients/a/egress.jsonl", "sign/clients/a/private/client.key"),
    "receipt-give": line("receipt give sign/clients/a/outbox/head-0001.intoto.jsonl "
                         f"sign/clients/b/outbox/head-0001.intoto.jsonl --roster {_ROSTER} "
                         "-o sign/server/outbox/new.intoto.jsonl",
                         "sign/clients/a/outbox/head-0001.intoto.jsonl", _ROSTER, "sign/server/private/server.key"),
    "receipt-keep": line("receipt keep sign/server/outbox/receipts-0001.intoto.jsonl "
                         f"--roster {_ROSTER} -o sign/clients/a/private/receipt-0002.intoto.jsonl",
                         "sign/server/outbox/receipts-0001.intoto.jsonl", _ROSTER),
    "receipt-compare": line("receipt compare sign/server/outbox/receipts-0001.intoto.jsonl sign/clients/a/private "
                            f"--roster {_ROSTER}", "sign/server/outbox/receipts-0001.intoto.jsonl", _ROSTER),
    "receipt-prove": line(f"receipt prove {_SIGNED} --head sign/server/outbox/receipts-0001.intoto.jsonl "
                          f"--roster {_ROSTER} -o new/proof.json", _SIGNED, _ROSTER, "sign/clients/a/egress.jsonl",
                          "sign/server/outbox/receipts-0001.intoto.jsonl", "sign/server/private/receipts.jsonl"),
    "init-model": line("init-model --like run/public/test.parquet --params conf/net.yaml -o new/m.safetensors",
                       "run/public/test.parquet", "conf/net.yaml"),
    "sample-clients": line("sample-clients 00 01 02 --sampling-rate 0.5 --round 1 --key run/server/private/server.key "
                           "-o run/server/private/sample.json", "run/server/private/server.key"),
    "aggregate": line(f"aggregate {_M} {_MSG} {_MSG1} --params conf/params.yaml -o new/m.safetensors",
                      _M, _MSG, "conf/params.yaml"),
    "aggregate-signed": line(f"aggregate sign/public/model.safetensors {_SIGNED} "
                             f"sign/clients/b/outbox/message-0001.safetensors --require-signed {_ROSTER} "
                             "-o new/m.safetensors", _SIGNED, f"{_SIGNED}.intoto.jsonl", _ROSTER),
    "aggregate-surrogates": line(
        "aggregate surr/public/model-0000.safetensors surr/clients/00/outbox/surrogate-0001.safetensors --rule fedlap "
        "--radius 1 --server-steps 1 -o new/m.safetensors", "surr/public/model-0000.safetensors",
        "surr/clients/00/outbox/surrogate-0001.safetensors"),
    "aggregate-state": line(
        "aggregate scaf/server/outbox/model-0001.safetensors scaf/clients/00/outbox/state-0002.safetensors "
        "scaf/clients/01/outbox/state-0002.safetensors --rule variates --clients 2 --state "
        "scaf/server/outbox/state-0001.safetensors -o new/s.safetensors",
        "scaf/server/outbox/state-0001.safetensors", "scaf/clients/00/outbox/state-0002.safetensors"),
    "decode": line(f"decode {_M} {_MSG} -o new/u.safetensors", _M, _MSG),
    "decode-apply": line(f"decode {_M} {_MSG} --apply -o new/u.safetensors", _MSG),
    "shuffle": line("shuffle shuf/clients/00/outbox/synthetic.parquet shuf/clients/01/outbox/synthetic.parquet "
                    "--parts 2 -o shuf/server/outbox", "shuf/clients/00/outbox/synthetic.parquet"),
    "evaluate": line(f"evaluate {_M} run/public/test.parquet -o new/e.json", _M, "run/public/test.parquet"),
    "evaluate-curve": line(f"evaluate {_M} run/public/test.parquet --curve run/metrics/curve.csv -o new/e.json",
                           "run/metrics/curve.csv"),
    "evaluate-surface": line(f"evaluate {_M} run/public/test.parquet --surface new/s.png --points 3 -o new/e.json", _M),
    "evaluate-memorisation": line("evaluate gen/clients/00/private/reviewed.parquet "
                                  "gen/clients/00/private/data.parquet -o new/e.json",
                                  "gen/clients/00/private/reviewed.parquet", "gen/clients/00/private/data.parquet"),
    "evaluate-quality": line(
        f"evaluate run/public/test.parquet {_DATA} --quality --features {_M} -o new/e.json",
        _M, _DATA, "run/public/test.parquet"),
    "evaluate-run": line("evaluate run --delta 1e-5 -o new/e.json", *_RUN[:5], *_RUN[8:10]),
    "evaluate-surrogates": line("evaluate surr --surrogates --sheet new/s.png -o new/e.json",
                                "surr/clients/00/outbox/surrogate-0001.safetensors"),
    "evaluate-matching": line(
        "evaluate surr/public/model-0000.safetensors surr/clients/00/private/data.parquet --matching "
        "surr/clients/00/outbox/surrogate-0001.safetensors --matching-steps 1 -o new/e.json",
        "surr/clients/00/outbox/surrogate-0001.safetensors"),
    "evaluate-attack": line(f"evaluate {_M} {_MSG} --attack inverting-gradients --against {_DATA} --images 1 "
                            "--attack-steps 1 --restarts 1 -o new/e.json", _MSG, _DATA),
    "evaluate-gap": line("evaluate run --gap -o new/e.json", _DATA, "run/server/outbox/model-0002.safetensors"),
    "inspect": line(f"inspect {_MSG}", _MSG),
    "inspect-two": line(f"inspect {_MSG} {_MSG1}", _MSG1),
    "inspect-data": line("inspect run/public/test.parquet --images new/i.png", "run/public/test.parquet"),
    "inspect-envelope": line(f"inspect {_SIGNED}.intoto.jsonl", f"{_SIGNED}.intoto.jsonl"),
    "inspect-foreign": line("inspect img/foreign.parquet", "img/foreign.parquet"),
    "inspect-surrogate": line("inspect surr/clients/00/outbox/surrogate-0001.safetensors --images new/i.png",
                              "surr/clients/00/outbox/surrogate-0001.safetensors"),
    "audit": line("audit run --delta 1e-5", *_RUN),
    "audit-replay": line("audit run --replay --sample 1", _DATA, _UPD, _KEY, _MSG),
    "audit-signed": line("audit sign", *_SIGNED_RUN),
    "audit-secagg": line("audit agg", f"{_UP}masked-0001.safetensors", f"{_AGG}keys-0001.safetensors"),
    "roster": line("roster sign/clients/a/private/identity.json sign/clients/b/private/identity.json "
                   "-o new/roster.json", "sign/clients/a/private/identity.json"),
    "verify": line(f"verify {_SIGNED} --roster {_ROSTER}", _SIGNED, f"{_SIGNED}.intoto.jsonl", _ROSTER),
    "verify-proof": line(f"verify {_SIGNED} --proof sign/proof.json --head "
                         f"sign/server/outbox/receipts-0001.intoto.jsonl --roster {_ROSTER}", "sign/proof.json"),
    "verify-receipts": line(f"verify sign/server/outbox/receipts-0001.intoto.jsonl --roster {_ROSTER}",
                            "sign/server/outbox/receipts-0001.intoto.jsonl"),
    "account": line("account run --delta 1e-5", _MSG, f"{_C}/egress.jsonl", f"{_C}/private/spend.jsonl",
                    "run/simulation/recipe.yaml"),
    "budget": line(f"budget show {_C} --delta 1e-5", f"{_C}/private/spend.jsonl"),
    "account-file": line(f"account {_MSG} --delta 1e-5", _MSG),
    "report": line("report run -o new/page.html --delta 1e-5", *_RUN, leaves=["new/page.html"]),
    "report-private": line("report run --private -o run/simulation/page.html", "run/metrics/round-0001.json",
                           "run/simulation/partition.json", leaves=["run/simulation/page.html"]),
    "export": line("export run --format dp-card --delta 1e-5 -o new/card.json", *_RUN, leaves=["new/card.json"]),
    "export-satre": line("export run --format satre -o new/record.json", _MSG, f"{_C}/egress.jsonl",
                         leaves=["new/record.json"]),
    "export-set": line("export surr/clients/00/outbox/surrogate-0001.safetensors --format hf-card --license x "
                       "-o new/README.md", "surr/clients/00/outbox/surrogate-0001.safetensors"),
    "partition": line("partition img/foreign.parquet --clients 2 --scheme iid --params conf/params.yaml -o new/p",
                      "img/foreign.parquet", "conf/params.yaml"),
    "run": line("run conf/recipe.yaml -o run --rounds 1", "conf/recipe.yaml", "run/simulation/recipe.yaml", code=2),
    "tune": line("tune conf/recipe.yaml --grid train-client.learning_rate=0.1,1 -o run", "conf/recipe.yaml", code=2),
    "recipe": line("recipe conf/recipe.yaml --format sh", "conf/recipe.yaml"),
    "recipe-dvc": line("recipe conf/recipe.yaml --format dvc -o new/dvc", "conf/recipe.yaml"),
    "federate-app": line("federate app conf/recipe.yaml --clients a,b -o new/app", "conf/recipe.yaml"),
    "federate-register": line("federate register conf/node.pub --name a --superlink 127.0.0.1:1 --root-certificates "
                              "conf/ca.pem", "conf/node.pub", "conf/ca.pem", code=3),
    "federate-run": line("federate run conf/app --superlink 127.0.0.1:1 --root-certificates conf/ca.pem",
                         "conf/app/fedsynth_app/federation.yaml", code=3),
    "federate-join": line("federate join fed/a/federation.yaml --home new/a --client a --data img/foreign.parquet "
                          "--like run/public/test.parquet", "fed/a/federation.yaml"),
    "federate-step-client": line(
        "federate step --home fed/a --drop fed/drop -q", _ASKED,
        *(f"fed/a/{name}" for name in ("federation.yaml", "public/roster.json", "clients/a/private/client.key",
                                       "clients/a/private/data.parquet")), code=75),
    "federate-step-server": line(
        "federate step --home fed/server --drop fed/drop -q", _ANSWERED,
        *(f"fed/server/{name}" for name in ("server/private/step.json", "public/model-0000.safetensors")),
        leaves=["fed/server/server/private/step.json"], code=75),  # which answers came
    "federate-status": line("federate status --home fed/server --delta 1e-5", "fed/server/federation.yaml",
                            "fed/server/server/private/step.json", "fed/server/metrics/round-0000.json"),
    "federate-units": line("federate units --home fed/a --drop fed/drop -o new/units", "fed/a/federation.yaml",
                           "fed/a/clients/a/private/client.key"),
    "batch": line("batch conf/lines.txt", "conf/lines.txt", streams=True),
}  # fmt: skip
