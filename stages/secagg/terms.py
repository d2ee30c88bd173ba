"""What the list of keys declares beside the keys: who must stay, and how numbers are written. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, When, hyper

MODULI = (32, 64)
LEAST_BITS, MOST_BITS = 2, 53  # 53: what float64 holds exactly
PANEL = "For the list of keys"


def least_threshold(clients: int, colluders: int = 0) -> int:
    """More than half, or a lying server could ask each half for its kind of share; those who side with it count extra.

    With c of them t > (n + c)/2 would do. One more for each is simple, and leaves room.
    """
    return clients // 2 + 1 + colluders


def default_threshold(clients: int, colluders: int = 0) -> int:
    """Two thirds of the clients: room for dropouts, and for a sixth of them to side with the server."""
    return max(least_threshold(clients, colluders), -(-2 * clients // 3))


@dataclass(frozen=True, kw_only=True)
class SecaggTerms(HyperParameters):
    """The terms of a round of secure aggregation. Noise shares bring their own grid: no range and no bits then."""

    threshold: int | None = hyper(
        None, "So many clients must stay to the end: more than half of them, two thirds if not given.",
        symbol="t", panel=PANEL, unit="clients",
    )  # fmt: skip
    range: float | None = hyper(
        None, "Values lie in ±RANGE; one outside is an error. Leave it out for noise shares.", panel=PANEL
    )
    bits: int = hyper(
        20, "Bits of a value within the range.", panel=PANEL, unit="bits",
        when=When("--range", lambda terms: terms.range is not None),
    )  # fmt: skip
    modulus: int = hyper(32, "Bits of a masked value: 32 or 64.", panel=PANEL, unit="bits")

    graph: Literal["complete", "sparse"] = hyper(
        "complete",
        "Who masks with whom: everybody with everybody, or each with a few that it draws, as many as the number of "
        "clients, --colluders and dropouts ask for (Bell et al. 2020); with few clients that is everybody.",
        panel=PANEL,
    )
    colluders: int | None = hyper(
        None,
        "So many clients may side with the server (a tenth, if not given).",
        symbol="c",
        panel=PANEL,
        when=When("--graph sparse", lambda terms: terms.graph == "sparse"),
        unit="clients",
    )

    def check(self) -> None:
        self.require(self.colluders is None or self.colluders >= 0, "colluders", "at least 0")
        self.require(self.threshold is None or self.threshold >= 2, "threshold", "at least 2")
        self.require(self.range is None or self.range > 0, "range", "above 0")
        self.require(LEAST_BITS <= self.bits <= MOST_BITS, "bits", f"from {LEAST_BITS} to {MOST_BITS}")
        self.require(self.modulus in MODULI, "modulus", "32 or 64")
