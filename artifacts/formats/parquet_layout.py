"""The layout of a dataset's Parquet file, held against the one layout that we write.

This comes before Arrow's parser sees a byte: some hostile footers make Arrow end the whole process, others make it
allocate what they claim. Nothing here is allocated from a claim, and a field, a spelling of a number, a page or a
gap that our writer does not make is refused: bits that nobody reviewed could hide there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

from artifacts import limits

Struct = dict[str, Any]
Column = tuple[int, list[bytes], tuple[int, ...]]

_PLAIN, _RLE = 0, 3
_BYTE_ARRAY, _INT64 = 6, 2
_WRITER = re.compile(rb"parquet-cpp-arrow version [0-9A-Za-z.+-]{1,40}")
_FOOTER = {"1:i32", "2:list<struct>", "3:i64", "4:list<struct>", "5:list<struct>", "6:binary", "7:list<struct>"}
_SCHEMA = [
    {"3:i32": 1, "4:binary": b"image", "5:i32": 2},
    {"1:i32": _BYTE_ARRAY, "3:i32": 1, "4:binary": b"bytes"},
    {"1:i32": _BYTE_ARRAY, "3:i32": 1, "4:binary": b"path", "6:i32": 0, "10:struct": {"1:struct": {}}},
    {"1:i32": _INT64, "3:i32": 1, "4:binary": b"label"},
]
_UNIT = {"1:i32": _INT64, "3:i32": 1, "4:binary": b"unit"}
# Of each column: its physical type, its path, and the share of its values at each level of nesting.
_COLUMNS: list[Column] = [
    (_BYTE_ARRAY, [b"image", b"bytes"], (0, 0, 1)),
    (_BYTE_ARRAY, [b"image", b"path"], (0, 1, 0)),
    (_INT64, [b"label"], (0, 1)),
]
_UNIT_COLUMN: Column = (_INT64, [b"unit"], (0, 1))
_MISSING = {
    b"bytes": "a row has no image",
    b"path": "a row names a path; a dataset artifact never does",
    b"label": "a row has no label, or its page more than labels",
    b"unit": "a row has no unit, or its page more than units",
}

ROWS_PER_GROUP = 1000
_MAX_PAGE_HEADER = 4096


class Bytes(Protocol):
    """The bytes of a file: in memory, or read from the disk piece by piece."""

    def __getitem__(self, piece: slice, /) -> bytes | memoryview: ...


def read_text(footer: bytes | memoryview) -> dict[str, str]:
    """The metadata `huggingface` and `fedsynth` in a footer. The rows are not looked at."""
    return _text(_footer(footer))


def writer_of(footer: bytes | memoryview) -> str:
    """The version of Arrow that wrote a file, by its footer."""
    return str(_footer(footer)["6:binary"].decode().rpartition(" ")[2])


def check(data: Bytes, start: int, end: int) -> dict[str, str]:
    """Hold a whole file, its footer from `start` to `end`, against our layout. Returns what `read_text` does."""
    footer = _footer(data[start:end])
    _require(data[:4] == b"PAR1", "it does not begin as a Parquet file does")
    position, rows = 4, 0
    for number, group in enumerate(footer["4:list<struct>"]):
        _require(rows < footer["3:i64"] or number == 0, "it has an empty row group")
        _require(rows == number * ROWS_PER_GROUP, f"row group {number - 1} does not hold {ROWS_PER_GROUP} rows")
        size = _check_group(data, start, group, number, position, _columns(footer))
        position, rows = position + size, rows + group["3:i64"]
    _require(position == start, f"its pages end at {position}, but its footer begins at {start}")
    last = rows - (len(footer["4:list<struct>"]) - 1) * ROWS_PER_GROUP
    _require(last <= ROWS_PER_GROUP, f"its last row group holds more than {ROWS_PER_GROUP} rows")
    _require(rows == footer["3:i64"], f"it claims {footer['3:i64']} rows, but its row groups hold {rows}")
    return _text(footer)


def image_pages(data: Bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Of a file that was checked, the pages of images in order: how many each holds, where they begin and end.

    An image is behind its length, which takes four bytes; nothing is between them.
    """
    for group in _footer(data[start:end])["4:list<struct>"]:
        about = group["1:list<struct>"][0]["3:struct"]
        position, stop = about["9:i64"], about["9:i64"] + about["7:i64"]
        while position < stop:
            reader = _Compact(data[position : min(stop, position + _MAX_PAGE_HEADER)], 0)
            page = reader.struct()
            held = page["5:struct"]["1:i32"]
            first = position + reader.position + len(_levels(held, _COLUMNS[0]))
            position += reader.position + page["3:i32"]
            yield held, first, position


