"""Families of declarations: algorithms, encoders, networks …, of which the value of one parameter chooses one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast, get_args

from stages.hyperparameters import HyperParameters, PluginRecord, by_name, hints_of, suggested

H = TypeVar("H", bound=HyperParameters)
M = TypeVar("M", bound=HyperParameters)


class Variants(Generic[H]):
    """A family of declarations, of which one parameter's value chooses one: `encode` by its `--method`.

    A member registers itself with `register` where it is declared; the modules of `package` are imported when the
    first member is asked for.
    """

    def __init__(self, key: str, *, default: str, package: str) -> None:
        self.key, self.default = key, default
        self._package: str | None = package
        self._classes: list[type[H]] = []
        self._in_order: tuple[type[H], ...] | None = None

    def register(self, declared: type[M]) -> type[M]:
        """Class decorator: `declared` joins the family under the words that its key allows."""
        for word in self.words_of(declared):
            for other in self._classes:
                if word in self.words_of(other):
                    owner = f"the plug-in {other.plugin}" if other.plugin else "fedsynth itself"
                    raise ValueError(f"--{self.key} {word} is declared by {owner} already: choose another name")
        self._classes.append(cast("type[H]", declared))
        self._in_order = None
        return declared

    def joined_after(self, count: int) -> tuple[type[HyperParameters], ...]:
        """The members that registered after the first `count`."""
        return tuple(self._classes[count:])

    def mark(self, declared: type[H], plugin: PluginRecord) -> None:
        """The member came by a plug-in: it is listed behind those of fedsynth itself."""
        declared.plugin = plugin
        self._in_order = None

    def forget(self, declared: type[H]) -> None:
        """Undo `register`: a plug-in that failed, or is not used any more, leaves nothing behind."""
        self._classes.remove(declared)
        self._in_order = None

    @property
    def classes(self) -> tuple[type[H], ...]:
        """The members: the default one, the others by their words, plug-ins; whichever was imported first."""
        if self._package is not None:
            package, self._package = importlib.import_module(self._package), None
            for module in sorted(found.name for found in pkgutil.iter_modules(package.__path__)):
                importlib.import_module(f"{package.__name__}.{module}")
        if self._in_order is None:
            self._in_order = tuple(sorted(self._classes, key=self._place))
        return self._in_order

    def _place(self, declared: type[H]) -> tuple[bool, bool, tuple[str, ...]]:
        words = self.words_of(declared)
        return self.default not in words, declared.plugin is not None, words

    @property
    def words(self) -> tuple[str, ...]:
        """The values that the key may have, the default one first."""
        return tuple(word for declared in self.classes for word in self.words_of(declared))

    def words_of(self, declared: type) -> tuple[str, ...]:
        """The values of the key that choose this member."""
        return _words_of(declared, self.key)

    def having(self, fact: str) -> list[str]:
        """The words of the members of which this class attribute is true."""
        return [word for declared in self.classes if getattr(declared, fact) for word in self.words_of(declared)]

    def chosen(self, values: Mapping[str, Any]) -> type[H]:
        """The member that the value of the key belongs to; the default one where there is none."""
        found = values.get(self.key) or self.default
        for declared in self.classes:
            if found in self.words_of(declared):
                return declared
        if values.get("plugin") is not None:
            raise ValueError(
                f"--{self.key} {found} is by the plug-in {PluginRecord.parse(values['plugin'])}, which is not loaded: "
                "name it with --plugin or in FEDSYNTH_PLUGINS"
            )
        raise ValueError(
            f"--{self.key} must be one of {', '.join(self.words)}; found {found!r}.{suggested(str(found), self.words)} "
            "One of your own comes by --plugin"
        )

    def from_mapping(self, values: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> H:
        """Build the class that the values ask for; a parameter of another one is named as such."""
        given = by_name(values)
        declared = self.chosen(given)
        for name in sorted(given.keys() - declared.names()):
            owners = [c for c in self.classes if name in c.names()]
            words = [word for owner in owners for word in self.words_of(owner)]
            if words and given[name] is not None:
                flag = name.replace("_", "-")
                raise ValueError(
                    f"--{flag} goes with --{self.key} {' or '.join(words)}; found --{self.key} "
                    f"{given.get(self.key) or self.default}"
                )
            if words:
                given.pop(name)
        return declared.from_mapping(given, facts)


def stated(declared: type[H] | Variants[H], values: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> H:
    """The parameters as a file states them: every one that had an effect, spelt as its stage spells it.

    Of a file that leaves one out nobody could say how it was made: it is refused (`ValueError`).
    """
    made = declared.from_mapping(values, facts)
    said = made.to_json()
    silent = sorted(said.keys() - values.keys())
    if silent:
        raise ValueError(f"it does not say {silent[0]!r}, which had an effect (here {said[silent[0]]!r})")
    wrong = sorted(name for name in values if repr(said.get(name)) != repr(values[name]))  # 1 is not 1.0
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not as the stage spells it")
    return made


@cache  # an audit asks for every file
def _words_of(declared: type, key: str) -> tuple[str, ...]:
    return get_args(hints_of(declared)[key])
