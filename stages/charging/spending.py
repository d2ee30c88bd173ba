"""A differentially private stage at work: its cost is reserved, its randomness is secret, its result is entered.

Before it looks at a record, a stage reserves the most that it can cost in the spend ledger beside the key, within the
budget if there is one (privacy contract, rule 18). Its streams are bound to everything that determines the output
(rule 8), and the output is entered under that context before it is written: a second, different one is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import BudgetError, InputError, UsageError
from artifacts.formats import Format, format_named
from artifacts.formats.plain_data import read_mapping
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.identity.roster import federation_of
from artifacts.ledgers import remembered, spend
from artifacts.ledgers.spend import SpendLedger
from artifacts.metadata import Metadata
from artifacts.places import Place
from stages.methods.params.record_privacy import RecordPrivacy
from stages.privacy.budget import Budget
from stages.privacy.events import PLANNED_ID, PrivacyEvent, event_id, unsampled
from stages.privacy.streams import Label, SecretStream, context_digest

BUDGET = "budget.yaml"


@dataclass(frozen=True)
class Spending:
    """What a stage may draw from and must settle; made by `reserve`. `events` are those that were charged."""

    key: Key
    ledger: Path
    context: Mapping[str, Any]
    events: tuple[PrivacyEvent, ...] = ()
    federation: str = ""

    def stream(self, label: Label) -> SecretStream:
        return SecretStream(self.key.secret, self.context, label)

    @property
    def mark(self) -> str:
        """Names this computation under this key: what one began with its noise, no other may go on with."""
        return self.key.derive(f"computation {context_digest(self.context).hex()}").hex()

    def release(self, output: str, part: str, event: PrivacyEvent) -> PrivacyEvent:
        """Enter the digest of what came out, before it is written anywhere; the event with its id."""
        identity = event_id(self.key.secret, self.context, output)
        made = dataclasses.replace(event, id=identity, federation=self.federation)
        with spend.locked(self.ledger, self.key) as book:
            book.release(context=context_digest(self.context).hex(), part=part, output=output, event=made.id)
        return made


def context_of(metadata: Metadata, *, device: str, arithmetic: str) -> dict[str, Any]:
    """Whatever could change an output (privacy contract, rule 8): a different one never meets the same noise.

    What the output will say of itself, the kind of device, and what else decides the last bits there.
    """
    return {
        "inputs": [reference.to_json() for reference in metadata.inputs],
        "params": dict(metadata.params),
        "seed": metadata.seed,
        "stage": metadata.stage,
        "client": metadata.client,
        "round": metadata.round,
        "versions": dict(metadata.versions),
        "device": device,
        "arithmetic": arithmetic,
    }


def reserve(
    key: Path,
    *,
    context: Mapping[str, Any],
    data: Sequence[str],
    events: Sequence[PrivacyEvent],
    beside: Sequence[Path] = (),
    draw: str | None = None,
) -> Spending:
    """Charge the events, or refuse. `data` are the digests of the private inputs, `beside` their paths.

    Ledger and budget are those of the data: in the folder of the inputs, whatever key is used, and only where there
    are none beside the key. A key that the data's ledger does not know is refused, and so is a copy of a dataset that
    belongs to another ledger (privacy contract, rule 29).

    The very same computation, charged before, is free: it can only give the same bytes again. `draw` names the secret
    sample behind the events, if other computations can have the same. Its coins amplify one release, the first: who is
    in that is in the next one too, which is charged as if everybody took part.
    """
    home = home_of(key, beside)
    ledger, secret, federation = spend.beside(home), keys.read(key), _federation(home)
    if federation:
        context = {**context, "federation": federation}
        events = [dataclasses.replace(event, federation=federation) for event in events]
    digest, own = context_digest(context).hex(), _own_datasets(beside)
    budget = read_budget(home.with_name(BUDGET))
    with spend.locked(ledger, secret) as book:
        marks = [_mark(draw), _mark(f"{draw} {digest}")] if draw is not None else []
        # Under any key: the coins are those of the messages, and a new key draws none again (rule 29).
        if marks and book.has(marks[0], any_key=True) and not book.has(marks[1]):
            events = [unsampled(event) for event in events]
        if not book.has(digest):
            book.claim(own)
            if budget is not None:
                _check(budget, book.charged(), events, ledger)
            _enter_draw(book, marks)
            planned = [dataclasses.replace(event, id=PLANNED_ID).to_json() for event in events]
            book.reserve(stage=str(context["stage"]), context=digest, data=data, events=planned)
    return Spending(secret, ledger, context, tuple(events), federation)


def _own_datasets(inputs: Sequence[Path]) -> list[str]:
    """The digests of the client's own datasets among its inputs. What was dealt out to several is nobody's own."""
    datasets = [path for path in inputs if format_named(path.name) is Format.DATASET]
    if not datasets:
        return []

    from stages.data.dataset_images import describe_dataset  # with pyarrow, for which the server has no use here

    described = [describe_dataset(path) for path in datasets]
    return [dataset.sha256 for dataset in described if dataset.metadata.custody == "private"]


def _federation(home: Path) -> str:
    """Which one the data is used in: what is released in it counts in no other, and neither does its noise."""
    if _copy is not None:
        return _copy.federation
    place = Place.of(home)
    return federation_of(place) if place is not None else ""


def _enter_draw(book: SpendLedger, marks: Sequence[str]) -> None:
    """That a draw was used, and by which computation, in entries without a price; before the computation's own."""
    if marks and not book.has(marks[0], any_key=True):
        for mark in marks:
            book.reserve(stage="sample-clients", context=mark, data=[], events=[])


