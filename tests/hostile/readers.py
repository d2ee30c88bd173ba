"""Every reader of files from others, each a line in one table, so that a new one is tested and fuzzed with the rest.

Not a test: `test_readers.py` feeds them deterministic mutants, `fuzz.py` those that atheris finds.
"""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from artifacts import metadata as texts
from artifacts.digests import ZEROS, sha256_hex
from artifacts.errors import FedsynthError, UsageError
from artifacts.formats import dataset_file, dataset_rows, dataset_stream, envelope_file, tensors_file, tensors_stream
from artifacts.identity import keys, roster
from artifacts.ledgers import chain as chains
from artifacts.ledgers import egress, gate, lineage, proofs, receipt_log, receipts, remembered, spend
from artifacts.places import RunFolder
from fedsynth_cli.options import GivenOptions
from stages.catalogue import DECLARED
from stages.charging.spending import read_budget
from stages.data.conform import Form
from stages.data.named.dsprites import read_npz
from stages.data.parquet_source import Columns, load_parquet
from stages.data.png import check_plain, decode_png, read_image
from stages.declared import undeclared
from stages.federate.messages import read_letter
from stages.federate.sealed import unseal
from stages.federate.terms import read_terms
from stages.inspect import inspect
from stages.policy import read_policy
from stages.privacy.events import PrivacyEvent
from stages.recipes.plan import check
from stages.recipes.recipe import load_recipe, presets
from stages.recipes.sweep import points
from stages.run_folder.metrics import read_metrics

CORPUS = Path(__file__).with_name("corpus")
PARTIES = {name: keys.simulated(0, name) for name in ("server", "a")}  # of `sealed`
SECRETS = (bytes(range(32)), bytes(range(1, 33)))  # with which `envelopes` signs


@dataclass(frozen=True)
class Reader:
    """`read` gets a file of that name; other exceptions than `refusals` are defects.

    `form` tells the mutator what is in a seed (JSON, YAML or mere bytes). `build` makes the file from a mutant: what an
    attacker would recompute, digests, seals and chains. `share` weighs the executions that it gets: less if it is slow.
    """

    read: Callable[[Path], object]
    file: str
    form: str = "bytes"
    build: Callable[[bytes], bytes] = bytes
    refusals: tuple[type[Exception], ...] = (FedsynthError,)
    share: float = 1.0


def table(forge) -> dict[str, Reader]:
    """`forge`: the module tests/support/forge.py."""
    sealed, footer = functools.partial(seal_tensors, forge), functools.partial(put_metadata, forge)
    signed, rechained = functools.partial(sign_lines, forge), functools.partial(chain_lines, forge)
    value = (FedsynthError, ValueError)
    return {
        "safetensors": Reader(tensors, "a.safetensors"),
        "safetensors-sealed": Reader(tensors, "a.safetensors", "json", sealed),
        "safetensors-inspected": Reader(inspect, "a.safetensors", "json", sealed),
        "safetensors-foreign": Reader(inspect, "a.safetensors", "json", functools.partial(frame_foreign, forge)),
        "parquet": Reader(dataset, "a.parquet", share=0.5),
        "parquet-sealed": Reader(dataset, "a.parquet", build=forge.reseal, share=0.5),
        "parquet-metadata": Reader(dataset, "a.parquet", "json", footer, share=0.5),
        "parquet-inspected": Reader(inspect, "a.parquet", "json", footer, share=0.002),
        "parquet-foreign": Reader(source, "a.parquet", share=0.002),
        "dsprites": Reader(read_npz, "a.npz"),
        "metadata": Reader(about, "a.json", "json", forge_metadata, refusals=value),
        "egress": Reader(egress.read, "egress.jsonl", "json"),
        "egress-chained": Reader(egress.read, "egress.jsonl", "json", rechained),
        "spend": Reader(spend.read_charged, "spend.jsonl", "json"),
        "spend-chained": Reader(charges, "spend.jsonl", "json", rechained),
        "proof": Reader(proofs.read, "proof.json", "json"),
        "remembered": Reader(remembered.read, "a.json", "json"),
        "gate": Reader(lambda path: chains.read(path, gate._is_entry), "gate.jsonl", "json", rechained),
        "receipt-log": Reader(receipt_log.read_leaves, "receipts.jsonl", "json", rechained),
        "envelope": Reader(envelope_file.read, "a.intoto.jsonl", "json"),
        "envelope-signed": Reader(envelope_file.read, "a.intoto.jsonl", "json", signed),
        "receipts": Reader(receipt, "receipt.intoto.jsonl", "json", signed, share=0.5),
        "roster": Reader(roster.read_roster, "roster.json", "json"),
        "identity": Reader(identity, "identity.json", "json"),
        "lineage": Reader(lineage.read_record, "a.json", "json"),
        "metrics": Reader(metrics, "metrics/round-0000.json", "json"),
        "policy": Reader(read_policy, "policy.yaml", "yaml"),
        "budget": Reader(read_budget, "budget.yaml", "yaml"),
        "recipe": Reader(recipe, "recipe.yaml", "yaml", share=0.5),
        "recipe-toml": Reader(recipe, "recipe.toml", "bytes"),
        "params": Reader(params, "params.yaml", "yaml", share=0.5),
        "terms": Reader(read_terms, "federation.yaml", "yaml", share=0.3),
        "sealed": Reader(lambda path: unseal(path.read_bytes(), key=PARTIES["a"], roster=parties(path)), "a.sealed"),
        "letter": Reader(lambda path: read_letter(path.read_bytes()), "a.letter"),
        "png": Reader(png, "a.png", refusals=value),
        "png-checksummed": Reader(png, "a.png", build=forge.checksummed, refusals=value),
        "image": Reader(image, "a.image", refusals=value),
        "key": Reader(keys.read, "client.key"),
    }


