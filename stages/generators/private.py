"""The differentially private side of `train-generator`: what it costs, where its randomness comes from.

Free of torch until a training begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.metadata import Metadata
from stages.charging.private_training import mechanism_of, secret_streams, training_context
from stages.charging.spending import Spending, key_of, record_event, reserve
from stages.methods.params.generator import GeneratorTraining
from stages.privacy.events import PrivacyEvent, output_digest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from stages.methods.generator_training import Generator, PartGradient
    from stages.methods.image_rows import ImageRows

_SUBSET = 0  # of the sampling stream; its other pieces are the batches of steps 1, 2, …


@dataclass(frozen=True)
class PrivateTraining:
    """A training whose cost is reserved; made by `begin`."""

    params: GeneratorTraining
    spending: Spending

    @classmethod
    def begin(
        cls, params: GeneratorTraining, metadata: Metadata, out: Path, key: Path | None, beside: Sequence[Path]
    ) -> PrivateTraining:
        """Reserve the whole training before it sees an image; an identical one that was killed is free."""
        event = record_event(params, params.releases(params.num_steps(0)))
        digests = [str(reference.sha256) for reference in metadata.inputs]
        context = training_context(metadata)
        return cls(params, reserve(key_of(out, key), context=context, data=digests, events=[event], beside=beside))

    @property
    def clip_norm(self) -> float:
        assert self.params.clip_norm is not None  # checked
        return self.params.clip_norm

    def subset(self, units: NDArray[np.int64], share: float) -> NDArray[np.int64]:
        """Each image, or each person with all of theirs (`units` numbers them), with probability ρ, by a secret coin.

        A fixed number of them would change with every record that comes or goes, and the choice of the others with it.
        No amplification is claimed for it.
        """
        coins = self.spending.stream("sampling").at(_SUBSET).bernoulli(share, int(units.max(initial=-1)) + 1)
        return np.flatnonzero(coins[units])

    def gradients(
        self,
        family: Generator,
        images: ImageRows,
        labels: Tensor,
        units: NDArray[np.int64] | None,
        num_classes: int,
        public_of: Callable[[int], torch.Generator],
    ) -> Callable[[int], PartGradient]:
        import torch

        from stages.methods.generator_training import MeanMatching
        from stages.methods.private_gradients import private_gradients, public_gradients

        params = self.params
        if isinstance(family, MeanMatching):
            return public_gradients(family, num_classes, params.batch_size, public_of)
        assert params.sampling_rate is not None  # checked
        return private_gradients(
            family,
            images,
            labels,
            units=None if units is None else torch.from_numpy(units),
            num_classes=num_classes,
            sampling_rate=params.sampling_rate,
            mechanism=mechanism_of(params, params.batch_size),
            multiplicity=params.noise_multiplicity,
            streams=secret_streams(self.spending),
            micro_batch=params.micro_batch,
            public_of=public_of,
        )

    def noised(self, sums: Tensor) -> tuple[Tensor, float]:
        """The one look at the images of a family that looks once, and the standard deviation of its noise."""
        import torch

        from stages.privacy.mechanism import noisy_mean

        mechanism = mechanism_of(self.params, 1)
        mechanism.check_dimension(sums.numel())
        found = noisy_mean({"sums": sums.numpy()}, mechanism, self.spending.stream("noise").at(1))["sums"]
        return torch.from_numpy(found).double(), mechanism.scale

    def released(self, tensors: Mapping[str, NDArray[Any]], steps: int) -> tuple[dict[str, Any], ...]:
        """The event of the weights after `steps` steps, which are entered in the spend ledger."""
        output = output_digest(tensors)
        return (
            self.spending.release(
                output, f"step {steps}", record_event(self.params, self.params.releases(steps))
            ).to_json(),
        )

    def stated(self, steps: int) -> dict[str, Any]:
        """What the summary says of the cost; ε where δ is known."""
        event: PrivacyEvent = record_event(self.params, self.params.releases(steps))
        about: dict[str, Any] = {
            "noise_multiplier": event.noise_multiplier,
            "clip_norm": event.clip_norm,
            "sampling_rate": event.sampling_rate,
        }
        if self.params.delta is not None:
            from stages.privacy.accountant import epsilon

            found = epsilon([event], delta=self.params.delta)
            about |= {"epsilon": {"pld": found.pld, "rdp": found.rdp}, "delta": self.params.delta}
        return about
