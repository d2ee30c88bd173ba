"""The terms of a federation: written, read, and refused."""

import pytest

from artifacts.errors import InputError, UsageError
from stages.federate.terms import FILE, Terms, read_terms


class TestTerms:
    def test_they_read_as_they_were_written(self, federation):
        terms, split = federation()
        assert read_terms(split["00"] / FILE) == terms
        assert read_terms(split["00"] / FILE).digest == terms.digest

    @pytest.mark.parametrize(
        ("found", "instead", "because"),
        [
            ("seed: 5", "seed: five", "federation.seed has a wrong value"),
            ("least_clients: 3", "least_clients: 4", "from 1 to the number of clients"),
            ("wait: 1.0", "wait: 0", "more than 0 seconds"),
            ("  signed: false\n", "", "must have the keys"),
            ("rounds: 2", "rounds: 0", "at least 1"),
        ],
    )
    def test_others_are_refused(self, federation, found, instead, because):
        _, split = federation()
        path = split["00"] / FILE
        assert found in path.read_text()
        path.write_text(path.read_text().replace(found, instead, 1))
        with pytest.raises((InputError, UsageError), match=because):
            read_terms(path)

    def test_they_say_nothing_of_how_a_simulation_divides_its_data(self, federation):
        terms, _ = federation()
        assert isinstance(terms, Terms)
        assert "partition" not in terms.to_yaml()
        assert "digits" not in terms.to_yaml()
        assert terms.recipe.about == "fedavg between 3 clients: 2 rounds, all of them in each."
