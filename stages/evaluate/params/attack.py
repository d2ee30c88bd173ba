"""`evaluate MODEL FILE… --attack NAME`: the options and the table of `stages.evaluate.attack`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import DEVICE, HELD_OUT, PICTURE, SEED, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    beside = summary["held_out"] is not None
    rows = []
    for found in summary["files"]:
        name = found["file"].rpartition("/")[2].removesuffix(".safetensors")
        cosines = [f"{found[key]:.3f}" for key in ("cosine_to_first", "attack_cosine")]
        rows.append([name, *cosines, *_alike(found, beside)])
        if "own_images" in found:
            rows.append(["  its own images", "", "", *_alike(found["own_images"], beside)])
    names = {"noise": "noise", "other_images": "other images", "class_means": "means of classes"}
    rows += [[f"({names[name]})", "", "", *_alike(found, beside)] for name, found in summary["yardsticks"].items()]
    columns = ["attack on", "cos to 1st", "reached", "MSE", "PSNR", "SSIM", *(["identified"] if beside else [])]
    yield Table(columns, rows)
    yield (
        f"{summary['images']} images looked for, labels {summary['labels']}, {summary['restarts']} × "
        f"{summary['attack_steps']} steps; in brackets: what is reached without seeing an update."
    )
    if beside:
        yield f"identified: nearer to its private image than to any of {summary['held_out']:,} others."
    yield summary["note"]


def _alike(found: Mapping[str, Any], beside: bool) -> list[str]:
    spelled = [f"{found['mse']:.4f}", f"{found['psnr']:.1f}", f"{found['ssim']:.2f}"]
    return [*spelled, *([str(found.get("identified", ""))] if beside else [])]


MEASUREMENT = Measurement(
    place=10,
    subject="MODEL FILE…",
    form="MODEL FILE… --attack inverting-gradients",
    chosen_by="attack",
    function="stages.evaluate.attack:evaluate_attack",
    needs={"against": "the images that the attack is measured by"},
    options=(
        Option(
            name="attack", type=str, selects=True, choices=("inverting-gradients",),
            text="Images from updates, messages or proxies (Geiping et al. 2020).",
        ),
        Option(
            name="against", type=Path, metavar="DATA", text="The private images that the update was trained on."
        ),
        Option(
            name="images", type=int, least=1, text="How many to look for (default: as many as --against holds)."
        ),
        Option(
            name="labels", type=str, choices=("known", "inferred"),
            text="Known to the attacker, or inferred from the last bias; soft ones, optimised too, if there are as "
            "many images as classes (default inferred).",
        ),
        Option(name="attack_steps", type=int, least=1, text="Steps of Adam (default 1000)."),
        Option(
            name="total_variation", type=float, text="Weight of the smoothness of images (default 0.001)."
        ),
        Option(name="restarts", type=int, least=1, text="The one with the lowest cost counts (default 2)."),
        HELD_OUT,
        SEED,
        PICTURE,
        DEVICE,
    ),
    help="""
    What an update, or its TOFU proxy, reveals to an attacker about single images. Private.

    Example: fedsynth evaluate model-0000.safetensors private/update-0001.safetensors outbox/proxy-0001.safetensors
    --attack inverting-gradients --against private/data.parquet -o private/attack.json --picture private/attack.png
    """,
    table=_table,
)  # fmt: skip
