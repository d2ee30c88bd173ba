"""`sample-clients`: who takes part in a round, by a secret Poisson sample of the server's.

Amplification by sampling holds only against those who cannot see who was drawn (privacy contract, rule 4): the list is
the server's own, is derived from its key, and is in no downlink file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import UsageError
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.metadata import MetadataError, check_client_name
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.charging.spending import key_of
from stages.execution.progress import Summary
from stages.execution.versions import versions
from stages.privacy.streams import SecretStream


def sample_clients(
    clients: Sequence[str], out: Path, *, sampling_rate: float, round: int, key: Path | None = None, force: bool = False
) -> Summary:
    """Write the names of those who take part: each with probability q, independently. It may be nobody."""
    prepare(out, "server")
    if round < 1:
        raise UsageError(f"--round must be at least 1, found {round}.")
    if not 0 < sampling_rate <= 1:
        raise UsageError(f"--sampling-rate must be above 0 and at most 1, found {sampling_rate}.")
    if len(set(clients)) != len(clients):
        raise UsageError("a client is named twice: each has one chance.")
    for name in clients:
        try:
            check_client_name(name)
        except MetadataError as error:
            raise UsageError(f"{error}.") from error
    chosen = drawn(clients, sampling_rate, round, keys.read(key_of(out, key)))
    atomic.write_json(out, {"custody": "server", "round": round, "clients": chosen}, force=force)
    return {"out": str(out), "round": round, "custody": "server"}


def drawn(clients: Sequence[str], sampling_rate: float, round: int, key: Key) -> list[str]:
    """The same for the same key, round, rate and clients: a round cannot be drawn again until it pleases."""
    names = sorted(clients)
    context: dict[str, Any] = {
        "inputs": [], "params": {"clients": names, "sampling_rate": sampling_rate}, "seed": None,
        "stage": "sample-clients", "client": None, "round": round, "versions": versions(), "device": "cpu",
        "arithmetic": "integers",
    }  # fmt: skip
    coins = SecretStream(key.secret, context, "sampling").bernoulli(sampling_rate, len(names))
    return [name for name, takes_part in zip(names, coins, strict=True) if takes_part]
