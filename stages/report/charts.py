"""Curves as inline SVG: colours come from the page's style, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

# Small enough that the letters are readable on a phone, where the picture is shrunk to its width.
_WIDTH, _HEIGHT = 400, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 22, 14, 44
_MOST_MARKERS = 30


@dataclass(frozen=True)
class Series:
    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """`name` tells the pictures of a page apart; `summary` is what a screen reader says in its place."""

    name: str
    title: str
    summary: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_words: Callable[[float], str]
    y_words: Callable[[float], str]
    y_top: float | None = None
    whole_x: bool = False


def svg(chart: Chart) -> Markup:
    xs = [x for series in chart.series for x, _ in series.points]
    ys = [y for series in chart.series for _, y in series.points]
    x_low = min(xs) if chart.whole_x else 0.0  # rounds begin where they begin, amounts at nothing
    x_ticks = nice_ticks(x_low, max(xs), 5, whole=chart.whole_x)
    y_ticks = nice_ticks(0.0, chart.y_top or max(ys), 5)
    x_high = max(max(xs), x_low + 1e-9)
    y_high = chart.y_top or max(y_ticks[-1], max(ys)) or 1.0

    def across(x: float) -> float:
        return _LEFT + (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)

    def up(y: float) -> float:
        return _HEIGHT - _BOTTOM - y / y_high * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        Markup(
            '<svg class="chart" viewBox="0 0 {0} {1}" role="img" aria-labelledby="{2}-title {2}-summary" '
            'focusable="false"><title id="{2}-title">{3}</title><desc id="{2}-summary">{4}</desc>'
        ).format(_WIDTH, _HEIGHT, chart.name, chart.title, chart.summary)
    ]
    for y in y_ticks:
        if y <= y_high * 1.0001:
            parts.append(_line("grid", _LEFT, up(y), _WIDTH - _RIGHT, up(y)))
            parts.append(_text(_LEFT - 6, up(y) + 4, chart.y_words(y), "end"))
    for x in x_ticks:
        if x_low - 1e-9 <= x <= x_high * 1.0001:
            parts.append(_line("tick", across(x), _HEIGHT - _BOTTOM, across(x), _HEIGHT - _BOTTOM + 4))
            parts.append(_text(across(x), _HEIGHT - _BOTTOM + 17, chart.x_words(x), "middle"))
    parts.append(_line("axis", _LEFT, up(0), _WIDTH - _RIGHT, up(0)))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, chart.x_label, "middle"))
    for number, series in enumerate(chart.series):
        places = [(across(x), up(y)) for x, y in series.points]
        path = " ".join(f"{'M' if i == 0 else 'L'}{_n(x)} {_n(y)}" for i, (x, y) in enumerate(places))
        parts.append(Markup('<path class="line s{0}" d="{1}"/>').format(number, path))
        if len(places) <= _MOST_MARKERS:
            parts += [
                Markup('<circle class="dot s{0}" cx="{1}" cy="{2}" r="3.5"/>').format(number, _n(x), _n(y))
                for x, y in places
            ]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def nice_ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` + 1 of them: steps of 1, 2 or 5 times a power of ten."""
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span / most))
    while span / step > most:
        step *= 2.5 if f"{step:e}".startswith("2") else 2.0
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first = math.ceil(low / step - 1e-9)
    count = math.floor((high - first * step) / step + 1e-9)
    return [round((first + i) * step, 10) for i in range(count + 1)]


def _line(name: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(name, _n(x1), _n(y1), _n(x2), _n(y2))


def _text(x: float, y: float, words: str, anchor: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(_n(x), _n(y), anchor, escape(words))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
