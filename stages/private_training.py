"""What every differentially private training shares: its context, its streams, its mechanism.

The context holds whatever could change the output (privacy contract, rule 8), so that a different output never meets
the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import UsageError
from artifacts.metadata import Metadata
from stages.methods.params.record_privacy import RecordPrivacy
from stages.spending import Spending

if TYPE_CHECKING:
    import torch

    from stages.methods.private_gradients import SecretStreams
    from stages.privacy.mechanism import GaussianMechanism


def context_of(metadata: Metadata, device: torch.device) -> dict[str, Any]:
    """From what the output will say of itself, and from the machine."""
    from stages.torch_setup import arithmetic

    return {
        "inputs": [reference.to_json() for reference in metadata.inputs],
        "params": dict(metadata.params),
        "seed": metadata.seed,
        "stage": metadata.stage,
        "client": metadata.client,
        "round": metadata.round,
        "versions": dict(metadata.versions),
        "device": device.type,
        "arithmetic": arithmetic(device),
    }


def secret_streams(spending: Spending) -> SecretStreams:
    from stages.methods.private_gradients import SecretStreams

    return SecretStreams(
        sampling=spending.stream("sampling"), examples=spending.stream("examples"), noise=spending.stream("noise")
    )


def mechanism_of(params: RecordPrivacy, expected_size: int) -> GaussianMechanism:
    from stages.privacy.mechanism import GaussianMechanism

    assert params.noise_multiplier is not None  # checked, and calibrated
    return GaussianMechanism(
        clip_norm=params.clip_length, noise_multiplier=params.noise_multiplier, expected_size=expected_size
    )


def refuse_repetition(paths: Sequence[Path], digests: Sequence[str]) -> None:
    """Every record is one row: twice in the data, it would move a sum by twice the clip norm."""
    seen: dict[str, Path] = {}
    for path, digest in zip(paths, digests, strict=True):
        if digest in seen:
            raise UsageError(
                f"{path} is the same data as {seen[digest]}: each record would count twice, at the price of one. Give "
                "it once."
            )
        seen[digest] = path
