"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.local_training import BatchTraining
from stages.registry import ALGORITHMS


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class FedAvgTraining(BatchTraining):
    """Local SGD, and nothing else."""

    record_dp: ClassVar[bool] = True
    client_noise: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    algorithm: Literal["fedavg"] = hyper("fedavg", "fedavg: local SGD.")
