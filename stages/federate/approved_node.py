"""Flower's SuperNode, for one app only: `python -P -m stages.federate.approved_node FEDERATION.YAML OPTIONS`.

A SuperNode runs whatever app the SuperLink hands to it, beside the client's data. This one takes the bundle that
follows from the terms that the client has read, and lets every other lie.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError


def main() -> None:
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.fleet_http_client import FleetHttpClient

    terms = Path(sys.argv.pop(1))
    fetch = FleetHttpClient.GetFab

    def fetch_approved(client: Any, request: Any) -> Any:
        answer = fetch(client, request)
        reason = _objection(answer.fab.content, terms)
        if reason is not None:
            logging.getLogger("flwr").error("fedsynth: refused to run an app: %s. Nothing of it was run.", reason)
            raise RunNotRunningException  # Flower's word for a message to be let lie
        return answer

    FleetHttpClient.GetFab = fetch_approved
    sys.argv[0] = "flower-supernode"
    flower_supernode()


def _objection(bundle: bytes, terms: Path) -> str | None:
    """Why an app may not be run, by the terms as they are now."""
    # Imported here: a node starts sooner without, and waits for its first app anyway.
    from stages.federate.app_folder import bundle_digest
    from stages.federate.terms import read_terms
    from stages.plugins import using

    try:
        with using([]):
            approved = bundle_digest(read_terms(terms))
    except FedsynthError as error:
        return str(error).rstrip(".")
    found = hashlib.sha256(bundle).hexdigest()
    return None if found == approved else f"its digest is {found}, by {terms} it would be {approved}"


if __name__ == "__main__":
    main()
