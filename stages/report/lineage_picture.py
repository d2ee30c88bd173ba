"""The graph of a round as inline SVG, from left to right: a row for each client, or one for all of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stages.report.lineage_graph import Graph, Node

_MOST_CLIENTS = 5  # drawn one by one
_WIDTH, _HEIGHT, _ACROSS, _BETWEEN, _MARGIN = 190, 46, 56, 14, 8
_LANE = 20  # below all boxes, for arrows that pass by a column
_LETTERS = 22
_WORDS = {
    "private": "stays with the client",
    "left": "left the client",
    "server": "made by the server",
    "given": "there before the round",
}


@dataclass(frozen=True)
class _Box:
    label: str
    below: str
    side: str
    layer: int
    order: tuple[int, str, str]


def drawn_one_by_one(graph: Graph) -> bool:
    return len({node.who for node in graph.nodes.values() if _is_client(node)}) <= _MOST_CLIENTS


def svg(graph: Graph, *, name: str, title: str) -> Markup:
    boxes, edges = _boxes(graph)
    columns: dict[int, list[str]] = {}
    for key in sorted(boxes, key=lambda key: boxes[key].order):
        columns.setdefault(boxes[key].layer, []).append(key)
    tallest = max(len(keys) for keys in columns.values())
    far = any(boxes[end].layer - boxes[start].layer > 1 for start, end in edges)
    rows = 2 * _MARGIN + tallest * (_HEIGHT + _BETWEEN) - _BETWEEN
    height = rows + (_LANE if far else 0)
    width = 2 * _MARGIN + (max(columns) + 1) * (_WIDTH + _ACROSS) - _ACROSS
    places: dict[str, tuple[float, float]] = {}
    for layer, keys in columns.items():
        top = (rows - len(keys) * (_HEIGHT + _BETWEEN) + _BETWEEN) / 2
        for number, key in enumerate(keys):
            places[key] = (_MARGIN + layer * (_WIDTH + _ACROSS), top + number * (_HEIGHT + _BETWEEN))
    parts = [
        Markup(
            '<svg class="lineage" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" focusable="false" '
            'aria-labelledby="{2}-title" aria-describedby="{2}-list"><title id="{2}-title">{3}</title>'
        ).format(width, _n(height), name, title)
    ]
    for start, end in edges:
        far = boxes[end].layer - boxes[start].layer > 1
        path, tip = _arrow(places[start], places[end], below=height - _LANE / 2 if far else None)
        parts.append(Markup('<path class="edge" d="{}"/><path class="tip" d="{}"/>').format(path, tip))
    for key, (x, y) in places.items():
        box = boxes[key]
        where = (box.side, _n(x), _n(y), _WIDTH, _HEIGHT)
        name_at, below_at = (_n(x + 10), _n(y + 19)), (_n(x + 10), _n(y + 36))
        parts.append(
            Markup(
                '<g class="box {}"><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
                '<text class="name" x="{}" y="{}">{}</text><text class="who" x="{}" y="{}">{}</text></g>'
            ).format(*where, *name_at, _short(box.label), *below_at, _short(box.below))
        )
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _arrow(start: tuple[float, float], end: tuple[float, float], *, below: float | None) -> tuple[str, str]:
    """From the right side of a box to the left side of another, `below` what is between them if need be."""
    (left, y1), (right, y2) = start, end
    left, y1, y2 = left + _WIDTH, y1 + _HEIGHT / 2, y2 + _HEIGHT / 2
    half = _ACROSS / 2

    def bend(x: float, y: float, to_x: float, to_y: float) -> str:
        middle = (x + to_x) / 2
        return f"C{_n(middle)} {_n(y)} {_n(middle)} {_n(to_y)} {_n(to_x)} {_n(to_y)}"

    tip = f"M{_n(right - 7)} {_n(y2 - 4)} l7 4 l-7 4 z"
    if below is None:
        return f"M{_n(left)} {_n(y1)} {bend(left, y1, right - 6, y2)}", tip
    lane = f"{bend(left, y1, left + half, below)} L{_n(right - half)} {_n(below)}"
    return f"M{_n(left)} {_n(y1)} {lane} {bend(right - half, below, right - 6, y2)}", tip


def sentences(graph: Graph) -> list[tuple[str, str]]:
    """The same in words: a file, and what it was made from."""
    boxes, edges = _boxes(graph)
    made: dict[str, list[str]] = {}
    for start, end in edges:
        made.setdefault(end, []).append(start)
    ordered = sorted(made, key=lambda key: (boxes[key].layer, boxes[key].order))
    return [(_full(boxes[key]), "; ".join(_full(boxes[s]) for s in made[key])) for key in ordered]


def legend(graph: Graph) -> list[tuple[str, str]]:
    sides = {node.side for node in graph.nodes.values()}
    return [(side, words) for side, words in _WORDS.items() if side in sides]


def _boxes(graph: Graph) -> tuple[dict[str, _Box], Sequence[tuple[str, str]]]:
    """A box for each file; with many clients one for all their files of a kind, with their number."""
    layers = graph.layers()
    if drawn_one_by_one(graph):
        boxes = {key: _Box(n.label, _below(n), n.side, layers[key], _order(n)) for key, n in graph.nodes.items()}
        return boxes, list(graph.edges)
    alike = {key: f"{layers[key]} {node.kind} {node.side}" for key, node in graph.nodes.items()}
    many = {name for name, count in Counter(alike.values()).items() if count > _MOST_CLIENTS}
    group_of = {key: alike[key] if _is_client(node) or alike[key] in many else key for key, node in graph.nodes.items()}
    members: dict[str, list[Node]] = {}
    for key, node in graph.nodes.items():
        members.setdefault(group_of[key], []).append(node)
    boxes = {}
    for name, (node, *others) in members.items():
        label, below = node.label, _below(node)
        if any(other.label != label for other in others):
            label = f"{1 + len(others)} × {node.kind}"
        if others and _is_client(node):
            below = f"{len({other.who for other in (node, *others)})} clients, {1 + len(others)} files"
        boxes[name] = _Box(label, below, node.side, layers[node.key], _order(node))
    return boxes, list(dict.fromkeys((group_of[start], group_of[end]) for start, end in graph.edges))


def _is_client(node: Node) -> bool:
    return node.who not in ("", "server", "public")


def _order(node: Node) -> tuple[int, str, str]:
    """Clients from above to below, what is everybody's in the middle of the column's end."""
    return (0 if _is_client(node) else 1), node.who, node.label


def _below(node: Node) -> str:
    who = f"client {node.who}" if _is_client(node) else node.who
    return f"{who} · {node.kind}" if who and node.kind not in node.label else who or node.kind


def _full(box: _Box) -> str:
    return f"{box.label} ({box.below})" if box.below else box.label


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
