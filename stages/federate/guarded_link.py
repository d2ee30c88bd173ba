"""Flower's SuperLink, for nodes only: `python -P -m stages.federate.guarded_link OPTIONS`.

A SuperLink lets all who reach its port start runs (that is, code), register nodes and take over tasks: it asks for no
password. This one answers to other machines where a node shows its key, and nowhere else. The rest is for processes on
the server itself.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from stages.federate.own_messages import guard

_FOR_NODES = "/v1/fleet/"
_FOR_ALL = "/health"
_NEAR = ("127.0.0.1", "::1")
_BY_PROXY = {b"forwarded", b"x-forwarded-for", b"x-real-ip"}
# A file of 500 MB, which Flower writes again in order to delete it, keeps its database busy for longer than the five
# seconds that it waits for itself. Then the process that starts runs would end, and no run could be started any more.
# In milliseconds, less than the thirty seconds in which that process wants an answer.
_PATIENT = ("busy_timeout", "20000")
_REFUSAL = b"Only for processes on the server itself.\n"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class NodesOnly:
    """Around the SuperLink's web application."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _open_to(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            length = str(len(_REFUSAL)).encode()
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", length)]})
            await send({"type": "http.response.body", "body": _REFUSAL})
        else:
            await send({"type": "websocket.close", "code": 1008})


def _open_to(scope: Scope) -> bool:
    path, client, server = scope["path"], scope.get("client"), scope.get("server")
    if path == _FOR_ALL or path.startswith(_FOR_NODES):
        return True
    # A proxy on this machine speaks for others, and what it says of them would be believed in place of the address.
    if any(name.lower() in _BY_PROXY for name, _ in scope["headers"]):
        return False
    # The same address at both ends: a process on this machine that calls it by its name.
    return client is not None and (client[0] in _NEAR or (server is not None and client[0] == server[0]))


def main() -> None:
    from flwr.supercore import sql_mixin
    from flwr.superlink import main as web
    from flwr.superlink.cli import flower_superlink
    from flwr.superlink.servicer.fleet import fleet_handlers

    create = web.create_app

    def create_guarded(*given: Any, **more: Any) -> Any:
        app = create(*given, **more)
        app.add_middleware(NodesOnly)
        return app

    web.create_app = create_guarded
    sql_mixin.SQLITE_PRAGMAS = (*sql_mixin.SQLITE_PRAGMAS, _PATIENT)
    guard(fleet_handlers)
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
