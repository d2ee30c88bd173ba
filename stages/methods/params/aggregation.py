"""Hyper-parameters of `aggregate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class Aggregation(HyperParameters):
    """How messages become the next model."""

    weights: Literal["uniform", "examples"] = hyper(
        "uniform", "Weigh clients equally, or by the number of examples that their messages declare.", symbol="a_k"
    )
    server_rate: float = hyper(1.0, "Step size of the server: x − η_g · mean update.", symbol="η_g", source="paper")

    def check(self) -> None:
        self.require(self.server_rate > 0, "server_rate", "above 0")
