"""The commands whose parameters depend on one of them."""

from __future__ import annotations

from stages.hyperparameters import Variants
from stages.methods.params.aggregation import Aggregation
from stages.methods.params.encoding import Encoding
from stages.methods.params.feddm import FedDmEncoding, FedDmOptimisation
from stages.methods.params.fedlap import FedLapEncoding, FedLapOptimisation
from stages.methods.params.tofu import TofuEncoding

ENCODINGS = Variants("method", (Encoding, FedLapEncoding, FedDmEncoding, TofuEncoding))
AGGREGATIONS = Variants("rule", (Aggregation, FedLapOptimisation, FedDmOptimisation))
