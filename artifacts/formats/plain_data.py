"""The one way from text to data: JSON, YAML and TOML as strings, numbers, truth values, lists and maps of strings.

Whatever else a format offers (dates, tags, references, keys that are no strings, a key twice) is refused, and so are
numbers and nesting beyond `limits`: they make programs run, swell or fail far from where the text was read. All
functions raise `ValueError`, to which the reader adds the file's name; `read_mapping` does so itself.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from artifacts import limits
from artifacts.errors import InputError
from artifacts.limits import DEPTH, DIGITS, LimitError

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOO_DEEP = f"it is nested in more than {DEPTH} levels"


def read_json(path: Path, limit: limits.Limit = limits.RECORD) -> Any:
    """What is in a JSON file. `OSError` where it cannot be read at all."""
    return parse_json(limits.read_bytes(path, limit))


def read_mapping(path: Path) -> dict[str, Any]:
    """The one mapping of a file of parameters, by its suffix: .toml, else YAML."""
    try:
        text = limits.read_bytes(path, limits.TEXT).decode()
        loaded = parse_toml(text) if path.suffix == ".toml" else parse_yaml(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} does not parse: {reason}.") from error
    if not isinstance(loaded, dict):
        raise InputError(f"{path} must hold a mapping of names to values.")
    return loaded


def parse_json(text: str | bytes, *, canonical: bool = False) -> Any:
    """`canonical`: the caller compares with the one spelling of the value, so a key twice need not be looked for."""
    try:
        decoded = text if isinstance(text, str) else text.decode()
        value = (_CANONICAL if canonical else _ANY).decode(decoded)
        if _SURROGATE.search(decoded):
            json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be written anywhere
    except RecursionError:
        raise LimitError(_TOO_DEEP) from None
    # Most texts have so few brackets that they cannot be deep.
    if decoded.count("[") + decoded.count("{") > DEPTH:
        _check_plain(value)
    return value


def parse_toml(text: str) -> Any:
    try:
        return _check_plain(tomllib.loads(text))
    except RecursionError:
        raise LimitError(_TOO_DEEP) from None


def parse_yaml(text: str) -> Any:
    import yaml

    from artifacts.formats.plain_yaml import PlainLoader

    try:
        depth = 0
        # Event by event, so that nothing is built before it is known to be harmless.
        for event in yaml.parse(text, Loader=PlainLoader):
            where = f"line {event.start_mark.line + 1}"
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"{where}: *{event.anchor} refers to another place; write the value out")
            if getattr(event, "tag", None) is not None:
                raise ValueError(f"{where}: the tag {event.tag!r} is not read, only plain values are")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH:
                raise LimitError(f"{where}: {_TOO_DEEP}")
        return _check_plain(yaml.load(text, Loader=PlainLoader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def dump_yaml(value: Any, **style: Any) -> str:
    """Text that `parse_yaml` reads: what is in two places is written twice, never referred to."""
    import yaml

    from artifacts.formats.plain_yaml import PlainDumper

    text: str = yaml.dump(value, Dumper=PlainDumper, sort_keys=False, **style)
    return text


def _check_plain(value: Any) -> Any:
    """Held against the types of JSON, level by level: no recursion of our own."""
    level, depth = [value], 0
    while level:
        if depth > DEPTH:
            raise LimitError(_TOO_DEEP)
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
            elif type(one) is int:
                if abs(one) >= 10**DIGITS:
                    raise LimitError(f"a number has more than {DIGITS} digits")
            elif not isinstance(one, str | float | bool | None):
                raise ValueError(f"{one!s} is neither a string nor a number: write it in quotes")
        level, depth = inner, depth + 1
    return value


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise LimitError(f"a number has more than {DIGITS} digits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one JSON object")
    return result


# Made once: an audit reads as many lines as there are files.
_ANY = json.JSONDecoder(parse_int=_integer, object_pairs_hook=_unique)
_CANONICAL = json.JSONDecoder(parse_int=_integer)
