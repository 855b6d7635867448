"""Import of collectives: over the named axes of `jax.vmap`, and over the axes of a mesh inside of `shard_map`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.ir.core import Op
from rematc.ir.ops.collective import AxisGather, AxisIndex, AxisMax, AxisMin, AxisSum
from rematc.ir.ops.devices import (
    DeviceExchange,
    DeviceExtremum,
    DeviceGather,
    DevicePermute,
    DeviceScatter,
    DeviceSum,
    DeviceVary,
)
from rematc.ir.ops.reduction import ReduceMax, ReduceMin, ReduceSum
from rematc.ir.values import Value
from rematc.lowering.jax_internals.shardings import axis_sizes, is_manual, varying_axes_of

_REDUCTIONS = {"psum": (AxisSum, ReduceSum), "pmax": (AxisMax, ReduceMax), "pmin": (AxisMin, ReduceMin)}


@imports(*_REDUCTIONS)
def reduction(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_sum` and its kin, over all axes at once; `axis_sum`, one after another; a reduction of what JAX has
    batched already.
    """
    op, over_dimensions = _REDUCTIONS[eqn.primitive.name]
    values = block.operands(eqn)
    _check_whole(block, eqn)
    axes = eqn.params["axes"]
    dimensions = tuple(sorted(axis for axis in axes if isinstance(axis, int)))
    if dimensions:
        values = [block.b.emit1(over_dimensions(dimensions), value) for value in values]
    names = tuple([axis for axis in axes if not isinstance(axis, int)])
    if names and is_manual(names):
        is_checked = any(varying_axes_of(atom.aval) for atom in eqn.invars)
        if op is AxisSum:
            return [block.b.emit1(DeviceSum(names, axis_sizes(names), is_checked), value) for value in values]
        if is_checked or len(names) > 1:
            return [block.b.emit1(DeviceExtremum(names, axis_sizes(names), op is AxisMax), value) for value in values]
    for axis, size in zip(names, axis_sizes(names), strict=True):
        values = [block.b.emit1(op(axis, size), value) for value in values]
    return values


@imports("psum_invariant")
def sum_of_varying(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_sum`."""
    axes = tuple(eqn.params["axes"])
    return _of_each(block, eqn, DeviceSum(axes, axis_sizes(axes)))


@imports("pvary")
def vary(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_vary`."""
    axes = tuple(eqn.params["axes"])
    return _of_each(block, eqn, DeviceVary(axes, axis_sizes(axes)))


@imports("all_gather")
def all_gather(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_gather`; `axis_gather` of one axis that is no mesh's."""
    _check_whole(block, eqn)
    names, dimension, is_tiled = _names(eqn), eqn.params["all_gather_dimension"], eqn.params["tiled"]
    if len(names) == 1 and not is_tiled and not is_manual(names):
        (size,) = axis_sizes(names)
        return _of_each(block, eqn, AxisGather(names[0], size, dimension))
    op = DeviceGather(names, axis_sizes(names), dimension, is_tiled)
    return _of_each(block, eqn, op)


@imports("reduce_scatter")
def reduce_scatter(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_scatter`."""
    _check_whole(block, eqn)
    names = _names(eqn)
    op = DeviceScatter(names, axis_sizes(names), eqn.params["scatter_dimension"], eqn.params["tiled"])
    return _of_each(block, eqn, op)


@imports("all_to_all")
def all_to_all(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_exchange`: JAX makes the dimensions that there are none of before, and drops them after."""
    _check_whole(block, eqn)
    names = _names(eqn)
    op = DeviceExchange(names, axis_sizes(names), eqn.params["split_axis"], eqn.params["concat_axis"])
    return _of_each(block, eqn, op)


@imports("ppermute")
def ppermute(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_permute`."""
    names = _names(eqn)
    pairs = tuple([(int(source), int(target)) for source, target in eqn.params["perm"]])
    op = DevicePermute(names, axis_sizes(names), pairs)
    return _of_each(block, eqn, op)


@imports("axis_index")
def axis_index(block: Block, eqn: Any) -> Sequence[Value]:
    """`axis_index`."""
    axis = eqn.params["axis_name"]
    (size,) = axis_sizes((axis,))
    return [block.b.emit1(AxisIndex(axis, size))]


def _of_each(block: Block, eqn: Any, op: Op) -> Sequence[Value]:
    """The op on each operand."""
    return [block.b.emit1(op, value) for value in block.operands(eqn)]


def _check_whole(block: Block, eqn: Any) -> None:
    if eqn.params["axis_index_groups"] is not None:
        block.fail(eqn, "is over groups of an axis (axis_index_groups), which has no op; use an axis for each group")


def _names(eqn: Any) -> tuple[str, ...]:
    names = eqn.params["axis_name"]
    return tuple(names) if isinstance(names, (tuple, list)) else (names,)
