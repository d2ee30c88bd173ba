"""BLUR, bounded local update regularisation: Cheng et al. 2022, a baseline of DP-FedSAM («DP-FedAvg-blur»).

The client also minimises λ/2·max(0, ‖w − w₀‖² − S²): beyond the bound S, normally the norm to which the update will be
clipped, its weights are drawn back to the round's start, so that the clip takes less away. The gradient adds λ(w − w₀)
where ‖w − w₀‖ > S. The norm is one over all weights, as the clip's; the running averages of batch norm have no
gradient and do not count.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from stages.methods.sam import along, stacked_norms, total_norm


class UpdatePenalty:
    """Made at the round's start, whose weights are w₀. `weight` is λ, `bound` is S.

    With `stacked` the first dimension of every weight counts clients, and the bound is one for each of them.
    """

    def __init__(
        self, named: Mapping[str, nn.Parameter], *, weight: float, bound: float, stacked: bool = False
    ) -> None:
        self._start = {name: parameter.detach().clone() for name, parameter in named.items()}
        self._weight, self._bound, self._stacked = weight, bound, stacked

    def correct(self, named: Mapping[str, nn.Parameter]) -> None:
        """g ← g + λ(w − w₀) if ‖w − w₀‖ > S. After the algorithm's own correction: that is no part of the penalty."""
        moved = {name: named[name].detach() - start for name, start in self._start.items()}
        if self._stacked:
            beyond = (stacked_norms(list(moved.values())) > self._bound).float()
            moved = {name: change * along(beyond, change) for name, change in moved.items()}
        elif total_norm(list(moved.values())) <= self._bound:
            return
        for name, change in moved.items():
            gradient = named[name].grad
            if gradient is not None:
                gradient.add_(change, alpha=self._weight)
