"""What every command keeps to when it refuses. Hostile inputs of each are in tests/hostile."""

import pytest

from fedsynth_cli.command_list import COMMANDS

GROUPS = {name for name, command in COMMANDS.items() if command.subcommands}
LEAVES = [(name,) for name in COMMANDS if name not in GROUPS] + [
    ("secagg", word) for word in ("keys", "shares", "mask", "confirm", "unmask", "collect", "sum")
] + [("receipt", word) for word in ("ask", "give", "keep", "compare")]  # fmt: skip


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
class TestRefusal:
    """Exit code 2 for what is asked for, in a line or two, with nothing written."""

    @pytest.fixture(autouse=True)
    def _in_an_empty_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_an_option_that_there_is_not(self, words, refused, tmp_path):
        refused(tmp_path, *words, "--nonsense", code=2, said="--nonsense")


def test_every_subcommand_is_listed(fedsynth):
    for group in GROUPS - {"federate"}:
        _, out, _ = fedsynth(group, "--help")
        for name, *word in LEAVES:
            assert name != group or word[0] in out
