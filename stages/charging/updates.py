"""Client-level differential privacy of updates: bounds that client and server both apply, and where noise comes from.

Two ways. The server is trusted: clients send clipped updates, `aggregate --rule dp-mean` clips them again, adds all of
the noise and is charged, and the models that it sends carry the events. Or nobody sees one message alone: each client
adds a share of the noise in `encode` (privacy contract, rule 23), and is charged itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from stages.charging.spending import Spending, context_of, reserve
from stages.execution.randomness import numpy_stream
from stages.methods.params.aggregation import DpMeanRule
from stages.methods.params.client_privacy import NEXT_CLIP, PUBLIC_MASKS, UpdateBounds
from stages.methods.params.encoding import DeltaEncoding
from stages.methods.sparsify import Mask, largest, masked, moved_mask, random_mask
from stages.models.file import check_fits, read_model, round_of
from stages.privacy.adaptive_clip import next_clip, noisy_share
from stages.privacy.events import PrivacyEvent, alone, output_digest
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism, clipped, noisy_mean

Tensors = Mapping[str, NDArray[Any]]


class Bounds:
    """Mask and clip of a round's updates; the same at every client and at the server."""

    def __init__(self, params: UpdateBounds, model: TensorArtifact, before: Path | None, names: Tensors) -> None:
        self.adapts = params.adaptive_clip
        self._clip = _clip_of_round(params, model)
        self._own = params.keep if params.sparsify == "own-top-k" else None
        self._mask = _public_mask(params, model, before, names)

    def apply(self, update: Tensors) -> dict[str, NDArray[Any]]:
        if self._mask is not None:
            update = masked(update, self._mask)
        elif self._own is not None:
            update = masked(update, largest(update, self._own))
        return clipped(update, self._clip) if self._clip is not None else dict(update)

    @property
    def clip_norm(self) -> float:
        assert self._clip is not None  # noise is never added without a clip
        return self._clip

    def is_within(self, applied: Tensors) -> bool:
        """Whether an update that `apply` gave back was no longer than the clip before it: a clipped one is as long.

        The client clips too, and rounds to float32: so lengths within twice the clip's margin count as clipped.
        """
        length = math.sqrt(sum(float(np.sum(np.square(tensor))) for tensor in applied.values()))
        return length <= self.clip_norm * (1 - 2 * CLIP_MARGIN)

    def coordinates(self, total: Tensors) -> dict[str, NDArray[np.float64]]:
        """What noise must cover: the coordinates of a public mask, side by side; all of them, if there is none."""
        if self._mask is None:
            return {name: np.asarray(tensor, np.float64) for name, tensor in total.items()}
        return {name: np.asarray(tensor, np.float64)[self._mask[name]] for name, tensor in total.items()}

    def restored(self, noised: Tensors, shapes: Tensors) -> dict[str, NDArray[np.float32]]:
        """The other way: zero wherever the mask says that nothing was sent."""
        if self._mask is None:
            return dict(noised)
        result = {name: np.zeros(shapes[name].shape, np.float32) for name in noised}
        for name, values in noised.items():
            result[name][self._mask[name]] = values
        return result


def share_event(params: DeltaEncoding) -> PrivacyEvent:
    """What a round of noise in shares costs a client."""
    assert params.noise_multiplier is not None and params.clip_norm is not None  # DeltaEncoding checked it
    return PrivacyEvent.planned(
        unit="client", sampling_rate=1.0, noise_multiplier=params.noise_multiplier, clip_norm=params.clip_norm,
        steps=1, trust="aggregate" if params.shares > 1 else "nobody", shares=params.shares,
    )  # fmt: skip


def mean_event(params: DpMeanRule, clip_norm: float, draw: str = "") -> PrivacyEvent:
    """What a round of the server's noise costs every client, with the clip of that round."""
    return PrivacyEvent.planned(
        unit="client", sampling_rate=params.sampling_rate, noise_multiplier=params.noise_multiplier,
        clip_norm=clip_norm, steps=1, trust="server", draw=draw,
        count_noise=params.count_noise * params.expected_clients if params.adaptive_clip else 0.0,
    )  # fmt: skip


def add_share(
    update: Tensors, bounds: Bounds, params: DeltaEncoding, metadata: Metadata, key: Path, beside: Sequence[Path]
) -> tuple[dict[str, NDArray[np.float32]], tuple[dict[str, Any], ...]]:
    """The client's clipped update with its share of the noise, N(0, σ²C²/shares), and the event that it costs."""
    assert params.noise_multiplier is not None and params.clip_norm is not None  # DeltaEncoding checked it
    with _as_usage_error():
        event = share_event(params)
        alone(event)  # an auditor will ask what it is worth
        mechanism = GaussianMechanism(
            clip_norm=params.clip_norm, noise_multiplier=params.noise_multiplier / params.shares**0.5, expected_size=1.0
        )
        contribution = bounds.coordinates(bounds.apply(update))
        mechanism.check_dimension(sum(tensor.size for tensor in contribution.values()))
    digests = metadata.digests_of("update")
    spending = reserve(key, context=_context(metadata), data=digests, events=[event], beside=beside)
    noised = noisy_mean(contribution, mechanism, spending.stream("noise"))
    return _released(bounds.restored(noised, update), spending)


