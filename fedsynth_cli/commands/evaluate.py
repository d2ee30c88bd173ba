"""`fedsynth evaluate`: ten measurements; what the first argument is, or a flag, decides which."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedsynth_cli import evaluation_forms as forms
from fedsynth_cli.console import Output
from fedsynth_cli.options import Device, Force, Json, Out, Quiet


def evaluate(
    subject: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL DATA|FILE… | SYNTHETIC REAL… | RUN…",
            help="A model and a dataset; datasets; run folders; or a model and updates.",
        ),
    ],
    out: Out,
    picture: Annotated[
        Path | None,
        typer.Option(help="PNG: the curve so far (with --curve), the runs, or what else was measured.",
                     show_default=False),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(help="CSV in which this round's row is set.", show_default=False, rich_help_panel=forms.MODEL),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(help="PNG: which class is taken for which.", show_default=False, rich_help_panel=forms.MODEL),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images at a time; changes speed, not results (default 500).", show_default=False,
            rich_help_panel=forms.MODEL,
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(help="Real images that nobody trained on; else the real ones, leaving one out, or, with --attack, "
                     "none.", show_default=False, rich_help_panel=forms.SYNTHETIC),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="PNG: the closest pairs, and all distances.", show_default=False,
                     rich_help_panel=forms.SYNTHETIC),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Count the rounds to this accuracy (0.9 is 90%).", show_default=False,
                     rich_help_panel=forms.RUNS),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="δ: also ε after each round, and the accuracy that it buys.", show_default=False,
                     rich_help_panel=forms.RUNS),
    ] = None,
    against_bytes: Annotated[
        bool,
        typer.Option("--against-bytes", help="In the picture: accuracy against bytes, too.",
                     rich_help_panel=forms.RUNS),
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How many times more this run sent than each (TOFU's efficiency): to its "
                     "best, and to --target.", show_default=False, rich_help_panel=forms.RUNS),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="CSV: one row a run; --matching: one row a step and layer.", show_default=False),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="What to call a run, once for each; else its folder's name.", show_default=False,
                     rich_help_panel=forms.RUNS),
    ] = None,
    heterogeneity: Annotated[
        bool,
        typer.Option("--heterogeneity", help="Of a simulated run: ζ², σ², δ², and after shuffling (Lemma 1).",
                     rich_help_panel=forms.CLIENTS),
    ] = False,
    round: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Of a run: this round; may be repeated (default: the last; --clipping, "
                     "--surrogates: all).",
                     show_default=False),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="p, the share of shuffled data; may be repeated (default 0, 0.25, 0.5, 0.75, 1).",
                     show_default=False, rich_help_panel=forms.CLIENTS),
    ] = None,
    clipping: Annotated[
        float | None,
        typer.Option(metavar="C", help="Of a simulated run: norms of updates, and what a clip to C leaves (Eq. 15).",
                     show_default=False, rich_help_panel=forms.CLIPPING),
    ] = None,
    gap: Annotated[
        bool,
        typer.Option("--gap", help="Of a simulated run: accuracy on the clients' training data less that on the test.",
                     rich_help_panel=forms.GAP),
    ] = False,
    surface: Annotated[
        Path | None,
        typer.Option(help="PNG: the loss around the model. The JSON has its sharpness and largest curvature.",
                     show_default=False, rich_help_panel=forms.SURFACE),
    ] = None,
    span: Annotated[
        float | None,
        typer.Option(help="How far to go, in lengths of the model's own filters (default 1).", show_default=False,
                     rich_help_panel=forms.SURFACE),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(help="Losses each way, an odd number (default 21).", show_default=False,
                     rich_help_panel=forms.SURFACE),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the random directions, or of the attack (default 0).", show_default=False,
                     rich_help_panel=forms.SURFACE),
    ] = None,
    sharpness_rho: Annotated[
        float | None,
        typer.Option(help="ρ of the sharpness, one step uphill (default 0.05).", show_default=False,
                     rich_help_panel=forms.SURFACE),
    ] = None,
    surrogates: Annotated[
        bool,
        typer.Option("--surrogates", help="Of a run: radii, steps of the server, pixels of the synthetic sets.",
                     rich_help_panel=forms.SURROGATES),
    ] = False,
    sheet: Annotated[
        Path | None,
        typer.Option(help="PNG: the synthetic images, a row for each client and class.", show_default=False,
                     rich_help_panel=forms.SURROGATES),
    ] = None,
    matching: Annotated[
        Path | None,
        typer.Option(metavar="SURROGATE", help="How near a synthetic set's gradients are to the data's.",
                     show_default=False, rich_help_panel=forms.MATCHING),
    ] = None,
    matching_steps: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of the model on the set (default 10).", show_default=False,
                     rich_help_panel=forms.MATCHING),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="η of these steps (default: the set's own; feddm 0.01).", show_default=False,
                     rich_help_panel=forms.MATCHING),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help="Images from updates, messages or proxies (Geiping et al. 2020).", show_default=False,
                     click_type=click.Choice(["inverting-gradients"]), rich_help_panel=forms.ATTACK),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="DATA", help="The private images that the update was trained on.", show_default=False,
                     rich_help_panel=forms.ATTACK),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(min=1, help="How many to look for (default: as many as --against holds).", show_default=False,
                     rich_help_panel=forms.ATTACK),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Told to the attacker, or inferred from the last bias; soft ones, optimised too, if there "
                     "are as many images as classes (default inferred).", show_default=False,
                     click_type=click.Choice(["known", "inferred"]), rich_help_panel=forms.ATTACK),
    ] = None,
    attack_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of Adam (default 1000).", show_default=False, rich_help_panel=forms.ATTACK),
    ] = None,
    total_variation: Annotated[
        float | None,
        typer.Option(help="Weight of the smoothness of images (default 0.001).", show_default=False,
                     rich_help_panel=forms.ATTACK),
    ] = None,
    restarts: Annotated[
        int | None,
        typer.Option(min=1, help="Of which the cheapest counts (default 2).", show_default=False,
                     rich_help_panel=forms.ATTACK),
    ] = None,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Measure a model, synthetic images, whole runs, or what only a simulation can see of a run's clients.

    A model on a dataset: loss, accuracy, accuracy by class. Flat JSON that `dvc metrics show` reads.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet -o metrics/round-0003.json

    Synthetic images: do they repeat the real ones? Distances to the nearest, beside those of held-out images. Private.

    Example: fedsynth evaluate outbox/synthetic.parquet private/data.parquet -o private/memorisation.json

    Runs side by side: accuracy, rounds to a target, what was sent; runs that differ by the seed alone are averaged.

    Example: fedsynth evaluate runs/fedavg runs/fedssyn --target 0.9 -o comparison.json --picture comparison.png

    With δ also what they cost in ε.

    Example: fedsynth evaluate runs/fedlap-dp runs/dp-sgd --delta 1e-5 -o comparison.json --picture comparison.png

    How different the clients of a simulated run are, at one server model. Private.

    Example: fedsynth evaluate runs/fedssyn --heterogeneity -o runs/fedssyn/simulation/heterogeneity.json

    How long its updates are, and what a clip leaves of them. Private.

    Example: fedsynth evaluate runs/fedavg --clipping 0.2 -o runs/fedavg/simulation/clipping.json

    How much better the server's model is on training data than on test data. Private.

    Example: fedsynth evaluate runs/fedavg --gap -o runs/fedavg/simulation/gap.json

    How sharp the minimum is that a model lies in.

    Example: fedsynth evaluate model-0003.safetensors public/test.parquet --surface surface.png -o sharpness.json

    What the synthetic sets of FedLAP and FedDM are like, round by round. For the server, which has them.

    Example: fedsynth evaluate runs/fedlap --surrogates -o runs/fedlap/server/private/surrogates.json --sheet sheet.png

    How well one of them stands in for the data that it was made of, layer by layer. Private.

    Example: fedsynth evaluate model-0000.safetensors private/data.parquet --matching outbox/surrogate-0001.safetensors
    -o private/quality.json --picture private/quality.png

    What an update, or its TOFU proxy, tells an attacker of single images. Private.

    Example: fedsynth evaluate model-0000.safetensors private/update-0001.safetensors outbox/proxy-0001.safetensors
    --attack inverting-gradients --against private/data.parquet -o private/attack.json --picture private/attack.png
    """
    form = _flagged(
        {
            forms.CLIENTS: heterogeneity,
            forms.CLIPPING: clipping is not None,
            forms.GAP: gap,
            forms.SURFACE: surface is not None,
            forms.SURROGATES: surrogates,
            forms.MATCHING: matching is not None,
            forms.ATTACK: attack is not None,
        }
    )
    form = form or _form(subject)
    given: dict[str, Any] = {
        "curve": curve, "picture": picture, "confusion": confusion, "batch_size": batch_size, "held_out": held_out,
        "pairs": pairs, "target": target, "delta": delta, "csv": csv, "name": name, "round": round, "share": share,
        "clipping": clipping, "surface": surface, "span": span, "points": points, "seed": seed,
        "sharpness_rho": sharpness_rho, "sheet": sheet, "matching": matching, "matching_steps": matching_steps,
        "learning_rate": learning_rate, "attack": attack, "against": against, "images": images, "labels": labels,
        "attack_steps": attack_steps, "total_variation": total_variation, "restarts": restarts,
        "against_bytes": against_bytes or None, "baseline": baseline,
        "device": None if device == "auto" else device,
    }  # fmt: skip
    given = {option: value for option, value in given.items() if value not in (None, [])}
    _check_options(form, given, subject[0])
    output = Output(as_json=json, quiet=quiet)
    forms.CALLS[form](subject, out, {**given, "force": force}, output)


