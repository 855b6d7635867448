"""Exact rewrites of ops that move elements, and of reductions that reduce nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rematc.ir.core import Equation
from rematc.ir.ops.arithmetic import Add, Divide, Multiply, Negate, Subtract
from rematc.ir.ops.dynamic import DynamicSlice
from rematc.ir.ops.mapped import FullToShard, ShardToFull
from rematc.ir.ops.reduction import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceProd, ReduceSum
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.values import Value
from rematc.passes.rewriting import Application, Rewritten, Scope, rewrites


@rewrites(Reshape, Transpose, Slice, Reverse)
def rearranged_splat(s: Scope, eqn: Equation) -> Rewritten:
    """Moving elements that are all alike: a broadcast of the scalar."""
    (x,), (result,) = eqn.operands, eqn.results
    inner = s.operands_if(x, BroadcastInDim)
    if inner is None or inner[0].type.rank:
        return None
    if x.type == result.type:
        return x
    return Application(BroadcastInDim(result.type.shape, ()), inner)


@rewrites(Reshape)
def reshape(s: Scope, eqn: Equation) -> Rewritten:
    """To the same shape: nothing. The second of two: the only one."""
    (x,), (result,) = eqn.operands, eqn.results
    if x.type.shape == result.type.shape:
        return x
    inner = s.operands_if(x, Reshape)
    return None if inner is None else Application(eqn.op, inner)


@rewrites(Transpose)
def transpose(s: Scope, eqn: Equation) -> Rewritten:
    """By the identity: nothing. By p after q: by their composition."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, Transpose)
    if op.permutation == tuple(range(x.type.rank)):
        return x
    inner = s.definition(x, Transpose)
    if inner is None:
        return None
    first, operands = inner
    return Application(Transpose(tuple([first.permutation[d] for d in op.permutation])), operands)


@rewrites(BroadcastInDim)
def broadcast(s: Scope, eqn: Equation) -> Rewritten:
    """To the same shape: nothing; without repetition: a reshape. The second of two: the only one.

    After a reshape that adds dimensions of size 1 (`keepdims`): straight from what was reshaped.
    """
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, BroadcastInDim)
    if op.shape == x.type.shape:
        return x
    inner = s.definition(x, BroadcastInDim)
    if inner is not None:
        first, operands = inner
        return Application(BroadcastInDim(op.shape, tuple([op.dimensions[d] for d in first.dimensions])), operands)
    if x.type.size == eqn.results[0].type.size and s.splat(x) is None:
        return Application(Reshape(op.shape), (x,))
    reshaped = s.operands_if(x, Reshape)
    kept = None if reshaped is None else _without_added_ones(reshaped[0].type.shape, x.type.shape)
    if reshaped is None or kept is None:
        return None
    return Application(BroadcastInDim(op.shape, tuple([op.dimensions[d] for d in kept])), reshaped)


@rewrites(Add, Subtract, Multiply, Divide)
def arithmetic_of_broadcasts(s: Scope, eqn: Equation) -> Rewritten:
    """Two arrays repeated the same way: one repetition of what the arrays make. One may be a repeated number."""
    x, y = eqn.operands
    spread_x, spread_y = s.definition(x, BroadcastInDim), s.definition(y, BroadcastInDim)
    if spread_x is None or spread_y is None:
        return None
    number_x, number_y = s.splat(x), s.splat(y)
    if number_x is not None and number_y is not None:
        return None
    op, (small,) = spread_x if number_x is None else spread_y
    if number_x is not None:
        pair = (s.emit_splat(number_x, small.type.shape, eqn.loc), small)
    elif number_y is not None:
        pair = (small, s.emit_splat(number_y, small.type.shape, eqn.loc))
    elif spread_x[0] == spread_y[0] and small.type == spread_y[1][0].type:
        pair = (small, spread_y[1][0])
    else:
        return None
    return Application(op, (s.emit(eqn.op, pair, eqn.loc),))


@rewrites(Negate)
def negated_broadcast(s: Scope, eqn: Equation) -> Rewritten:
    """A repeated array: repeat what is negated. A repeated number is a constant."""
    (x,) = eqn.operands
    spread = s.definition(x, BroadcastInDim) if s.splat(x) is None else None
    return None if spread is None else Application(spread[0], (s.emit(eqn.op, spread[1], eqn.loc),))


def _without_added_ones(shape: Sequence[int], longer: Sequence[int]) -> list[int] | None:
    """The dimensions of `longer` that are those of `shape`, all others being of size 1; None if it is not so."""
    found: list[int] = []
    for dimension, size in enumerate(longer):
        if len(found) < len(shape) and size == shape[len(found)]:
            found.append(dimension)
        elif size != 1:
            return None
    return found if len(found) == len(shape) else None


