"""Files that are forged, changed, swapped, replayed or reordered: refused by name, each with its seals made anew."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from artifacts.errors import FedsynthError, InputError, UsageError, VerificationError
from artifacts.formats import tensors_file
from stages.identity import roster
from stages.secagg import client_steps
from stages.secagg.collect import collect
from stages.secagg.roster import read_roster
from stages.secagg.terms import SecaggTerms
from stages.secagg.unmask import confirm, unmask


def forge(path, tensors=None, source=None, **changes):
    """Write the file again, sound in itself, with other tensors or metadata."""
    old = tensors_file.read(source or path)
    values = {name: array.copy() for name, array in old.tensors.items()}
    if tensors is not None:
        tensors(values)
    if "params" in changes:
        changes["params"] = {**old.metadata.params, **changes["params"]}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tensors_file, "_check_stated", lambda *_: None)  # a writer held to nothing
        tensors_file.write(path, values, replace(old.metadata, **changes), force=True)


def flip(name, *where):
    def change(values):
        values[name][where or (0,)] ^= 1

    return change


def swap(name):
    def change(values):
        values[name][[0, 1]] = values[name][[1, 0]]

    return change


@pytest.fixture
def play(finished, tmp_path, round_class):
    """A copy of a whole round, to damage."""
    copy = round_class.__new__(round_class)
    copy.__dict__ |= vars(finished)
    copy.root = tmp_path / "run"
    shutil.copytree(finished.root, copy.root)
    for name in ("model", "roster"):
        setattr(copy, name, copy.root / getattr(finished, name).relative_to(finished.root))
    copy.updates = {name: copy.root / path.relative_to(finished.root) for name, path in finished.updates.items()}
    return copy


def collect_keys(play, names=("a", "b", "c")):
    files = [play.up(name, "keys") for name in names]
    collect(files, play.down("keys"), roster=play.roster, params=SecaggTerms(range=1.0), force=True)


@pytest.mark.parametrize("tensor", ["cipher_keys", "mask_keys", "signatures"])
def test_changed_keys(play, tensor):
    forge(play.up("b", "keys"), flip(tensor, 0, 5))
    with pytest.raises(VerificationError, match="signature of client 'b'"):
        collect_keys(play)


@pytest.mark.parametrize("tensor", ["cipher_keys", "mask_keys", "signatures"])
def test_a_list_with_swapped_or_changed_keys(begin, tensor):
    play = begin()
    play.keys()
    good = play.root / "good.safetensors"
    shutil.copy(play.down("keys"), good)
    for damage in (flip(tensor, 1, 5), swap(tensor)):
        forge(play.down("keys"), damage, source=good)
        with pytest.raises(VerificationError, match="signature of client"):
            client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster)


OF_ORDER_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
SMALL_ORDER = [bytes(32), b"\x01" + bytes(31), bytes.fromhex(OF_ORDER_8)]


@pytest.mark.parametrize("point", SMALL_ORDER)
@pytest.mark.parametrize("tensor", ["cipher_keys", "mask_keys"])
def test_a_key_that_makes_every_agreement_public(begin, tensor, point):
    """A client signs a point of small order (0, 1 or of order 8): what its peers agree on with it, anybody knows."""
    from stages.secagg.member import Member
    from stages.secagg.primitives import sign
    from stages.secagg.session import keys_statement

    play = begin()
    play.keys()
    identity = Member.writing(play.up("b", "keys"), key=None, client=None).identity

    def planted(row):
        def change(values):
            values[tensor][row] = np.frombuffer(point, np.uint8)
            both = [values[name][row].tobytes() for name in ("cipher_keys", "mask_keys")]
            values["signatures"][row] = np.frombuffer(sign(identity, keys_statement("b", 1, *both)), np.uint8)

        return change

    forge(play.down("keys"), planted(1))
    with pytest.raises(VerificationError, match="client 'b': a public key is of small order"):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster)
    forge(play.up("b", "keys"), planted(0))
    with pytest.raises(VerificationError, match="client 'b': a public key is of small order"):
        collect_keys(play)


def test_keys_of_another_round_are_not_replayed(begin):
    play = begin()
    play.keys()
    forge(play.down("keys"), round=2)
    for name in play.names:
        client_steps.keys(play.place(name) / "outbox/second.safetensors", round=2)
    with pytest.raises(VerificationError, match="of another round"):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster)


def test_old_keys_of_the_same_round_are_not_replayed(begin):
    play = begin()
    play.keys()
    client_steps.keys(play.up("a", "keys"), round=1, force=True)
    with pytest.raises(VerificationError, match="other keys of 'a' than it made last"):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"threshold": 1}, "from 2 to"), ({"threshold": 4}, "more than half"), ({"modulus": 16}, "32 or 64"),
        ({"bits": 31}, "does not fit"), ({"clients": ["a", "c", "b"]}, "in order"), ({"range": "1"}, "above 0"),
        ({"range": 1}, "with a point"), ({"clients": ["a", "b", "b"]}, "each once"), ({"patient": 1}, "no parameter"),
        ({"clients": ["a", "b"]}, "3 rows, but there are 2"), ({"threshold": True}, "a whole number"),
    ],
)  # fmt: skip
def test_a_list_that_cannot_be(begin, params, reason):
    play = begin()
    play.keys()
    forge(play.down("keys"), params=params)
    with pytest.raises(InputError, match=reason):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster)


def test_a_stranger_on_the_list(begin):
    play = begin()
    other = begin()
    other.keys()
    shutil.copy(other.up("c", "keys"), play.root / "stranger.safetensors")
    for name in ("a", "b"):
        client_steps.keys(play.up(name, "keys"), round=1)
    files = [play.up("a", "keys"), play.up("b", "keys"), play.root / "stranger.safetensors"]
    with pytest.raises(VerificationError, match="signature of client 'c'"):
        collect(files, play.down("keys"), roster=play.roster)
    fields = json.loads(play.roster.read_text())
    del fields["clients"]["c"]
    play.roster.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    with pytest.raises(VerificationError, match="'c' is not in the roster"):
        collect(files, play.down("keys"), roster=play.roster)


def test_a_client_may_ask_for_a_larger_threshold(begin):
    play = begin()
    play.keys()
    with pytest.raises(InputError, match="wants at least 3"):
        client_steps.shares(play.down("keys"), play.up("a", "shares"), roster=play.roster, least_threshold=3)


@pytest.mark.parametrize("damage", [flip("ciphertexts", 1, 0, 20), swap("ciphertexts"), flip("ciphertexts", 0, 0, 3)])
def test_changed_or_swapped_shares(begin, damage):
    play = begin()
    play.keys()
    play.shares()
    forge(play.down("shares"), damage)
    with pytest.raises(VerificationError, match=r"shares? (from|of) "):
        play.mask("a")


def test_shares_of_another_session(begin):
    play, other = begin(), begin()
    for each in (play, other):
        each.keys()
        each.shares()
    with pytest.raises(InputError, match="another round or list of keys"):
        collect([other.up("a", "shares")], play.down("shares"), roster=play.roster, keys=play.down("keys"), force=True)
    shutil.copy(other.down("shares"), play.down("shares"))
    with pytest.raises(InputError, match="another round or list of keys"):
        play.mask("a")


@pytest.mark.parametrize("step", ["shares", "masked", "unmask"])
def test_changed_files_of_a_client(play, step):
    tensor = {"shares": "ciphertexts", "masked": "layer.bias", "unmask": "seeds"}[step]
    forge(play.up("b", step), flip(tensor))
    with pytest.raises(VerificationError, match="signature of client 'b'"):
        play.sum() if step != "shares" else play.collect("shares", force=True)


@pytest.mark.parametrize("step", ["shares", "masked", "unmask"])
def test_one_clients_file_under_anothers_name(play, step):
    forge(
        play.up("b", step), source=play.up("a", step), client="b", params={"senders": ["b"]} if step == "shares" else {}
    )
    with pytest.raises(FedsynthError, match="signature of client 'b'"):
        play.sum() if step != "shares" else play.collect("shares", force=True)


def test_the_same_file_twice(play):
    for step, to in (("keys", None), ("shares", None), ("masked", "survivors"), ("survivors", "confirmed")):
        with pytest.raises(InputError, match="a client counts once"):
            files = [play.up("a", step), play.up("a", step), play.up("b", step)]
            keys = None if step == "keys" else play.down("keys")
            collect(files, play.down(to or step), roster=play.roster, keys=keys, force=True)


def test_a_survivor_list_with_one_more_or_one_less(begin):
    play = begin(5)
    play.keys()
    play.shares(("a", "b", "c", "d"))
    play.masks(("a", "b", "c", "d"))
    forge(play.down("survivors"), params={"survivors": ["a", "b", "c", "e"]})
    with pytest.raises(InputError, match="'e', who sent no shares"):
        confirm(play.down("survivors"), play.up("a", "survivors"))
    forge(play.down("survivors"), params={"survivors": ["a", "b"]})
    with pytest.raises(InputError, match="3 are needed"):
        confirm(play.down("survivors"), play.up("a", "survivors"))
    forge(play.down("survivors"), params={"survivors": ["b", "c", "d"]})
    with pytest.raises(InputError, match="does not have 'a'"):
        confirm(play.down("survivors"), play.up("a", "survivors"))


def test_signatures_of_another_list_are_no_signatures(begin):
    """The server shows b another list and moves the signatures over."""
    play = begin(5)
    play.keys()
    play.shares()
    play.masks()
    for name in play.names:
        confirm(play.down("survivors"), play.up(name, "survivors"))
    play.collect("survivors", None, "confirmed")
    forge(play.down("confirmed"), swap("signatures"))
    with pytest.raises(VerificationError, match="signature of client"):
        unmask(play.down("confirmed"), play.up("a", "unmask"))
    assert not play.up("a", "unmask").exists()


def test_a_wrong_share_is_found_out(play):
    """One who answers lies, and signs the lie: the seed does not open its commitment."""
    from stages.secagg.member import Member
    from stages.secagg.session import signed

    path = play.up("a", "unmask")
    forge(path, flip("seeds", 0, 60))
    lie = tensors_file.read(path)
    member = Member.writing(path, key=None, client=None)
    about = replace(lie.metadata, params=signed(lie.metadata, lie.tensors, member.identity))
    tensors_file.write(path, lie.tensors, about, force=True)
    with pytest.raises(VerificationError, match="does not come out of the shares"):
        play.sum()
    play.sum(answers=("b", "c"))  # without the liar


def test_a_client_that_masked_other_values_is_found_out_by_the_size(play):
    from stages.secagg.member import Member
    from stages.secagg.session import signed

    path = play.up("a", "masked")
    old = tensors_file.read(path)
    values = {name: array + np.int32(2**29) for name, array in old.tensors.items()}
    member = Member.writing(path, key=None, client=None)
    about = replace(old.metadata, params=signed(old.metadata, values, member.identity))
    tensors_file.write(path, values, about, force=True)
    with pytest.raises(VerificationError, match="larger than the clients can have made it"):
        play.sum()


def test_the_order_of_files_is_free(play):
    files = [play.up(name, step) for step in ("unmask", "masked") for name in ("c", "a", "b")]
    from stages.secagg.total import secure_sum

    out = play.root / "server/private/again.safetensors"
    secure_sum(
        files, out, roster=play.roster, keys=play.down("keys"), shares=play.down("shares"),
        survivors=play.down("confirmed"), result="sum",
    )  # fmt: skip
    for name, tensor in play.sum().tensors.items():
        assert (tensor == tensors_file.read(out).tensors[name]).all()


@pytest.mark.parametrize(("terms", "reason"), [({"threshold": 4}, "more than half"), ({"bits": 31}, "does not fit")])
def test_terms_that_do_not_fit_are_refused_beforehand(begin, terms, reason):
    with pytest.raises(UsageError, match=reason):
        begin().keys(**terms)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"threshold": 1}, "at least 2"), ({"range": -1.0}, "above 0"), ({"bits": 8}, "goes with --range"),
        ({"range": 1.0, "bits": 99}, "from 2 to 53"), ({"modulus": 16}, "32 or 64"), ({"range": "nan"}, "float"),
    ],
)  # fmt: skip
def test_terms_that_cannot_be(terms, reason):
    with pytest.raises(ValueError, match=reason):
        SecaggTerms.from_mapping(terms)


def test_rosters_that_cannot_be(begin, tmp_path):
    play = begin()
    own = [play.place(name) / "private/identity.json" for name in play.names]
    with pytest.raises(InputError, match="is in the roster already"):
        roster([own[0], own[0]], tmp_path / "r.json")
    twin = json.loads(own[0].read_text()) | {"name": "z"}
    (tmp_path / "twin.json").write_text(json.dumps(twin))
    with pytest.raises(InputError, match="have the same key"):
        roster([own[0], tmp_path / "twin.json"], tmp_path / "r.json")
    for text in ("", "[]", '{"schema": "fedsynth.roster/1"}', '{"schema": "fedsynth.roster/1", "clients": {"a": "x"}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match=r"bad\.json"):
            read_roster(tmp_path / "bad.json")
