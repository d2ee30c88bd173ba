"""The roster as secure aggregation reads it: each client's key for signing its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import VerificationError
from artifacts.identity import keys
from artifacts.identity import roster as rosters
from stages.secagg.primitives import ForgeryError, check_signature


@dataclass(frozen=True)
class StepKeys:
    """Verify keys by client name."""

    path: Path
    clients: Mapping[str, bytes]

    def check(self, client: str, signature: bytes, statement: Mapping[str, Any], where: Path) -> None:
        """Refuse a signature that is not this client's."""
        if client not in self.clients:
            raise VerificationError(f"{where}: client {client!r} is not in the roster {self.path}. Leave it out.")
        try:
            check_signature(self.clients[client], signature, statement)
        except ForgeryError:
            raise VerificationError(
                f"{where}: the signature of client {client!r} is not by its key in {self.path}: forged, changed on the "
                "way, or of another round. Get the file again from the client."
            ) from None


def signing_key(key: keys.Key) -> bytes:
    """The secret half of a client's identity."""
    return rosters.signing_key(key, "secagg")


def read_roster(path: Path) -> StepKeys:
    everybody = rosters.read_roster(path).clients
    return StepKeys(path, {name: known["secagg"] for name, known in everybody.items()})