@rewrites(Reverse)
def reverse(s: Scope, eqn: Equation) -> Rewritten:
    """Along nothing or single elements: nothing. Twice along a dimension: not along it."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, Reverse)
    needed = tuple([d for d in op.dimensions if x.type.shape[d] > 1])
    if not needed:
        return x
    inner = s.definition(x, Reverse)
    if inner is not None:
        first, operands = inner
        return Application(Reverse(tuple(sorted(set(needed) ^ set(first.dimensions)))), operands)
    return Application(Reverse(needed), (x,)) if needed != op.dimensions else None


@rewrites(Slice)
def slice_(s: Scope, eqn: Equation) -> Rewritten:
    """The whole: nothing. A slice of a slice: one slice. A slice of one operand of a concatenation: of that operand."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, Slice)
    if eqn.results[0].type == x.type:
        return x
    inner = s.definition(x, Slice)
    if inner is not None:
        first, operands = inner
        return Application(_composed(first, op, eqn.results[0].type.shape), operands)
    joined = s.definition(x, Concatenate)
    return None if joined is None else _slice_of_operand(op, joined[0].dimension, joined[1])


def _composed(first: Slice, second: Slice, sizes: Sequence[int]) -> Slice:
    start = [a + b * step for a, b, step in zip(first.start, second.start, first.strides, strict=True)]
    strides = tuple([a * b for a, b in zip(first.strides, second.strides, strict=True)])
    # Where the result is empty the start may lie beyond the operand.
    start = [min(begin, limit) if not n else begin for begin, limit, n in zip(start, first.limit, sizes, strict=True)]
    limit = [begin + (n - 1) * step + 1 if n else begin for begin, n, step in zip(start, sizes, strides, strict=True)]
    return Slice(tuple(start), tuple(limit), strides)


def _slice_of_operand(op: Slice, dimension: int, operands: Sequence[Value]) -> Application | None:
    begin, end = op.start[dimension], op.limit[dimension]
    offset = 0
    for operand in operands:
        size = operand.type.shape[dimension]
        if offset <= begin and end <= offset + size:
            start, limit = list(op.start), list(op.limit)
            start[dimension], limit[dimension] = begin - offset, end - offset
            return Application(Slice(tuple(start), tuple(limit), op.strides), (operand,))
        offset += size
    return None


@rewrites(Concatenate)
def concatenate(s: Scope, eqn: Equation) -> Rewritten:
    """Of one operand: nothing. Empty operands are left out."""
    op, operands = eqn.op, eqn.operands
    assert isinstance(op, Concatenate)
    kept = tuple([operand for operand in operands if operand.type.shape[op.dimension]]) or operands[:1]
    if len(kept) == 1:
        return kept[0]
    return Application(op, kept) if len(kept) < len(operands) else None


@rewrites(Pad)
def pad(s: Scope, eqn: Equation) -> Rewritten:
    """By nothing: nothing."""
    op = eqn.op
    assert isinstance(op, Pad)
    x = eqn.operands[0]
    has_gaps = any(gap and size > 1 for gap, size in zip(op.interior, x.type.shape, strict=True))
    return None if any(op.low) or any(op.high) or has_gaps else x


@rewrites(DynamicSlice)
def dynamic_slice(s: Scope, eqn: Equation) -> Rewritten:
    """At a known start: a slice; of the whole: nothing."""
    x, *starts = eqn.operands
    sizes = eqn.results[0].type.shape
    if sizes == x.type.shape:
        return x
    known = [s.splat(start) for start in starts]
    begins = []
    for start, length, size in zip(known, x.type.shape, sizes, strict=True):
        if start is None:
            return None
        begins.append(min(max(int(start), 0), length - size))
    limit = tuple([begin + size for begin, size in zip(begins, sizes, strict=True)])
    return Application(Slice(tuple(begins), limit, (1,) * len(begins)), (x,))


@rewrites(ReduceSum, ReduceProd, ReduceMax, ReduceMin, ReduceAnd, ReduceOr)
def reduction_of_single_elements(s: Scope, eqn: Equation) -> Rewritten:
    """Over dimensions of size 1: a reshape. Not sums of floats: they start at 0.0, which makes 0.0 of -0.0."""
    (x,), (result,) = eqn.operands, eqn.results
    if x.type.size != result.type.size or x.type.size == 0:
        return None
    if isinstance(eqn.op, ReduceSum | ReduceProd) and x.type.dtype.is_complex:
        return None
    if isinstance(eqn.op, ReduceSum) and x.type.dtype.is_float:
        return None
    return x if x.type == result.type else Application(Reshape(result.type.shape), (x,))


@rewrites(FullToShard)
def part_of_put_together(s: Scope, eqn: Equation) -> Value | None:
    """What a device has of the array that all parts are is its part."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, FullToShard)
    found = s.definition(x, ShardToFull)
    return found[1][0] if found is not None and _is_same_cut(op, found[0]) else None


@rewrites(ShardToFull)
def put_together_again(s: Scope, eqn: Equation) -> Value | None:
    """What the parts of an array are together is the array."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, ShardToFull)
    found = s.definition(x, FullToShard)
    return found[1][0] if found is not None and _is_same_cut(found[0], op) else None


def _is_same_cut(one: FullToShard, other: ShardToFull) -> bool:
    return one.spec == other.spec and replace(one.where, is_checked=True) == replace(other.where, is_checked=True)
