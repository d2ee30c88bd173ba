"""Rules: what leaves without a person, and policies that let nothing out because they are not understood."""

import json

import pytest

from artifacts.errors import InputError
from stages.policy import read_policy

MESSAGES = "rules:\n  - kinds: [message]\n    disclosures: [update]\n    epsilon: .inf\n"


def decided(fedsynth_json, client, *options):
    return [(row["decision"], row["policy"]) for row in fedsynth_json("release", client.root, *options)["files"]]


def test_a_rule_lets_a_file_leave(client, message, fedsynth_json):
    client.rules(MESSAGES)
    assert decided(fedsynth_json, client) == [("released by rule", "rule 1 allows it")]
    (entry,) = client.entries()
    assert not entry.picked  # rules read the outbound bytes alone


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("kinds: [surrogate]\n    epsilon: .inf", "no rule for a message"),
        ("kinds: [message]\n    epsilon: .inf", "rule 1: it discloses update"),
        ("kinds: [message]\n    disclosures: [class_set]\n    epsilon: .inf", "rule 1: it discloses update"),
        ("kinds: [message]\n    disclosures: [update]\n    epsilon: .inf\n    max_bytes: 100", "of 100 allowed"),
        ("kinds: [message]\n    disclosures: [update]\n    epsilon: 1000", "ε would be ∞, of 1000 allowed"),
    ],
)
def test_what_no_rule_allows_waits(client, message, fedsynth_json, rule, why):
    client.rules(f"delta: 1.0e-5\nrules:\n  - {rule}\n")
    ((decision, words),) = decided(fedsynth_json, client, "--list")
    assert decision == "waiting" and why in words and client.entries() == []


def test_epsilon_counts_what_left_before(client, forge, fedsynth_json):
    from stages.privacy.accountant import epsilon
    from stages.privacy.events import PrivacyEvent

    planned = PrivacyEvent.planned(
        unit="record", sampling_rate=0.01, noise_multiplier=2.0, clip_norm=1.0, steps=100, trust="nobody"
    )
    events = [PrivacyEvent.from_json(planned.to_json() | {"id": f"{number}" * 64}) for number in (1, 2)]
    one, both = (epsilon(events[:count], delta=1e-5).pld for count in (1, 2))
    assert one < both
    client.rules(f"delta: 1.0e-5\nrules:\n  - kinds: [message]\n    epsilon: {(one + both) / 2}\n")
    for number, event in enumerate(events):
        name = f"message-{number}.safetensors"
        forge.write_tensors(
            client.outbox(name), kind="message", round=number, privacy=(event.to_json(),), disclosures=()
        )
    assert [decision for decision, _ in decided(fedsynth_json, client)] == ["released by rule", "waiting"]
    assert client.names("outbox") == ["message-0.safetensors"]


def test_the_first_of_several_rules(client, message, fedsynth_json):
    client.rules(MESSAGES.replace("rules:\n", "rules:\n  - kinds: [message]\n    epsilon: .inf\n"))
    assert decided(fedsynth_json, client) == [("released by rule", "rule 2 allows it")]


@pytest.mark.parametrize(
    "text",
    [
        "rules: [", "- a\n", "", "rules: {}\n", "rules: []\nhello: 1\n", "rules: [1]\n", "rules:\n  - kinds: []\n",
        "rules:\n  - kinds: [message]\n", "rules:\n  - kinds: [generator]\n    epsilon: .inf\n",
        "rules:\n  - kinds: [message]\n    epsilon: 0\n", "rules:\n  - kinds: [message]\n    epsilon: .nan\n",
        "rules:\n  - kinds: [message]\n    epsilon: 8\n", "delta: 2.0\nrules: []\n", "delta: 1e-5\nrules: []\n",
        "rules:\n  - kinds: [head]\n    max_bytes: 0\n", "rules:\n  - kinds: [head]\n    max_bytes: true\n",
        "rules:\n  - kinds: [head]\n    disclosures: [everything]\n", "rules:\n  - kinds: head\n",
        "rules:\n  - kinds: [head]\n    note: hello\n", "rules:\n  - kinds: [head]\n    attacks: [auc]\n",
        "rules:\n  - kinds: [head]\n    attacks: {auc: .nan}\n", "rules:\n  - kinds: [head]\n    attacks: {ssim: 1}\n",
        "delta: 1.0e-5\nrules:\n  - kinds: [message]\n    epsilon: 8\n    attacks: {identified: 0}\n",
        "rules: !!python/object/apply:os.system ['true']\n",
    ],
)  # fmt: skip
def test_a_policy_that_is_not_understood_lets_nothing_out(client, message, fedsynth, text):
    client.rules(text)
    with pytest.raises(InputError, match="is not a policy"):
        read_policy(client.root / "private/policy.yaml")
    code, _, err = fedsynth("release", client.root, "--yes", "--not-seen-private")
    assert code == 3 and "Nothing leaves" in err
    assert client.names("outbox") == [] and client.names("pending") == ["message.safetensors"]


