"""The confusion picture: which class is taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.pictures.render import plain_style, png_bytes

_MOST_LABELS = 30


def confusion_picture(counts: NDArray[Any], class_names: Sequence[str], title: str) -> bytes:
    """`counts[i, j]`: examples of class i taken for class j. Colours show the share within each true class."""
    from matplotlib.figure import Figure

    num_classes = len(class_names)
    side = float(np.clip(1.8 + 0.42 * num_classes, 4.2, 11.0))
    with plain_style():
        figure = Figure(figsize=(side + 0.8, side), layout="constrained")
        axes = figure.add_subplot()
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
        figure.colorbar(image, ax=axes, fraction=0.046, label="share of the true class")
        axes.set(title=title, xlabel="predicted", ylabel="true")
        if num_classes <= _MOST_LABELS:
            turned = max(len(name) for name in class_names) > 3
            axes.set_xticks(range(num_classes), class_names)
            if turned:
                axes.tick_params(axis="x", rotation=90)
            axes.set_yticks(range(num_classes), class_names)
            for row, column in np.argwhere(counts > 0):
                shade = "white" if share[row, column] > 0.5 else "black"
                text = str(counts[row, column])
                axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=8)
        return png_bytes(figure)
