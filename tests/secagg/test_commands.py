"""The commands: a round typed by hand, what each kind of file says of itself, exit codes."""

import json

import pytest

from artifacts.formats import tensors_file


@pytest.fixture
def typed(begin, fedsynth_json):
    """A whole round through the command line; c drops after sharing."""
    play = begin()
    roster, keys = ("--roster", play.roster), ("--keys", play.down("keys"))
    for name in play.names:
        fedsynth_json("secagg", "keys", "--round", "1", "-o", play.up(name, "keys"))
    sent = [play.up(name, "keys") for name in play.names]
    listed = fedsynth_json("secagg", "collect", *sent, *roster, "--range", "1", "-o", play.down("keys"))
    assert (listed["threshold"], listed["bits"], listed["modulus"]) == (2, 20, 32)
    for name in play.names:
        fedsynth_json("secagg", "shares", play.down("keys"), *roster, "-o", play.up(name, "shares"))
    sent = [play.up(name, "shares") for name in play.names]
    fedsynth_json("secagg", "collect", *sent, *roster, *keys, "-o", play.down("shares"))
    for name in ("a", "b"):
        one = play.root / f"server/outbox/shares-for-{name}.safetensors"
        fedsynth_json("secagg", "collect", *sent, *roster, *keys, "--for", name, "-o", one)
        assert one.stat().st_size < play.down("shares").stat().st_size
        fedsynth_json("secagg", "mask", one, play.model, play.updates[name], "-o", play.up(name, "masked"))
    sent = [play.up(name, "masked") for name in ("a", "b")]
    listed = fedsynth_json("secagg", "collect", *sent, *roster, *keys, "-o", play.down("survivors"))
    assert (listed["survivors"], listed["dropped"]) == (["a", "b"], ["c"])
    for name in ("a", "b"):
        fedsynth_json("secagg", "confirm", play.down("survivors"), "-o", play.up(name, "survivors"))
    signed = [play.up(name, "survivors") for name in ("a", "b")]
    fedsynth_json("secagg", "collect", *signed, *roster, *keys, "-o", play.down("confirmed"))
    for name in ("a", "b"):
        fedsynth_json("secagg", "unmask", play.down("confirmed"), "-o", play.up(name, "unmask"))
    sent += [play.up(name, "unmask") for name in ("a", "b")]
    out = play.root / "server/private/update-0001.safetensors"
    lists = (*keys, "--shares", play.down("shares"), "--survivors", play.down("confirmed"))
    total = fedsynth_json("secagg", "sum", *sent, *roster, *lists, "-o", out)
    assert (total["of"], total["survivors"], total["dropped"]) == ("mean", ["a", "b"], ["c"])
    return play


def test_a_round_by_hand(typed, fedsynth_json):
    about = fedsynth_json("inspect", typed.root / "server/private/update-0001.safetensors")
    assert (about["kind"], about["custody"], about["round"]) == ("update", "server", 1)
    roles = [entry["role"] for entry in about["inputs"]]
    assert roles == ["model", "keys", "masked", "masked", "unmask", "unmask"]
    after = typed.root / "server/outbox/model-0001.safetensors"
    fedsynth_json("aggregate", typed.model, typed.root / "server/private/update-0001.safetensors", "-o", after)
    assert tensors_file.read(after).metadata.round == 1
    report = fedsynth_json("audit", typed.root)
    assert report["passed"], report["findings"]
    rows = {row["client"]: row for row in fedsynth_json("account", typed.root, "--delta", "1e-5")["clients"]}
    assert rows["a"]["files"] == 1 and rows["a"]["epsilon"]["pld"] == "inf"  # the update in the sum, nothing else
    assert "c" not in rows


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "survivors", "unmask"])
def test_every_kind_says_what_it_is(finished, fedsynth, fedsynth_json, step):
    about = fedsynth_json("inspect", finished.up("a", step))
    assert (about["kind"], about["custody"], about["client"]) == (f"secagg-{step}", "outbound", "a")
    masked = step == "masked"
    assert list(about["disclosures"]) == (["update"] if masked else [])
    assert about["epsilon"].startswith("∞" if masked else "none")
    code, out, _ = fedsynth("inspect", finished.up("a", step))
    assert code == 0 and f"secagg-{step}" in out


@pytest.mark.parametrize("step", ["keys", "shares", "survivors", "confirmed"])
def test_every_list_says_what_it_is(finished, fedsynth_json, step):
    about = fedsynth_json("inspect", finished.down(step))
    assert (about["custody"], about["client"], about["round"]) == ("downlink", None, 1)


def test_everything_that_left_is_in_the_ledger(finished):
    lines = [json.loads(line) for line in (finished.place("a") / "egress.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == [
        f"secagg-{step}" for step in ("keys", "shares", "masked", "survivors", "unmask")
    ]


def refused(fedsynth, code, words, *line):
    found, _, err = fedsynth("secagg", *line)
    assert found == code, err
    assert words in err and len(err.splitlines()) <= 2 and "Traceback" not in err


def test_exit_codes(begin, fedsynth):
    play = begin()
    roster = ("--roster", play.roster)
    refused(fedsynth, 2, "outbox", "keys", "--round", "1", "-o", play.root / "keys.safetensors")
    refused(fedsynth, 2, "--round must be at least 1", "keys", "--round", "0", "-o", play.up("a", "keys"))
    refused(fedsynth, 3, "cannot read", "shares", play.down("keys"), *roster, "-o", play.up("a", "shares"))
    play.keys()
    sent = [play.up(name, "keys") for name in play.names]
    refused(fedsynth, 2, "at least 2", "collect", *sent, *roster, "--threshold", 1, "-o",
            play.root / "server/outbox/x.safetensors")  # fmt: skip
    refused(fedsynth, 3, "a client counts once", "collect", sent[0], sent[0], *roster, "-o",
            play.root / "server/outbox/x.safetensors")  # fmt: skip
    refused(fedsynth, 3, "it is a model", "shares", play.model, *roster, "-o", play.up("a", "shares"))
    refused(fedsynth, 3, "give the list of all", "shares", sent[0], *roster, "-o", play.up("a", "shares"))
    play.shares()
    out = ("-o", play.up("a", "masked"))
    refused(fedsynth, 3, "is of client 'b'", "mask", play.down("shares"), play.model, play.updates["b"], *out)
    big = play.update(
        "a", {name: 2 * tensors_file.read(play.updates["b"]).tensors[name] for name in play.shapes}, "big"
    )
    refused(fedsynth, 3, "outside the declared range ±1", "mask", play.down("shares"), play.model, big, *out)
    play.mask("a")
    other = play.update("a", file="other")
    refused(fedsynth, 5, "--force notwithstanding", "mask", play.down("shares"), play.model, other, *out, "--force")