@dataclass(frozen=True)
class NoisedMean:
    """What the server releases of a round: the mean, the event that it costs, and the next clip if that is adapted."""

    mean: Mapping[str, NDArray[np.float32]]
    events: tuple[dict[str, Any], ...]
    next_clip: float | None = None


def add_noise(
    total: Tensors, within: int, bounds: Bounds, params: DpMeanRule, metadata: Metadata, key: Path
) -> NoisedMean:
    """The server's noised mean of clipped updates, divided by qN, and the event that it costs every client.

    All that is made from one draw of clients has the same coins: only the first release of a round is amplified. Of
    the updates `within` were not clipped: under an adaptive clip their number is released too, in the same event.
    """
    with _as_usage_error():
        event = mean_event(params, bounds.clip_norm, _draw(params.sampling_rate, metadata))
        mechanism = GaussianMechanism(
            clip_norm=bounds.clip_norm,
            noise_multiplier=event.update_noise or params.noise_multiplier,
            expected_size=params.expected_clients,
        )
        summed = bounds.coordinates(total)
        mechanism.check_dimension(sum(tensor.size for tensor in summed.values()))
    digests = metadata.digests_of("message")
    # Not by the rate that is claimed: the same messages under another rate were not drawn again.
    draw = f"round {metadata.round}"
    spending = reserve(key, context=_context(metadata), data=digests, events=[event], draw=draw)
    mean = bounds.restored(noisy_mean(summed, mechanism, spending.stream("noise")), total)
    if not params.adaptive_clip:
        return NoisedMean(*_released(mean, spending))
    share = noisy_share(
        within, len(digests), count_noise=event.count_noise, expected_size=params.expected_clients,
        noise=spending.stream("noise").at(0),
    )  # fmt: skip
    mean, events = _released(mean, spending, {"share within the clip": np.array([share])})
    after = next_clip(bounds.clip_norm, share, quantile=params.clip_quantile, rate=params.clip_rate)
    return NoisedMean(mean, events, after)


def _draw(sampling_rate: float, metadata: Metadata) -> str:
    """Names the sample behind this round's messages: they are for one model, whatever key aggregates them.

    Nothing in it is secret: a downlink file names the model that it was made from and its round anyway.
    """
    if sampling_rate == 1:
        return ""
    model = metadata.digests_of("model")[0]
    return hashlib.sha256(f"fedsynth/1 draw of round {metadata.round} from {model}".encode()).hexdigest()


@contextlib.contextmanager
def _as_usage_error() -> Iterator[None]:
    """Numbers that no event and no mechanism can hold, refused before anything is charged."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"client-level privacy: {error}.") from error


def _released(
    tensors: dict[str, NDArray[np.float32]], spending: Spending, beside: Tensors | None = None
) -> tuple[dict[str, NDArray[np.float32]], tuple[dict[str, Any], ...]]:
    (event,) = spending.events
    return tensors, (spending.release(output_digest({**tensors, **(beside or {})}), "round", event).to_json(),)


def _context(metadata: Metadata) -> dict[str, Any]:
    """numpy does the arithmetic, in float64, without threads that could change a sum."""
    return context_of(metadata, device="cpu", arithmetic="float64")


def _clip_of_round(params: UpdateBounds, model: TensorArtifact) -> float | None:
    """The clip as given, or, where it is adapted, as the model states it: public, and the same for everybody."""
    if not params.adaptive_clip or not round_of(model):
        return params.clip_norm
    stated = model.metadata.params.get(NEXT_CLIP)
    if type(stated) is not float or not 0 < stated < math.inf:
        raise InputError(
            f"{model.path} does not state the clip of the next round: aggregate every round with --adaptive-clip."
        )
    return stated


def _public_mask(params: UpdateBounds, model: TensorArtifact, before: Path | None, names: Tensors) -> Mask | None:
    if before is not None and not params.follows_movement:
        raise UsageError("--before goes with --sparsify moved-k.")
    if params.sparsify not in PUBLIC_MASKS:
        return None
    here = {name: model.tensors[name] for name in names}
    rng = numpy_stream(params.mask_seed, stage="encode", round=round_of(model) + 1, of="mask")
    if not params.follows_movement or before is None:
        if params.follows_movement and round_of(model) > 0:
            raise UsageError("--sparsify moved-k needs --before, the model of the round before.")
        return random_mask(here, params.keep, rng)
    earlier = read_model(before)
    check_fits(earlier.tensors, model.tensors, before)
    if round_of(earlier) != round_of(model) - 1:
        raise InputError(f"{before} is of round {round_of(earlier)}; --before is that of round {round_of(model) - 1}.")
    # By its digest: so the mask is a function of the model, and everybody's is the same.
    if lineage.by_digest(earlier, "model") not in model.metadata.inputs:
        raise InputError(f"{model.path} was not made from {before}. Give the model that it was made from as --before.")
    return moved_mask(here, {name: earlier.tensors[name] for name in names}, params.keep, rng)
