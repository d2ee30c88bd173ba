"""docs/networks.md says what really happens: one step of every method on every kind of network."""

import pytest


@pytest.fixture(scope="module")
def table(helper):
    return helper("plugins/method_table.py")


def test_a_few_rows_are_as_the_docs_say(table, tmp_path):
    _, written = table.written()
    for cell, said in table.cells(tmp_path, table.SMALL).items():
        assert (None if said is None else table.shown(said)) == written[cell], cell


@pytest.mark.slow
def test_the_table_is_what_the_methods_do(table, tmp_path):
    text, _ = table.written()
    assert table.table(table.cells(tmp_path, table.NETWORKS)) == text
