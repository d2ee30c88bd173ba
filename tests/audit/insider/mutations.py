"""Every change of a value of plain data, by its type: what a covert channel in that value would look like."""

import math

MARK = "mueller"


def nodes(value, path=()):
    """Every value in a JSON document, with the way to it: the document itself, objects, lists and leaves."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from nodes(inner, (*path, name))


def changes(value):
    """The name and the value of each change."""
    match value:
        case bool():
            yield from {"flipped": not value, "as a number": int(value)}.items()
        case int():
            yield "one more", value + 1
            yield "with a point", float(value)
            yield "huge", int("29021968" * 9)
            yield "negative", -value - 1
        case float():
            yield "its last bit", math.nextafter(value, math.inf)
            yield "one more", value + 1.0
            yield "negative", -value
            if value == int(value):
                yield "without its point", int(value)
        case str():
            yield "another word", MARK
            yield "a letter more", value + "a"
            yield "a space more", value + " "
            yield "in capitals", value.upper()
            yield "long", value + MARK * 40
            if value[:1].isdigit():
                yield "another digit", str((int(value[0]) + 1) % 10) + value[1:]
        case list():
            yield "backwards", value[::-1]
            yield "without its first", value[1:]
            yield "its first twice", value[:1] + value
            yield "a word more", [*value, MARK]
        case dict():
            yield "a field more", {**value, MARK: 1968}
            yield "a field of words more", {**value, "note": MARK}
            for name in value:
                yield f"without {name}", {n: v for n, v in value.items() if n != name}
        case None:
            yield "a word", MARK
            yield "a number", 1968


def replaced(document, path, value):
    """The document with another value there."""
    if not path:
        return value
    inner = replaced(document[path[0]], path[1:], value)
    if isinstance(document, dict):
        return {**document, path[0]: inner}
    return [inner if number == path[0] else one for number, one in enumerate(document)]


def all_changes(document, leave=()):
    """Each change of each value, with words for it; `leave` are names at the top that follow from the rest."""
    for path, value in nodes(document):
        if path[:1] in [(name,) for name in leave]:
            continue
        for how, new in changes(value):
            after = replaced(document, path, new)
            if after != document or repr(after) != repr(document):
                yield path, how, after
