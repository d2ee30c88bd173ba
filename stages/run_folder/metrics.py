"""What a run folder says of itself: the recipe, the accuracy after each round, and who may see that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from artifacts.errors import FedsynthError, InputError
from artifacts.formats import tensors_file
from artifacts.formats.plain_data import read_json, read_mapping
from artifacts.kinds import Custody
from artifacts.ledgers import egress
from artifacts.places import TERMS, RunFolder
from stages.registry import RULES


@dataclass(frozen=True)
class RunMetrics:
    """`accuracy` by round; `custody` is private if any of it was measured on private data (privacy contract, 17)."""

    accuracy: dict[int, float]
    custody: Custody


def read_recipe(folder: RunFolder) -> dict[str, Any]:
    """The recipe as it was run; in a home that of the terms; empty elsewhere."""
    record, terms = folder.simulation / "recipe.yaml", folder.root / TERMS
    if record.exists():
        return read_mapping(record)
    said = read_mapping(terms).get("recipe") if terms.is_file() else None
    return dict(said) if isinstance(said, Mapping) else {}


def read_metrics(folder: RunFolder) -> RunMetrics:
    accuracy: dict[int, float] = {}
    custody: Custody = "public"
    for path in sorted(folder.metrics.glob("round-*.json")):
        try:
            metrics = read_json(path)
            accuracy[int(metrics["round"])] = float(metrics["accuracy"])
            custody = "private" if metrics.get("custody") == "private" else custody
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
            raise InputError(f"{path} is no file of metrics that evaluate wrote ({error}). Move it away.") from error
    return RunMetrics(accuracy, custody)


def samples_secretly(folder: RunFolder, recipe: Mapping[str, Any]) -> bool:
    """Whether the ε of a run holds only while nobody but the server knows who took part (privacy contract, 4).

    Then the number of files and of bytes is as secret as the names. The recipe says it, or what the server sent.
    """
    if (recipe.get("aggregate") or {}).get("rule") in RULES.having("noised"):
        return True
    return any(event.get("unit") == "client" and event.get("sampling") == "poisson" for event in _sent_events(folder))


def _sent_events(folder: RunFolder) -> Iterator[Mapping[str, Any]]:
    """From the server's ledger and from the files themselves: one of the two may be damaged."""
    try:
        for entry in egress.read(folder.server.ledger).entries:
            yield from (event for event in entry.privacy if isinstance(event, Mapping))
    except FedsynthError:
        pass  # the audit says so
    for path in sorted(folder.server.outbox.glob("*.safetensors")):
        try:
            yield from tensors_file.read_header(path)[0].privacy
        except FedsynthError:
            continue
