"""What is kept and what is computed again, a line for all that is alike: by block, by line of the user's source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rematc.compiler.reports.derivative import DerivativeReport
from rematc.ir.locations import Location, relative
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.summary import PlannedValue

_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+)")


@dataclass(frozen=True, slots=True)
class Decision:
    """Values that are alike, as those of each layer of a model: kept for the backward pass, or computed again.

    Attributes:
        is_kept: whether they are kept.
        what: what they are, as `output of tanh` or `named 'h'`, and why they are kept where the policy does not ask.
        type: element type and shape, as text.
        size: bytes of one of them.
        flops: floating-point operations of all of them; 0 for what is kept.
        loc: the user's line; None where it is not known.
        count: how many there are.
    """

    is_kept: bool
    what: str
    type: str
    size: int
    flops: int
    loc: Location | None
    count: int = 1

    @property
    def place(self) -> str:
        """The line as reports show it, `model.py:41 (attention)`; "" where it is not known."""
        if self.loc is None:
            return ""
        return Location(relative(self.loc.file), self.loc.line, 0, self.loc.function).describe()

    def as_dict(self) -> dict[str, object]:
        """The same as JSON-able data."""
        return {
            "is_kept": self.is_kept,
            "what": self.what,
            "type": self.type,
            "size": self.size,
            "count": self.count,
            "flops": self.flops,
            "place": self.place,
        }

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.size * self.count

    def plus(self, other: Decision) -> Decision:
        """Both of them, which are alike."""
        return replace(self, flops=self.flops + other.flops, count=self.count + other.count)

    @property
    def block(self) -> str:
        """The function of the user's that they are computed in; "" where it is not known."""
        return "" if self.loc is None else self.loc.function or self.loc.file


@dataclass(frozen=True, slots=True)
class LineCost:
    """What a line of the user's source costs.

    Attributes:
        loc: the line.
        kept: bytes of its values that are kept for the backward pass.
        values: how many these are.
        flops: floating-point operations that are computed again.
        again: how many evaluations these are.
    """

    loc: Location
    kept: int = 0
    values: int = 0
    flops: int = 0
    again: int = 0


def decisions(
    derivatives: Sequence[DerivativeReport], plan: Plan | None, known: Iterable[Location | None] = ()
) -> tuple[Decision, ...]:
    """What is kept and what is computed again, by a plan where there is one; what takes most first.

    Plans know files and lines; `known` says by which functions these are held.
    """
    found = list(_of_derivatives(derivatives))
    if plan is not None:
        locs = [*known, *(one.loc for one in found)]
        functions = {(relative(loc.file), loc.line): loc.function for loc in locs if loc is not None}
        planned = [_of_plan(one, True, functions) for one in plan.kept]
        planned += [_of_plan(one, False, functions) for one in plan.computed_again]
        found = [one for one in found if not any(own.is_planned for own in derivatives)] + planned
    return tuple(sorted(_grouped(found), key=lambda one: (not one.is_kept, -one.bytes, -one.flops)))


def _of_derivatives(derivatives: Sequence[DerivativeReport]) -> Iterator[Decision]:
    for derivative in derivatives:
        for row in derivative.residuals:
            what = row.provenance.partition(" from ")[0]
            notes = [note for note, is_set in (("crosses", row.crosses), ("on the host", row.on_host)) if is_set]
            what = ", ".join([what, *notes])
            yield Decision(True, what, str(row.type), 0 if row.on_host else row.bytes, 0, row.loc)
        for again in derivative.recomputed_values:
            size, loc = again.bytes, again.loc
            yield Decision(False, f"output of {again.op}", str(again.type), size, again.flops, loc, again.count)


def _of_plan(value: PlannedValue, is_kept: bool, functions: dict[tuple[str, int], str]) -> Decision:
    found = _PLACE.fullmatch(value.where)
    loc = None
    if found is not None:
        file, line = found["file"], int(found["line"])
        loc = Location(file, line, 0, functions.get((relative(file), line), ""))
    what = ", ".join([value.what, *([value.how] if value.how else [])])
    return Decision(is_kept, what, value.type, value.size, value.flops, loc, max(value.times, 1))


def _grouped(found: Iterable[Decision]) -> Iterator[Decision]:
    """Those that are alike as one."""
    groups: dict[tuple[object, ...], Decision] = {}
    for one in found:
        place = None if one.loc is None else (relative(one.loc.file), one.loc.line, one.loc.function)
        key = one.is_kept, one.what, one.type, one.size, place
        known = groups.get(key)
        groups[key] = one if known is None else known.plus(one)
    yield from groups.values()


def line_costs(found: Sequence[Decision]) -> tuple[LineCost, ...]:
    """What each line costs, in the order of files and lines."""
    lines: dict[tuple[str, int], LineCost] = {}
    for one in found:
        if one.loc is None:
            continue
        key = relative(one.loc.file), one.loc.line
        cost = lines.get(key, LineCost(one.loc))
        if one.is_kept:
            cost = replace(cost, kept=cost.kept + one.bytes, values=cost.values + one.count)
        else:
            cost = replace(cost, flops=cost.flops + one.flops, again=cost.again + one.count)
        lines[key] = cost
    return tuple([lines[key] for key in sorted(lines)])
