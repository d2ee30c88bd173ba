"""Files and rows that cannot be used: all of them in one refusal, with the reasons and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from artifacts.errors import InputError

_NAMED = 20


def refusal(source: Path | str, bad: Mapping[str, str], *, what: str = "files", remedy: str = "") -> InputError:
    """The error that names them: in one line for a program, as a table for a person.

    `bad` has the reason by name. `remedy` is a sentence about what to do.
    """
    if len(bad) == 1:
        return InputError("".join(f"{source}/{name}: {why}." for name, why in bad.items()) + f" {remedy}".rstrip())
    shown = list(bad.items())[:_NAMED]
    others = f"; and {len(bad) - _NAMED} others" if len(bad) > _NAMED else ""
    head = f"{source}: {len(bad)} {what} cannot be used"
    listed = "; ".join(f"{name} ({why})" for name, why in shown)
    error = InputError(f"{head}: {listed}{others}. {remedy}".rstrip())
    more = [("…", f"and {len(bad) - _NAMED} others")] if others else []
    error.table = (f"{head}:", (*shown, *more), remedy)
    return error
