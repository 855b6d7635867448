"""Where the labels of points stand in a picture, so that they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Of letters of 12 pixels: how wide one is on the average, and how high a line, above its baseline and below.
LETTER, ABOVE, BELOW = 6.7, 10, 3
#: Points nearer than this have one label.
_SAME = 6.0
#: From a point to its label, and to another place for it.
_BESIDE, _STEP = 8, 14
_ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Label:
    """A text in a picture.

    Attributes:
        x, y: of its anchor, on the baseline, in pixels.
        text: in one line.
        anchor: `start`, `middle` or `end` of the text.
    """

    x: float
    y: float
    text: str
    anchor: str

    @property
    def left(self) -> float:
        """Where it begins."""
        return self.x - _ANCHORS[self.anchor] * self.width

    @property
    def width(self) -> float:
        """How wide it is, about."""
        return LETTER * len(self.text)

    def overlaps(self, other: Label) -> bool:
        """Whether it covers some of another one."""
        is_beside = self.left + self.width <= other.left or other.left + other.width <= self.left
        return not is_beside and abs(self.y - other.y) < ABOVE + BELOW

    def covers(self, point: Point, radius: float = 2.0) -> bool:
        """Whether it covers what is around a point."""
        x, y = point
        is_across = self.left - radius < x < self.left + self.width + radius
        return is_across and self.y - ABOVE - radius < y < self.y + BELOW + radius

    def is_inside(self, width: float, height: float) -> bool:
        """Whether all of it is in a picture."""
        return self.left >= 0 and self.left + self.width <= width and ABOVE <= self.y <= height - BELOW


def labels(
    points: Sequence[Point], texts: Sequence[str], line: Sequence[Point], width: float, height: float
) -> list[Label]:
    """The labels of points, near them, apart from each other, the points and a line, in a picture of this size.

    Points at one place share a label. Where there is no room, the place that covers least is taken.
    """
    spots: list[tuple[Point, list[str]]] = []
    for point, text in zip(points, texts, strict=True):
        near = next((found for spot, found in spots if _distance(spot, point) < _SAME), None)
        if near is None:
            near = []
            spots.append((point, near))
        if text:
            near.append(text)
    covered = [*points, *_along(line)]
    placed: list[Label] = []
    for spot, found in spots:
        if found:
            ways = [way for way in _ways(spot, ", ".join(found)) if way.is_inside(width, height)]
            placed.append(min(ways, key=lambda way: _covers(way, placed, covered)))
    return placed


def _ways(spot: Point, text: str) -> list[Label]:
    """Where a label may stand, the best one first."""
    x, y = spot
    beside = [(x + _BESIDE, "start"), (x - _BESIDE, "end"), (x, "middle")]
    heights = [y + side * (5 + _STEP * step) + 4 for step in range(6) for side in (-1, 1)]
    return [Label(at, height, text, anchor) for height in heights for at, anchor in beside]


def _covers(label: Label, placed: Sequence[Label], covered: Sequence[Point]) -> tuple[int, int]:
    return sum(map(label.overlaps, placed)), sum(map(label.covers, covered))


def _along(line: Sequence[Point]) -> list[Point]:
    """Points on a line, some pixels apart."""
    found = []
    for (x, y), (to_x, to_y) in pairwise(line):
        count = max(1, int(_distance((x, y), (to_x, to_y)) / 3))
        found += [(x + (to_x - x) * step / count, y + (to_y - y) * step / count) for step in range(count)]
    return found


def _distance(one: Point, other: Point) -> float:
    return float(max(abs(one[0] - other[0]), abs(one[1] - other[1])))
