"""Import of collectives over the named axes of `jax.vmap`, and of `shard_map` without its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.ir.ops.collective import AxisGather, AxisIndex, AxisMax, AxisMin, AxisSum
from rematc.ir.ops.reduction import ReduceMax, ReduceMin, ReduceSum
from rematc.ir.values import Value

_REDUCTIONS = {"psum": (AxisSum, ReduceSum), "pmax": (AxisMax, ReduceMax), "pmin": (AxisMin, ReduceMin)}


@imports(*_REDUCTIONS)
def reduction(block: Block, eqn: Any) -> Sequence[Value]:
    """`axis_sum` and its kin, one after another for several axes; a reduction of what JAX has batched already."""
    op, over_dimensions = _REDUCTIONS[eqn.primitive.name]
    values = block.operands(eqn)
    _check_whole(block, eqn)
    dimensions = tuple(sorted(axis for axis in eqn.params["axes"] if isinstance(axis, int)))
    if dimensions:
        values = [block.b.emit1(over_dimensions(dimensions), value) for value in values]
    for axis in eqn.params["axes"]:
        if not isinstance(axis, int):
            values = [block.b.emit1(op(axis, _size(axis)), value) for value in values]
    return values


@imports("all_gather")
def all_gather(block: Block, eqn: Any) -> Sequence[Value]:
    """`axis_gather` of one axis."""
    _check_whole(block, eqn)
    names = eqn.params["axis_name"]
    names = names if isinstance(names, tuple) else (names,)
    if len(names) != 1 or eqn.params["tiled"]:
        block.fail(eqn, "is imported for one axis, which becomes a new dimension; reshape the result for tiled=True")
    return [
        block.b.emit1(AxisGather(names[0], _size(names[0]), eqn.params["all_gather_dimension"]), value)
        for value in block.operands(eqn)
    ]


@imports("axis_index")
def axis_index(block: Block, eqn: Any) -> Sequence[Value]:
    """`axis_index`."""
    axis = eqn.params["axis_name"]
    return [block.b.emit1(AxisIndex(axis, _size(axis)))]


def _check_whole(block: Block, eqn: Any) -> None:
    if eqn.params["axis_index_groups"] is not None:
        block.fail(eqn, "is over groups of an axis (axis_index_groups), which has no op; use an axis for each group")


def _size(axis: str) -> int:
    """How many elements an axis has where JAX is tracing."""
    return int(jax.lax.axis_size(axis))
