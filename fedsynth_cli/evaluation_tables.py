"""How the measurements of `evaluate` are shown to people: small tables that fit eighty columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedsynth_cli.console import human_bytes, table

if TYPE_CHECKING:
    from rich.console import Console


def memorisation(console: Console, summary: dict[str, Any]) -> None:
    rows = [
        [words, *(f"{summary[f'{of}_{key}']:.4f}" for of in ("synthetic", "reference"))]
        for key, words in {"min": "smallest", "p01": "1%", "p05": "5%", "median": "median"}.items()
    ]
    rows.append(["exact copies", str(summary["copies"]), str(summary["reference_copies"])])
    reference = "held-out" if summary["reference"] == "held-out" else "real, leaving one out"
    table(console, ["distance to the nearest real image", "synthetic", reference], rows)
    lines = [
        f"A synthetic image is nearer than a reference image of its class in {summary['share_nearer']:.1%} of the "
        "pairs (50% where they are alike).",
        summary["note"],
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False)


def runs(console: Console, summary: dict[str, Any]) -> None:
    target = summary["target"]
    suffix = "_to_target" if target is not None else ""
    rows = []
    for group in summary["groups"]:
        spread = f" ({group['accuracy_min']:.1%}–{group['accuracy_max']:.1%})" if group["runs"] > 1 else ""
        rounds = [] if target is None else [_rounds(group)]
        numbers, size = group[f"parameters{suffix}"], group[f"bytes{suffix}"]
        sent = ["–", "–"] if size is None else [f"{numbers:,}", human_bytes(size)]
        rows.append([group["label"], group["runs"], f"{group['accuracy']:.1%}{spread}", *rounds, *sent])
    columns = [] if target is None else [f"to {100 * target:g}%"]
    table(console, ["run", "seeds", "accuracy", *columns, "numbers", "sent"], rows)
    until = f" until {100 * target:g}% was reached" if target is not None else ""
    console.print(
        f"numbers: what one client sends and gets{until} (2·M_s + 2·R·M_c); sent: all files, up and down.",
        markup=False,
        highlight=False,
    )
    for run in summary["runs"]:
        if run["rounds"] < run["planned_rounds"]:
            text = f"{run['label']} is not finished: {run['rounds']} of {run['planned_rounds']} rounds."
            console.print(text, markup=False, highlight=False)


def _rounds(group: dict[str, Any]) -> str:
    """`3`, `3.3 (3–4)`, `> 10`, or `3–> 10` where some seeds never got there."""
    known = [rounds for rounds in group["rounds_to_target_all"] if rounds is not None]
    never = f"> {group['rounds']}"
    if len(known) < group["runs"]:
        return f"{min(known)}–{never}" if known else never
    mean = f"{group['rounds_to_target']:.1f}".removesuffix(".0")
    return f"{mean} ({min(known)}–{max(known)})" if min(known) < max(known) else mean


def heterogeneity(console: Console, summary: dict[str, Any]) -> None:
    for number, values in summary["rounds"].items():
        console.print(
            f"Round {number}: ζ² = {values['dissimilarity']:.4g}, σ² = {values['noise']:.4g} "
            f"(largest {values['noise_largest']:.4g}), δ² = {values['shift']:.4g}; shuffled data: "
            f"{summary['shuffled']}, their σ² = {values['shuffled_noise']:.4g}.",
            markup=False,
            highlight=False,
        )
        rows = [_share_row(f"{row['share']:g}", row) for row in values["shares"].values()]
        if "dealt" in values:
            rows.append(_share_row(f"{values['dealt']['share']:.3f}, as dealt", values["dealt"]))
        table(console, ["p", "ζ̂²", "bound", "σ̂²", "bound", "with the largest σ²"], rows)


def _share_row(label: str, row: dict[str, float]) -> list[str]:
    keys = ("dissimilarity", "dissimilarity_bound", "noise", "noise_bound", "noise_bound_largest")
    return [label, *(f"{row[key]:.4g}" for key in keys)]


def clipping(console: Console, summary: dict[str, Any]) -> None:
    rows = [
        [
            number,
            f"{values['clients']}",
            *(f"{values[key]:.4g}" for key in ("norm_min", "norm_median", "norm_max")),
            f"{values['clipped']:.0%}",
            *(f"{values[key]:.4f}" for key in ("alpha_mean", "alpha_deviation")),
        ]
        for number, values in summary["rounds"].items()
    ]
    table(console, ["round", "clients", "shortest", "median", "longest", "clipped", "α̅", "α̃"], rows)
    console.print(f"C = {summary['clip_norm']:g}. {summary['note']}", markup=False, highlight=False)


def gap(console: Console, summary: dict[str, Any]) -> None:
    rows = [
        [
            number,
            *(f"{values[key]:.2%}" for key in ("train_accuracy", "test_accuracy")),
            f"{100 * values['gap']:+.2f}",
            *(f"{values[key]:.4g}" for key in ("train_loss", "test_loss")),
        ]
        for number, values in summary["rounds"].items()
    ]
    table(console, ["round", "training", "test", "gap (points)", "training loss", "test loss"], rows)
    text = (
        f"{summary['num_train']:,} training images of {summary['clients']} clients, {summary['num_test']:,} for tests."
    )
    console.print(text, markup=False, highlight=False)


def surface(console: Console, summary: dict[str, Any]) -> None:
    def spelled(key: str) -> str:
        return "no number" if summary[key] is None else f"{summary[key]:.6g}"

    rows = [
        ["loss", spelled("loss")],
        [f"sharpness, ρ = {summary['sharpness_rho']:g}", spelled("sharpness")],
        ["largest eigenvalue of the Hessian", spelled("hessian_eigenvalue")],
        ["its residual, 0 where it is exact", spelled("hessian_residual")],
    ]
    table(console, [f"round {summary['round']}, {summary['num_examples']:,} images", ""], rows)
