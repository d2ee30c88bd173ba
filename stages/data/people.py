"""People and their rows: where all that one person has goes one way, in `partition` and in a Poisson sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.data.images import LabelledImages


def one_row_each(data: LabelledImages) -> LabelledImages:
    """A row for each person, in their order: the first of those with the label that most of the person's rows have.

    What a scheme does with these rows happens to all that their people have. Raises `ValueError` where the source gives
    one person's rows to several clients.
    """
    assert data.units is not None
    order = np.argsort(data.units, kind="stable")
    first = np.searchsorted(data.units[order], np.arange(int(data.units.max(initial=-1)) + 1))
    chosen = []
    for rows in np.split(order, first[1:]):
        if data.ids is not None and len({data.ids[row] for row in rows}) > 1:
            raise ValueError(
                "a person's rows would go to two clients, and nobody could answer for all of them; take the people "
                "themselves as clients, or leave out --unit-column"
            )
        labels = data.labels[rows]
        chosen.append(rows[np.argmax(labels == np.bincount(labels).argmax())])
    return data.take(np.array(chosen, np.int64))


def rows_of(data: LabelledImages, people: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of these people, in the order of the data; where rows are dealt out, the rows themselves."""
    return people if data.units is None else np.flatnonzero(np.isin(data.units, people))