def _footer(raw: bytes | memoryview) -> Struct:
    reader = _Compact(raw, 0)
    footer = reader.struct()
    _require(reader.position == len(raw) and footer.keys() == _FOOTER, "its footer is not laid out as ours are")
    known = [_root(2), *_SCHEMA], [_root(3), *_SCHEMA, _UNIT]
    names = "its columns must be image {bytes, path}, label (int64) and, in private data, perhaps unit (int64)"
    _require(footer["2:list<struct>"] in known, names)
    plain = footer["1:i32"] == 2 and footer["7:list<struct>"] == [{"1:struct": {}}] * len(_columns(footer))
    _require(plain and bool(_WRITER.fullmatch(footer["6:binary"])), "its footer names an unknown writer or version")
    return footer


def _root(columns: int) -> Struct:
    return {"3:i32": 0, "4:binary": b"schema", "5:i32": columns}


def _columns(footer: Struct) -> list[Column]:
    return [*_COLUMNS, _UNIT_COLUMN] if footer["2:list<struct>"][-1] == _UNIT else _COLUMNS


def _text(footer: Struct) -> dict[str, str]:
    pairs = [(pair.get("1:binary"), pair.get("2:binary"), len(pair)) for pair in footer["5:list<struct>"]]
    named = [name for name, value, fields in pairs if value is not None and fields == 2]
    _require(named == [b"huggingface", b"fedsynth"] and len(pairs) == 2, "its metadata are not the two that ours have")
    return {name.decode(): value.decode() for name, value, _ in pairs}


def _check_group(data: Bytes, end: int, group: Struct, number: int, position: int, wanted_columns: list[Column]) -> int:
    """A row group that begins at `position`, the pages ending at `end`: its columns. Returns its size."""
    columns, rows = group.get("1:list<struct>", []), group.get("3:i64", -1)
    _require(len(columns) == len(wanted_columns) and rows >= 0, "a row group does not hold the columns")
    size = 0
    for chunk, column in zip(columns, wanted_columns, strict=True):
        about = chunk.get("3:struct", {})
        _require(chunk == {"2:i64": 0, "3:struct": about}, "a column carries what a dataset artifact's never does")
        size += _check_column(data, end, about, column, rows, position + size)
    found = {name: value for name, value in group.items() if name not in ("1:list<struct>", "7:i16")}
    wanted = {"2:i64": size, "3:i64": rows, "5:i64": position if rows else 0, "6:i64": size}
    fits = found == wanted and group.get("7:i16", number) == number
    _require(fits, f"row group {number} is described otherwise than it is")
    return size


def _check_column(data: Bytes, end: int, about: Struct, column: Column, rows: int, position: int) -> int:
    """A column of a row group: plain pages that carry its rows, one behind the other. Returns its size."""
    physical, path, levels = column
    size: int = about.get("7:i64", -1)
    _require(0 <= size <= end - position, "a column claims more bytes than there are")
    count = _check_pages(data, rows, position, position + size, column)
    wanted = {
        "1:i32": physical,
        "2:list<i32>": [_RLE, _PLAIN] if rows else [_RLE],
        "3:list<binary>": path,
        "4:i32": 0,  # not compressed
        "5:i64": rows,
        "6:i64": size,
        "7:i64": size,
        "9:i64": position if rows else 0,
        "13:list<struct>": [{"1:i32": 0, "2:i32": _PLAIN, "3:i32": count}] if count else [],
    }
    found = {name: value for name, value in about.items() if name != "16:struct"}
    _require(found == wanted, f"its column {path[-1].decode()!r} is not stored plain, as a dataset artifact's is")
    # Newer versions of Arrow count here what is there in any case; older ones do not.
    counts = about.get("16:struct", {})
    wanted = {"2:list<i64>": [], "3:list<i64>": [rows * share for share in levels]}
    if physical == _BYTE_ARRAY:
        wanted["1:i64"] = min(max(counts.get("1:i64", 0), 0), size * levels[-1])
    _require(not counts or counts == wanted, "a column's size statistics do not fit")
    return size


