"""Flower's SuperNode, for one app only: `python -P -m stages.federate.approved_node SHA256 OPTIONS`.

A SuperNode runs whatever app the SuperLink hands to it, beside the client's data. This one takes the bundle with the
given digest, which follows from the terms that the client has read, and lets every other lie.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from typing import Any


def main() -> None:
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.fleet_http_client import FleetHttpClient

    approved = sys.argv.pop(1)
    fetch = FleetHttpClient.GetFab

    def fetch_approved(client: Any, request: Any) -> Any:
        answer = fetch(client, request)
        found = hashlib.sha256(answer.fab.content).hexdigest()
        if found != approved:
            logging.getLogger("flwr").error(
                "fedsynth: refused to run an app with the digest %s: by federation.yaml it would be %s. Nothing of it "
                "was run, and nothing was answered.",
                found,
                approved,
            )
            raise RunNotRunningException  # Flower's word for a message to be let lie
        return answer

    FleetHttpClient.GetFab = fetch_approved
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
