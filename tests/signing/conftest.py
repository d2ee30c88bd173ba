"""One round of messages of a small federation, all of it signed."""

import shutil

import pytest

from stages.sign import sign


@pytest.fixture(scope="session")
def federation_class(helper):
    return helper("signing/federation.py").Signed


@pytest.fixture(scope="session")
def signed_federation(tmp_path_factory, federation_class):
    """Made once, never changed."""
    made = federation_class(tmp_path_factory.mktemp("signing") / "run")
    made.found(made.roster)
    made.begin(made.model)
    for name in federation_class.names:
        made.send(name)
        sign([made.message(name)], roster=made.roster)
    return made


@pytest.fixture
def federation(signed_federation, federation_class, tmp_path):
    """A copy to change."""
    shutil.copytree(signed_federation.root, tmp_path / "run")
    return federation_class(tmp_path / "run")


@pytest.fixture
def empty(federation_class, tmp_path):
    return lambda folder: federation_class(tmp_path / folder)
