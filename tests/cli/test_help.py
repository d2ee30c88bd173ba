"""Help that teaches, at once, without importing what it does not need."""

import subprocess
import sys

import pytest

from fedsynth_cli.command_list import COMMANDS

HEAVY = ("torch", "torchvision", "opacus", "diffusers", "pyarrow", "matplotlib", "sklearn", "cryptography")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(fedsynth, command):
    code, out, _ = fedsynth(command, "--help")
    assert code == 0
    assert f"fedsynth {command}" in out or f"| fedsynth {command}" in out, "no example"
    assert "--json" in out
    assert "--quiet" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_list_of_commands(command, pytestconfig):
    assert f"`{command}`" in (pytestconfig.rootpath / "docs/commands.md").read_text()


def imported_after(code):
    """The heavy packages that a fresh interpreter has imported after running `code`."""
    script = f"{code}\nimport sys\nprint('IMPORTED', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("IMPORTED", 1)[1].split())


def test_help_imports_nothing_heavy():
    commands = [[], *([name] for name in COMMANDS)]
    code = f"from fedsynth_cli.app import run\nfor c in {commands!r}: assert run([*c, '--help']) == 0"
    assert imported_after(code) == set()


def test_inspect_and_audit_do_not_import_torch(finished_run):
    message = finished_run / "clients/00/outbox/message-0001.safetensors"
    code = (
        "from fedsynth_cli.app import run\n"
        f"assert run(['inspect', {str(message)!r}]) == 0\n"
        f"assert run(['audit', {str(finished_run)!r}]) == 0"
    )
    assert imported_after(code) & {"torch", "torchvision", "opacus", "diffusers"} == set()


def test_encode_and_aggregate_import_neither_torch_nor_pyarrow(run_copy):
    model, private = run_copy / "public/model-0000.safetensors", run_copy / "clients/00/private"
    message = run_copy / "clients/00/outbox/message-0001.safetensors"
    update = private / "update-0001.safetensors"
    encode = ["encode", model, update, "--tell-examples", "--force", "-o", message]
    aggregate = ["aggregate", model, message, "-o", run_copy / "one.safetensors"]
    lines = [[str(word) for word in line] for line in (encode, aggregate)]
    code = f"from fedsynth_cli.app import run\nfor line in {lines!r}: assert run(line) == 0"
    assert imported_after(code) & {"torch", "pyarrow"} == set()


def test_the_list_of_commands_shows_what_each_is_for(fedsynth):
    """The list is read from the commands' source: it must say what the command's own help says."""
    _, listing, _ = fedsynth("--help")
    text = " ".join(listing.replace("│", " ").split())
    for command in COMMANDS:
        assert command in text
        _, own, _ = fedsynth(command, "--help")
        lines = [line.strip() for line in own.splitlines() if line.strip()]
        sentence = lines[1]  # after the line «Usage: …»
        assert " ".join(sentence.split()[:5]) in text


def test_arguments_are_explained(fedsynth):
    """Some versions of click under typer leave the texts of arguments out."""
    _, out, _ = fedsynth("aggregate", "--help")
    assert "The model that the round began with." in " ".join(out.replace("│", " ").split())


def test_defaults_and_symbols_stand_in_the_help(fedsynth):
    _, out, _ = fedsynth("train-client", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "(η; default 0.1, ours)" in text
    assert "(B; default 32, ours)" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(shell):
    import os

    # The environment variables are those that the installed completion script sets.
    words = {"bash": {"COMP_WORDS": "fedsynth tr", "COMP_CWORD": "1"}}.get(shell, {})
    environment = os.environ | {
        "_FEDSYNTH_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "fedsynth tr",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        **words,
    }
    done = subprocess.run(
        [sys.executable, "-c", "from fedsynth_cli.app import main; main()"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "train-client" in done.stdout