def seeds(name: str) -> list[bytes]:
    """The committed corpus of a reader: `corpus.py` wrote it."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def run(reader: Reader, path: Path, data: bytes) -> bool:
    """Let a reader meet these bytes; whether it took them. A refusal must be a sentence."""
    path.write_bytes(reader.build(data))
    try:
        reader.read(path)
    except reader.refusals as error:
        if isinstance(error, FedsynthError) and not 1 <= len(str(error).splitlines()) <= 2:
            raise AssertionError(f"a refusal of {len(str(error).splitlines())} lines") from error
        return False
    return True


def place(reader: Reader, folder: Path) -> Path:
    """Where the file of a reader is below a scratch folder, with the mode that a key needs."""
    path = folder / reader.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path


# Readers that are more than one function


def agree(path, first, second):
    """Two readers of one format take the same files and find the same in them."""
    found = []
    for read in (first, second):
        try:
            artifact = read(path)
            found.append((artifact.metadata, artifact.sha256, artifact.payload_sha256))
        except FedsynthError as error:
            found.append(error)
    refused = [isinstance(answer, FedsynthError) for answer in found]
    assert refused[0] == refused[1] and (refused[0] or found[0] == found[1]), f"two readers disagree: {found}"
    if refused[0]:
        raise found[0]
    return found[0][0]


def tensors(path):
    found = agree(path, tensors_file.read, tensors_stream.scan)
    assert tensors_file.read_header(path)[0] == found


def dataset(path):
    found = agree(path, dataset_file.read, dataset_stream.scan)
    assert dataset_file.read_metadata(path) == found


def source(path):
    return load_parquet(path, Columns(), Form())


def about(path):
    """The metadata, and whether an audit finds something in them that no stage declares."""
    found = texts.parse(path.read_text("utf-8")).metadata
    undeclared(found)
    for event in found.privacy:
        PrivacyEvent.from_json(event)


def charges(path):
    for events in spend.read_charged(path):
        for event in events:
            try:
                PrivacyEvent.from_json(event)
            except ValueError as error:
                raise UsageError(str(error)) from error


def receipt(path):
    known = roster.Roster(path, "f", {"a": {"envelopes": roster.verify_key(SECRETS[0])}},
                          {"envelopes": roster.verify_key(SECRETS[1])})  # fmt: skip
    found = envelope_file.read(path, kind="receipt")
    for line in found.heads:
        receipts.check_receipt(line, known, path)
    receipts.check_one_history([found, found], known)


def parties(path):
    """A roster of the two who send sealed parcels to each other."""
    public = {name: {kind: roster.public_half(key, kind) for kind in roster.PURPOSES} for name, key in PARTIES.items()}
    return roster.Roster(path, "f", {"a": public["a"]}, public["server"])


def identity(path):
    out = path.with_name("roster.json")
    roster.write_roster(out, [path], None, force=True)


def metrics(path):
    return read_metrics(RunFolder(path.parent.parent))


def recipe(path):
    """As `run` does, up to the first step: with each preset, each point of a sweep held against the declarations."""
    for preset in (None, *presets(str(path))):
        for point in points(load_recipe(str(path), preset), 0)[:3]:
            check(point.recipe)


def params(path):
    for command, declared in DECLARED.items():
        GivenOptions(command, {}, path, None).resolve(declared)


def png(path):
    data = path.read_bytes()
    pixels = decode_png(data)
    check_plain(data, pixels.shape)


def image(path):
    return read_image(path.read_bytes())


# What an attacker recomputes


def seal_tensors(forge, data):
    """From a line of JSON with `metadata` and `table`, and the payload behind it."""
    line, _, payload = data.partition(b"\n")
    try:
        said = json.loads(line)
        about, found = said["metadata"], said["table"]
        if isinstance(about, dict) and about.get("payload_sha256") == ZEROS:
            about["payload_sha256"] = sha256_hex(payload)
        whole = {"__metadata__": {"fedsynth": forge.spelt(about)}, **found}
    except (ValueError, TypeError, KeyError, RecursionError):
        return forge.frame(line, payload)
    return forge.sealed_tensors(json.dumps(whole, separators=(",", ":")), payload)


def frame_foreign(forge, data):
    line, _, payload = data.partition(b"\n")
    return forge.frame(line, payload)


def put_metadata(forge, data):
    """From a line of JSON, and a whole dataset behind it, which gets these metadata."""
    line, _, whole = data.partition(b"\n")
    try:
        about = json.loads(line)
        names = about["params"]["class_names"] if isinstance(about, dict) else None
        features = dataset_rows.huggingface(names) if isinstance(names, list) else None
        return forge.footer_text(whole, forge.spelt(about), features)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, pa.ArrowException):
        return whole


def forge_metadata(data):
    """Mutants that are JSON in their canonical spelling: others are refused at once."""
    try:
        return json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return data


def _parsed(data):
    for line in data.splitlines():
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            yield line.decode("utf-8", "replace")


def chain_lines(forge, data):
    try:
        return forge.chained(_parsed(data))
    except RecursionError:
        return data


def sign_lines(forge, data):
    """Each line is {"signers": n, "statement": …}; with -1 the last one signs alone, which is the server."""
    out = b""
    for said in _parsed(data):
        try:
            number = said["signers"]
            out += forge.enveloped(said["statement"], SECRETS[number:] if number < 0 else SECRETS[:number])
        except (ValueError, TypeError, KeyError, RecursionError):
            out += forge.spelt(said).encode() + b"\n"
    return out
