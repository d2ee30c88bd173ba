"""The Flower app of a federation: a folder that `flwr run` takes, with the terms inside.

Its code is a copy of `flower_app`: what carries sealed parcels to a worker and back. It asks for no package, so that
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

_APP = Path(__file__).with_name("flower_app")


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


def _files(terms: Terms) -> dict[str, bytes]:
    texts = {
        **{f"{_PACKAGE}/{path.name}": path.read_text() for path in sorted(_APP.glob("*.py"))},
        terms_in_app(Path()).as_posix(): terms.to_yaml(),
        "pyproject.toml": _PROJECT.format(version=terms.versions["fedsynth"], package=_PACKAGE, terms=FILE),
    }
    return {name: text.encode() for name, text in texts.items()}


def terms_in_app(app: Path) -> Path:
    """Where the terms are in an app folder."""
    return app / _PACKAGE / FILE