def _check_pages(data: Bytes, rows: int, position: int, end: int, column: Column) -> int:
    """Plain data pages with checksums, from `position` to `end`. Returns how many."""
    count = values = 0
    while position < end:
        reader = _Compact(data[position : min(end, position + _MAX_PAGE_HEADER)], 0)
        page = reader.struct()
        position += reader.position
        inner = page.pop("5:struct", {})
        _require(inner.pop("5:struct", {}) == {}, "a page carries statistics, which a dataset artifact's never does")
        held, size = inner.get("1:i32", 0), page.get("3:i32", -1)
        plain = inner == {"1:i32": held, "2:i32": _PLAIN, "3:i32": _RLE, "4:i32": _RLE}
        wanted = {"1:i32": 0, "2:i32": size, "3:i32": size, "4:i32": page.get("4:i32")}
        _require(plain and page == wanted, "a page is not stored plain and with its checksum")
        _require(held > 0 and 0 <= size <= end - position, "a page claims more bytes than there are")
        limits.PAGE.check(size, "a page has")
        levels = _levels(held, column)
        rest = size - len(levels) if column[0] == _BYTE_ARRAY else size - len(levels) - 8 * held
        exact = rest == 0 or column == _COLUMNS[0]
        values += held
        _require(values <= rows, f"its pages hold {values} values for {rows} rows")
        _require(exact and data[position : position + len(levels)] == levels, _MISSING[column[1][-1]])
        position, count = position + size, count + 1
    _require(values == rows, f"its pages hold {values} values for {rows} rows")
    return count


def _levels(held: int, column: Column) -> bytes:
    """What a page begins with: that all its values are at one level of nesting, as one run, behind its size."""
    count, run = held << 1, bytearray()
    while count > 127:
        run.append(count & 127 | 128)
        count >>= 7
    run += bytes([count, column[2].index(1)])
    return len(run).to_bytes(4, "little") + run


_NUMBERS = {4: "i16", 5: "i32", 6: "i64"}
_TYPES = {**_NUMBERS, 8: "binary", 9: "list", 12: "struct"}


class _Compact:
    """Thrift's compact protocol, as far as our files use it, in its one shortest spelling. Fields are `id:type`."""

    def __init__(self, data: bytes | memoryview, position: int) -> None:
        self._data, self.position = memoryview(data), position

    def struct(self, depth: int = 0) -> Struct:
        _require(depth < 8, "its footer is nested too deeply")
        fields: Struct = {}
        number = 0
        while header := self._take(1)[0]:
            number += header >> 4
            kind = header & 15
            _require(header >> 4 > 0 and number < 32 and kind in _TYPES, "it has a field that ours never have")
            name, value = self._value(kind, depth)
            fields[f"{number}:{name}"] = value
        return fields

    def _value(self, kind: int, depth: int) -> tuple[str, Any]:
        if kind in _NUMBERS:
            number = self._varint()
            return _NUMBERS[kind], number >> 1 ^ -(number & 1)
        if kind == 8:
            return "binary", bytes(self._take(self._varint()))
        if kind == 12:
            return "struct", self.struct(depth + 1)
        return self._list(depth)

    def _list(self, depth: int) -> tuple[str, list[Any]]:
        header = self._take(1)[0]
        count, kind = header >> 4, header & 15
        _require(kind in _TYPES and kind != 9, "it has a list that ours never have")
        if count == 15:
            count = self._varint()
            # Only the row groups are many, and each takes more than a hundred bytes.
            _require(15 <= count <= (len(self._data) - self.position) // 100 + 15, f"a list claims {count} entries")
        return f"list<{_TYPES[kind]}>", [self._value(kind, depth)[1] for _ in range(count)]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                _require(byte > 0 or shift == 0, "a number is not spelt in the shortest way")
                return value
        raise ValueError("a number is too long")

    def _take(self, count: int) -> memoryview:
        _require(count <= len(self._data) - self.position, "its footer or a page ends too early")
        self.position += count
        return self._data[self.position - count : self.position]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
