"""Hyper-parameters: declared once, read by `--help`, by the params file and by the artifact's metadata.

A stage's parameters are a frozen, keyword-only dataclass whose fields are made with `hyper`. Each field says
its paper symbol, its default, and whether that default is the paper's or ours. Classes check themselves when
made and raise `ValueError` with the parameter, its range and the value found.

A field holds the value that is used. Where the default follows from another parameter it is a `By`, replaced by its
value when the class is made. `None` means that the feature is off, never «some default that is written elsewhere»; a
field whose type has no None but whose default is None must be given. A field with `when` has an effect only then:
elsewhere it may not be given, and the metadata leave it out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

Source = Literal["paper", "ours"]


class By:
    """A default that follows from another parameter: `By("solver", {"paper": 1000, "residuals": 125})`.

    `unless` names a parameter that replaces this one, as steps replace epochs: where it has a value, this has none.
    """

    def __init__(self, name: str, values: Mapping[Any, Any], *, unless: str | None = None) -> None:
        self.name, self.values, self.unless = name, dict(values), unless

    def of(self, params: Any) -> Any:
        other = None if self.unless is None else getattr(params, self.unless)
        if other is not None and not isinstance(other, By):
            return None
        return self.values.get(getattr(params, self.name))

    def __str__(self) -> str:
        flag = f"--{self.name.replace('_', '-')}"
        said = {word: f"with {word}" if word is not None else f"without {flag}" for word in self.values}
        return ", ".join(f"{value} {said[word]}" for word, value in self.values.items() if value is not None)


@dataclass(frozen=True)
class When:
    """The condition under which a parameter has an effect, and the words for it: `--mu goes with <words>`."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class PluginRecord:
    """Which plug-in a class comes from, as files state it: `NAME [VERSION] sha256:DIGEST`, the digest of its source."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.version, f"sha256:{self.sha256}")))

    @classmethod
    def parse(cls, text: Any) -> PluginRecord:
        found = _PLUGIN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f"{text!r} names no plug-in: a name and sha256:DIGEST are needed")
        return cls(found["name"], found["version"] or "", found["sha256"])


_PLUGIN = re.compile(r"(?P<name>[\w.-]{1,64})( (?P<version>[\w.+!-]{1,40}))? sha256:(?P<sha256>[0-9a-f]{64})", re.ASCII)


def hyper(
    default: Any,
    text: str,
    *,
    symbol: str = "",
    unit: str = "",
    source: Source = "ours",
    panel: str = "",
    when: When | None = None,
    is_fact: bool = False,
) -> Any:
    """A field of a hyper-parameter class. `panel` groups the options of one algorithm in `--help`; `unit` says what
    a number counts or measures, for `recipe show`.

    A fact is known from the stage's inputs: nobody may give it, and the metadata state it elsewhere.
    """
    meta = {"text": text, "symbol": symbol, "unit": unit, "source": source, "panel": panel, "when": when}
    return dataclasses.field(default=default, metadata={**meta, "is_fact": is_fact})


@dataclass(frozen=True, kw_only=True)
class HyperParameters:
    """Base of every parameter class."""

    plugin: ClassVar[PluginRecord | None] = None  # that the class comes from; none for those of fedsynth itself

    def __post_init__(self) -> None:
        declared: Any = type(self)
        hints = hints_of(declared)
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(f.default, By) and (value is None or value is f.default):
                value = f.default.of(self)
            object.__setattr__(self, f.name, _coerce(f.name, value, hints[f.name]))
        for f in dataclasses.fields(self):
            default = f.default.of(self) if isinstance(f.default, By) else f.default
            if getattr(self, f.name) != default:
                self._refuse_idle(f)
        self.check()

    def _refuse_idle(self, f: dataclasses.Field[Any]) -> None:
        """A value for a parameter that has no effect beside the others is a mistake, not a wish."""
        when: When | None = f.metadata["when"]
        if when is not None and not when.holds(self):
            flag = f.name.replace("_", "-")
            raise ValueError(f"--{flag} goes with {when.words}; found --{flag} {getattr(self, f.name)!r} without it")

    def check(self) -> None:
        """Override to test ranges; raise `ValueError` naming the parameter and the value found."""

    def require(self, condition: bool, name: str, rule: str) -> None:
        """Raise `ValueError` unless `condition` holds: `--name must be <rule>, found <value>`."""
        if not condition:
            raise ValueError(f"--{name.replace('_', '-')} must be {rule}, found {getattr(self, name)!r}")

    def to_json(self) -> dict[str, Any]:
        """The parameters as an artifact's metadata state them: all that have an effect, by field name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if self._has_effect(f)}
        if self.plugin is not None:
            values["plugin"] = str(self.plugin)
        return {name: value for name, value in values.items() if value is not None}

    def _has_effect(self, f: dataclasses.Field[Any]) -> bool:
        when: When | None = f.metadata["when"]
        return not f.metadata.get("is_fact") and (when is None or when.holds(self))

    @classmethod
    def names(cls) -> set[str]:
        """What may be given: all but facts."""
        return {f.name for f in dataclasses.fields(cls) if not f.metadata.get("is_fact", False)}

    @classmethod
    def help_text(cls, name: str) -> str:
        return next(str(f.metadata["text"]) for f in dataclasses.fields(cls) if f.name == name)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> Self:
        """Build from a mapping whose keys may be spelt with dashes; unknown keys are an error.

        A null takes a value back that a recipe has from another one: the default, or off where that is possible.
        """
        given = by_name(values)
        cls._check_plugin(given.pop("plugin", None))
        unknown = sorted(given.keys() - cls.names())
        if unknown:
            known = ", ".join(sorted(cls.names()))
            raise ValueError(f"unknown parameter {unknown[0]!r}.{suggested(unknown[0], cls.names())} Known: {known}")
        declared: Any = cls
        hints = hints_of(declared)
        kept = {n: v for n, v in given.items() if v is not None or type(None) in get_args(hints[n])}
        made = cls(**kept, **(facts or {}))
        for f in dataclasses.fields(cls):
            if given.get(f.name) is not None:
                made._refuse_idle(f)
        return made

    @classmethod
    def _check_plugin(cls, said: Any) -> None:
        """A file that names a plug-in means that one, to the byte."""
        if said is None:
            return
        wanted = PluginRecord.parse(said)
        if cls.plugin is None:
            raise ValueError(f"the plug-in {wanted} is named, but {cls.__name__} is part of fedsynth itself")
        if cls.plugin != wanted:
            raise ValueError(
                f"it is by the plug-in {wanted}, but the plug-in that is loaded here is {cls.plugin}: load the same"
            )


def by_name(values: Any) -> dict[str, Any]:
    """Parameters come from files too: whatever is no mapping of names is refused here."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise ValueError(f"parameters must be a mapping of names to values, found {values!r}")
    return {name.replace("-", "_"): value for name, value in values.items()}


@cache
def hints_of(declared: type) -> dict[str, Any]:
    """The types of a declaration's fields, by name."""
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
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong from error
    if hint is int and isinstance(value, float) and value != coerced:
        raise wrong
    if hint is float and not (abs(coerced) < float("inf")):
        raise wrong
    return coerced


def suggested(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?`, if a known name is close enough."""
    from difflib import get_close_matches

    close = get_close_matches(word, sorted(known), n=1, cutoff=0.7)
    return f" Did you mean {close[0]!r}?" if close else ""
