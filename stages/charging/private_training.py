"""What every differentially private training shares: its context, its streams, its mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from artifacts.errors import InputError, UsageError
from artifacts.formats.dataset_rows import has_units
from artifacts.metadata import Metadata
from stages.charging.spending import Spending, context_of, record_event
from stages.methods.params.record_privacy import RecordPrivacy, RoundPrivacy
from stages.privacy.events import PrivacyEvent, distinct

if TYPE_CHECKING:
    from stages.methods.private_gradients import SecretStreams
    from stages.privacy.mechanism import GaussianMechanism

P = TypeVar("P", bound=RoundPrivacy)


def training_context(metadata: Metadata) -> dict[str, Any]:
    """The context of what torch computes, on the device and with the arithmetic that the file will name."""
    device, _, arithmetic = str(metadata.arithmetic).partition(": ")
    return context_of(metadata, device=device, arithmetic=arithmetic)


def secret_streams(spending: Spending) -> SecretStreams:
    from stages.methods.private_gradients import SecretStreams

    return SecretStreams(
        sampling=spending.stream("sampling"), examples=spending.stream("examples"), noise=spending.stream("noise")
    )


def mechanism_of(params: RecordPrivacy, expected_size: int) -> GaussianMechanism:
    from stages.privacy.mechanism import GaussianMechanism

    assert params.noise_multiplier is not None and params.clip_norm is not None  # checked, and calibrated
    return GaussianMechanism(
        clip_norm=params.clip_norm, noise_multiplier=params.noise_multiplier, expected_size=expected_size
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


def inherited_events(paths: Sequence[Path], sources: Sequence[Metadata]) -> list[PrivacyEvent]:
    """The events that private inputs bring with them; one that private data went into without noise is refused.

    Records of a dataset that `partition` made, or that the client brought, are what is protected. A client's own
    synthetic images, its states and its models were computed from them, each from all: a record is more than one row
    there.
    """
    events: list[PrivacyEvent] = []
    for path, metadata in zip(paths, sources, strict=True):
        made = metadata.kind != "dataset" or metadata.stage == "synthesize"
        derived = made or metadata.privacy or metadata.disclosures
        # What the server dealt out has left before, at its own price.
        if not derived or metadata.custody == "downlink":
            continue
        if metadata.disclosures or not metadata.privacy:
            raise InputError(
                f"{path} was made from private records without differential privacy: a training on it has no ε. Make "
                "it anew under DP, or leave out --noise-multiplier and --target-epsilon."
            )
        events += [PrivacyEvent.from_json(event) for event in metadata.privacy]
    return events


def of_others(sources: Sequence[Metadata]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Events and disclosures of an update that no noise covers yet, from images of fedsynth's that were ingested.

    They were made from records that are not this client's to protect: noise that comes later, for the client, does not
    cover them (privacy contract, rule 30). What the server dealt out has left at its own price; what the client drew
    from its own generator is its own.
    """
    brought = [metadata for metadata in sources if metadata.stage == "ingest"]
    events = distinct(PrivacyEvent.from_json(event) for metadata in brought for event in metadata.privacy)
    disclosed = {word for metadata in brought for word in metadata.disclosures}
    if not events and not disclosed:
        return (), ()
    return tuple(event.to_json() for event in events), tuple(sorted({"update", *disclosed}))


def check_unit(params: RecordPrivacy, paths: Sequence[Path], sources: Sequence[Metadata]) -> None:
    """Refuse to promise an ε for people where the data does not say whose its records are (privacy contract, rule 32).

    Rows that were dealt out, or drawn from a generator, are nobody's: what they cost is in their own events.
    """
    if params.unit != "person":
        return
    own = [
        (path, metadata)
        for path, metadata in zip(paths, sources, strict=True)
        if metadata.custody == "private" and metadata.stage != "synthesize"
    ]
    for path, metadata in own:
        if not has_units(metadata):
            raise InputError(
                f"{path} does not say whose its records are, so that no ε for people would hold. Ingest it with "
                "--unit-column, or leave out --unit person. Nothing was read."
            )
    if len(own) > 1:
        raise UsageError(
            f"--unit person: people are counted in each file apart, so that nobody knows who is in both {own[0][0]} "
            f"and {own[1][0]}. Ingest all records as one file."
        )


def with_noise(params: P, steps: int) -> P:
    """With the noise that a target ε over all its rounds of `steps` asks for. What no event can hold is refused."""
    if not params.is_private:
        return params
    try:
        if params.target_epsilon is None:
            record_event(params, steps)
        return params.calibrated(steps * params.privacy_rounds, privacy_rounds=1)
    except ValueError as error:
        raise UsageError(f"differential privacy: {error}.") from error
