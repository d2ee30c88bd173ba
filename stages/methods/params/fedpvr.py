"""FedPVR: Li et al., Partial Variance Reduction improves Non-Convex Federated Learning on Heterogeneous Data, 2023."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stages.hyperparameters import hyper
from stages.methods.params.scaffold import ControlVariates
from stages.registry import ALGORITHMS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.local_training import LocalAlgorithm


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class FedPvrTraining(ControlVariates):
    """SCAFFOLD on the classifier alone."""

    algorithm: Literal["fedpvr"] = hyper("fedpvr", "fedpvr: with control variates of the classifier.")

    def unfit(self, named: Mapping[str, nn.Parameter]) -> str | None:
        if any(name.startswith("classifier.") for name in named):
            return None
        return (
            "no parameter is named classifier.…, the part that it corrects: let `build` return "
            "stages.nets.net.Net(trunk, classifier), or take scaffold"
        )

    def client(
        self, named: Mapping[str, nn.Parameter], own: Mapping[str, Tensor], server: Mapping[str, Tensor]
    ) -> LocalAlgorithm:
        from stages.methods.fedpvr import FedPvr

        return FedPvr(named, own, server)
