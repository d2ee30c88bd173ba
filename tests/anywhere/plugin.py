"""The suite as another machine would run it: other keys, another order, a part of it. Loaded by tests/conftest.py.

Environment variables say what is wanted, so that it reaches the workers of pytest and what the tests start:

    FEDSYNTH_TEST_KEY_SHIFT=3     every key of a simulation is another one
    FEDSYNTH_TEST_ORDER=1         test files, and the tests in each, in an order drawn with this seed
    FEDSYNTH_TEST_SELECT=FILE     only the tests named in FILE, one a line
    FEDSYNTH_TEST_RECORD=FILE     notes in FILE which fixtures and tests draw under a key
"""

import importlib.util
import os
import random
from pathlib import Path

import pytest

KEY_SHIFT, RECORD, DRAWER = "FEDSYNTH_TEST_KEY_SHIFT", "FEDSYNTH_TEST_RECORD", "FEDSYNTH_TEST_DRAWER"
ORDER, SELECT = "FEDSYNTH_TEST_ORDER", "FEDSYNTH_TEST_SELECT"
VARIABLES = (KEY_SHIFT, RECORD, ORDER, SELECT)
STARTUP = Path(__file__).parent / "startup"


def pytest_configure(config):
    if not (os.environ.get(KEY_SHIFT) or os.environ.get(RECORD)):
        return
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(STARTUP) not in found:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STARTUP), *found]))
    spec = importlib.util.spec_from_file_location("fedsynth_startup", STARTUP / "sitecustomize.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def pytest_collection_modifyitems(config, items):
    if os.environ.get(SELECT):
        wanted = set(Path(os.environ[SELECT]).read_text().splitlines())
        left_out = [item for item in items if item.nodeid not in wanted]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid in wanted]
    if os.environ.get(ORDER):
        by_file = {}
        for item in items:
            by_file.setdefault(item.path, []).append(item)
        draw = random.Random(os.environ[ORDER])
        files = list(by_file.values())
        draw.shuffle(files)
        for tests in files:
            draw.shuffle(tests)
        items[:] = [item for tests in files for item in tests]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    # What a fixture draws is drawn for every test that uses it, though only the first one waits for it.
    before, os.environ[DRAWER] = os.environ.get(DRAWER, ""), fixture_name(fixturedef)
    try:
        return (yield)
    finally:
        os.environ[DRAWER] = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    os.environ[DRAWER] = item.nodeid
    if os.environ.get(RECORD):
        fixtures = [found for all_found in item._fixtureinfo.name2fixturedefs.values() for found in all_found]
        lines = [f"uses\t{item.nodeid}\t{fixture_name(fixture)}\n" for fixture in fixtures]
        if any(hasattr(value, "cache_info") for value in vars(item.module).values()):
            # One test of the file may use what another one drew.
            lines.append(f"shares\t{item.nodeid}\n")
        with Path(os.environ[RECORD]).open("a") as file:
            file.write("".join(lines))
    return (yield)


def fixture_name(fixturedef):
    return f"{fixturedef.baseid}::{fixturedef.argname}"