def _flagged(wishes: dict[str, bool]) -> str | None:
    """The form that a flag asks for, if one does."""
    asked = [form for form, wanted in wishes.items() if wanted]
    if len(asked) > 1:
        raise typer.BadParameter(f"`evaluate {asked[0]}` and `evaluate {asked[1]}` are two measurements: ask for one.")
    return asked[0] if asked else None


def _form(subject: list[Path]) -> str:
    """By what the first argument is: a folder, a Parquet file, or else a model."""
    first, *others = subject
    missing = not first.exists() and (not others or any(other.is_dir() for other in others))
    if first.is_dir() or missing:  # among folders, or alone, a missing one was meant to be a run
        return forms.RUNS
    try:
        with first.open("rb") as handle:
            is_dataset = handle.read(4) == b"PAR1"
    except OSError:  # the stage will say what is wrong with it
        is_dataset = first.suffix == ".parquet"
    return forms.SYNTHETIC if is_dataset else forms.MODEL


def _check_options(form: str, given: dict[str, Any], first: Path) -> None:
    from artifacts.errors import UsageError

    why = {
        forms.MODEL: f"{first} is neither a folder nor a Parquet file",
        forms.SYNTHETIC: f"{first} is a Parquet file",
    }
    for option in given:
        if option not in forms.OPTIONS[form]:
            owners = " or ".join(f"`evaluate {other}`" for other, own in forms.OPTIONS.items() if option in own)
            flag = "--" + option.replace("_", "-")
            because = f", as {why[form]}" if form in why else ""
            raise UsageError(f"{flag} goes with {owners}; this is `evaluate {form}`{because}.")
