"""Which labels synthetic images get. Whole numbers only: the same counts on every machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.methods.params.synthesis import MOST_IMAGES


def apportioned(weights: Sequence[int], count: int) -> NDArray[np.int64]:
    """`count` divided in proportion to `weights` by largest remainders; of equal remainders the first classes win."""
    total = sum(weights)
    if total <= 0 or min(weights) < 0:
        raise ValueError("no class has any weight")
    shares = [divmod(count * int(weight), total) for weight in weights]
    parts = np.array([whole for whole, _ in shares], np.int64)
    order = sorted(range(len(shares)), key=lambda i: (-shares[i][1], i))
    parts[order[: count - int(parts.sum())]] += 1
    return parts


def labels_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each class as often as `counts` says, in order."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def parsed_labels(text: str, class_names: Sequence[str]) -> NDArray[np.int64]:
    """`3,3,5` or `3:10,cat:5`: classes by number or by name, each once, or as often as the number after the colon."""
    labels: list[int] = []
    for entry in text.split(","):
        word, _, times = (part.strip() for part in entry.rpartition(":")) if ":" in entry else (entry.strip(), "", "1")
        if not times.isdecimal():
            raise ValueError(f"{entry.strip()!r} is not a class, or a class, a colon and a number")
        if len(labels) + int(times) > MOST_IMAGES:
            raise ValueError(f"{entry.strip()!r} asks for more than {MOST_IMAGES:,} images")
        labels += [_label(word, class_names)] * int(times)
    return np.array(labels, np.int64)


def _label(word: str, class_names: Sequence[str]) -> int:
    """A number is a label; any other word is the name of a class."""
    if word.isdecimal():
        if int(word) >= len(class_names):
            raise ValueError(f"label {word} is out of range: there are {len(class_names)} classes, counted from 0")
        return int(word)
    if word not in class_names:
        known = ", ".join(class_names[:20]) + (", …" if len(class_names) > 20 else "")
        raise ValueError(f"there is no class {word!r}; known: {known}")
    return list(class_names).index(word)
