"""The parameters of `partition`: what the scheme needs, and how the source is to be read.

Torch-free: `--help` reads this declaration. Where an option has a default only under its own scheme, the field is
empty elsewhere and filled in here, so that the artifact's metadata states what was used and nothing that was not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper

_SCHEME_OF_OPTION = {
    "alpha": "dirichlet",
    "classes_per_client": "classes",
    "shards_per_client": "shards",
    "id_column": "natural",
}
_DEFAULT_UNDER_ITS_SCHEME = {"alpha": 0.5, "classes_per_client": 2, "shards_per_client": 2}
_SCHEMES, _SOURCE = "Schemes", "Source"


@dataclass(frozen=True, kw_only=True)
class PartitionParams(HyperParameters):
    """How many clients, by which scheme, from a source read in which way."""

    clients: int | None = hyper(
        None, "number of clients; `natural` without it makes one client for each id", symbol="N", panel=_SCHEMES
    )
    scheme: Literal["iid", "dirichlet", "classes", "shards", "linear", "square", "exponential", "natural"] = hyper(
        "iid", "how the rows are divided among the clients", panel=_SCHEMES
    )
    alpha: float | None = hyper(
        None,
        "dirichlet: concentration, 0.5 unless given; smaller is more uneven",
        symbol="α",
        source="paper",
        panel=_SCHEMES,
    )
    classes_per_client: int | None = hyper(
        None, "classes: how many classes each client has, 2 unless given", symbol="K", panel=_SCHEMES
    )
    shards_per_client: int | None = hyper(
        None, "shards: how many shards each client is dealt, 2 unless given", source="paper", panel=_SCHEMES
    )
    id_column: str | None = hyper(
        None, "natural: the Parquet column that says whom a row belongs to; an id is never split", panel=_SCHEMES
    )
    test_fraction: float = hyper(
        0.2, "share of the rows that becomes the public test set, if the source has no test split", panel=_SOURCE
    )
    image_size: int | None = hyper(
        None, "resize every image to this height and width, bilinear; proportions are not kept", panel=_SOURCE
    )
    channels: int | None = hyper(None, "convert every image to 1 (grey) or 3 (colour) channels", panel=_SOURCE)
    image_column: str | None = hyper(None, "Parquet: the column of the images, `image` unless given", panel=_SOURCE)
    label_column: str | None = hyper(None, "Parquet: the column of the labels, `label` unless given", panel=_SOURCE)
    emnist_split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] | None = hyper(
        None, "emnist: which of its six datasets, `balanced` unless given", panel=_SOURCE
    )

    def check(self) -> None:
        if self.clients is None and self.scheme != "natural":
            raise ValueError(f"--clients needs a value with --scheme {self.scheme}")
        for option, scheme in _SCHEME_OF_OPTION.items():
            if self.scheme == scheme and getattr(self, option) is None and option in _DEFAULT_UNDER_ITS_SCHEME:
                object.__setattr__(self, option, _DEFAULT_UNDER_ITS_SCHEME[option])
            unused = self.scheme != scheme and getattr(self, option) is not None
            self.require(not unused, option, f"left out of --scheme {self.scheme} (it belongs to {scheme})")
        if self.scheme == "natural" and self.id_column is None:
            raise ValueError("--id-column needs a value with --scheme natural")
        for option in ("clients", "classes_per_client", "shards_per_client", "image_size"):
            self.require(getattr(self, option) is None or getattr(self, option) >= 1, option, "at least 1")
        self.require(self.alpha is None or self.alpha > 0, "alpha", "above 0")
        self.require(0 < self.test_fraction < 1, "test_fraction", "between 0 and 1, ends excluded")
        self.require(self.channels in (None, 1, 3), "channels", "1 or 3")
