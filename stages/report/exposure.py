"""Two verdicts in words for a layman: whether the records are in order, and what the files tell about people.

The first never replaces the second: a folder in perfect order may hold files that disclose a great deal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from artifacts.errors import IncompleteError
from stages.audit import AuditReport

_INFINITE = (
    "ε is ∞: no mathematical limit is shown on what these files tell about one person, because something that depends "
    "on the data left without noise. This is so for every method without differential privacy."
)

_WHOLE = "Every file is recorded, and is the very file that was recorded."


def records(audited: AuditReport) -> dict[str, str]:
    """Whether everything that left is recorded, whole and countersigned."""
    if audited.count("failure"):
        return {
            "word": "wrong",
            "sentence": "At least one file or record is not what it should be.",
            "open": "",
            "decide": "Say no, keep the folder as it is, and ask about each failure below.",
        }
    if isinstance(audited.error, IncompleteError):
        return {
            "word": "incomplete",
            "sentence": "Nothing that was looked at is wrong, but not everything could be checked.",
            "open": "",
            "decide": "Ask for what is named below, then audit again. Until then this is no yes.",
        }
    if not any(one.role == "own" and not one.is_server for one in audited.sent):
        sentence = (
            "Every file that the server sent is recorded, and is the very file that was recorded. What the clients "
            "sent is whole; their own records are with them, and were not looked at."
        )
    elif audited.anchored:
        sentence = f"{_WHOLE} The server countersigned the list, so that it cannot have been rewritten since."
    else:
        sentence = (
            f"{_WHOLE} Nobody countersigned all of the list: a list that was rewritten as a whole would not be noticed."
        )
    return {
        "word": "complete",
        "sentence": sentence,
        "open": " ".join(_not_looked_at(audited)),
        "decide": "The records are no reason to say no. Whether the files may leave, the exposure decides.",
    }


def _not_looked_at(audited: AuditReport) -> Iterator[str]:
    """What complete records leave open all the same."""
    if audited.replayed is None:
        yield (
            "The numbers in the files were not computed again: somebody with a participant's key could have put others "
            "there. The command audit --replay computes them."
        )
    if audited.fingerprint is None:
        yield "No list of the participants' keys is here: who made the files was not checked."
    elif not audited.trusted:
        yield (
            "Signatures fit the keys in the folder, but whose keys those are nobody confirmed: compare the fingerprint "
            "below by telephone and give it as --trust."
        )


def exposure(
    privacy: Mapping[str, Any], disclosures: Sequence[Mapping[str, Any]], *, secret: bool, attacked: int | None
) -> dict[str, Any]:
    """What the files tell about a person. `attacked`: how many attacks were run; None where the page may not say."""
    stated = [str(row["name"]) for row in disclosures]
    found = {"short": privacy["short"], "stated": stated, "attack": _attack(attacked)}
    if privacy["short"] == "give --delta":
        return found | {
            "word": "limited by noise",
            "sentence": "Noise was added. How much it protects is a number, ε, that depends on a δ which you choose.",
            "decide": "Ask for this page with --delta, well below one in the number of records.",
        }
    if privacy["short"] == "unknown":
        return found | {
            "word": "unknown",
            "sentence": "ε could not be computed: the findings below say why.",
            "decide": "This is no yes. Have the findings mended first.",
        }
    if privacy["short"] == "∞":
        what = "Read what is disclosed below and look at the images"
        return found | {
            "word": "no limit shown",
            "sentence": _INFINITE,
            "decide": f"{what}: agree only if you would hand over exactly that.",
        }
    value = float(str(privacy["short"]).split()[0])
    factor = f"{math.exp(value):.3g}" if value < 20 else f"10^{value / math.log(10):.0f}"
    return found | {
        "word": f"limited: ε = {privacy['short']}",
        "sentence": "Whether one record was among the data or not changes the chance of whatever can be seen in these "
        f"files by a factor of at most {factor}, up to the small chance δ. A factor near 1 says next to nothing; "
        "above about 20,000 (ε = 10) the limit means little.",
        "decide": "Compare ε with what your institution allows." if not stated or secret else
        "Compare ε with what your institution allows, and read what is disclosed beside it.",
    }  # fmt: skip


def _attack(attacked: int | None) -> str:
    if attacked is None:
        return "Results of attacks are private; with --private the page says whether one was run."
    return (
        "No attack was run on these files." if not attacked else "An attack was run: its figures are under «Private»."
    )
