"""Import of primitives that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.ir.ops.logical import ShiftRightLogical
from rematc.ir.ops.structural import Iota, OptimizationBarrier
from rematc.ir.types import U64, TensorType
from rematc.ir.values import Value


@imports("broadcast_in_dim")
def broadcast_in_dim(block: Block, eqn: Any) -> Sequence[Value]:
    """`broadcast_in_dim`."""
    x = block.value(eqn.invars[0])
    type, dimensions = block.result_type(eqn), eqn.params["broadcast_dimensions"]
    return [block.b.broadcast_in_dim(x, type.shape, dimensions)]


@imports("reshape")
def reshape(block: Block, eqn: Any) -> Sequence[Value]:
    """`reshape`, of dimensions in another order where JAX says so."""
    x = block.value(eqn.invars[0])
    order = eqn.params.get("dimensions")
    return [block.b.reshape(x if order is None else block.b.transpose(x, order), block.result_type(eqn).shape)]


@imports("squeeze", "expand_dims")
def squeeze(block: Block, eqn: Any) -> Sequence[Value]:
    """`reshape`."""
    return [block.b.reshape(block.value(eqn.invars[0]), block.result_type(eqn).shape)]


@imports("transpose")
def transpose(block: Block, eqn: Any) -> Sequence[Value]:
    """`transpose`."""
    return [block.b.transpose(block.value(eqn.invars[0]), eqn.params["permutation"])]


@imports("rev")
def rev(block: Block, eqn: Any) -> Sequence[Value]:
    """`reverse`."""
    return [block.b.reverse(block.value(eqn.invars[0]), tuple(eqn.params["dimensions"]))]


@imports("concatenate")
def concatenate(block: Block, eqn: Any) -> Sequence[Value]:
    """`concatenate`."""
    return [block.b.concatenate(block.operands(eqn), eqn.params["dimension"])]


@imports("pad")
def pad(block: Block, eqn: Any) -> Sequence[Value]:
    """`pad`."""
    x, fill = block.operands(eqn)
    low, high, interior = zip(*eqn.params["padding_config"], strict=True) if x.type.rank else ((), (), ())
    return [block.b.pad(x, fill, low, high, interior)]


@imports("slice")
def slice_(block: Block, eqn: Any) -> Sequence[Value]:
    """`slice`."""
    params = eqn.params
    x = block.value(eqn.invars[0])
    return [block.b.slice(x, params["start_indices"], params["limit_indices"], params["strides"])]


@imports("split")
def split(block: Block, eqn: Any) -> Sequence[Value]:
    """A slice each."""
    x, axis = block.value(eqn.invars[0]), eqn.params["axis"]
    return _pieces(block, x, axis, eqn.params["sizes"])


def _pieces(block: Block, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Slices of these sizes, one after another."""
    starts = [0, *accumulate(sizes)]
    found = []
    for start, limit in pairwise(starts):
        low, high = [0] * x.type.rank, list(x.type.shape)
        low[axis], high[axis] = start, limit
        found.append(block.b.slice(x, low, high))
    return found


@imports("stack")
def stack(block: Block, eqn: Any) -> Sequence[Value]:
    """Concatenation along a new dimension."""
    axis = eqn.params["axis"]
    parts = []
    for x in block.operands(eqn):
        shape = x.type.shape
        parts.append(block.b.reshape(x, (*shape[:axis], 1, *shape[axis:])))
    return [block.b.concatenate(parts, axis)]


@imports("unstack")
def unstack(block: Block, eqn: Any) -> Sequence[Value]:
    """A slice each, without the dimension."""
    x, axis = block.value(eqn.invars[0]), eqn.params["axis"]
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    return [block.b.reshape(piece, shape) for piece in _pieces(block, x, axis, (1,) * x.type.shape[axis])]


@imports("tile")
def tile(block: Block, eqn: Any) -> Sequence[Value]:
    """Each dimension with one of repetitions in front of it, and both as one."""
    (x,), repetitions = block.operands(eqn), eqn.params["reps"]
    type = block.result_type(eqn)
    shape = (1,) * (len(repetitions) - x.type.rank) + x.type.shape
    spread = [size for pair in zip(repetitions, shape, strict=True) for size in pair]
    repeated = block.b.broadcast_in_dim(block.b.reshape(x, shape), spread, range(1, len(spread), 2))
    return [block.b.reshape(repeated, type.shape)]


@imports("iota")
def iota(block: Block, eqn: Any) -> Sequence[Value]:
    """`iota`."""
    if eqn.invars:
        block.fail(eqn, "has sizes that are computed; trace with concrete sizes")
    type = block.result_type(eqn)
    if type.dtype.is_bool:
        block.fail(eqn, "counts in booleans; count in integers and convert")
    return block.b.emit(Iota(type, eqn.params["dimension"]))


@imports("iota_2x32_shape")
def iota_2x32_shape(block: Block, eqn: Any) -> Sequence[Value]:
    """The number of each element in row-major order: the upper half of its 64 bits, and the lower half."""
    type = block.result_types(eqn)[0]
    if type.size < 2**32:
        counted = block.b.iota(type.with_shape((type.size,)), 0)
        return [block.b.zeros(type), block.b.reshape(counted, type.shape)]
    counted = block.b.reshape(block.b.iota(TensorType(U64, (type.size,)), 0), type.shape)
    upper = block.b.emit1(ShiftRightLogical(), counted, block.b.full(counted.type, 32))
    return [block.b.convert(upper, type.dtype), block.b.convert(counted, type.dtype)]


@imports("optimization_barrier")
def optimization_barrier(block: Block, eqn: Any) -> Sequence[Value]:
    """`optimization_barrier`."""
    operands = block.operands(eqn)
    return block.b.emit(OptimizationBarrier(), *operands) if operands else []
