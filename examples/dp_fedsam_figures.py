"""Two methods side by side, as in Figs. 1 and 3 of DP-FedSAM: loss around the models, lengths of the clients' updates.

    python examples/dp_fedsam_figures.py surfaces sam.json avg.json -o surfaces.png     # of `evaluate --surface`
    python examples/dp_fedsam_figures.py norms sam.json avg.json -o norms.png           # of `evaluate --clipping`

Each JSON was written by `fedsynth evaluate`; its name is the name in the picture. Lengths of updates are private,
and so is a picture of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure


def surfaces(found: Mapping[str, Any], figure: Figure) -> None:
    """Contours at the same heights in every panel, equally far apart in the logarithm."""
    heights = {name: np.array(one["surface"]["losses"], np.float64) for name, one in found.items()}
    everything = np.concatenate([part[np.isfinite(part)].ravel() for part in heights.values()])
    low, high = float(everything.min()), float(everything.max())
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (name, one) in zip(panels, found.items(), strict=True):
        steps, levels = one["surface"]["steps"], np.geomspace(low, high, 15)
        drawn = axes.contourf(
            steps, steps, np.ma.masked_invalid(heights[name]), levels=levels, norm=LogNorm(low, high), cmap="viridis_r"
        )
        axes.plot([0], [0], "*", color="black", markersize=11)
        axes.set(xlabel="first direction", ylabel="second direction", aspect="equal")
        axes.set_title(f"{name}: loss {one['loss']:.3g}, up by {one['sharpness']:.3g} within {one['sharpness_rho']:g}")
    figure.colorbar(drawn, ax=list(panels), label="loss", format="%.3g")


def norms(found: Mapping[str, Any], figure: Figure) -> None:
    """The mean length over rounds, and C."""
    axes = figure.subplots()
    for name, one in found.items():
        rounds = sorted(map(int, one["rounds"]))
        of = {key: [one["rounds"][str(number)][key] for number in rounds] for key in ("norm_mean", "alpha_mean")}
        axes.plot(rounds, of["norm_mean"], marker="o", markersize=4, label=f"{name}, α̅ = {of['alpha_mean'][-1]:.2f}")
    for clip in sorted({one["clip_norm"] for one in found.values()}):
        axes.axhline(clip, color="black", linestyle="--", label=f"C = {clip:g}")
    axes.set(xlabel="round", ylabel="mean norm of updates before the clip", ylim=(0, None))
    axes.legend()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("surfaces", "norms"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args(words)
    found = {path.stem: json.loads(path.read_text()) for path in given.files}
    figure = Figure(figsize=(5 * (len(found) if given.which == "surfaces" else 1.4), 4.2), layout="constrained")
    (surfaces if given.which == "surfaces" else norms)(found, figure)
    figure.savefig(given.out, dpi=120)


if __name__ == "__main__":
    main()
