"""`fedsynth audit --neighbours` and `--empirical`: a recipe is tried, and what was found is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedsynth_cli.console import Output, table

if TYPE_CHECKING:
    from rich.console import Console

    from artifacts.errors import VerificationError
    from stages.trials.empirical import EmpiricalReport
    from stages.trials.neighbours import NeighbourReport


def try_neighbours(recipe: str, preset: str | None, settings: Sequence[str], output: Output) -> None:
    from stages.recipes.recipe import change, load_recipe
    from stages.trials.neighbours import audit_neighbours

    with output.progress("neighbours") as report:
        found = audit_neighbours(change(load_recipe(recipe, preset, settings), settings, None), report=report)
    output.result(found.to_json(), lambda console: _show_neighbours(console, found))
    _raise(found.error)


def try_canaries(
    recipe: str, preset: str | None, settings: Sequence[str], delta: float | None, canaries: int, output: Output
) -> None:
    from artifacts.errors import UsageError
    from stages.recipes.recipe import change, load_recipe
    from stages.trials.empirical import audit_empirically

    if delta is None:
        raise UsageError("--empirical needs --delta: an ε is claimed at a δ.")
    with output.progress("canaries") as report:
        chosen = change(load_recipe(recipe, preset, settings), settings, None)
        found = audit_empirically(chosen, delta=delta, canaries=canaries, report=report)
    output.result(found.to_json(), lambda console: _show_canaries(console, found))
    _raise(found.error)


def _raise(error: VerificationError | None) -> None:
    if error is not None:
        error.is_reported = True
        raise error


def _show_neighbours(console: Console, found: NeighbourReport) -> None:
    wrong = {difference.neighbour for difference in found.differences}
    rows = [[name, "differs" if name in wrong else "alike"] for name in found.neighbours]
    table(console, [f"one {' or '.join(found.units)} apart", "what others see"], rows)
    console.print()
    for difference in found.differences:
        text = f"FAILURE   {difference.neighbour}: {difference.where}: {difference.what}"
        console.print(text, style="red", soft_wrap=True)
    if found.form_only:
        console.print(f"Compared by form alone, without an ε or under masks: {', '.join(found.form_only)}.")
    if found.differences:
        console.print(f"{found.recipe}: what others see depends on one record or client.", style="bold red")
    else:
        text = f"{found.recipe}: {found.files} files are alike to the last byte, with the noise from a fixed stream."
        console.print(text, style="bold green", soft_wrap=True)


def _show_canaries(console: Console, found: EmpiricalReport) -> None:
    rows = [
        ["ε at most, as claimed (PLD)", f"{found.claimed:.3f}"],
        ["ε at least, by one run (Steinke et al. 2023, 95%)", f"{found.lower_bound:.3f}"],
        ["ε as the scores look (estimate, Andrew et al. 2024)", f"{found.estimate:.3f}"],
        ["coins guessed right", f"{found.right} of {found.canaries}"],
        ["the most that the claim allows, on average", f"{found.most_right * found.canaries:.1f}"],
        ["chance of so many or more under the claim", f"{found.p_value:.3g}"],
        ["power against a sensitivity √2 too large", f"{found.power:.1%}"],
    ]
    table(console, [f"{found.recipe}, {found.releases} releases, δ = {found.delta:g}", ""], rows)
    console.print()
    console.print("Private: guesses about a client's records. Show them to nobody else.")
    style = "bold red" if found.refuted else "bold green"
    verdict = (
        "the ε that is claimed is refuted" if found.refuted else "nothing here speaks against the ε that is claimed"
    )
    console.print(f"{found.recipe}: {verdict}.", style=style)
