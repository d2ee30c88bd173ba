"""Hostile values, and data with some of them in it: systematically, or by a seeded random generator.

Not a test: the fuzzing target, the tests of the readers and those of the commands use it.
"""

import copy
import datetime
import json
import random
from functools import partial

import yaml

DEEP = 400
ESCAPE = "\x1b]0;owned\x07\x1b[31mred"

# Values of JSON that are of the wrong type, out of range, or text that does something where it is printed.
VALUES = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, -(10**400), 0.5, 1e308, float("nan"), float("inf"),
    "", "x", "server", "../../x", "/etc/passwd", ESCAPE, "[/nope]", "[bold]x[/bold]", "\ud800", "\0", "é∞", "x" * 3000,
    "0" * 64, "1e400", "2001-99-99", [], [[]], [None], ["a", 1], {}, {"": None}, {"a": {"b": []}},
)  # fmt: skip
# What YAML has beside: dates, bytes, keys that are no texts.
YAML_VALUES = (
    *VALUES,
    datetime.date(2001, 9, 9),
    b"\xff\x00",
    {None: 1},
    {True: 1},
    {1: {2: 3}},
    {datetime.date.max: 1},
)
TOKENS = (
    b"2001-99-99", b"2001-01-01 99:99:99", b"!!timestamp 5", b"!!timestamp x", b"!!int x", b"!!float x", b"!!binary x",
    b"!!bool 7", b"!!null 7", b"!!set {a}", b"!!omap [a: 1]", b"!!pairs [a: 1]", b"!!python/object/apply:os.abort []",
    b"? [a]\n: b", b"<<: 5", b"<<: [1]", b"&a [*a]", b"*a", b"{*a : 1}", b"0b12", b"0x", b"0o9", b"1:99:99",
    b"1_000", b".inf", b".nan", b"~", b"1" * 5000, b"-" + b"9" * 400, b"1e999", b"|", b">", b"%YAML 9.9", b"---",
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x1b[2J", b"[" * 2000, b"{a: " * 500, b'"\\ud800"',
    b"null", b"true", b"NaN", b"Infinity", b"1" * 400, b'"\\u0000"', b"[]", b"{}", b"''",
)  # fmt: skip
NUMBERS = tuple(
    number.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for order in ("little", "big")
    for number in (0, 1, 0x7F << 8 * (size - 1), (1 << 8 * size) - 1, (1 << 8 * size - 1))
)


def places(tree, path=()):
    """The path of each node in a tree of JSON, the whole first."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def replaced(tree, path, value):
    """A copy of the tree with another value at this place."""
    if not path:
        return copy.deepcopy(value)
    result = copy.deepcopy(tree)
    at(result, path[:-1])[path[-1]] = value
    return result


def removed(tree, path):
    result = copy.deepcopy(tree)
    del at(result, path[:-1])[path[-1]]
    return result


def renamed(tree, path, name):
    """A copy in which the last key of the path is called otherwise."""
    result = copy.deepcopy(tree)
    parent = at(result, path[:-1])
    parent[name] = parent.pop(path[-1])
    return result


def variants(tree, values=VALUES):
    """Each node with each wrong value, each key left out, each key renamed, a strange key added: (what, how)."""
    for path in places(tree):
        spelt = ".".join(map(str, path)) or "all"
        for value in values:
            yield f"{spelt} = {value!r:.40}", partial(replaced, tree, path, value)
        if path:
            yield f"{spelt} left out", partial(removed, tree, path)
        if path and isinstance(path[-1], str):
            yield f"{spelt} called otherwise", partial(renamed, tree, path, ESCAPE)
        if isinstance(at(tree, path), dict):
            yield f"{spelt} with a strange key", partial(replaced, tree, path, {**at(tree, path), "strange": 1})
    yield "nested deeply", partial(nested, tree)


def nested(tree):
    for _ in range(DEEP):
        tree = [tree]
    return tree


def mutate(data, rng, form="bytes"):
    """Other bytes, by one to three changes; `form` says whether there is JSON or YAML in them."""
    change = {"json": _change_json, "yaml": _change_yaml}.get(form, _change_bytes)
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = (change if rng.random() < 0.7 else _change_bytes)(data, rng)
    return data


def mutants(seeds, count, form, seed=0):
    """So many mutants of some seeds, always the same."""
    rng = random.Random(seed)
    for number in range(count):
        yield mutate(seeds[number % len(seeds)], rng, form)


def _change_tree(tree, rng, values):
    path = rng.choice(list(places(tree)))
    way = rng.randrange(8)
    if way == 0 and path:
        return removed(tree, path)
    if way == 1 and path and isinstance(path[-1], str):
        return renamed(tree, path, rng.choice(("", "strange", ESCAPE, "\ud800", "__class__")))
    if way == 2:
        return replaced(tree, path, at(tree, rng.choice(list(places(tree)))))
    if way == 3 and isinstance(at(tree, path), list):
        return replaced(tree, path, at(tree, path) * rng.choice((0, 2, 50)))
    if way == 4 and not rng.randrange(20):
        return replaced(tree, path, nested(at(tree, path)))
    return replaced(tree, path, rng.choice(values))


def _change_json(data, rng):
    """The whole as JSON, or one line of it."""
    try:
        return json.dumps(_change_tree(json.loads(data), rng, VALUES)).encode()
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
    number = rng.randrange(len(lines))
    try:
        lines[number] = json.dumps(_change_tree(json.loads(lines[number]), rng, VALUES)).encode()
    except (ValueError, RecursionError):
        return _change_bytes(data, rng)
    if not rng.randrange(6):
        lines[rng.randrange(len(lines))] = lines[number]
    return b"\n".join(lines)


def _change_yaml(data, rng):
    if rng.random() < 0.5:
        return _change_words(data, rng)
    try:
        tree = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        text = yaml.dump(
            _change_tree(tree, rng, YAML_VALUES), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False
        )
        return text.encode("utf-8", "surrogatepass")
    except Exception:  # PyYAML raises whatever comes: IndexError for an empty `!!int`
        return _change_words(data, rng)


def _change_words(data, rng):
    """A word of a text for something that YAML reads otherwise."""
    words = data.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(TOKENS)
    return b" ".join(words)


def _change_bytes(data, rng):
    position = rng.randrange(len(data) + 1)
    end = min(len(data), position + rng.choice((1, 1, 2, 4, 8, 32)))
    match rng.randrange(7):
        case 0 if data:
            spot = rng.randrange(len(data))
            return data[:spot] + bytes([data[spot] ^ (1 << rng.randrange(8))]) + data[spot + 1 :]
        case 1:
            number = rng.choice(NUMBERS)
            return data[:position] + number + data[position + len(number) :]
        case 2:
            return data[:position] + data[end:]
        case 3:
            return data[:position] + data[position:end] * rng.choice((2, 3, 100)) + data[end:]
        case 4:
            return data[:position]
        case 5:
            return data[:position] + rng.choice(TOKENS) + data[position:]
        case _:
            other = rng.randrange(len(data) + 1)
            return data[:position] + data[other : other + 64] + data[end:]
