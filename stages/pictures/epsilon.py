"""ε over rounds: what all that left has cost so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stages.pictures.render import plain_style, png_bytes


@dataclass(frozen=True)
class Line:
    """One client's ε after each round; where it is ∞, `pld` and `rdp` are of what the events cover."""

    rounds: Sequence[int]
    pld: Sequence[float]
    rdp: Sequence[float]
    infinite: bool


def epsilon_picture(lines: Sequence[Line], *, unit: str, delta: float) -> bytes:
    """The ε of the client that spent most, by both accountants, the others thin behind it."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with plain_style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        drawn = [line for line in lines if line.rounds and line.pld[-1] > 0]
        infinite = any(line.infinite for line in lines)
        if drawn:
            worst = max(drawn, key=lambda line: line.pld[-1])
            for line in drawn:
                axes.plot(line.rounds, line.pld, color="#1f5fa8", alpha=0.25, linewidth=0.8)
            axes.plot(worst.rounds, worst.pld, marker="o", markersize=4, color="#1f5fa8", label="PLD")
            axes.plot(worst.rounds, worst.rdp, marker="s", markersize=3, color="#b5652b", linestyle="--", label="RDP")
            axes.legend(loc="lower right", frameon=False)
            axes.set_ylim(bottom=0.0)
        else:
            axes.text(0.5, 0.5, "ε = ∞", ha="center", va="center", fontsize=24, transform=axes.transAxes)
        # Rounded up: an ε is never shown smaller than it is.
        end = f"{math.ceil(100 * max(line.pld[-1] for line in drawn)) / 100:.2f}" if drawn else "∞"
        title = f"ε = ∞; drawn: {end} of the rest" if infinite and drawn else f"ε = {end}"
        axes.set(xlabel="round", ylabel=f"ε for one {unit}, δ = {delta:g}", title=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        return png_bytes(figure)
