"""What an insider says that a file was made from, and private files that are no longer what they were."""

import json

from tampering.run import case

from artifacts.digests import canonical_json, sha256_hex
from artifacts.formats import tensors_file
from artifacts.identity.commitments import commit
from artifacts.metadata import InputRef


@case("lineage", "noise claimed for an update that had none")
def _(run):
    run.rewrite("message", privacy=run.events(), disclosures=("num_examples",))


def _made_from(run, update):
    run.rewrite("message", inputs=(run.about("message").inputs[0], update))


@case("lineage", "a private input named by its digest")
def _(run):
    update = sha256_hex((run.private / "update-0001.safetensors").read_bytes())
    _made_from(run, InputRef(role="update", kind="update", sha256=update))


@case("lineage", "a commitment to the update of another round")
def _(run):
    digest = sha256_hex((run.private / "update-0002.safetensors").read_bytes())
    _made_from(run, commit(run.key, role="update", kind="update", sha256=digest, context={}))


@case("lineage", "a commitment that is a random number")
def _(run):
    _made_from(run, InputRef(role="update", kind="update", commitment=sha256_hex(b"Mueller"), salt="0" * 32))


@case("lineage", "the private update changed after it was sent")
def _(run):
    path = run.private / "update-0001.safetensors"
    found = tensors_file.read(path)
    tensors_file.write(path, {n: t + 1 for n, t in found.tensors.items()}, found.metadata, force=True)


@case("lineage", "the private data deleted")
def _(run):
    (run.private / "data.parquet").unlink()


@case("lineage", "a message for a model that the server never sent")
def _(run):
    strange = InputRef(role="model", kind="model", sha256=sha256_hex(b"another"))
    run.rewrite("message", inputs=(strange, *run.about("message").inputs[1:]))


@case("lineage", "a model made from a message that no client recorded", at_server=True)
def _(run):
    path = next((run.root / "server/private").glob("model-0001*.lineage.json"))
    record = json.loads(path.read_text())
    record["inputs"][-1]["sha256"] = sha256_hex(b"another")
    path.write_text(canonical_json(record) + "\n")
