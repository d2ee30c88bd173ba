"""Bad input that the stages themselves must meet: claims that are too large, names that are too long, odd folders."""

import numpy as np
import pytest

from artifacts.formats import dataset_file, tensors_file
from artifacts.ledgers import egress
from artifacts.metadata import Metadata
from artifacts.places import Place
from stages.audit import audit


@pytest.mark.parametrize(
    "claim", [{"net_arch": "mlp", "net_width": 2**40}, {"net_arch": "convnet", "net_width": 2**30}]
)
def test_a_model_file_that_claims_a_giant_network_is_refused(run_copy, refused, commands, forge, claim):
    arguments, path = commands(run_copy)["train-model"]
    lie = forge.forge_tensors(path.read_bytes(), fields=lambda about: about["params"].update(claim))
    path.write_bytes(lie)
    refused(run_copy, *arguments, said=[path])


def test_a_dataset_that_claims_giant_images_is_refused(run_copy, refused, commands, forge):
    arguments, path = commands(run_copy)["train-data"]
    about = dataset_file.read_metadata(path)
    giant = {**about.params, "channels": 3, "height": 4096, "width": 4096}
    metadata = Metadata(kind="dataset", stage="x", custody="private", client="00", versions={}, params=giant)
    rows = 300_000
    dataset_file.write(path, [b"x"] * rows, np.zeros(rows, np.int64), metadata, force=True)
    refused(run_copy, *arguments, said=[path])


def test_a_dataset_of_one_class_makes_no_model(tmp_path, refused, forge):
    params = forge.DATASET_PARAMS | {"num_classes": 1, "class_names": ["only"]}
    path = forge.write_dataset(tmp_path / "one.parquet", 1, params=params, custody="public")
    refused(tmp_path, "init-model", "--arch", "softmax", "--like", path, "-o", tmp_path / "m.safetensors", said=[path])


def test_an_aggregate_that_overflows_writes_nothing(run_copy, refused, forge):
    messages = sorted(run_copy.glob("clients/*/outbox/message-0001.safetensors"))
    for path in messages:
        size = len(forge.take_apart(path.read_bytes())[2]) // 4
        huge = np.full(size, 3e38, "f4").tobytes()
        path.write_bytes(forge.forge_tensors(path.read_bytes(), payload=huge))
    command = ["aggregate", run_copy / "public/model-0000.safetensors", *messages, "--server-rate", "10"]
    with np.errstate(over="ignore"):
        refused(run_copy, *command, "-o", run_copy / "server/outbox/model-0001.safetensors", "--force")


def test_an_update_that_does_not_tell_its_examples_is_refused(run_copy, refused, commands, forge):
    arguments, path = commands(run_copy)["encode-update"]
    path.write_bytes(forge.forge_tensors(path.read_bytes(), fields=lambda about: about.pop("counts")))
    refused(run_copy, *arguments, "--tell-examples", said=[path])


def test_an_aggregated_update_does_not_leave(run_copy, refused, commands):
    arguments, _ = commands(run_copy)["aggregate-message"]
    refused(run_copy, *arguments[:-1], run_copy / "server/outbox/u.safetensors", "--as", "update", code=2)


def test_a_client_s_outbox_takes_no_model(run_copy, refused, commands):
    arguments, _ = commands(run_copy)["apply-message"]
    refused(run_copy, *arguments[:-1], run_copy / "clients/00/outbox/m.safetensors", code=2)


def test_an_audit_of_a_folder_with_a_strange_client_fails(run_copy, fedsynth):
    (run_copy / "clients/not a client").mkdir()
    assert fedsynth("audit", run_copy)[0] in (3, 5)


def test_an_audit_without_a_readable_key_fails(run_copy, fedsynth):
    key = run_copy / "clients/00/private/client.key"
    key.unlink()
    key.mkdir()
    assert fedsynth("audit", run_copy)[0] == 5


def test_an_unfinished_replacement_is_a_note(run_copy):
    place = Place(run_copy / "clients/00")
    path = place.outbox / "message-0001.safetensors"
    with egress.locked(place.ledger) as book:
        book.enter(file=path.name, sha256="0" * 64, size=1, metadata=tensors_file.read(path).metadata)
    assert audit(run_copy).passed


def test_a_run_folder_whose_name_is_too_long_is_refused(tmp_path, refused):
    refused(tmp_path, "partition", "digits", "--clients", "2", "-o", tmp_path / ("x" * 300))


def test_a_curve_that_is_a_folder_is_refused(run_copy, refused, commands):
    arguments, _ = commands(run_copy)["evaluate-data"]
    refused(run_copy, *arguments, "--curve", run_copy / "public")


def test_a_params_file_nested_without_end_is_refused(run_copy, refused, commands):
    arguments, _ = commands(run_copy)["encode-update"]
    (run_copy / "params.yaml").write_text("[" * 10_000)
    refused(run_copy, *arguments, "--params", run_copy / "params.yaml")


def test_a_message_of_other_shapes_is_refused_by_its_header(run_copy, commands, fedsynth, forge, monkeypatch):
    arguments, path = commands(run_copy)["aggregate-message"]
    grown = {"dtype": "F32", "shape": [11, 64], "data_offsets": [40, 40 + 11 * 64 * 4]}
    data = path.read_bytes()
    payload = forge.take_apart(data)[2] + bytes(64 * 4)
    grow = forge.forge_tensors(data, table=lambda t: t.update({"classifier.logits.weight": grown}), payload=payload)
    path.write_bytes(grow)
    real, whole = tensors_file.read, []

    def read(found, **options):
        whole.append(found)
        return real(found, **options)

    monkeypatch.setattr(tensors_file, "read", read)
    assert fedsynth(*arguments)[0] == 3
    assert path not in whole
