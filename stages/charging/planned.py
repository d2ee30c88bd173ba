"""What a stage will be charged for, from its parameters alone: before data, model or message is there."""

from __future__ import annotations

from typing import Any

from artifacts.errors import UsageError
from stages.charging.private_training import with_noise
from stages.charging.spending import record_event
from stages.charging.updates import mean_event, share_event
from stages.methods.params.aggregation import DpMeanRule
from stages.methods.params.encoding import DeltaEncoding
from stages.methods.params.generator import GeneratorTraining
from stages.methods.params.local_training import BatchTraining
from stages.methods.params.surrogates import SurrogateSet
from stages.privacy.events import PrivacyEvent


def planned_event(params: Any) -> PrivacyEvent | None:
    """The event of one call with these parameters, in full: the most that it can cost; None where there is no noise."""
    try:
        match params:
            case DpMeanRule():
                return mean_event(params, params.clip_norm)
            case DeltaEncoding():
                return share_event(params) if params.noise_multiplier is not None else None
            case GeneratorTraining() if params.is_private:
                steps = params.num_steps(0)
                return record_event(params.calibrated(steps), steps)
            case BatchTraining() if params.is_private and params.local_steps is not None:
                return record_event(with_noise(params, params.local_steps), params.local_steps)
            case SurrogateSet() if params.is_private:
                return record_event(with_noise(params, params.accesses), params.accesses)
    except ValueError as error:
        raise UsageError(f"differential privacy: {error}.") from error
    return None
