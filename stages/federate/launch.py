"""Starting Flower's two services: the SuperLink at the server, a SuperNode at each client.

Always with TLS, with node authentication, without telemetry. Each runs until it is stopped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artifacts import limits
from artifacts.errors import FedsynthError, InputError, UsageError, VerificationError
from artifacts.identity.owner import refuse_shared
from artifacts.places import RunFolder
from artifacts.writing import atomic, locks
from stages.execution.progress import Summary
from stages.federate import flower
from stages.federate.child import Child, Echo, started
from stages.federate.confined import command as confined
from stages.federate.confined import version as landlock_version
from stages.federate.flower_app import wire
from stages.federate.keeper import WorkerBounds, kept
from stages.federate.link import Link, check_server, free_port, need_file
from stages.federate.party import place_of
from stages.federate.terms import FILE, read_terms

Ready = Callable[[Summary], None]

ANY = WorkerBounds()

DATABASE = "state.db"
_SECONDS_TO_START = 120.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listening everywhere, asked from here
_SEAT = "connected-to"  # is there while a node is, and after one that was killed
_NOT_LET_IN = r"\[code: 2004\]|Invalid SuperNode authentication"
_SEAT_SECONDS, _SEAT_PAUSE = 90.0, 5.0
_CONNECTED = r"SuperNode ID: (\d+)"
_ENDED_BY = r"^(?!For more information|Exit Code).*\b(?:ERROR|[Ee]rror|[Ff]ailed|[Uu]nable|[Ii]nvalid)\b.*"


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The server's certificate with its key, and the CA that vouches for it: three PEM files."""

    certificate: Path
    key: Path
    ca: Path


