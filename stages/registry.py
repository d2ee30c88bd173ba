"""What there is: the families of declarations that the command line, recipes, audit, report and docs read.

A member is one class: its hyper-parameters, and as class attributes the facts that others need to know about it. It
registers itself where it is declared (`@ENCODERS.register`), a built-in and a plug-in alike. Free of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stages.families import Variants

if TYPE_CHECKING:
    from stages.methods.params.aggregation import Rule
    from stages.methods.params.encoding import Encoder
    from stages.methods.params.local_training import LocalTraining

_METHODS = "stages.methods.params"

ALGORITHMS: Variants[LocalTraining] = Variants("algorithm", default="fedavg", package=_METHODS)
ENCODERS: Variants[Encoder] = Variants("method", default="delta", package=_METHODS)
RULES: Variants[Rule] = Variants("rule", default="mean", package=_METHODS)
NETWORKS: Variants[Any] = Variants("arch", default="convnet", package="stages.nets.networks")
GENERATORS: Variants[Any] = Variants("family", default="ddpm", package=_METHODS)
SOURCES: Variants[Any] = Variants("source", default="digits", package="stages.data.named")
