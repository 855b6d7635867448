"""What of a program runs in slices."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rematc.ir.locations import Location
from rematc.ir.tables import Table
from rematc.passes.slicing.slicing import Sliced


@dataclass(frozen=True, slots=True)
class SlicesReport:
    """A stage that runs in slices.

    Attributes:
        value: the type of its largest value, which nothing holds whole.
        op: what computes that.
        loc: where.
        dimension: along which it is cut.
        count: how many slices there are.
        each: how many elements of the dimension a slice has.
    """

    value: str
    op: str
    loc: Location | None
    dimension: int
    count: int
    each: int

    @classmethod
    def of(cls, found: Sliced) -> SlicesReport:
        """What was done to a graph."""
        return cls(str(found.value.type), found.op, found.loc, found.dimension, found.count, found.each)

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
        }

    @property
    def text(self) -> str:
        """One line: what, in how many."""
        where = "" if self.loc is None else f" at {self.loc.from_here().describe()}"
        how = f"{self.count} slices of {self.each} along dimension {self.dimension}"
        return f"{self.value} of '{self.op}'{where}, forward and backward, in {how}"

    def table(self) -> Table:
        """The same with a heading."""
        return Table("sliced", ("",), (False,), ((self.text,),))


def log_slices(report: SlicesReport, function: str) -> None:
    """Log what runs in slices, if somebody listens to `rematc.plans` at level INFO."""
    logger = logging.getLogger("rematc.plans")
    if logger.isEnabledFor(logging.INFO):
        logger.info("sliced in %s: %s", function, report.text)