def superlink(
    home: Path, *, host: str, port: int, tls: Tls, drop: str | None = None, bounds: WorkerBounds = ANY,
    unconfined: bool = False, echo: Echo, ready: Ready,
) -> None:  # fmt: skip
    """Run the SuperLink of the server whose home this is, and the worker that its runs ask. What it holds for the
    clients survives a restart.
    """
    # Flower's own processes reach it in the same way: a certificate that is no good for this is no good at all.
    near = _ANY.get(host, host)
    check_server(tls.certificate, tls.key, tls.ca, near)
    program = flower.program("flower-superlink")
    free_port(host, port)
    folder = flower.folder(RunFolder(home).server)
    pems = [tls.certificate.absolute(), tls.key.absolute(), tls.ca.absolute()]
    words: list[str | Path] = [
        program, "--host", host, "--port", str(port), "--database", folder.absolute() / DATABASE,
        "--ssl-certfile", pems[0], "--ssl-keyfile", pems[1], "--ssl-ca-certfile", pems[2],
        "--enable-supernode-auth", "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    words = _alone(words, folder, pems, unconfined=unconfined)
    local = Link(f"{_bracketed(near)}:{port}", tls.ca)
    with (
        locks.held(folder, "a SuperLink"),
        kept(home, None, drop=drop, bounds=bounds, echo=echo) as worker,
        started(words, flower.environment(folder, **{wire.VARIABLE: str(worker.socket)}), echo) as child,
    ):
        _until(child, lambda: _answers(local), "SuperLink")
        worker.wait_until_up()
        ready({"superlink": f"{_bracketed(host)}:{port}", "home": str(home), "pid": child.pid})
        raise _ended(child, "SuperLink")


def supernode(
    home: Path,
    client: str,
    *,
    link: Link,
    key: Path,
    port: int | None = None,
    patience: float = 0.0,
    drop: str | None = None,
    bounds: WorkerBounds = ANY,
    unconfined: bool = False,
    echo: Echo,
    ready: Ready,
) -> None:
    """Run the SuperNode of a client, and its worker. Once it was connected it waits for a SuperLink that goes away, for
    ever.
    """
    _, place = place_of(home, client, read_terms(home / FILE))
    check_private_key(key)
    program = flower.program("flower-supernode")
    link.check(patience)
    folder = flower.folder(place)
    words: list[str | Path] = [
        program, "--superlink", link.address, "--root-certificates", link.roots.absolute(),
        "--auth-supernode-private-key", key.absolute(), "--host", "127.0.0.1",
        "--port", str(free_port("127.0.0.1", port)),
    ]  # fmt: skip
    words = _alone(words, folder, [link.roots, key], unconfined=unconfined)
    with (
        contextlib.ExitStack() as stack,
        locks.held(folder, "a SuperNode"),
        kept(home, client, drop=drop, bounds=bounds, echo=echo) as worker,
    ):
        environment = flower.environment(folder, **{wire.VARIABLE: str(worker.socket)})
        # The SuperLink turns a node away in the same words whether it does not know its key or takes one that was
        # killed for present, which it does for a minute.
        seat, until = folder / _SEAT, time.monotonic() + _SEAT_SECONDS
        was_killed = seat.exists() and seat.read_text() == link.address
        while True:
            with started(words, environment, echo) as child:
                if not _connected(child):
                    if not was_killed or time.monotonic() >= until:
                        raise _ended(child, "SuperNode")
                    echo("fedsynth: the SuperLink may take the node that was killed for present, for a minute at most")
                    time.sleep(_SEAT_PAUSE)
                    continue
                atomic.write(seat, [link.address.encode()], force=True, custody="private")
                stack.callback(seat.unlink, missing_ok=True)
                worker.wait_until_up()
                ready({"client": client, "superlink": link.address, "home": str(home), "pid": child.pid})
                raise _ended(child, "SuperNode")


def _alone(
    words: list[str | Path], folder: Path, readable: list[Path], *, unconfined: bool
) -> list[str | Path]:  # fmt: skip
    """Whatever app Flower is made to run, it reaches no file of this home but Flower's own."""
    if unconfined:
        return words
    if landlock_version() == 0:
        raise UsageError(
            "this system has no Landlock (Linux 5.13 and later), by which Flower's processes are kept from the home's "
            "files. Run this in a container or as another user that reads no more than it must, and say --unconfined."
        )
    return confined(words, writable=[folder], readable=readable)


def _connected(child: Child) -> bool:
    """Whether the node is in; False if the SuperLink turns it away."""
    until = time.monotonic() + _SECONDS_TO_START
    while child.said(_CONNECTED) is None:
        if not child.running():
            child.wait()
            if child.said(_NOT_LET_IN):
                return False
            raise _ended(child, "SuperNode")
        if time.monotonic() >= until:
            raise InputError(f"the SuperNode was not up after {_SECONDS_TO_START:.0f} seconds. See what it logged.")
        time.sleep(0.1)
    return True


def check_private_key(path: Path) -> None:
    """Whether Flower will take it, and nobody else can read it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    need_file(path, "node key")
    refuse_shared(path.stat(), path, "the node key")
    try:
        fits = isinstance(load_ssh_private_key(limits.read_bytes(path, limits.TEXT), None), EllipticCurvePrivateKey)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise InputError(
            f"{path} is no elliptic-curve key in OpenSSH form without a passphrase. Make one with: "
            f"ssh-keygen -t ecdsa -b 384 -N '' -f {path.name}"
        )


def _until(child: Child, ready: Callable[[], bool], what: str) -> None:
    """Wait for a service to be up; one that ends instead has failed, and says why."""
    until = time.monotonic() + _SECONDS_TO_START
    while not ready():
        if not child.running():
            raise _ended(child, what)
        if time.monotonic() >= until:
            raise InputError(f"the {what} was not up after {_SECONDS_TO_START:.0f} seconds. See what it logged.")
        time.sleep(0.1)


def _answers(link: Link) -> bool:
    try:
        link.check()
    except InputError:
        return False
    return True


def _ended(child: Child, what: str) -> FedsynthError:
    """Why a service that should run for ever has ended."""
    code = child.wait()
    if child.said(_NOT_LET_IN):
        return VerificationError(
            "the SuperLink does not know this node's key. Send its .pub to the server, which lets it in with: "
            "fedsynth federate register KEY.pub --name CLIENT"
        )
    if child.said(r"SSL/TLS handshake|CERTIFICATE_VERIFY_FAILED"):
        return VerificationError("the SuperLink's certificate was refused. Ask the server for its CA certificate.")
    reason = child.said(_ENDED_BY)
    words = reason.group(0).strip().rstrip(".") if reason else "no reason given"
    return InputError(f"the {what} ended with code {code}: {words}.")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
