"""The parameters of `partition`: what the scheme needs, how the source is read. Free of torch: `--help` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stages.data.attributes import parse_attributes
from stages.hyperparameters import By, HyperParameters, When, hyper

_NEEDED_BY_ITS_SCHEME = {"natural": "id_column", "attributes": "by"}  # both know their clients themselves
_SCHEMES, _SOURCE, _SIMULATION = "Schemes", "Source", "Simulation"


def _of(scheme: str, default: Any, text: str, **about: Any) -> Any:
    """A parameter that has an effect under one scheme only."""
    when = When(f"--scheme {scheme}", lambda params: params.scheme == scheme)
    return hyper(By("scheme", {scheme: default}), f"{scheme}: {text}", panel=_SCHEMES, when=when, **about)


Fit = Literal["stretch", "crop", "pad"]


@dataclass(frozen=True, kw_only=True)
class PartitionParams(HyperParameters):
    """How many clients, by which scheme, from a source read in which way."""

    clients: int | None = hyper(
        None,
        "number of clients; without it `natural` makes one for each id, `attributes` one for each combination",
        symbol="N",
        panel=_SCHEMES,
        unit="clients",
    )
    scheme: Literal[
        "iid", "dirichlet", "classes", "shards", "linear", "square", "exponential", "natural", "attributes"
    ] = hyper("iid", "how the rows are divided among the clients", panel=_SCHEMES)
    alpha: float | None = _of("dirichlet", 0.5, "concentration; smaller is more uneven", symbol="α", source="paper")
    sizes: Literal["drawn", "equal"] | None = _of(
        "dirichlet", "drawn",
        "numbers of rows as drawn; or equal: a client that has its share gets no more, and all is drawn again until "
        "each has at least half of it (Lin et al. 2020, and Fedssyn)",
    )  # fmt: skip
    classes_per_client: int | None = _of("classes", 2, "how many classes each client has", symbol="K")
    shards_per_client: int | None = _of("shards", 2, "how many shards each client is dealt", source="paper")
    id_column: str | None = _of(
        "natural", None, "the Parquet column with the id of the person or place of a row; an id is never split"
    )
    by: str | None = _of(
        "attributes", None,
        "the Parquet columns whose combinations are the clients, with commas between; x:2 cuts numbers at their "
        "median, x:3 in thirds (dSprites by shape and quadrant: shape,x:2,y:2)",
    )  # fmt: skip
    mix: float = hyper(
        0.0,
        "share of every client's rows that is pooled, shuffled and dealt back in the same numbers",
        symbol="p",
        panel=_SIMULATION,
        unit="share",
    )
    held_out: float = hyper(
        0.0,
        "share of each client's rows that no stage trains on, in private/held-out.parquet; where that is less than "
        "half a row, there is no such file (Fedssyn: 0.1)",
        panel=_SIMULATION,
        unit="share",
    )
    central: bool = hyper(
        False,
        "also make a place for a party without data, `central`, that trains on what others send",
        panel=_SIMULATION,
    )
    test_fraction: float = hyper(
        0.2,
        "share of the rows that becomes the public test set, if the source has no test split",
        panel=_SOURCE,
        unit="share",
    )
    image_size: int | None = hyper(
        None, "resize every image to this height and width, bilinear; --fit says what becomes of proportions",
        panel=_SOURCE, unit="pixels",
    )  # fmt: skip
    fit: Fit = hyper(
        "stretch",
        "proportions of images that are resized: stretch changes them; crop cuts off what is too long, on both sides; "
        "pad puts black beside the image",
        panel=_SOURCE,
        when=When("--image-size", lambda params: params.image_size is not None),
    )
    bits: int | None = hyper(
        None,
        "of images with more than 8 bits a channel: how many of them are used, 1 to 16 (CT: 12); pixels from 0 to "
        "2^bits − 1 become 0 to 255",
        panel=_SOURCE,
        unit="bits",
    )
    channels: int | None = hyper(
        None, "convert every image to 1 (grey) or 3 (colour) channels", panel=_SOURCE, unit="channels"
    )
    image_column: str | None = hyper(None, "Parquet: the column of the images, `image` unless given", panel=_SOURCE)
    label_column: str | None = hyper(None, "Parquet: the column of the labels, `label` unless given", panel=_SOURCE)
    unit_column: str | None = hyper(
        None,
        "Parquet: the column that says whose a row is (a patient), for --unit person; all that one person has goes to "
        "one client, by the label that most of it has",
        panel=_SOURCE,
    )
    emnist_split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] | None = hyper(
        None, "emnist: which of its six datasets, `balanced` unless given", panel=_SOURCE
    )

    def check(self) -> None:
        if self.clients is None and self.scheme not in _NEEDED_BY_ITS_SCHEME:
            raise ValueError(f"--clients needs a value with --scheme {self.scheme}")
        needed = _NEEDED_BY_ITS_SCHEME.get(self.scheme)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"--{needed.replace('_', '-')} needs a value with --scheme {self.scheme}")
        if self.by is not None:
            parse_attributes(self.by)
        for option in ("clients", "classes_per_client", "shards_per_client", "image_size"):
            self.require(getattr(self, option) is None or getattr(self, option) >= 1, option, "at least 1")
        self.require(self.alpha is None or self.alpha > 0, "alpha", "above 0")
        self.require(0 <= self.mix <= 1, "mix", "from 0 to 1")
        self.require(0 <= self.held_out < 1, "held_out", "0 or more and below 1")
        self.require(0 < self.test_fraction < 1, "test_fraction", "between 0 and 1, ends excluded")
        self.require(self.channels in (None, 1, 3), "channels", "1 or 3")
        self.require(self.bits is None or 1 <= self.bits <= 16, "bits", "from 1 to 16")
