"""Clients by what the rows show: one for each combination of some columns' values.

Fedssyn's dSprites experiment (A.4.1) gives each of twelve clients one shape in one quadrant. A quadrant is a position
cut in two along both axes, hence `shape,x:2,y:2`: `:2` cuts a column of numbers at its median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_VALUES = 100
"""A column with more different values is taken for a measurement that must be cut, or for an id (`natural`)."""


@dataclass(frozen=True)
class Attribute:
    """A column, and into how many quantiles it is cut; None: by its values."""

    column: str
    bins: int | None


def parse_attributes(text: str) -> tuple[Attribute, ...]:
    """`shape,x:2,y:2` → the columns. A column whose name has a comma or a colon cannot be given."""
    attributes = []
    for word in text.split(","):
        column, colon, number = (part.strip() for part in word.partition(":"))
        if not column or (colon and not number.isdecimal()):
            raise ValueError(f"--by must be columns with commas between, such as shape,x:2,y:2, found {text!r}")
        bins = int(number) if colon else None
        if bins is not None and not 2 <= bins <= MAX_VALUES:
            raise ValueError(f"--by {word.strip()}: a column is cut into 2 to {MAX_VALUES} parts, found {bins}")
        attributes.append(Attribute(column, bins))
    columns = [attribute.column for attribute in attributes]
    twice = [column for column in columns if columns.count(column) > 1]
    if twice:
        raise ValueError(f"--by must name each column once, found {twice[0]!r} twice")
    return tuple(attributes)


def combinations(attributes: Sequence[Attribute], values: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """The combination of each row, as the name of the client that it belongs to: `heart_0_1`."""
    columns = [_levels(attribute, values[attribute.column]) for attribute in attributes]
    rows = list(zip(*columns, strict=True))
    names = {row: "_".join(row) for row in set(rows)}
    if len(set(names.values())) < len(names):
        raise ValueError("two combinations of values would have the same name; rename the values, or leave a column")
    return tuple(names[row] for row in rows)


def _levels(attribute: Attribute, values: Sequence[Any]) -> list[str]:
    """The value of each row as text, or the number of its quantile, counted from 0."""
    column = attribute.column
    if any(value != value for value in values):
        raise ValueError(f"column {column!r} has values that are not numbers (NaN)")
    if attribute.bins is None:
        different = len(set(values))
        if different > MAX_VALUES:
            raise ValueError(
                f"column {column!r} has {different:,} different values, more than {MAX_VALUES}; "
                f"cut numbers into quantiles ({column}:2), or take an id with --scheme natural"
            )
        return [str(value) for value in values]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ValueError(f"column {column!r} cannot be cut into {attribute.bins}: not all its values are numbers")
    numbers = np.asarray(values, dtype=np.float64)
    edges = np.quantile(numbers, np.arange(1, attribute.bins) / attribute.bins)
    return [str(level) for level in np.searchsorted(edges, numbers, side="left")]
