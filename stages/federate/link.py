"""Whether there is a SuperLink at an address, and the right one: asked before Flower is started.

Flower tells a wrong certificate from a SuperLink that is not there by words in a log alone.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import InputError, UsageError, VerificationError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SECONDS = 10.0  # for one answer


@dataclass(frozen=True)
class Link:
    """A SuperLink: `address` is HOST:PORT, `roots` the certificates that vouch for it."""

    address: str
    roots: Path

    def __post_init__(self) -> None:
        host, colon, port = self.address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
            raise UsageError(f"--superlink {self.address}: write HOST:PORT, as in link.example.org:9092.")

    def check(self, patience: float = 0.0) -> None:
        """Return once it answers and its certificate is good. One that is not there is waited for, `patience` long."""
        context = trusting(self.roots)
        until = time.monotonic() + patience
        while True:
            try:
                self._ask(context)
                return
            except _NotThere as error:
                if time.monotonic() >= until:
                    raise InputError(
                        f"no SuperLink at {self.address}: {error}. Start it with fedsynth federate superlink, or check "
                        "--superlink."
                    ) from None
            time.sleep(0.2)

    def _ask(self, context: ssl.SSLContext) -> None:
        try:
            with self._opener(context).open(f"https://{self.address}/health", timeout=_SECONDS):
                return
        except urllib.error.HTTPError as error:
            raise InputError(
                f"what answers at {self.address} is no SuperLink: /health says {error.code}. Check --superlink."
            ) from None
        except urllib.error.URLError as error:
            reason = error.reason
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise VerificationError(
                    f"the certificate of the SuperLink at {self.address} is not vouched for by {self.roots}: "
                    f"{reason.verify_message}. Nothing was sent; ask the server for its CA certificate."
                ) from None
            if isinstance(reason, ssl.SSLError):
                raise InputError(
                    f"what answers at {self.address} does not speak TLS ({reason.reason}). Check --superlink."
                ) from None
            raise _NotThere(getattr(reason, "strerror", None) or reason) from None
        except (OSError, ValueError) as error:  # cut off, or no HTTP
            raise _NotThere(error) from None

    def _opener(self, context: ssl.SSLContext) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if self.address.rpartition(":")[0].strip("[]") in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy that is set is for other machines
        return urllib.request.build_opener(*handlers)


class _NotThere(Exception):
    """Nobody answers, so far."""


def trusting(roots: Path) -> ssl.SSLContext:
    """A context that believes these certificates and no others."""
    need_file(roots, "certificate")
    try:
        return ssl.create_default_context(cafile=str(roots))
    except ssl.SSLError as error:
        raise InputError(f"{roots} holds no certificate in PEM form ({error.reason}).") from None


def check_server(certificate: Path, key: Path, ca: Path, host: str) -> None:
    """Whether clients will believe a server with this certificate that they call `host`: a handshake in memory."""
    need_file(certificate, "certificate")
    need_file(key, "key")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise InputError(
            f"{certificate} and {key} are no certificate with its key ({error.reason}). Give two PEM files."
        ) from None
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        trusting(ca).wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    )
    try:
        for end in ends * 2:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise VerificationError(
            f"clients would refuse {certificate}: {error.verify_message}. It must be signed by {ca} and hold, as "
            f"subjectAltName, {host} and the name by which clients call the server."
        ) from None


def need_file(path: Path, what: str) -> None:
    if not path.is_file():
        raise InputError(f"no {what} at {path}. Check the path.")


def free_port(host: str, port: int | None) -> int:
    """The port, if nobody holds it; without one, any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port or 0))
        except OSError as error:
            raise InputError(f"cannot listen at {host}:{port}: {error.strerror}. Choose another --port.") from None
        found: int = probe.getsockname()[1]
        return found
