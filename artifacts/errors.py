"""The errors a user may meet, each with the exit code that pipelines see.

A message is one or two lines: what is wrong, in which file or option, found what, and what to do.
"""

from __future__ import annotations


class FedsynthError(Exception):
    """Anything that the user can mend. `exit_code` is what the command line returns."""

    exit_code = 3
    # Whether the command has printed its result, which says the same: with --json there is one object on stdout.
    is_reported = False
    # The same as lines for a person: what is wrong, rows of a name and a reason, what to do.
    table: tuple[str, tuple[tuple[str, str], ...], str] | None = None


class UsageError(FedsynthError):
    """The command line, a params file or a recipe asks for something that does not exist or does not fit."""

    exit_code = 2


class InputError(FedsynthError):
    """An input is missing, damaged, of the wrong kind or does not fit; or an output cannot be written."""

    exit_code = 3


class BudgetError(FedsynthError):
    """Refused: the privacy budget does not allow it."""

    exit_code = 4


class VerificationError(FedsynthError):
    """An audit found something that should not be."""

    exit_code = 5


class IncompleteError(FedsynthError):
    """An audit could not look at everything, or nothing could be released: somebody else has to do something first."""

    exit_code = 6
