"""Hyper-parameters: declared once, read by `--help`, by the params file and by the artifact's metadata.

A stage's parameters are a frozen, keyword-only dataclass whose fields are made with `hyper`. Each field says
its paper symbol, its default, and whether that default is the paper's or ours. Classes check themselves when
made and raise `ValueError` with the parameter, its range and the value found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

Source = Literal["paper", "ours"]


def hyper(default: Any, text: str, *, symbol: str = "", source: Source = "ours", panel: str = "") -> Any:
    """A field of a hyper-parameter class. `panel` groups the options of one algorithm in `--help`."""
    meta = {"text": text, "symbol": symbol, "source": source, "panel": panel}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True, kw_only=True)
class HyperParameters:
    """Base of every parameter class."""

    def __post_init__(self) -> None:
        declared: Any = type(self)
        hints = _hints(declared)
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            object.__setattr__(self, f.name, _coerce(f.name, value, hints[f.name]))
        self.check()

    def check(self) -> None:
        """Override to test ranges; raise `ValueError` naming the parameter and the value found."""

    def require(self, condition: bool, name: str, rule: str) -> None:
        """Raise `ValueError` unless `condition` holds: `--name must be <rule>, found <value>`."""
        if not condition:
            raise ValueError(f"--{name.replace('_', '-')} must be {rule}, found {getattr(self, name)!r}")

    def to_json(self) -> dict[str, Any]:
        """The parameters as they stand in an artifact's metadata: those that were set, by field name."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    @classmethod
    def names(cls) -> set[str]:
        return {f.name for f in dataclasses.fields(cls)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping whose keys may be spelt with dashes; unknown keys are an error."""
        given = {k.replace("-", "_"): v for k, v in values.items()}
        unknown = sorted(given.keys() - cls.names())
        if unknown:
            known = ", ".join(sorted(cls.names()))
            raise ValueError(f"unknown parameter {unknown[0]!r}; known: {known}")
        return cls(**given)


@dataclass(frozen=True)
class Variants:
    """A command with several sets of parameters, chosen by the value of one of them: `encode` by its `--method`."""

    key: str
    classes: tuple[type[HyperParameters], ...]

    def chosen(self, values: Mapping[str, Any]) -> type[HyperParameters]:
        """The class that the value of the key belongs to; the first class's default where it is not said."""
        found = values.get(self.key) or self.classes[0].__dataclass_fields__[self.key].default
        for declared in self.classes:
            if found in self._words(declared):
                return declared
        allowed = ", ".join(word for declared in self.classes for word in self._words(declared))
        raise ValueError(f"--{self.key} must be one of {allowed}; found {found!r}")

    def from_mapping(self, values: Mapping[str, Any]) -> Any:
        """Build the class that the values ask for; a parameter of another one is named as such."""
        given = {k.replace("-", "_"): v for k, v in values.items()}
        declared = self.chosen(given)
        for name in sorted(given.keys() - declared.names()):
            owners = [c for c in self.classes if name in c.names()]
            words = [word for owner in owners for word in self._words(owner)]
            if words and given[name] is not None:
                flag = name.replace("_", "-")
                raise ValueError(
                    f"--{flag} goes with --{self.key} {' or '.join(words)}; found --{self.key} "
                    f"{given.get(self.key) or declared.__dataclass_fields__[self.key].default}"
                )
            if words:
                given.pop(name)
        return declared.from_mapping(given)

    def _words(self, declared: Any) -> tuple[str, ...]:
        return get_args(_hints(declared)[self.key])


@cache
def _hints(declared: type) -> dict[str, Any]:
    return get_type_hints(declared)


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Turn YAML's and the shell's notions of numbers into the declared type, or say what does not fit."""
    options = get_args(hint)
    if value is None:
        if type(None) in options:
            return None
        raise ValueError(f"--{name.replace('_', '-')} needs a value")
    if options and get_origin(hint) is not Literal:
        hint = next(o for o in options if o is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            allowed = ", ".join(map(str, get_args(hint)))
            raise ValueError(f"--{name.replace('_', '-')} must be one of {allowed}; found {value!r}")
        return value
    wrong = ValueError(f"--{name.replace('_', '-')} must be of type {hint.__name__}, found {value!r}")
    if hint is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in {"true", "false"}:
            return str(value).lower() == "true"
        raise wrong
    if isinstance(value, bool):
        raise wrong
    try:
        coerced = hint(value)
    except (TypeError, ValueError) as error:
        raise wrong from error
    if hint is int and isinstance(value, float) and value != coerced:
        raise wrong
    if hint is float and not (abs(coerced) < float("inf")):
        raise wrong
    return coerced