def _mark(text: str) -> str:
    return hashlib.sha256(f"fedsynth/1 draw {text}".encode()).hexdigest()


@dataclass(frozen=True)
class _Copy:
    key: Path
    federation: str


_copy: _Copy | None = None


@contextlib.contextmanager
def charged_to_copy(key: Path, federation: str) -> Iterator[None]:
    """For a replay: whatever is charged goes to a copy of the ledger, beside this path, never to that of the data.

    `federation` is the one that the file to be made again says, or none.
    """
    global _copy
    before, _copy = _copy, _Copy(key, federation)
    try:
        with remembered.paused():
            yield
    finally:
        _copy = before


def home_of(key: Path, inputs: Sequence[Path]) -> Path:
    """A path in the folder that has the ledger and the budget of these private inputs: theirs, or else the key's."""
    if _copy is not None:
        return _copy.key
    folders = {folder for path in inputs for folder in (path.absolute().parent, path.resolve().parent)}
    owned = sorted(
        folder for folder in folders if any(os.path.lexists(folder / name) for name in (spend.beside(key).name, BUDGET))
    )
    if len({folder.resolve() for folder in owned}) > 1:
        raise UsageError(
            f"the private inputs are charged to two ledgers, in {owned[0]} and {owned[1]}: use one's alone."
        )
    return owned[0] / key.name if owned else key


def refuse_uncovered(
    key: Path, privacy: Sequence[Mapping[str, Any]], disclosures: Sequence[str], beside: Sequence[Path] = ()
) -> None:
    """Where there is a budget, a file that discloses something without noise is refused: it costs ∞."""
    key = home_of(key, beside)
    budget = read_budget(key.with_name(BUDGET))
    if budget is None or (privacy and not disclosures):
        return
    stated = f"it would tell {', '.join(disclosures)}" if disclosures else "it would leave"
    raise BudgetError(
        f"the budget of ε {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit} forbids this: {stated} without "
        f"noise, which costs ∞. Add noise, or take {key.with_name(BUDGET)} away. No file was written."
    )


def record_event(params: RecordPrivacy, steps: int) -> PrivacyEvent:
    """What a training with these parameters does to one record or person: `steps` noised sums of clipped gradients."""
    assert params.sampling_rate is not None and params.noise_multiplier is not None  # checked, and calibrated
    assert params.clip_norm is not None
    return PrivacyEvent.planned(
        unit=params.unit or "record",
        sampling_rate=params.sampling_rate,
        noise_multiplier=params.noise_multiplier,
        clip_norm=params.clip_norm,
        steps=steps,
        trust="nobody",
    )


def key_of(out: Path, given: Path | None) -> Path:
    """The key as given, or that of the participant whose folder the output is in."""
    if given is not None:
        return given
    place = Place.of(out)
    if place is None:
        raise UsageError(f"whose key? Give --key, or write {out.name} into NAME/private/ or NAME/outbox/.")
    return place.key


def read_budget(path: Path) -> Budget | None:
    """The budget beside the key, if there is one. A link that leads nowhere is one that cannot be read."""
    if not os.path.lexists(path):
        return None
    try:
        return Budget.from_mapping(read_mapping(path))
    except (ValueError, UsageError) as error:
        raise InputError(f"{path} is not a budget: {str(error).rstrip('.')}. Nothing was read or released.") from error


def spent_of(releases: Sequence[Sequence[Mapping[str, Any]]], path: Path) -> list[list[PrivacyEvent]]:
    """The reservations of a ledger as events. One that is not understood is an error, never zero."""
    with understood(path):
        return [[PrivacyEvent.from_json(fields) for fields in release] for release in releases]


@contextlib.contextmanager
def understood(where: str | Path | None = None) -> Iterator[None]:
    """Around what reads privacy events of a file: `InputError` for one that is not as fedsynth writes them."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        place = "" if where is None else f"{where}: "
        raise InputError(f"{place}{error}. An event that is not understood is never taken for nothing.") from error


def _check(
    budget: Budget, charged: Sequence[Sequence[Mapping[str, Any]]], events: Sequence[PrivacyEvent], path: Path
) -> None:
    before = spent_of(charged, path)
    try:
        then = budget.spent([*before, list(events)])
        if then <= budget.epsilon:
            return
        now = budget.spent(before)
        allowed = budget.most_steps(before, events[0]) if len(events) == 1 else 0
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from error
    offer = (
        f"What is left allows {allowed} of its {events[0].steps} steps with this noise."
        if allowed
        else "What is left allows none of it with this noise."
    )
    raise BudgetError(
        f"the budget of ε {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit} does not allow this: {now:.3f} is "
        f"spent, and it would become {then:.3f}. {_why(budget, before, events)}{offer} Nothing was read."
    )


def _why(budget: Budget, before: Sequence[Sequence[PrivacyEvent]], events: Sequence[PrivacyEvent]) -> str:
    """How the two numbers of a refusal go together: they are no sums of what each training says about itself."""
    alone = budget.spent([list(events)])
    asked = ", ".join(f"σ {e.noise_multiplier:g}, q {e.sampling_rate:g}, {e.steps:,} steps" for e in events)
    if math.isinf(alone):
        return f"Its noise ({asked}) does not protect a {budget.unit}: that costs ∞. "
    price = f"Alone it costs {alone:.3f} ({asked}), at the budget's δ, whatever --delta says. "
    if not any(before):
        return price
    return (
        f"{price}One release is counted exactly; several that follow one another are added up at one Rényi order, "
        f"here {budget.order:g}, which can cost more than the sum of their prices. fedsynth budget show lists what "
        "was charged. "
    )
