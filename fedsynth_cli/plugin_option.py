"""`--plugin`, which every command takes. What a plug-in declares becomes options: it is loaded before they are made."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.errors import UsageError

_FLAG = "--plugin"


def without_plugins(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command line without its `--plugin`s, and what they name. After `--` words are arguments, not options."""
    rest: list[str] = []
    named: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word == _FLAG:
            found = next(left, None)
            if found is None:
                raise UsageError(f"{_FLAG} needs a value: a .py file, or the name of an installed distribution.")
            named.append(found)
        elif word.startswith(f"{_FLAG}="):
            named.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, named
