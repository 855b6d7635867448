"""How an equation acts along the axes of a mesh by which its operands and results are spread.

Of `%0: f32[64,512] = dot_general %x, %w` with rows of `%x` and of `%0` spread along "data", each device computes a part
from its rows of `%x` and all of `%w`, as a slicing of the op says. Where what is summed over is spread, it computes a
term of a sum that is sent between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from rematc.ir.core import Equation
from rematc.ir.ops.elementwise import NUMBERS
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.reduction import Extremum
from rematc.ir.slicings import Slicing
from rematc.ir.values import Value
from rematc.passes.planning.shards import Axes, own_slicings


class Kind(Enum):
    """What a device computes of its parts of the operands."""

    #: A part of the result, or a term of it, as a slicing says.
    PART = auto()
    #: The largest, or smallest, of its elements.
    EXTREMUM = auto()
    #: What is chosen by indices, where it has that; zeros elsewhere.
    CHOICE = auto()


@dataclass(frozen=True, slots=True)
class Way:
    """How an equation acts along some axes of the mesh.

    Attributes:
        axes: which, the first of which are the major ones.
        slicing: how the operands are cut, and the results.
        scattered: the dimension along which its result, a sum, is spread; None for one that all devices get.
        kind: what each device computes.
    """

    axes: tuple[str, ...]
    slicing: Slicing
    scattered: int | None = None
    kind: Kind = Kind.PART

    def gives(self, result: int) -> int | None:
        """Along which dimension a result is spread."""
        return self.scattered if self.slicing.is_sum else self.slicing.results[result]


def ways_of(eqn: Equation, axes_of: Callable[[Value], Axes]) -> list[Way] | None:
    """How an equation acts along the axes by which its operands and results are spread; None for no way.

    Along an axis by which nothing is spread that it gives, and that no slicing explains, it reads its operands whole.
    """
    own, gives = [axes_of(value) for value in eqn.operands], [axes_of(value) for value in eqn.results]
    named = dict.fromkeys([axis for rows in (*gives, *own) for row in rows for axis in row])
    slicings = own_slicings(eqn) if named else ()
    found: list[Way] = []
    for axis in named:
        before, after = [_place(rows, axis) for rows in own], [_place(rows, axis) for rows in gives]
        way = _way_along(eqn, slicings, axis, before, after)
        alike = next((i for i, one in enumerate(found) if way is not None and replace(one, axes=way.axes) == way), None)
        if alike is not None:
            found[alike] = replace(found[alike], axes=(*found[alike].axes, axis))
        elif way is not None:
            found.append(way)
        elif any(_place(rows, axis) is not None for rows in gives):
            return None
    return found or None


def _way_along(
    eqn: Equation, slicings: Sequence[Slicing], axis: str, own: Sequence[int | None], gives: Sequence[int | None]
) -> Way | None:
    """The way along one axis for which the fewest bytes of operands are sent; None for none.

    What devices have terms of is a sum where all operands are spread so; one that alone is spread is gathered.
    """

    def fits(slicing: Slicing) -> bool:
        if slicing.into:
            return False
        if slicing.is_sum:
            pairs = zip(slicing.operands, own, strict=True)
            is_sent = len(gives) == 1 and eqn.results[0].type.dtype.kind in NUMBERS
            return is_sent and all(d is None or d == there for d, there in pairs)
        return slicing.results == tuple(gives)

    def sent(slicing: Slicing) -> int:
        rows = zip(eqn.operands, slicing.operands, own, strict=True)
        return sum(value.type.bytes for value, d, there in rows if there is not None and d != there)

    best = min(filter(fits, slicings), key=lambda slicing: (sent(slicing), slicing.is_sum), default=None)
    if best is not None:
        return Way((axis,), best, gives[0] if best.is_sum else None)
    if isinstance(eqn.op, Extremum) and own[0] in eqn.op.dimensions and gives == [None]:
        return Way((axis,), Slicing((own[0],), (None,)), kind=Kind.EXTREMUM)
    if isinstance(eqn.op, Gather) and own[1] is None and gives == [None] and own[0] is not None:
        is_chosen = eqn.op.dimension_numbers.start_index_map == (own[0],) and eqn.op.slice_sizes[own[0]] == 1
        if is_chosen and eqn.operands[0].type.dtype.kind in NUMBERS:
            return Way((axis,), Slicing((own[0], None), (None,)), kind=Kind.CHOICE)
    return None


def reads_of(eqn: Equation, ways: Sequence[Way]) -> list[Axes]:
    """How an equation reads its operands."""
    return [spec_of(x, [(way.axes, way.slicing.operands[i]) for way in ways]) for i, x in enumerate(eqn.operands)]


def gives_of(eqn: Equation, ways: Sequence[Way]) -> list[Axes]:
    """How its results are spread: what is cut as it is sent, each device has cut along other axes before."""
    order = sorted(ways, key=lambda way: way.scattered is not None)
    return [spec_of(x, [(way.axes, way.gives(i)) for way in order]) for i, x in enumerate(eqn.results)]


def _place(rows: Axes, axis: str) -> int | None:
    return next((d for d, row in enumerate(rows) if axis in row), None)


def spec_of(value: Value, cuts: Iterable[tuple[tuple[str, ...], int | None]]) -> Axes:
    """Spread by axes along dimensions."""
    rows: list[tuple[str, ...]] = [()] * value.type.rank
    for axes, d in cuts:
        if d is not None:
            rows[d] = (*rows[d], *axes)
    return tuple(rows)
