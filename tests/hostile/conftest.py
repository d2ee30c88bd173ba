"""What the tests of hostile files share."""

import pytest


@pytest.fixture(scope="session")
def readers(helper):
    return helper("hostile/readers.py")


@pytest.fixture(scope="session")
def mutations(helper):
    return helper("hostile/mutations.py")


@pytest.fixture(scope="session")
def corpus(helper):
    return helper("hostile/corpus.py")
