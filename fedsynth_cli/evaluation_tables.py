"""How the measurements of `evaluate` are shown to people: small tables that fit eighty columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedsynth_cli.console import human_bytes, table

if TYPE_CHECKING:
    from rich.console import Console


_COMMON = ("one record",)  # who is protected where nothing else is said


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
        cost = [] if summary["delta"] is None else [_epsilon(group["epsilon_at_end"])]
        rows.append([group["label"], group["runs"], f"{group['accuracy']:.1%}{spread}", *cost, *rounds, *sent])
    columns = [] if summary["delta"] is None else ["ε (PLD)"]
    columns += [] if target is None else [f"to {100 * target:g}%"]
    table(console, ["run", "seeds", "accuracy", *columns, "numbers", "sent"], rows)
    until = f" until {100 * target:g}% was reached" if target is not None else ""
    console.print(
        f"numbers: what one client sends and gets{until} (2·M_s + 2·R·M_c; with synthetic sets in place of models "
        "R·(M_c + M_k), with proxies images × (pixels + classes) each way); sent: all files, up and down.",
        markup=False,
        highlight=False,
    )
    if any("efficiency" in group for group in summary["groups"]):
        _efficiency(console, summary)
    if summary["delta"] is not None:
        text = f"ε: after the last round, for one record of the dearest client, δ = {summary['delta']:g}."
        console.print(text, markup=False, highlight=False)
    for group in summary["groups"]:
        if group["epsilon_basis"] not in (None, *_COMMON):
            console.print(f"{group['label']}: ε for {group['epsilon_basis']}.", markup=False, highlight=False)
    for run in summary["runs"]:
        if run["rounds"] < run["planned_rounds"]:
            text = f"{run['label']} is not finished: {run['rounds']} of {run['planned_rounds']} rounds."
            console.print(text, markup=False, highlight=False)


def _efficiency(console: Console, summary: dict[str, Any]) -> None:
    """How many times more the baseline sent: until each was at its best, and until all reached the target."""
    views = {"to its best": "to_best"} | ({} if summary["target"] is None else {"to the target": "to_target"})
    columns = [f"{what} {name}" for name in views for what in ("numbers", "bytes")]
    keys = [f"{what}_{suffix}" for suffix in views.values() for what in ("parameters", "bytes")]
    rows = [[group["label"], *(_times(group["efficiency"][key]) for key in keys)] for group in summary["groups"]]
    table(console, ["efficiency", *columns], rows)
    baseline = summary["groups"][0]["baseline"]
    console.print(f"efficiency: how many times more {baseline} sends.", markup=False, highlight=False)


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _epsilon(value: float | str) -> str:
    """Three decimals, rounded up: an ε is never shown smaller than it is."""
    return "∞" if isinstance(value, str) else f"{math.ceil(value * 1000) / 1000:.3f}"


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


def surrogates(console: Console, summary: dict[str, Any]) -> None:
    def spelled(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g}"

    rows = []
    for number, values in summary["rounds"].items():
        pixels = values["pixels"]
        radii = "–"
        if values["radius_min"] is not None:
            radii = f"{values['radius_min']:.3g}–{values['radius_max']:.3g}"
        steps = "–" if values["server_steps"] is None else str(values["server_steps"])
        span = f"{pixels['p05']:.2f} … {pixels['p95']:.2f}"
        rows.append(
            [number, values["clients"], radii, spelled(values["server_radius"]), spelled(values["server_distance"]),
             steps, span, f"{pixels['beyond']:.0%}", human_bytes(values["bytes"])]
        )  # fmt: skip
    table(console, ["round", "clients", "radii", "r_g", "went", "steps", "pixels 5–95%", "beyond", "bytes"], rows)
    text = (
        f"{summary['method']}: {human_bytes(summary['bytes'])} of sets. r_g: the server's radius; went: how far it "
        "got; beyond: pixels outside −1 … 1, where real images lie."
    )
    console.print(text, markup=False, highlight=False)


def matching(console: Console, summary: dict[str, Any]) -> None:
    def spelled(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g}"

    first, last = summary["trajectory"][0], summary["trajectory"][-1]
    parts = {"all weights": (first, last)}
    parts |= {name: (found, last["tensors"][name]) for name, found in first["tensors"].items()}
    rows = [
        [name, *(spelled(point[key]) for key in ("cosine", "norm_ratio") for point in points)]
        for name, points in parts.items()
        if name not in summary["without_gradient"]
    ]
    end = f"after {summary['steps']}"
    table(console, [f"client {summary['client']}, round {summary['round']}", "cosine", end, "‖g_S‖/‖g_D‖", end], rows)
    losses = " → ".join(f"{point['loss_real']:.4g} / {point['loss_synthetic']:.4g}" for point in (first, last))
    lines = [
        f"{summary['steps']} steps of η = {summary['learning_rate']:g} on {summary['images']} synthetic images lead "
        f"{summary['distance']:.4g} away; loss on data / on the set: {losses}."
    ]
    if summary["without_gradient"]:
        lines.append(f"Without a gradient, but for rounding: {', '.join(summary['without_gradient'])}.")
    for line in [*lines, *([summary["note"]] if "note" in summary else [])]:
        console.print(line, markup=False, highlight=False)


def attack(console: Console, summary: dict[str, Any]) -> None:
    beside = summary["held_out"] is not None
    rows = []
    for told in summary["files"]:
        name = told["file"].rpartition("/")[2].removesuffix(".safetensors")
        cosines = [f"{told[key]:.3f}" for key in ("cosine_to_first", "attack_cosine")]
        rows.append([name, *cosines, *_alike(told, beside)])
        if "own_images" in told:
            rows.append(["  its own images", "", "", *_alike(told["own_images"], beside)])
    names = {"noise": "noise", "other_images": "other images", "class_means": "means of classes"}
    rows += [[f"({names[name]})", "", "", *_alike(told, beside)] for name, told in summary["yardsticks"].items()]
    columns = ["attack on", "cos to 1st", "reached", "MSE", "PSNR", "SSIM", *(["identified"] if beside else [])]
    table(console, columns, rows)
    lines = [
        f"{summary['images']} images looked for, labels {summary['labels']}, {summary['restarts']} × "
        f"{summary['attack_steps']} steps; in brackets: what those reach who never saw an update.",
    ]
    if beside:
        lines.append(f"identified: nearer to its private image than to any of {summary['held_out']:,} others.")
    for line in [*lines, summary["note"]]:
        console.print(line, markup=False, highlight=False)


def _alike(told: dict[str, Any], beside: bool) -> list[str]:
    spelled = [f"{told['mse']:.4f}", f"{told['psnr']:.1f}", f"{told['ssim']:.2f}"]
    return [*spelled, *([str(told.get("identified", ""))] if beside else [])]
