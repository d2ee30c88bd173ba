"""A node's seat at the SuperLink: one process at a time, and given up for a node that was killed.

The SuperLink takes a node that was killed for present for a minute more, and turns its successor away. So a node notes
its seat in its folder, and gives it up when it starts again.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from artifacts.writing import atomic
from stages.federate.link import Link

_FILE = "node-id"


def take(folder: Path, node_id: str) -> None:
    atomic.write(folder / _FILE, [node_id.encode()], force=True, custody="private")


def give_up(folder: Path, link: Link, key: Path) -> None:
    """Tell the SuperLink that the process which had the seat is gone. If it knows that already, so much the better."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        _deactivate(int((folder / _FILE).read_text()), link, key)


def _deactivate(node_id: int, link: Link, key: Path) -> None:
    import httpx
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    secret = load_ssh_private_key(key.read_bytes(), None)
    interceptors = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(secret, secret.public_key()),
    ]
    roots = link.roots.read_bytes()
    with (
        contextlib.suppress(httpx.HTTPError),
        FleetHttpClient.from_server_address(link.address, False, roots, interceptors=interceptors) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
