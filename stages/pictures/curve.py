"""Accuracy and loss over rounds."""

from __future__ import annotations

from collections.abc import Sequence

from stages.pictures.render import plain_style, png_bytes


def curve_picture(rounds: Sequence[int], accuracy: Sequence[float], loss: Sequence[float]) -> bytes:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    with plain_style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(rounds, accuracy, marker="o", markersize=4, color="#1f5fa8", label="accuracy")
        axes.set(xlabel="round", ylabel="test accuracy", ylim=(0.0, 1.02))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        beside = axes.twinx()
        beside.plot(rounds, loss, marker="s", markersize=3, color="#b5652b", linestyle="--", label="loss")
        beside.set_ylabel("test loss")
        beside.set_ylim(bottom=0.0)
        lines = [*axes.get_lines(), *beside.get_lines()]
        axes.legend(lines, [str(line.get_label()) for line in lines], loc="center right", frameon=False)
        axes.set_title(f"{accuracy[-1]:.1%} after round {rounds[-1]}")
        return png_bytes(figure)
