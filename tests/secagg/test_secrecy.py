"""What the server can see of a round says nothing about one update: it is uniform, whatever the update was."""

import numpy as np
import pytest
from scipy.stats import chi2

from artifacts.formats import tensors_file
from stages.secagg import masks, shamir
from stages.secagg.ring import Ring
from stages.secagg.roster import read_roster
from stages.secagg.session import names, read_session, rows

SIZE = 40_000
RING = Ring.plain(modulus=32, reach=1.0, bits=20)


def looks_uniform(words):
    """χ² of each of the four bytes of all words against the uniform distribution, at one in 10¹¹ each."""
    counts = [np.bincount(column, minlength=256) for column in words.view(np.uint8).reshape(-1, 4).T]
    expected = len(words) / 256
    return all(chi2.sf(float(np.sum((c - expected) ** 2 / expected)), 255) > 1e-11 for c in counts)


@pytest.fixture(scope="module")
def played(request, tmp_path_factory):
    """Three clients with one large tensor; c drops after sharing. a's update is all zeros."""
    round_of = request.getfixturevalue("round_class")
    play = round_of(tmp_path_factory.mktemp("secrecy") / "run", shapes={"w": (SIZE,)})
    play.update("a", {"w": np.zeros(SIZE, np.float32)})
    play.keys()
    play.shares()
    play.masks(("a", "b"))
    play.confirm(("a", "b"))
    play.unmask(("a", "b"))
    return play


class Server:
    """All that the server can take off, from its files alone."""

    def __init__(self, play):
        listed = tensors_file.read(play.down("keys"))
        clients = names(listed, "clients")
        session = read_session(play.down("keys"), read_roster(play.roster))
        self.session = session.bound(tensors_file.read(play.model).sha256)
        publics = dict(zip(clients, rows(listed, "mask_keys", 32, clients), strict=True))
        answers = [tensors_file.read(play.up(name, "unmask")) for name in ("a", "b")]
        points = {"a": 1, "b": 2}

        def recovered(tensor, row):
            shares = {points[a.metadata.client]: shamir.from_bytes(a.tensors[tensor][row].tobytes()) for a in answers}
            return shamir.join(shares).to_bytes(32, "big")

        self.seeds = {"a": recovered("seeds", 0), "b": recovered("seeds", 1)}
        self.dropped, self.publics = recovered("mask_keys", 0), publics
        self.sent = {name: tensors_file.read(play.up(name, "masked")).tensors["w"].view("<u4") for name in ("a", "b")}

    def stripped(self, name):
        """A masked update without its own mask and without the masks that it shares with the dropped client."""
        left = self.sent[name].copy()
        masks.add_stream(left, masks.own_mask_key(self.seeds[name], self.session, name), take_away=True)
        key = masks.pair_mask_key(self.dropped, self.publics[name], self.session, (name, "c"))
        masks.add_stream(left, key, take_away=True)  # a and b both come before c: they added it
        return left


def test_a_masked_update_is_uniform(played):
    server = Server(played)
    assert looks_uniform(server.sent["a"])
    assert looks_uniform(server.sent["b"])


def test_the_statistic_rejects_an_update(played):
    update = tensors_file.read(played.updates["b"]).tensors["w"]
    assert not looks_uniform(RING.quantised(update))
    assert not looks_uniform(RING.quantised(np.zeros(SIZE)))


def test_what_the_server_can_take_off_leaves_a_uniform_mask(played):
    server = Server(played)
    assert looks_uniform(server.stripped("a"))
    assert looks_uniform(server.stripped("b"))


def test_together_they_give_the_sum_and_that_is_all(played):
    server = Server(played)
    update = tensors_file.read(played.updates["b"]).tensors["w"]
    total = server.stripped("a") + server.stripped("b")
    assert (total == RING.quantised(update)).all()  # a's is zero
    assert looks_uniform(server.stripped("a") - server.stripped("b"))


def test_masks_do_not_depend_on_the_update(played):
    """Equal keys and another update: the difference is that of the updates. Uncorrelated with the update otherwise.

    Seven standard deviations: 3e-12 by chance.
    """
    server, update = Server(played), tensors_file.read(played.updates["b"]).tensors["w"]
    signed = server.sent["b"].view("<i4").astype(np.float64)
    assert abs(np.corrcoef(signed, update)[0, 1]) < 7 / np.sqrt(SIZE)
    stripped = server.stripped("b").view("<i4").astype(np.float64)
    assert abs(np.corrcoef(stripped, update)[0, 1]) < 7 / np.sqrt(SIZE)


def test_two_rounds_share_no_mask(begin):
    """The same clients, the same update, twice: fresh keys from the system, another stream."""
    sent = []
    for _ in range(2):
        play = begin(2, shapes={"w": (64,)})
        play.update("a", {"w": np.zeros(64, np.float32)})
        play.keys()
        play.shares()
        play.mask("a")
        sent.append(tensors_file.read(play.up("a", "masked")).tensors["w"])
    assert (sent[0] == sent[1]).sum() < 4, "two words of 32 bits are the same once in 2³², four of 64 once in 10³²"


def test_no_secret_stands_in_a_file_that_leaves(begin):
    import json

    play = begin(3)
    play.keys()
    play.shares()
    play.masks()
    secrets = []
    for name in play.names:
        fields = json.loads((play.place(name) / "private/secagg-0001.json").read_text())
        secrets += [fields[field] for field in ("cipher_secret", "mask_secret", "seed")]
        secrets += [share for pair in fields["received"].values() for share in pair]
    assert len(secrets) == 9 + 18
    for path in play.root.glob("*/**/outbox/*"):
        data = path.read_bytes()
        assert not any(bytes.fromhex(s) in data or s.encode() in data for s in secrets)
