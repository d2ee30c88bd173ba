"""FedSGD: McMahan et al. 2017, FedAvg's limit of one step on all of the client's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.local_training import LocalTraining
from stages.registry import ALGORITHMS


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class FedSgdTraining(LocalTraining):
    """One full-batch step a round: there are no epochs, no batches, and no second step for momentum to act on."""

    additive: ClassVar[bool] = True

    algorithm: Literal["fedsgd"] = hyper("fedsgd", "fedsgd: one step on all data of the client.")

    def num_steps(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        return 1

    def num_in_batch(self, num_examples: int) -> int:
        return num_examples
