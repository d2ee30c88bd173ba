"""The documents under the validators of their formats, in the environments that `make test-exports` makes."""

import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def foreign():
    """Run a script in the environment of a validator; returns what it prints."""

    def run(script, *arguments, environment=".venv-exports", code=0):
        python = ROOT / environment / "bin/python"
        if not python.exists():
            target = "test-crates" if environment == ".venv-crates" else "test-exports"
            pytest.skip(f"{environment} is not there: make {target}")
        done = subprocess.run([python, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=300)
        assert (done.returncode == 0) == (code == 0), done.stdout + done.stderr
        return done.stdout

    return run


def test_mlcroissant_loads_the_rows(foreign, export, tmp_path, finished_run):
    data = tmp_path / "documents/test.parquet"
    data.parent.mkdir()
    data.write_bytes((finished_run / "public/test.parquet").read_bytes())
    export(data, "croissant", out="set.json")
    script = """
import sys, itertools, mlcroissant
found = mlcroissant.Dataset(jsonld=sys.argv[1])
assert not found.metadata.ctx.issues.errors
print(found.metadata.ctx.conforms_to)
for row in itertools.islice(found.records("rows-0"), 2):
    print(row["rows-0/image"].size, int(row["rows-0/label"]))
"""
    version, *rows = foreign(script, data.with_name("set.json")).splitlines()
    assert version == "CroissantVersion.V_1_1"
    assert len(rows) == 2
    assert all(row.startswith("(8, 8)") for row in rows)


def test_rocrate_loads_the_crate_and_the_workflow_inside_it(foreign, export, finished_run):
    folder = export(finished_run, "ro-crate", out="crate") / "data"
    script = """
import sys
from rocrate.rocrate import ROCrate
crate, workflow = ROCrate(sys.argv[1]), ROCrate(sys.argv[1] + "/workflow")
assert crate.mainEntity.id == "workflow/" and workflow.mainEntity.id == "stages.json"
print(crate.root_dataset["conformsTo"].id)
"""
    assert foreign(script, folder).strip() == "https://w3id.org/5s-crate/0.4"


# Prints what the profile requires and the crate lacks. The one address that it asks for is the context's, a file here.
FIVE_SAFES = """
import email.message, io, sys, urllib.request, urllib.response
crate, folder = sys.argv[1:]

def opened(self, asked, *_, **__):
    assert (asked if isinstance(asked, str) else asked.full_url) == "https://w3id.org/ro/crate/1.2/context"
    head = email.message.Message()
    head["Content-Type"] = "application/ld+json"
    return urllib.response.addinfourl(open(f"{folder}/context.jsonld", "rb"), head, asked, 200)

urllib.request.OpenerDirector.open = opened
from rocrate_validator.models import Severity
from rocrate_validator.services import ValidationSettings, validate
result = validate(ValidationSettings(
    rocrate_uri=crate, profile_identifier="five-safes-crate", extra_profiles_path=f"{folder}/profiles",
    requirement_severity=Severity.REQUIRED, validate_profile_checks=False, disable_check_for_duplicates=True,
    allow_requirement_check_override=True, disable_inherited_profiles_issue_reporting=True,
))
assert result.executed_checks
for issue in result.get_issues():
    print(issue.check.identifier, issue.message)
"""


def test_crates_pass_the_published_shapes_of_the_five_safes_profile(foreign, export, finished_run):
    """Of a run, and with what the profile requires taken out of it, one after another."""
    folder, environment = export(finished_run, "ro-crate", out="crate") / "data", ".venv-crates"
    assert foreign(FIVE_SAFES, folder, ROOT / environment, environment=environment) == ""
    path = folder / "ro-crate-metadata.json"
    whole = json.loads(path.read_text())
    for entity, name in (("./", "sourceOrganization"), ("#run", "actionStatus")):
        graph = [{k: v for k, v in one.items() if (one["@id"], k) != (entity, name)} for one in whole["@graph"]]
        path.write_text(json.dumps(whole | {"@graph": graph}))
        assert foreign(FIVE_SAFES, folder, ROOT / environment, environment=environment) != "", name


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_model_signing_verifies_the_signature_and_refuses_other_bytes(foreign, fedsynth, finished_run, tmp_path, curve):
    key = ec.generate_private_key(curve)
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    source = finished_run / "server/outbox"
    folder, alone = tmp_path / "handed", tmp_path / "model.safetensors"
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    alone.write_bytes((source / "model-0001.safetensors").read_bytes())
    script = """
import sys, pathlib, model_signing
path, signature, key = map(pathlib.Path, sys.argv[1:])
model_signing.verifying.Config().use_elliptic_key_verifier(public_key=key).verify(path, signature)
"""
    for path, code in ((alone, 0), (folder, 6)):  # an outbox alone lacks its ledger
        found, _, err = fedsynth("export", path, "--format", "model-signing", "--key", private, "-o", f"{path}.sig")
        assert found == code, err
        foreign(script, path, f"{path}.sig", public)
    alone.write_bytes(alone.read_bytes()[:-1] + b"\0")
    foreign(script, alone, f"{alone}.sig", public, code=1)


def test_acro_and_sacro_ml_load_what_is_theirs(foreign, export, finished_run):
    folder = export(finished_run, "sacro", out="sacro")
    script = """
import sys, json
from acro.record import load_records
print(json.dumps({r.output[0]: r.status for r in load_records(sys.argv[1]).results.values()}))
"""
    assert set(json.loads(foreign(script, folder).splitlines()[-1]).values()) == {"review"}
    script = """
import sys
from sacroml.attacks.target import Target
target = Target()
target.load(sys.argv[1])
print(target.dataset_name, target.safemodel[0]["tool"], target.has_probas())
"""
    assert foreign(script, folder, environment=".venv-sacro").splitlines()[-1] == "run fedsynth False"


def test_sacro_mls_attack_runs_on_probabilities_of_ours(foreign, fedsynth, finished_run, tmp_path):
    """A network that saw none of the records: what an attack finds is chance."""
    model, home = finished_run / "public/model-0000.safetensors", finished_run / "clients/00"
    words = [model, home / "outbox/message-0001.safetensors", "--attack", "suite", "--sacro", tmp_path / "sacro"]
    known = ["--against", home / "private/data.parquet", "--held-out", finished_run / "public/test.parquet"]
    few = ["--attack-steps", 1, "--restarts", 1, "--images", 1, "--shadow-models", 0]
    assert fedsynth("evaluate", *words, *known, *few, "-q", "-o", tmp_path / "a.json")[0] == 0
    script = """
import sys
from sacroml.attacks.target import Target
from sacroml.attacks.worst_case_attack import WorstCaseAttack
target = Target()
target.load(sys.argv[1])
attack = WorstCaseAttack(n_reps=3, output_dir=sys.argv[2], write_report=False)
assert attack.attackable(target)
found = attack.attack(target)
runs = found["attack_experiment_logger"]["attack_instance_logger"].values()
print(sum(run["AUC"] for run in runs) / len(runs))
"""
    found = foreign(script, tmp_path / "sacro", tmp_path / "report", environment=".venv-sacro")
    assert abs(float(found.splitlines()[-1]) - 0.5) < 0.25
