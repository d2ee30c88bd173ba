"""A relay on loopback that counts: what goes to a server and back, TLS and all, as a network would see it."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

_BUFFER = 1 << 20


class Relay:
    """Listens at `address` from the beginning of the block to its end, and passes on to the port of the server."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._lock, self._open = threading.Lock(), set[socket.socket]()
        self._up = self._down = 0

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in (self._server, *self._open):
            _shut(end)

    def counted(self) -> tuple[int, int]:
        """Bytes to the server and from it, so far."""
        with self._lock:
            return self._up, self._down

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    _shut(near)
                    continue
                self._open |= {near, far}
                for source, target, up in ((near, far, True), (far, near, False)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pass_on, args=(source, target, up), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        buffer = memoryview(bytearray(_BUFFER))
        with contextlib.suppress(OSError):
            while count := source.recv_into(buffer):
                target.sendall(buffer[:count])
                with self._lock:
                    self._up, self._down = self._up + count * up, self._down + count * (not up)
        for end in (source, target):
            _shut(end)
            self._open.discard(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
