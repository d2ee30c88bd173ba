"""The differentially private side of `train-client`: DP-SGD for records or people, charged to the client's ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import UsageError
from artifacts.metadata import Metadata
from stages.charging.private_training import mechanism_of, secret_streams, training_context
from stages.charging.spending import Spending, record_event, reserve
from stages.methods.params.local_training import BatchTraining
from stages.nets.params import InputShape, Network
from stages.privacy.events import PrivacyEvent, distinct, output_digest

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.image_rows import ImageRows
    from stages.methods.local_training import StepGradient


@dataclass(frozen=True)
class PrivateRound:
    """A round whose cost is reserved; made by `begin`. `earlier` are events that its inputs bring with them."""

    params: BatchTraining
    spending: Spending
    steps: int
    earlier: tuple[PrivacyEvent, ...]

    @classmethod
    def begin(
        cls, params: BatchTraining, metadata: Metadata, key: Path, earlier: list[PrivacyEvent], beside: Sequence[Path]
    ) -> PrivateRound:
        """Reserve the round before it sees a record."""
        assert params.local_steps is not None  # BatchTraining asks for it under DP
        event = record_event(params, params.local_steps)
        data = metadata.digests_of("data")
        spending = reserve(key, context=training_context(metadata), data=data, events=[event], beside=beside)
        return cls(params, spending, params.local_steps, tuple(earlier))

    def gradients(
        self, module: nn.Module, images: ImageRows, labels: Tensor, units: NDArray[np.int64] | None
    ) -> Iterator[StepGradient]:
        import torch

        from stages.methods.private_local_training import private_gradients

        assert self.params.sampling_rate is not None  # checked
        return private_gradients(
            module,
            images,
            labels,
            units=None if units is None else torch.from_numpy(units),
            steps=self.steps,
            sampling_rate=self.params.sampling_rate,
            mechanism=mechanism_of(self.params, self.params.batch_size),
            streams=secret_streams(self.spending),
            micro_batch=self.params.micro_batch,
        )

    def released(self, update: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[dict[str, Any], ...]:
        """Enter what came out; the events of update and state, which are one release (rule 15)."""
        tensors = {f"update {name}": tensor for name, tensor in update.items()}
        tensors |= {f"state {name}": tensor for name, tensor in state.items()}
        output = output_digest({name: tensor.cpu().numpy() for name, tensor in tensors.items()})
        event = self.spending.release(output, "round", record_event(self.params, self.steps))
        return tuple(found.to_json() for found in distinct([*self.earlier, event]))


def check_network(
    module: nn.Module, params: BatchTraining, network: Network, shape: InputShape
) -> dict[str, list[str]]:
    """Refuse a network that DP-SGD cannot train, before anything is charged; says how its gradients are made."""
    from stages.methods.trials import refuse_mixing, try_example_gradients
    from stages.nets.state import trained
    from stages.privacy.clipping import refuse_batch_norm

    try:
        refuse_batch_norm(module.train())
        size = sum(weight.numel() for weight in trained(module).values())
        mechanism_of(params, params.batch_size).check_dimension(size)
        if network.initial_weights == "module":
            refuse_mixing(module)
        return try_example_gradients(module, shape, training=True)
    except ValueError as error:
        raise UsageError(f"differential privacy: {error}.") from error
