"""The differentially private side of `encode --method fedlap|feddm`: charged first, noised at every look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from artifacts.errors import UsageError
from artifacts.metadata import Metadata
from stages.charging.private_training import mechanism_of, secret_streams, training_context
from stages.charging.spending import Spending, record_event, reserve
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.params.surrogates import SurrogateSet
from stages.nets.params import InputShape
from stages.privacy.events import PrivacyEvent, distinct, output_digest

if TYPE_CHECKING:
    from torch import Tensor

    from stages.methods.feddm import NoisyMeans
    from stages.methods.fedlap import NoisyGradient
    from stages.methods.surrogate_nets import Examples
    from stages.nets.net import Net


@dataclass(frozen=True)
class PrivateSurrogate:
    """A round whose cost is reserved; made by `begin`. `earlier` are the events that its inputs bring with them."""

    params: SurrogateSet
    spending: Spending
    earlier: tuple[PrivacyEvent, ...]

    @classmethod
    def begin(
        cls,
        params: SurrogateSet,
        module: Net,
        shape: InputShape,
        metadata: Metadata,
        key: Path,
        earlier: Sequence[PrivacyEvent],
        beside: Sequence[Path],
    ) -> PrivateSurrogate:
        """Reserve all accesses of the round, however early its loop may end, before it sees a record (rule 2)."""
        event = record_event(params, params.accesses)
        try:
            mechanism_of(params, params.batch_size).check_dimension(_dimension(params, module, shape))
        except ValueError as error:
            raise UsageError(f"differential privacy: {error}.") from error
        data = metadata.digests_of("data")
        context = training_context(metadata)
        return cls(params, reserve(key, context=context, data=data, events=[event], beside=beside), tuple(earlier))

    def gradient(self, module: Net, data: Examples, units: Tensor | None) -> NoisyGradient:
        from stages.methods.fedlap import NoisyGradient
        from stages.methods.surrogate_nets import last_layers

        assert self.params.sampling_rate is not None and isinstance(self.params, FedLapEncoding)  # checked
        return NoisyGradient(
            module,
            data,
            units=units,
            names=last_layers(module, self.params.last_layers),
            sampling_rate=self.params.sampling_rate,
            mechanism=mechanism_of(self.params, self.params.batch_size),
            streams=secret_streams(self.spending),
            micro_batch=self.params.micro_batch,
        )

    def means(self, module: Net, data: Examples, units: Tensor | None, num_classes: int) -> NoisyMeans:
        from stages.methods.feddm import PLACES, NoisyMeans

        assert self.params.sampling_rate is not None and isinstance(self.params, FedDmEncoding)  # checked
        assert self.params.count_share is not None
        return NoisyMeans(
            module,
            data,
            units=units,
            num_classes=num_classes,
            sampling_rate=self.params.sampling_rate,
            count_share=self.params.count_share,
            mechanism=mechanism_of(self.params, 1),  # the sums themselves: counts are released beside them
            streams=secret_streams(self.spending),
            size=self.params.micro_batch or PLACES,
        )

    def released(self, tensors: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], ...]:
        """Enter what came out; its event, after those of what it was made from."""
        output = output_digest(tensors)
        event = self.spending.release(output, "round", record_event(self.params, self.params.accesses))
        return tuple(found.to_json() for found in distinct([*self.earlier, event]))


def _dimension(params: SurrogateSet, module: Net, shape: InputShape) -> int:
    """Coordinates of one release."""
    if isinstance(params, FedDmEncoding):
        from stages.methods.feddm import embedded_size

        return shape.num_classes * (embedded_size(module) + 1)
    from stages.methods.surrogate_nets import last_layers
    from stages.nets.state import trained

    assert isinstance(params, FedLapEncoding)
    weights = trained(module)
    return sum(weights[name].numel() for name in last_layers(module, params.last_layers))
