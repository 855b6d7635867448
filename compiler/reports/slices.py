"""What of a program runs in slices."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rematc.ir.locations import Location
from rematc.ir.tables import Table
from rematc.ir.units import format_bytes
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.slicing.cutting import InParts
from rematc.passes.slicing.slicing import Sliced


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage that runs in slices, or several that are alike.

    Attributes:
        value: the type of its largest value, which nothing holds whole.
        op: what computes that.
        loc: where.
        dimension: along which it is cut.
        count: how many slices there are.
        each: how many elements of the dimension a slice has.
        is_again: whether the value is computed a second time, in a loop of its own, for what reads it later.
        stages: how many there are.
    """

    value: str
    op: str
    loc: Location | None
    dimension: int
    count: int
    each: int
    is_again: bool = False
    stages: int = 1

    @classmethod
    def of(cls, stage: InParts) -> StageReport:
        """What was done to one."""
        type = str(stage.value.type)
        return cls(type, stage.op, stage.loc, stage.dimension, stage.count, stage.each, stage.is_again)

    def as_dict(self) -> dict[str, object]:
        """The figures as JSON-able data."""
        where = None if self.loc is None else self.loc.from_here().describe()
        return {
            "value": self.value,
            "op": self.op,
            "where": where,
            "dimension": self.dimension,
            "count": self.count,
            "each": self.each,
            "again": self.is_again,
            "stages": self.stages,
        }

    @property
    def text(self) -> str:
        """One line: what, in how many."""
        where = "" if self.loc is None else f" at {self.loc.from_here().describe()}"
        again = ", computed again" if self.is_again else ""
        times = "" if self.stages == 1 else f", in {self.stages} stages"
        return (
            f"{self.value} of '{self.op}'{where} in {self.count} slices of {self.each} along dimension "
            f"{self.dimension}{again}{times}"
        )


@dataclass(frozen=True, slots=True)
class SlicesReport:
    """The stages of a program that run in slices.

    Attributes:
        stages: the one around the largest value first; those that are alike are one.
        whole: bytes that the program is predicted to take without slices: a budget in percent is of these.
        asked: how the program was cut.
    """

    stages: tuple[StageReport, ...]
    whole: int
    asked: InSlices

    @classmethod
    def of(cls, found: Sliced, whole: int) -> SlicesReport:
        """What was done to a graph, which is predicted to take so many bytes without it."""
        return cls(tuple(_alike(StageReport.of(stage) for stage in found.stages)), whole, found.asked)

    @property
    def largest(self) -> StageReport:
        """That around the largest value."""
        return self.stages[0]

    def as_dict(self) -> list[dict[str, object]]:
        """The figures as JSON-able data."""
        return [stage.as_dict() for stage in self.stages]

    @property
    def text(self) -> str:
        """What, in how many, in one line."""
        return "; ".join(stage.text for stage in self.stages)

    def table(self) -> Table:
        """A line for each stage, with a heading."""
        title = f"sliced, of {format_bytes(self.whole)} that are predicted without slices"
        return Table(title, ("",), (False,), tuple([(stage.text,) for stage in self.stages]))


def _alike(stages: Iterable[StageReport]) -> Iterable[StageReport]:
    """Stages, those that differ in nothing as one."""
    counts: dict[StageReport, int] = {}
    for stage in stages:
        counts[stage] = counts.get(stage, 0) + 1
    return [replace(stage, stages=count) for stage, count in counts.items()]


def asked_of(sliced: SlicesReport | None) -> InSlices | None:
    """How a program was cut; None where it is not."""
    return None if sliced is None else sliced.asked


def count_of(sliced: SlicesReport | None) -> int:
    """In how many slices the largest stage runs; 1 where nothing does."""
    return 1 if sliced is None else sliced.largest.count


def log_slices(report: SlicesReport, function: str) -> None:
    """Log what runs in slices, if somebody listens to `rematc.plans` at level INFO."""
    logger = logging.getLogger("rematc.plans")
    if logger.isEnabledFor(logging.INFO):
        logger.info("sliced in %s: %s", function, report.text)
