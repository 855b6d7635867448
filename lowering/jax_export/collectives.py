"""Export of collectives, over the devices of a mesh and over batches: `jax.lax`'s own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.ops import collective, devices, mapped
from rematc.lowering.jax_export.evaluating import evaluate, exports, lax, varied, with_own_jvp


@exports(collective.AxisSum)
def axis_sum(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.psum`."""
    assert isinstance(eqn.op, collective.AxisSum)
    return (lax.psum(operands[0], eqn.op.axis),)


@exports(collective.AxisMax, collective.AxisMin)
def axis_extremum(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.pmax` or `lax.pmin`, of which JAX has no derivative."""
    op = eqn.op
    assert isinstance(op, collective.AxisExtremum)
    return with_own_jvp(_extremum(isinstance(op, collective.AxisMax), op.axis), eqn, operands)


@functools.lru_cache(maxsize=64)
def _extremum(is_max: bool, axis: str) -> Callable[..., Sequence[Any]]:
    function = lax.pmax if is_max else lax.pmin
    return lambda x: (function(x, axis),)


@exports(collective.AxisGather)
def axis_gather(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.all_gather`."""
    assert isinstance(eqn.op, collective.AxisGather)
    return (lax.all_gather(operands[0], eqn.op.axis, axis=eqn.op.dimension),)


@exports(collective.AxisIndex)
def axis_index(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.axis_index`."""
    assert isinstance(eqn.op, collective.AxisIndex)
    return (lax.axis_index(eqn.op.axis),)


@exports(devices.DeviceVary)
def vary(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.pcast`, unless the value differs already."""
    assert isinstance(eqn.op, devices.DeviceVary)
    return varied(operands, frozenset(eqn.op.over))


@exports(devices.DeviceSum)
def device_sum(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.psum`; with the checks of `shard_map`, of a value that differs."""
    op = eqn.op
    assert isinstance(op, devices.DeviceSum)
    (x,) = varied(operands, frozenset(op.over)) if op.is_checked else operands
    return (lax.psum(x, op.over),)


@exports(devices.DeviceExtremum)
def device_extremum(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.pmax` or `lax.pmin`."""
    assert isinstance(eqn.op, devices.DeviceExtremum)
    return ((lax.pmax if eqn.op.is_max else lax.pmin)(operands[0], eqn.op.over),)


@exports(devices.DeviceGather)
def device_gather(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.all_gather`."""
    op = eqn.op
    assert isinstance(op, devices.DeviceGather)
    return (lax.all_gather(operands[0], op.over, axis=op.dimension, tiled=op.is_tiled),)


@exports(devices.DeviceScatter)
def device_scatter(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.psum_scatter`."""
    op = eqn.op
    assert isinstance(op, devices.DeviceScatter)
    return (lax.psum_scatter(operands[0], op.over, scatter_dimension=op.dimension, tiled=op.is_tiled),)


@exports(devices.DeviceExchange)
def device_exchange(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.all_to_all`."""
    op = eqn.op
    assert isinstance(op, devices.DeviceExchange)
    return (lax.all_to_all(operands[0], op.over, op.cut, op.joined, tiled=True),)


@exports(devices.DevicePermute)
def device_permute(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.ppermute`."""
    assert isinstance(eqn.op, devices.DevicePermute)
    return (lax.ppermute(operands[0], eqn.op.over, eqn.op.pairs),)


@exports(mapped.ManualComputation)
def manual_computation(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`jax.shard_map`, without its checks: types of ours do not say what differs from device to device."""
    op = eqn.op
    assert isinstance(op, mapped.ManualComputation)
    if op.source is None:
        raise CompileError(f"'{op.name}' was read from text, which does not say which devices it is for", eqn.loc)

    def body(*given: Any) -> tuple[Any, ...]:
        return tuple(evaluate(op.body, given))

    found: Sequence[Any] = op.source(body, op.manual, op.operands, op.results)(*operands)
    return found


@exports(mapped.DeviceMap)
def device_map(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """JAX's own equation."""
    op = eqn.op
    assert isinstance(op, mapped.DeviceMap)
    if op.source is None:
        raise CompileError(f"'{op.label}' over devices was read from text, which does not say what it does", eqn.loc)
    return list(op.source(*operands))
