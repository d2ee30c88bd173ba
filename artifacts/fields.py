"""What a parameter of a file may be: declarations of its type and range, so that no parameter has room for more.

Kinds whose files no replay gives again declare all of theirs (`Kind.params`); the parameters of other kinds are those
that the stage declares which made them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGITS = re.compile("[0-9a-f]*")


@dataclass(frozen=True, kw_only=True)
class Field:
    """Base of every declaration. `custody`: files of this custody alone state it."""

    custody: str | None = None
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        raise NotImplementedError

    def in_words(self) -> str:
        """What it must be."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Clients(Field):
    """Names of clients, in order, each once."""

    def in_words(self) -> str:
        return "a list of clients, in order, each once"

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, list) or not all(isinstance(name, str) and CLIENT.fullmatch(name) for name in value):
            return False
        return value == sorted(set(value)) and "server" not in value


@dataclass(frozen=True, kw_only=True)
class WholeNumber(Field):
    """A whole number of a range, or one of a few."""

    least: int = 0
    most: int = 2**63
    among: tuple[int, ...] = ()

    def accepts(self, value: Any) -> bool:
        return type(value) is int and self.least <= value <= self.most and (not self.among or value in self.among)

    def in_words(self) -> str:
        return " or ".join(map(str, self.among)) or f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True, kw_only=True)
class Positive(Field):
    """A finite number above 0, with a point: 1 and 1.0 would be two spellings of one."""

    def in_words(self) -> str:
        return "a number above 0, written with a point"

    def accepts(self, value: Any) -> bool:
        return type(value) is float and math.isfinite(value) and value > 0


@dataclass(frozen=True, kw_only=True)
class Hex(Field):
    """So many bytes in hexadecimal digits."""

    bytes: int

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) == 2 * self.bytes and _DIGITS.fullmatch(value) is not None

    def in_words(self) -> str:
        return f"{2 * self.bytes} hexadecimal digits"


@dataclass(frozen=True, kw_only=True)
class Parameters(Field):
    """Hyper-parameters of another stage, which holds them to its own declaration; an empty object if there are none."""

    def in_words(self) -> str:
        return "an object of parameters"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, dict)


def misstated(fields: Mapping[str, Field], custody: str, params: Mapping[str, Any]) -> Iterator[str]:
    """What a file of this custody says that its kind does not declare, or leaves out."""
    stated = {name: field for name, field in fields.items() if field.custody in (None, custody)}
    for name in sorted(params.keys() - stated.keys()):
        yield f"{name!r} is no parameter of it"
    for name, field in stated.items():
        if name not in params:
            if not field.optional:
                yield f"its parameter {name!r} is missing"
        elif not field.accepts(params[name]):
            yield f"its parameter {name!r} must be {field.in_words()}"
