"""Every command and subcommand, as it is typed: what lists of command lines are held against."""

from fedsynth_cli.command_list import COMMANDS
from fedsynth_cli.commands import load_group


def names():
    for name, command in COMMANDS.items():
        if not command.subcommands:
            yield name
            continue
        for found in load_group(name).registered_commands:
            yield f"{name} {found.name or found.callback.__name__.replace('_', '-')}"


def missing(lines, left_out=()):
    """Those that no line calls, and that are not left out."""
    return [
        name
        for name in names()
        if name not in left_out and not any(f"{text} ".startswith(f"{name} ") for text in lines)
    ]