def test_a_policy_that_cannot_even_be_read_holds_everything(client, forge):
    (client.root / "private/policy.yaml").unlink()
    (client.root / "private/policy.yaml").symlink_to("nowhere")
    forge.write_tensors(client.outbox(), kind="message", round=1)
    assert client.names("outbox") == [] and client.names("pending") == ["message.safetensors"]


def test_files_from_no_data_need_no_epsilon(client, forge, fedsynth_json):
    import numpy as np

    client.rules("rules:\n  - kinds: [secagg-keys]\n")
    tensors = {name: np.zeros((1, 32), np.uint8) for name in ("cipher_keys", "mask_keys")}
    tensors["signatures"] = np.zeros((1, 64), np.uint8)
    about = {"custody": "outbound", "client": "00", "round": 1}
    forge.write_tensors(client.outbox("keys.safetensors"), tensors, kind="secagg-keys", **about)
    assert decided(fedsynth_json, client) == [("released by rule", "rule 1 allows it")]


ATTACKED = MESSAGES + "    attacks: {limits}\n"


def reported(client, message, *rows, name="a.json", attack="suite"):
    from hashlib import sha256

    folder = client.root / "private/attacks"
    folder.mkdir(exist_ok=True)
    digest = sha256(message.read_bytes()).hexdigest()
    report = {"attack": attack, "rows": [{"sha256": digest, **row} for row in rows]}
    (folder / name).write_text(json.dumps(report))


def test_a_rule_may_ask_for_a_report_of_attacks(client, message, fedsynth_json):
    """Whatever it says: whether there is one is no function of private data, and the file keeps its ε."""
    client.rules(ATTACKED.format(limits="{}"))
    missing = "rule 1: no report of `evaluate --attack suite` on it is in private/attacks"
    assert decided(fedsynth_json, client, "--list") == [("waiting", missing)]
    (client.root / "private/attacks").mkdir()
    (client.root / "private/attacks/a.json").write_text('{"attack": "suite", "rows": [{"sha256": "' + "0" * 64 + '"}]}')
    (client.root / "private/attacks/b.json").write_text("[")
    reported(client, message, {"identified": 9}, name="c.json", attack="inverting-gradients")
    assert decided(fedsynth_json, client, "--list") == [("waiting", missing)]
    reported(client, message, {"identified": 9})
    assert decided(fedsynth_json, client) == [("released by rule", "rule 1 allows it")]
    assert not client.entries()[0].picked


def test_what_leaves_by_limits_of_attacks_has_no_epsilon(client, message, fedsynth_json):
    client.rules(ATTACKED.format(limits="{identified: 1, auc: 0.7}"))
    reported(client, message, {"identified": 1, "auc": 0.5, "psnr": 90.0}, {"auc": 0.8})
    over = "rule 1: an attack's auc is 0.8, of 0.7 allowed"
    assert decided(fedsynth_json, client, "--list") == [("waiting", over)]
    reported(client, message, {"identified": 1, "auc": "nan"})
    assert "an attack's auc is inf" in decided(fedsynth_json, client, "--list")[0][1]
    reported(client, message, {"identified": 1, "auc": 0.7})
    assert decided(fedsynth_json, client) == [("released by rule, picked", "rule 1 allows it")]
    assert client.entries()[0].picked


def test_under_a_budget_no_rule_that_goes_by_attacks_releases(client, message, fedsynth):
    client.rules(ATTACKED.format(limits="{identified: 1}"))
    (client.root / "private/budget.yaml").write_text("unit: record\nepsilon: 3\ndelta: 1.0e-5\n")
    reported(client, message, {"identified": 0})
    code, _, err = fedsynth("release", client.root)
    assert (code, "by a rule that goes by attacks" in " ".join(err.split())) == (4, True), err
    assert client.entries() == [] and message.exists()
