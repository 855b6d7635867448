"""A picture of points between two axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rematc.compiler.reports.labelling import LETTER, labels

WIDTH, HEIGHT = 640, 400
#: From the picture's edges to the axes.
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 96, 52, 48


@dataclass(frozen=True, slots=True)
class Mark:
    """A point.

    Attributes:
        x: from left to right.
        y: from bottom to top.
        label: what stands beside it.
        is_filled: whether it is a disc, and not a ring.
    """

    x: float
    y: float
    label: str = ""
    is_filled: bool = True


@dataclass(frozen=True, slots=True)
class _Axis:
    """A range of numbers on a range of pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers, some five of them."""
        raw = (self.high - self.low) / 5
        base = 10.0 ** math.floor(math.log10(raw))
        step = base * next(factor for factor in (1, 2, 5, 10) if factor * base >= raw * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    low, high = min(0.0, *values), max(0.0, *values)
    return _Axis(low, high + ((high - low) * 0.05 or 1.0), start, end)


def scatter(marks: Sequence[Mark], x_title: str, y_title: str, title: str = "") -> str:
    """The picture of points, one at least, on axes that have a zero; filled ones are joined from left to right."""
    x = _axis([mark.x for mark in marks], _LEFT, WIDTH - _RIGHT)
    y = _axis([mark.y for mark in marks], HEIGHT - _BOTTOM, _TOP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 18, shortened(title), "middle"),
        _text((x.start + x.end) / 2, HEIGHT - 10, x_title, "middle"),
        _text(12, _TOP - 12, y_title, "start"),
    ]
    for value in x.ticks():
        lines.append(_line(x.at(value), y.start, x.at(value), y.end))
        lines.append(_text(x.at(value), y.start + 16, f"{value:g}", "middle"))
    for value in y.ticks():
        lines.append(_line(x.start, y.at(value), x.end, y.at(value)))
        lines.append(_text(x.start - 6, y.at(value) + 4, f"{value:g}", "end"))
    points = [(x.at(mark.x), y.at(mark.y)) for mark in marks]
    curve = [(x.at(mark.x), y.at(mark.y)) for mark in sorted(marks, key=_place) if mark.is_filled]
    joined = " ".join(f"{at:.1f},{height:.1f}" for at, height in curve)
    lines.append(f'<polyline points="{joined}" fill="none" stroke="#1f77b4"/>')
    for mark, (at, height) in zip(marks, points, strict=True):
        fill = "#1f77b4" if mark.is_filled else "white"
        lines.append(f'<circle cx="{at:.1f}" cy="{height:.1f}" r="4" fill="{fill}" stroke="#1f77b4"/>')
    for label in labels(points, [mark.label for mark in marks], curve, WIDTH, y.start):
        lines.append(_text(label.x, label.y, label.text, label.anchor))
    return "\n".join([*filter(None, lines), "</svg>"]) + "\n"


def shortened(title: str) -> str:
    """A title that the picture has room for."""
    most = int((WIDTH - 16) / LETTER)
    return title if len(title) <= most else f"{title[: most - 3]}..."


def _place(mark: Mark) -> tuple[float, float]:
    return mark.x, -mark.y


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""
