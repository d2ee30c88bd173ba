"""The Flower app of a federation: a folder that `flwr run` takes, with the terms inside.

It holds no code of ours but two lines that name the apps of the installed fedsynth, and asks for no package, so that
nothing is ever downloaded. The same terms give the same bytes, so that everybody can compare the bundle's digest.
"""

from __future__ import annotations

from pathlib import Path

from artifacts.digests import sha256_hex
from artifacts.writing import atomic
from stages.execution.progress import Summary
from stages.federate.terms import FILE, Terms

_PACKAGE = "fedsynth_app"

_PROJECT = """\
[project]
name = "federation"
version = "{version}"
description = "A federation by the terms in {package}/{terms}."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedsynth"

[tool.flwr.app.components]
serverapp = "{package}.server:app"
clientapp = "{package}.client:app"
"""

_INIT = '"""The federation described by the terms beside this file. Written by `fedsynth federate app`."""\n'

_SERVER = f"""\
from pathlib import Path

from stages.federate.server_app import server_app

app = server_app(Path(__file__).with_name("{FILE}"))
"""

_CLIENT = """\
from stages.federate.client_app import client_app

app = client_app()
"""


def write_app(terms: Terms, out: Path, *, force: bool = False) -> Summary:
    """Write the folder. Without its pyproject.toml it is no app, and that file comes last."""
    files = _files(terms)
    for name in files:
        atomic.refuse_other(out / name, sha256_hex(files[name]), force=force)
    for name, content in files.items():
        atomic.write(out / name, [content], force=force)
    return {
        "out": str(out),
        "terms": str(terms_in_app(out)),
        "terms_sha256": terms.digest,
        "recipe": terms.recipe.name,
        "clients": list(terms.clients),
        "rounds": terms.recipe.rounds,
        "least_clients": terms.least_clients,
        "signed": terms.signed,
    }


def bundle_digest(terms: Terms) -> str:
    """Of the bundle that Flower makes of the folder: the one app that a client by these terms runs."""
    from flwr.cli.build import build_fab_from_files

    return sha256_hex(build_fab_from_files(_files(terms))[0])


def _files(terms: Terms) -> dict[str, bytes]:
    texts = {
        f"{_PACKAGE}/__init__.py": _INIT,
        f"{_PACKAGE}/server.py": _SERVER,
        f"{_PACKAGE}/client.py": _CLIENT,
        terms_in_app(Path()).as_posix(): terms.to_yaml(),
        "pyproject.toml": _PROJECT.format(version=terms.versions["fedsynth"], package=_PACKAGE, terms=FILE),
    }
    return {name: text.encode() for name, text in texts.items()}


def terms_in_app(app: Path) -> Path:
    """Where the terms are in an app folder."""
    return app / _PACKAGE / FILE
