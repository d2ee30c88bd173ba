"""`evaluate MODEL FILE… --attack NAME`: the options and the table of `stages.evaluate.attack`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.evaluate.measurement import DEVICE, HELD_OUT, PICTURE, SEED, Measurement, Option, Shown, Table


def _table(summary: Mapping[str, Any]) -> Shown:
    if summary["attack"] == "suite":
        yield from _suite(summary)
        return
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


def _suite(summary: Mapping[str, Any]) -> Shown:
    def spelled(row: Mapping[str, Any]) -> list[str]:
        name = row["file"].rpartition("/")[2].removesuffix(".safetensors").removesuffix(".parquet")
        numbers = [f"{row[key]:{form}}" if key in row else "" for key, form in (("psnr", ".1f"), ("ssim", ".2f"))]
        found = [str(row.get("identified", "")), f"{row['auc']:.3f}" if "auc" in row else ""]
        low, high = row.get("tpr_interval", (0, 0))
        rate = f"{row['tpr']:.3f} ({low:.3f} … {high:.3f})" if "tpr" in row else ""
        if "wrong" in row:
            rate = f"{row['wrong']:.0%} of labels wrong, by guess {row['wrong_by_guess']:.0%}"
        return [name, row["attack"], *numbers, *found, rate]

    yield Table(
        ["file", "attack", "PSNR", "SSIM", "identified", "AUC", "TPR at 0.1% FPR (95%)"],
        [spelled(row) for row in summary["rows"]],
    )
    for best in summary["best"]:
        yield f"{best['file'].rpartition('/')[2]}: best attack is {best['attack']}."
    yield (
        f"{summary['num_private']} private images, {summary['held_out']:,} others; {summary['images']} looked for, "
        f"labels known, {summary['restarts']} × {summary['attack_steps']} steps, {summary['local_steps']} local steps."
    )
    if summary["held_out"] < 1000:
        yield "With fewer than 1,000 others a rate of 0.1% is one of none: the threshold is the highest of the others."
    yield summary["note"]


def _alike(found: Mapping[str, Any], beside: bool) -> list[str]:
    spelled = [f"{found['mse']:.4f}", f"{found['psnr']:.1f}", f"{found['ssim']:.2f}"]
    return [*spelled, *([str(found.get("identified", ""))] if beside else [])]


MEASUREMENT = Measurement(
    place=10,
    subject="MODEL FILE…",
    form="MODEL FILE… --attack inverting-gradients|suite",
    chosen_by="attack",
    function="stages.evaluate.attack:evaluate_attack",
    needs={"against": "the images that the attack is measured by"},
    options=(
        Option(
            name="attack", type=str, choices=("inverting-gradients", "suite"),
            text="inverting-gradients: images from updates, messages or proxies (Geiping et al. 2020). suite: every "
            "attack that fits a file or synthetic set, and membership in the model, in one table.",
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
        Option(
            name="local_steps", type=int, least=1,
            text="suite: the client's steps, as the attacker knows them; above 1 they are unrolled (default 1).",
        ),
        Option(name="local_batch", type=int, least=1, text="suite: images of each of these steps (default all)."),
        Option(name="local_rate", type=float, text="suite: their step size, and that of shadow models (default 0.1)."),
        Option(name="shadow_models", type=int, least=0, text="suite: models trained for LiRA, 0 for none (default 8)."),
        Option(name="shadow_steps", type=int, least=1, text="suite: steps of each of them (default 200)."),
        Option(
            name="sacro", type=Path, metavar="FOLDER", why_local="a private folder stays on the machine of its client",
            text="suite: a private folder for SACRO-ML: target.yaml, probabilities and labels as CSV.",
        ),
        HELD_OUT,
        SEED,
        PICTURE,
        DEVICE,
    ),
    help="""
    What an update, or its TOFU proxy, reveals to an attacker about single images. Private.

    Example: fedsynth evaluate model-0000.safetensors private/update-0001.safetensors outbox/proxy-0001.safetensors
    --attack inverting-gradients --against private/data.parquet -o private/attack.json --picture private/attack.png

    Example: fedsynth evaluate model-0000.safetensors outbox/message-0001.safetensors --attack suite
    --against private/data.parquet --held-out public/test.parquet -o private/attacks.json
    """,
    table=_table,
)  # fmt: skip
