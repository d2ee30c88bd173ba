"""FedPVR: Li et al., Partial Variance Reduction improves Non-Convex Federated Learning on Heterogeneous Data (2023).

SCAFFOLD on the classifier layers alone; the feature layers follow plain local SGD (their Algorithm 1).
"""

from __future__ import annotations

from stages.methods.scaffold import Scaffold


class FedPvr(Scaffold):
    """Control variates on the classifier, the part of a network that differs most between clients."""

    def covers(self, name: str) -> bool:
        return name.startswith("classifier.")
