"""`federate units`: a systemd service and timer for `federate step`, shut off from all that a step does not need."""

from __future__ import annotations

import sys
from pathlib import Path

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError
from artifacts.places import SERVER
from artifacts.storage.url import is_url, local_path
from artifacts.writing import atomic
from stages.execution.progress import Summary
from stages.federate.party import place_of
from stages.federate.terms import FILE, read_terms

_SERVICE = """\
# One step of a federation by files. Install for the user whose home folder this is: systemctl --user link FILE,
# or for the machine, with User= in [Service].
[Unit]
Description=fedsynth: a step of the federation at {name}

[Service]
Type=oneshot
ExecStart={program} federate step --home {home} --drop {drop}{client} --quiet
# 75: others must do something first.
SuccessExitStatus=75
UMask=0022
NoNewPrivileges=yes
PrivateTmp=yes
{network}
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={written}
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
"""
_TIMER = """\
[Unit]
Description=fedsynth: the federation at {name} goes on

[Timer]
OnActiveSec=1
OnUnitInactiveSec={every}

[Install]
WantedBy=timers.target
"""


def units(home: Path, drop: str, out: Path, *, client: str | None = None, every: int, force: bool = False) -> Summary:
    """Write the two files into the folder `out`. With a drop folder on a disk the service has no network at all."""
    name, _ = place_of(home, client, read_terms(home / FILE))
    path = local_path(drop) if is_url(drop) else Path(drop)
    program = Path(sys.executable).with_name("fedsynth")
    if not program.exists():
        raise InputError(f"no {program}: install fedsynth into the environment of this Python.")
    written = [home.absolute(), *([] if path is None else [path.absolute()])]
    service = _SERVICE.format(
        name=name, program=_quoted(str(program)), home=_quoted(str(home.absolute())),
        drop=_quoted(drop if path is None else str(path.absolute())),
        client="" if name == SERVER else f" --client {name}",
        network="PrivateNetwork=yes" if path is not None else "# the drop folder is a store: the network is open",
        written=" ".join(_quoted(str(folder)).replace("$$", "$") for folder in written),  # no variables there
    )  # fmt: skip
    files = {f"fedsynth-{name}.service": service, f"fedsynth-{name}.timer": _TIMER.format(name=name, every=every)}
    for file, text in files.items():
        atomic.refuse_other(out / file, sha256_hex(text.encode()), force=force)
    for file, text in files.items():
        atomic.write(out / file, [text.encode()], force=force)
    return {"out": [str(out / file) for file in files], "party": name, "every": every}


def _quoted(text: str) -> str:
    """As systemd reads it: quotes, and no specifiers or variables."""
    if any(not letter.isprintable() for letter in text):
        raise UsageError(f"{text!r} has letters that no unit file can hold. Choose another path.")
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'
