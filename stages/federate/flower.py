"""How Flower's programs are started here: found beside our Python, alone with their home, silent to everybody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from artifacts.errors import InputError
from artifacts.places import Place
from artifacts.writing.atomic import explained, make_folder
from stages import plugins
from stages.federate.link import LOOPBACK

_FOLDER = ".flwr"


def program(name: str) -> Path:
    """One of Flower's programs, of the same environment as this Python."""
    if find_spec("flwr") is None:
        raise InputError("Flower is not installed. Run: pip install 'fedsynth[flower]'")
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise InputError(f"Flower is installed without {path}. Run: pip install --force-reinstall 'fedsynth[flower]'")
    return path


def folder(place: Place) -> Path:
    """What Flower keeps of a participant: in its private folder, for no other user's eyes."""
    found = place.private / _FOLDER
    with explained(found):
        make_folder(found)
        found.chmod(0o700)
    return found


def plain_environment(**more: str) -> dict[str, str]:
    """Whatever was said to Flower by the environment is left out: all that it gets is on its command line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    return {
        **kept,
        "PYTHONUNBUFFERED": "1",  # its lines are read as they come
        # Loaded is what the operator named for the command that starts it, and nothing else.
        plugins.VARIABLE: os.pathsep.join(plugin.name for plugin in plugins.loaded()),
        **more,
    }


def environment(flower_home: Path, **more: str) -> dict[str, str]:
    """The environment of a program of Flower's: it reports to nobody, looks for no updates and installs nothing."""
    kept = plain_environment()
    temporary = flower_home.absolute() / "tmp"
    make_folder(temporary, 0o700)
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "TMPDIR": str(temporary),  # the one place where it may write
        "FLWR_HOME": str(flower_home.absolute()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; Flower's own, a second, is a part of every round
        **_direct_to_loopback(kept),
        **more,
    }


def _direct_to_loopback(kept: Mapping[str, str]) -> dict[str, str]:
    """Where a proxy is set, Flower's own processes must still find each other without it."""
    return {
        name: ",".join(filter(None, [kept.get(name), *LOOPBACK])) for name in ("NO_PROXY", "no_proxy")
    }  # fmt: skip
