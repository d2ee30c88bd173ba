"""How wide the columns of a table are: words stay whole while there is any way to fit them in."""

from __future__ import annotations

import re
from collections.abc import Sequence

GAP = 2
_SHORTEST_PATH = 16
# A name such as partition.classes_per_client may go on in the next line after one of these; 97.5% may not.
_IN = r"(?:[^\s./_=,×-]|(?<=\d)\.(?=\d))"
_END = r"(?:[/_=,×-]|(?<!\d)\.|\.(?!\d))"
_PIECE = re.compile(rf"{_IN}*{_END}+|{_IN}+")


def laid_out(cells: Sequence[Sequence[str]], width: int) -> list[list[list[str]]]:
    """The lines of each cell, row by row, in columns that fit into `width` together where that is possible.

    Columns that are too wide are wrapped between words; then long paths lose their middle; then names go on after a
    dot, dash or underscore. Only a word that is still too long is cut.
    """
    columns = [[line for cell in column for line in cell.split("\n")] for column in zip(*cells, strict=True)]
    room = width - GAP * (len(columns) - 1)
    widest = [max(map(len, lines)) for lines in columns]
    if sum(widest) <= room:
        return [[cell.split("\n") for cell in row] for row in cells]
    words = [max((len(word) for line in lines for word in line.split()), default=0) for lines in columns]
    pieces = [max((len(piece) for line in lines for piece in _PIECE.findall(line)), default=0) for lines in columns]
    if sum(words) > room:
        over = sum(words) - room
        shorter = [_with_short_paths(lines, words[i] - over) for i, lines in enumerate(columns)]
        words = [max((len(word) for line in lines for word in line.split()), default=0) for lines in shorter]
    widths = _shared_out(words, widest, room) if sum(words) <= room else _narrowed(words, pieces, room)
    return [[_wrapped(cell, one) for cell, one in zip(row, widths, strict=True)] for row in cells]


def _shared_out(floor: Sequence[int], wish: Sequence[int], room: int) -> list[int]:
    """Each column's least width, and an equal share of what is left over to each that could use it.

    What a column does not need of its share goes to the others: only the widest are narrower than they wish.
    """
    if sum(floor) > room:
        return [max(1, one * room // sum(floor)) for one in floor]
    widths, left = list(floor), room - sum(floor)
    by_need = sorted(range(len(floor)), key=lambda i: wish[i] - floor[i])
    for place, i in enumerate(by_need):
        more = min(max(wish[i] - floor[i], 0), left // (len(by_need) - place))
        widths[i] += more
        left -= more
    return widths


def _narrowed(words: Sequence[int], pieces: Sequence[int], room: int) -> list[int]:
    """The widest column gives way, again and again, down to its longest piece: figures beside a name stay whole."""
    widths = list(words)
    while sum(widths) > room:
        wide = [i for i, least in enumerate(pieces) if widths[i] > least]
        if not wide:
            return _shared_out(pieces, pieces, room)
        widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _with_short_paths(lines: Sequence[str], width: int) -> list[str]:
    return [" ".join(_short_path(word, width) for word in line.split(" ")) for line in lines]


def _short_path(word: str, width: int) -> str:
    """A path with its middle left out; anything else as it is."""
    width = max(width, _SHORTEST_PATH)
    if word.count("/") < 2 or len(word) <= width:
        return word
    end = min(len(word) - word.rindex("/"), width * 2 // 3)
    return f"{word[: width - end - 1]}…{word[-end:]}"


def _wrapped(cell: str, width: int) -> list[str]:
    lines: list[str] = []
    for given in cell.split("\n"):
        line = ""
        for word in given.split(" "):
            short = _short_path(word, width)
            if line and len(line) + 1 + len(short) <= width:
                line += f" {short}"
                continue
            if line:
                lines.append(line)
            line = ""
            for piece in [short] if len(short) <= width else _PIECE.findall(short):
                if line and len(line) + len(piece) > width:
                    lines.append(line)
                    line = ""
                line += piece
                while len(line) > width:
                    lines.append(line[:width])
                    line = line[width:]
        lines.append(line)
    return lines
