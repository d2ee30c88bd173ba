"""Residuals on public images under masks: the sum of files decodes to the sum, and the server sees no single one."""

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from stages.recipes.perform import perform
from stages.recipes.plan import partition_step, plan, planned_clients
from stages.recipes.recipe import change, load_recipe

SMALL = (
    "partition.clients=3", "init-model.arch=mlp", "init-model.width=8", "init-model.depth=null",
    "train-client.local_epochs=1", "encode.images=32", "encode.iterations=3", "encode.least_cosine=0",
)  # fmt: skip


def performed(root, preset=None):
    recipe = change(load_recipe("tofu-additive", preset), SMALL, 1)
    clients = planned_clients(recipe)
    for step in [partition_step(recipe, 0, clients), *plan(recipe, clients, 0)]:
        perform(step, root)
    return root


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    return performed(tmp_path_factory.mktemp("secure"))


def test_the_uncovered_mean_is_that_of_the_clients_own_residuals(secure):
    paths = sorted(secure.glob("clients/*/private/message-0001.safetensors"))
    single = [tensors_file.read(path).tensors["residuals"].astype(np.float64) for path in paths]
    found = tensors_file.read(secure / "server/private/update-0001.safetensors")
    assert found.metadata.kind == "residuals" and found.metadata.params["encoding"]["images"] == 32
    step = found.metadata.params["step"]
    assert np.abs(found.tensors["residuals"] - np.mean(single, axis=0)).max() <= step / 2 + 1e-6 * np.abs(single).max()
    masked = tensors_file.read(secure / "clients/00/outbox/secagg-masked-0001.safetensors")
    assert masked.tensors["residuals"].shape == (32, 10), "as many words as residuals, not as weights"


def test_the_model_is_that_of_files_seen_one_by_one_but_for_the_ring(secure, tmp_path):
    plain = performed(tmp_path, "open")
    name = "server/outbox/model-0001.safetensors"
    ours, theirs = (tensors_file.read(root / name).tensors for root in (secure, plain))
    start = tensors_file.read(plain / "public/model-0000.safetensors").tensors
    for tensor in ours:
        moved = np.abs(theirs[tensor] - start[tensor]).max()
        assert moved > 0 and np.abs(ours[tensor] - theirs[tensor]).max() <= 1e-3 * moved


def test_nothing_but_keys_shares_masks_and_answers_leaves_and_the_audit_passes(fedsynth, secure):
    names = {path.name.rsplit("-", 1)[0] for path in secure.glob("clients/*/outbox/*")}
    assert names == {"secagg-keys", "secagg-shares", "secagg-masked", "secagg-survivors", "secagg-unmask"}
    code, shown, _ = fedsynth("audit", secure, "--replay")
    assert code == 0 and "PASS" in shown, shown


def test_clients_that_state_another_encoding_are_not_added(secure):
    from stages.secagg.roster import read_roster
    from stages.secagg.session import read_session
    from stages.secagg.vectors import Vectors

    roster = read_roster(secure / "public/roster.json")
    vectors = Vectors(read_session(secure / "server/outbox/secagg-keys-0001.safetensors", roster), roster)
    paths = [secure / f"clients/0{number}/outbox/secagg-masked-0001.safetensors" for number in (0, 1)]
    vectors.add(paths[0])
    vectors._stated["encoding"] = {**vectors.encoding, "coarse": 5}
    with pytest.raises(InputError, match="another encoding"):
        vectors.add(paths[1])
