"""docs/networks.md says what really happens: one step of every method on every kind of network."""

import pytest


@pytest.fixture(scope="module")
def table(helper):
    return helper("plugins/method_table.py")


@pytest.fixture(scope="module")
def check(table, tmp_path_factory):
    """That these rows are as the docs say."""
    folder = tmp_path_factory.mktemp("networks")

    def check(rows):
        _, written = table.written()
        for cell, said in table.cells(folder, rows).items():
            assert (None if said is None else table.shown(said)) == written[cell], cell

    return check


def test_the_page_has_every_network_and_every_method(table):
    text, written = table.written()
    assert table.table(written) == text


def test_a_few_rows(table, check):
    check(table.SMALL)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # ten methods on a ResNet-50: a minute, or ten beside other work
@pytest.mark.parametrize("number", range(31))
def test_each_row(table, check, number):
    check([list(table.NETWORKS)[number]])


def test_all_rows_are_tested(table):
    assert len(table.NETWORKS) == 31
