"""What every `encode` method keeps to. A method that registers itself is tested here without another word.

That its file states every parameter, and that one which leaves a parameter out is refused, is in tests/cli.
"""

import inspect

import pytest

from artifacts.kinds import KINDS
from stages.execution.dispatch import named
from stages.registry import ENCODERS, RULES

OPTIONS = {"previous", "before", "metrics", "error_out"}


@pytest.mark.parametrize("word", ENCODERS.words)
class TestEncoder:
    """Facts that recipes, the command line, the server and the audit read from a method."""

    @pytest.fixture
    def declared(self, word):
        return ENCODERS.chosen({"method": word})

    def test_its_file_is_of_a_kind_that_leaves_and_discloses_something(self, declared):
        kind = KINDS[declared.kind]
        assert kind.leaves and kind.from_data and kind.always_discloses
        assert not declared.by_server or "downlink" in kind.custodies

    def test_its_function_takes_what_it_says(self, declared):
        takes = inspect.signature(named(declared.performed_by)).parameters
        assert list(takes)[2] == "out" and {"params", "key", "client", "force"} <= takes.keys()
        assert set(declared.takes) <= OPTIONS & takes.keys()
        assert ("device" in takes) == declared.on_device

    def test_it_is_made_from_private_files_of_kinds_that_there_are(self, declared):
        for role in declared.reads:
            kind = KINDS["dataset" if role == "data" else role]
            assert "private" in kind.custodies

    def test_its_rule_reads_its_files_or_what_they_are_decoded_to(self, declared):
        kind, rule = KINDS[declared.kind], RULES.chosen({"rule": declared.rule})
        assert rule.reads in (kind.carries, declared.kind)

    def test_it_can_be_decoded_where_its_kind_is_encoded(self, declared):
        assert (declared.decoded_by is not None) == KINDS[declared.kind].encoded
        if declared.decoded_by is not None:
            assert list(inspect.signature(named(declared.decoded_by)).parameters)[:2] == ["path", "model"]
        assert not declared.decodes_with_torch or declared.decoded_by is not None

    def test_secure_sums_hide_only_what_adds_up(self, declared):
        assert not declared.additive or KINDS[declared.kind].adds_up

    def test_the_audit_knows_what_belongs_into_its_file(self, declared):
        """Tensors of a model need no check of their own."""
        assert (declared.checked_by is not None) == (not KINDS[declared.kind].holds_weights)
        if declared.checked_by is not None:
            assert callable(named(declared.checked_by))

    def test_its_parameters_survive_the_metadata(self, declared, word):
        params = ENCODERS.from_mapping({"method": word})
        assert type(params) is declared
        assert ENCODERS.from_mapping(params.to_json()) == params
