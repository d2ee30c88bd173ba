"""Accuracy over rounds and over bytes, ε over rounds: the numbers, the pictures, and the words where there are none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.errors import FedsynthError
from artifacts.places import RunFolder
from stages.account import account
from stages.evaluate.communication import read_communication
from stages.report.charts import Chart, Series, svg
from stages.report.sent_files import SentFile, is_uncovered, tells_nothing
from stages.run_folder.epsilon import run_epsilon
from stages.words import epsilon_words, human_bytes, percent

_NOTHING: dict[str, Any] = {"short": "∞", "words": [], "picture": None, "rows": [], "clients": [], "delta": None}


def accuracy(run: RunFolder, by_round: Mapping[int, float], *, by_bytes: bool) -> dict[str, Any] | None:
    """None where nothing was evaluated, or may not be shown."""
    if not by_round:
        return None
    points = sorted(by_round.items())
    last, end = points[-1]
    best_round, best = max(points, key=lambda point: point[1])
    summary = (
        f"Test accuracy goes from {percent(points[0][1])} in round {points[0][0]} to {percent(end)} in round {last}."
    )
    rounds = Chart(
        name="accuracy-rounds", title="Accuracy over rounds", summary=summary, x_label="round", y_label="accuracy",
        series=[Series("test accuracy", points)], x_words=lambda x: f"{x:g}", y_words=lambda y: f"{100 * y:.0f}%",
        y_top=1.0, whole_x=True,
    )  # fmt: skip
    sizes: Mapping[int, int] = {}
    problem = ""
    if by_bytes:
        try:
            sent = read_communication(run)
            sizes = {number: sent.bytes(number) for number, _ in points}
        except FedsynthError:
            problem = "The bytes could not be counted: a file of the run is missing or damaged, as the audit says."
    over_bytes = None
    if sizes:
        summary = f"{percent(end)} after {human_bytes(sizes[last])} were sent, up and down, by all clients together."
        over_bytes = Chart(
            name="accuracy-bytes", title="Accuracy over bytes", summary=summary, x_label="sent, up and down",
            y_label="accuracy", series=[Series("test accuracy", [(sizes[r], value) for r, value in points])],
            x_words=lambda x: human_bytes(x).replace(".0 ", " ") if x else "0",
            y_words=lambda y: f"{100 * y:.0f}%", y_top=1.0,
        )  # fmt: skip
    return {
        "summary": rounds.summary,
        "best": f"The best model is that of round {best_round}, with {percent(best)}." if best_round != last else "",
        "rounds": svg(rounds),
        "bytes": None if over_bytes is None else svg(over_bytes),
        "bytes_summary": "" if over_bytes is None else over_bytes.summary,
        "problem": problem,
        "rows": [(number, percent(value), sizes.get(number)) for number, value in points],
    }


def epsilon(
    run: RunFolder, by_round: Mapping[int, float], files: Sequence[SentFile], delta: float | None, *, by_client: bool
) -> dict[str, Any]:
    """`short` is a word for the head of the page."""
    if all(tells_nothing(file) for file in files):
        return _NOTHING | {"short": "0", "words": ["Nothing that depends on private data was sent."], "delta": delta}
    infinite = any(is_uncovered(file) for file in files if file.who != "server")
    nothing = _NOTHING | {"delta": delta}
    if not any(file.events for file in files):
        words = "Nothing that left carries noise: ε is ∞. What it shows is listed under «What it discloses»."
        return nothing | {"words": [words]}
    if delta is None:
        words = (
            "Noise was added, so that ε can be computed. It depends on δ, the probability left to chance, for which "
            "there is no default: make this page with --delta 1e-5, or a δ well below one in the number of records."
        )
        return nothing | {"short": "give --delta", "words": [words]}
    rounds = sorted(by_round) or sorted({file.round or 0 for file in files})
    try:
        found = run_epsilon(run.root, rounds, delta=delta)
        people = account([run.root], delta=delta) if by_client else None
    except FedsynthError:
        return nothing | {"short": "unknown", "words": ["ε could not be computed: the audit says what is wrong."]}
    end = found.at_end
    drawn = [(r, e) for r, e in sorted(found.after.items()) if math.isfinite(e.pld)]
    stated: list[str] = []
    if math.isinf(end.pld):
        stated.append("ε is ∞: something that depends on the data left without noise.")
    elif found.basis is not None:
        stated.append(
            f"After round {max(found.after)}: ε = {epsilon_words(end.pld)} by privacy loss distributions, "
            f"{epsilon_words(end.rdp)} by Rényi, at δ = {delta:g}; for {found.basis}, and the client that spent most."
        )
    if infinite and math.isfinite(end.pld):
        stated.append("What the clients sent to the server is not covered: to the server itself ε is ∞.")
    stated.append(
        "Anyone who is known to several clients has more at stake."
        if found.unit == "person"
        else "Anyone who has several records, or is known to several clients, has more at stake."
    )
    picture = None
    if drawn:
        picture = svg(
            Chart(
                name="epsilon-rounds", title="ε over rounds", summary=stated[0], x_label="round", y_label="ε",
                series=[
                    Series("PLD", [(r, e.pld) for r, e in drawn]),
                    Series("Rényi", [(r, e.rdp) for r, e in drawn]),
                ],
                x_words=lambda x: f"{x:g}", y_words=lambda y: f"{y:g}", whole_x=True,
            )
        )  # fmt: skip
    return {
        "short": f"{epsilon_words(end.pld)} (δ = {delta:g})" if math.isfinite(end.pld) else "∞",
        "words": stated,
        "picture": picture,
        "rows": [(r, epsilon_words(e.pld), epsilon_words(e.rdp)) for r, e in sorted(found.after.items())],
        "clients": [_person(row) for row in people["clients"]] if people is not None else [],
        "delta": delta,
    }


def _person(row: Mapping[str, Any]) -> dict[str, str]:
    rest = row["rest"]
    return {
        "who": row["client"],
        "unit": f"{row['unit']}, {row['adjacency']}" if row["unit"] else "–",
        "pld": _shown(row["epsilon"]["pld"]),
        "rdp": _shown(row["epsilon"]["rdp"]),
        "rest": f"{_shown(rest['pld'])} / {_shown(rest['rdp'])}" if rest else "–",
        "trusted": ", ".join(row["trusted"]) or "–",
    }


def _shown(value: float | str) -> str:
    return epsilon_words(math.inf if isinstance(value, str) else value)
