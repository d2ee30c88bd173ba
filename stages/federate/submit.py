"""What the server's person does at a running SuperLink: let nodes in, start the run, follow it to its end."""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts import errors, limits
from artifacts.errors import FedsynthError, InputError, UsageError, VerificationError
from artifacts.formats.plain_data import read_json
from artifacts.metadata import MetadataError, check_client_name
from stages.execution.progress import Summary
from stages.federate import flower
from stages.federate.app_folder import terms_in_app
from stages.federate.child import Child, Echo, started
from stages.federate.link import Link, need_file
from stages.federate.terms import Terms, read_terms
from stages.federate.worker import end_file

_NAME = "here"  # of the one connection that Flower's command line is told
_SECONDS_BETWEEN = 1.0
_RAISED = r"fedsynth: error: (.*) \(exit code (\d+)\)"  # as the ServerApp logs it


def register(key: Path, client: str, *, link: Link) -> Summary:
    """Let the node with this public key in."""
    try:
        check_client_name(client)
    except MetadataError as error:
        raise UsageError(f"--name: {error}.") from None
    shown = fingerprint(key)
    with _control(link) as flwr:
        answer = flwr.ask("supernode", "register", key.absolute(), _NAME, "--name", client)
    return {
        "client": client,
        "key": str(key),
        "fingerprint": shown,
        "superlink": link.address,
        "node_id": str(answer["node-id"]),
    }


def run_app(app: Path, *, link: Link, home: Path | None, echo: Echo) -> Summary:
    """Start the app's run and wait for its end. Interrupted, it stops the run: what was written is whole."""
    terms = read_terms(terms_in_app(app))
    with _control(link) as flwr:
        end = end_file(home) if home is not None else None
        if end is not None:
            end.unlink(missing_ok=True)  # what an earlier run left is no news of this one
        number = str(flwr.ask("run", app.absolute(), _NAME)["run-id"])
        try:
            raised = flwr.follow(number, echo)
            status, details = flwr.ended(number)
        except KeyboardInterrupt:
            with suppress(FedsynthError):
                flwr.ask("stop", number, _NAME)
            raise
    _raise_end(end, status, details, raised)
    return _summary(terms, app, number, home)


@dataclass(frozen=True)
class _Flwr:
    """Flower's command line, with a configuration of its own that names the one SuperLink."""

    home: Path
    link: Link

    def ask(self, *words: str | Path) -> Mapping[str, Any]:
        """One command with `--format json`; its answer, or the reason why there is none."""
        said: list[str] = []
        with started([flower.program("flwr"), *words, "--format", "json"], self._environment(), said.append) as child:
            child.wait()
        answer = _object("\n".join(said))
        if answer.get("success"):
            return answer
        self.link.check()
        reason = " ".join(str(answer.get("error-message") or " ".join(said[-3:])).split())
        if "403 Forbidden" in reason:
            raise InputError(
                f"the SuperLink at {self.link.address} takes this from its own machine only. Run it there."
            )
        raise InputError(f"the SuperLink at {self.link.address} refused: {reason or 'no reason given'}")

    def follow(self, number: str, echo: Echo) -> tuple[int, str] | None:
        """Pass the run's log on until the run ends; what the ServerApp raised, if its log says so."""
        command: list[str | Path] = [flower.program("flwr"), "log", number, _NAME, "--stream"]
        with started(command, self._environment(), echo) as child:
            child.wait()
            return _raised(child)

    def ended(self, number: str) -> tuple[str, str]:
        """The run's last status with its details."""
        while True:
            rows = self.ask("list", _NAME, "--run-id", number)["runs"]
            status = str(rows[0]["status"])
            if status.startswith("finished"):
                return status, str(rows[0]["status-details"])
            time.sleep(_SECONDS_BETWEEN)

    def _environment(self) -> dict[str, str]:
        return flower.environment(self.home, COLUMNS="10000")  # JSON is folded at the width of a terminal


@contextmanager
def _control(link: Link) -> Iterator[_Flwr]:
    flower.program("flwr")
    link.check()
    with tempfile.TemporaryDirectory(prefix="fedsynth-flower-") as name:
        # JSON strings are TOML strings, whatever the path holds.
        text = (
            f"[superlink]\ndefault = {json.dumps(_NAME)}\n\n[superlink.{_NAME}]\naddress = {_quoted(link.address)}\n"
            f"root-certificates = {_quoted(link.roots.absolute())}\n"
        )
        (Path(name) / "config.toml").write_text(text)
        yield _Flwr(Path(name), link)


def _quoted(value: str | Path) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _object(text: str) -> dict[str, Any]:
    """The one JSON object in a command's output, whatever else it printed."""
    start = text.find("{")
    try:
        found = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _raised(child: Child) -> tuple[int, str] | None:
    match = child.said(_RAISED)
    return (int(match.group(2)), match.group(1)) if match else None


def fingerprint(path: Path) -> str:
    """Of a public key that Flower will take, as `ssh-keygen -l` prints it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    need_file(path, "node key")
    content = b""
    try:
        content = limits.read_bytes(path, limits.TEXT)
        fits = isinstance(load_ssh_public_key(content), EllipticCurvePublicKey)
    except (ValueError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise InputError(
            f"{path} is no public elliptic-curve key in OpenSSH form. Give the .pub file of ssh-keygen -t ecdsa."
        )
    digest = hashlib.sha256(base64.b64decode(content.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _raise_end(file: Path | None, status: str, details: str, raised: tuple[int, str] | None) -> None:
    """Turn the run's end into an error with its exit code: by the server's own words, else by Flower's."""
    end = _read_end(file) if file is not None and file.exists() else raised
    if end is not None:
        code, message = end
        if code:
            raise _error(code, message)
    elif status == "finished:stopped":
        raise InputError("the run was stopped. Start it again: it goes on after its last whole round.")
    elif status != "finished:completed":
        raise InputError(f"the run failed: {' '.join(details.split())}")


def _read_end(path: Path) -> tuple[int, str]:
    try:
        end = read_json(path)
        return int(end["exit_code"]), str(end["message"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} does not say how the run ended. See the run's log.") from None


def _error(code: int, message: str) -> FedsynthError:
    kinds = {kind.exit_code: kind for kind in (errors.BudgetError, VerificationError, UsageError, InputError)}
    return kinds.get(code, InputError)(message)


def _summary(terms: Terms, app: Path, number: str, home: Path | None) -> Summary:
    return {
        "app": str(app),
        "recipe": terms.recipe.name,
        "rounds": terms.recipe.rounds,
        "clients": list(terms.clients),
        "run_id": number,
        **({"home": str(home)} if home is not None else {}),
    }
