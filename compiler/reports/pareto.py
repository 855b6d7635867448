"""The curve: memory against time, of plans and of policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rematc.compiler.reports.scatter import Mark, scatter
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import format_bytes, format_flops, format_seconds
from rematc.passes.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A way to run a program.

    Attributes:
        name: the plan's budget, the policy, or `everything` without recomputation.
        predicted: bytes of temporary memory that XLA is expected to take.
        extra_seconds: predicted time of what is computed again.
        extra_flops: its floating-point operations.
        measured: bytes that XLA says it takes; None where it was not compiled.
        is_dominated: whether another point takes no more memory and no more time, and less of one of them.
        plan: of a point that is a plan.
        slices: in how many slices its largest stage runs; 1 where nothing does.
    """

    name: str
    predicted: int
    extra_seconds: float
    extra_flops: int
    measured: int | None = None
    is_dominated: bool = False
    plan: Plan | None = field(default=None, repr=False)
    slices: int = 1

    @property
    def memory(self) -> int:
        """Measured bytes, or predicted ones where it was not compiled."""
        return self.predicted if self.measured is None else self.measured

    def as_dict(self) -> dict[str, object]:
        """The point as JSON-able data."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return fields | {"plan": None if self.plan is None else self.plan.budget}


@dataclass(frozen=True, slots=True)
class Pareto:
    """The curve of a program.

    Attributes:
        points: by memory, then by time.
        target: what it is for.
        device: whose rates the times are of.
        seconds: predicted time without recomputation.
        flops: floating-point operations without recomputation.
    """

    points: tuple[ParetoPoint, ...]
    target: str
    device: str
    seconds: float
    flops: int

    def as_dict(self) -> dict[str, object]:
        """The curve as JSON-able data."""
        return {
            "target": self.target,
            "device": self.device,
            "seconds": self.seconds,
            "flops": self.flops,
            "points": [point.as_dict() for point in self.points],
        }

    def table(self, heading: str = "") -> Table:
        """The points, one a line."""
        columns = ("", "measured", "predicted", "extra time", "", "extra FLOPs", "")
        rows = tuple(
            (
                point.name,
                "-" if point.measured is None else format_bytes(point.measured),
                format_bytes(point.predicted),
                _signed(point.extra_seconds, format_seconds),
                f"{point.extra_seconds / self.seconds:.1%}" if self.seconds else "",
                _signed(point.extra_flops, format_flops),
                "dominated" if point.is_dominated else "",
            )
            for point in self.points
        )
        note = (
            f"temporary memory on {self.target}; time and FLOPs are those of what is computed again, predicted "
            f"({self.device})"
        )
        return Table(heading, columns, (False, True, True, True, True, True, False), rows, note)

    def __str__(self) -> str:
        return plain_text([self.table()]).rstrip()

    def svg(self, title: str = "") -> str:
        """The points as a picture, memory from left to right and extra time from bottom to top, in per cent."""
        marks = [
            Mark(
                point.memory / 2**20,
                100 * point.extra_seconds / self.seconds if self.seconds else 0.0,
                "" if point.plan is not None else point.name,
                not point.is_dominated,
            )
            for point in self.points
        ]
        return scatter(marks, "temporary memory, MiB", "extra time, %", title)


def _signed(amount: float, form: Callable[..., str]) -> str:
    return f"-{form(-amount)}" if amount < 0 else form(amount)


def is_dominated(amounts: tuple[float, float], all_amounts: Iterable[tuple[float, float]]) -> bool:
    """Whether others take no more memory and no more time than these, and less of one."""
    return any(other[0] <= amounts[0] and other[1] <= amounts[1] and other != amounts for other in all_amounts)


def marked(points: Sequence[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The points by memory, with what is dominated marked."""
    ordered = sorted([((point.memory, point.extra_seconds), point) for point in points], key=lambda pair: pair[0])
    amounts = [pair[0] for pair in ordered]
    return tuple([dataclasses.replace(point, is_dominated=is_dominated(own, amounts)) for own, point in ordered])
