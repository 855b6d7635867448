"""Exact rewrites of gathers: what is read of a normalized array is computed of what is read of the array."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.facts import Weight
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.gather_scatter import GatherDimensions
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.values import Value
from rematc.passes.rewriting import Application, Scope, rewrites


@rewrites(Gather)
def gather_of_normalized(s: Scope, eqn: Equation) -> Value | Application | None:
    """Of few elements the norm of the rows that they are in is taken off few.

    So are the logarithms of a softmax read at one class: the logits, which are in memory, are read before they are
    written over, and their logarithms are nowhere. What no row has a value for is computed as it was, as are functions
    that take long: their results are in memory, and their operands would have to be as well.
    """
    op, (x, indices) = eqn.op, eqn.operands
    assert isinstance(op, Gather)
    steps = _steps(s, x, op.dimension_numbers) if eqn.results[0].type.size < x.type.size else []
    if not steps:
        return None
    source = _array(s, steps[-1], op.dimension_numbers)
    found: dict[Value, Value] = {}
    if source is not None:
        found[source] = s.emit(op, (source, indices), eqn.loc)
    for step in reversed(steps):
        operands = tuple([_read(s, value, found, eqn) for value in step.operands])
        if step is steps[0]:
            return Application(step.op, operands)
        found[step.results[0]] = s.emit(step.op, operands, eqn.loc)
    return None


@rewrites(Gather)
def gather_of_widened(s: Scope, eqn: Equation) -> Application | None:
    """Of what has more bits than it was computed in, few elements are read before they get them.

    So are logits in float32 read at one class. Whatever else reads them can then do with those of fewer bits, and the
    others need not be in memory.
    """
    op, (x, indices) = eqn.op, eqn.operands
    assert isinstance(op, Gather)
    source = _widened(s, x) if eqn.results[0].type.size < x.type.size else None
    if source is None:
        return None
    small, widening = source
    if small.type.shape != x.type.shape:
        small = s.emit(Reshape(x.type.shape), (small,), eqn.loc)
    return Application(widening, (s.emit(op, (small, indices), eqn.loc),))


def _widened(s: Scope, value: Value) -> tuple[Value, Convert] | None:
    """What `value` is, in another shape maybe, with more bits."""
    while (moved := s.definition(value, Reshape)) is not None:
        (value,) = moved[1]
    found = s.definition(value, Convert)
    if found is None:
        return None
    op, (small,) = found
    return (small, op) if small.type.bytes < value.type.bytes and small.type.dtype.is_float else None


def _steps(s: Scope, x: Value, dims: GatherDimensions) -> list[Equation]:
    """The equations that make `x` of an array and values of its rows, the last one first; the first takes such a value.

    Each is elementwise, and of one array.
    """
    steps: list[Equation] = []
    count = 0
    array: Value | None = x
    while array is not None and (made := s.equation(array)) is not None and _is_step(s, made, dims):
        steps.append(made)
        if any(s.splat(value) is None and _row(s, value, dims) for value in made.operands):
            count = len(steps)
        array = _array(s, made, dims)
    return steps[:count]


def _is_step(s: Scope, made: Equation, dims: GatherDimensions) -> bool:
    if not made.op.is_elementwise or made.op.weight is Weight.HEAVY or len(made.results) != 1:
        return False
    shape = made.results[0].type.shape
    is_alike = all(value.type.shape == shape for value in made.operands)
    return is_alike and len({value for value in made.operands if not _row(s, value, dims)}) <= 1


def _array(s: Scope, made: Equation, dims: GatherDimensions) -> Value | None:
    """The operand that is no value of rows."""
    return next((value for value in made.operands if not _row(s, value, dims)), None)


def _row(s: Scope, value: Value, dims: GatherDimensions) -> tuple[BroadcastInDim, Value] | None:
    """How `value` is broadcast, and of what, if that differs from row to row alone: along dimensions of the batch."""
    found = s.definition(value, BroadcastInDim)
    if found is None:
        return None
    spread, (small,) = found
    places = [_place(dims, d) for size, d in zip(small.type.shape, spread.dimensions, strict=True) if size > 1]
    known = [place for place in places if place is not None]
    return (spread, small) if len(known) == len(places) and known == sorted(known) else None


def _place(dims: GatherDimensions, dimension: int) -> int | None:
    """The dimension of what is read that walks along a dimension of the batch; None for other dimensions."""
    if dimension not in dims.operand_batching_dims:
        return None
    walks = dims.start_indices_batching_dims[dims.operand_batching_dims.index(dimension)]
    walks -= walks > dims.index_vector_dim
    rank = len(dims.offset_dims) + len(dims.operand_batching_dims) + walks + 1
    return [d for d in range(rank) if d not in dims.offset_dims][walks]


def _read(s: Scope, value: Value, found: dict[Value, Value], eqn: Equation) -> Value:
    """What the gather reads of an operand of a step."""
    op = eqn.op
    assert isinstance(op, Gather)
    row = _row(s, value, op.dimension_numbers)
    if row is None:
        return found[value]
    spread, small = row
    kept = [(size, d) for size, d in zip(small.type.shape, spread.dimensions, strict=True) if size > 1]
    sizes = tuple([size for size, _ in kept])
    places = tuple([place for _, d in kept if (place := _place(op.dimension_numbers, d)) is not None])
    if sizes != small.type.shape:
        small = s.emit(Reshape(sizes), (small,), eqn.loc)
    return s.emit(BroadcastInDim(eqn.results[0].type.shape, places), (small,), eqn.loc)
