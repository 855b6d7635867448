"""Lowering of what devices compute together, inside of a `manual_computation`: StableHLO's collectives.

Groups of devices are written as lists of their numbers in the mesh, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops import collective, devices
from rematc.ir.ops.mapped import Manual
from rematc.ir.types import TensorType
from rematc.lowering.writer import Writer, braced, lowers, meshed

_CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
_GLOBAL = "use_global_device_ids"


@lowers(devices.DeviceVary)
def vary(w: Writer, eqn: Equation) -> None:
    """No line: the result is the operand."""
    w.bind(eqn.results[0], w.name(eqn.operands[0]))


@lowers(devices.DeviceSum, collective.AxisSum)
def device_sum(w: Writer, eqn: Equation) -> None:
    """`%r = "stablehlo.all_reduce"(%x) <{..., replica_groups = dense<[[0, 1]]> : ...}> ({ ... add ... }) : ...`."""
    _reduced(w, eqn, "all_reduce", [_groups(w, eqn), _GLOBAL], "add", eqn.results[0].type)


@lowers(devices.DeviceExtremum, collective.AxisMax, collective.AxisMin)
def device_extremum(w: Writer, eqn: Equation) -> None:
    """The same with `maximum` or `minimum`."""
    is_max = eqn.op.is_max if isinstance(eqn.op, devices.DeviceExtremum) else isinstance(eqn.op, collective.AxisMax)
    combined = "maximum" if is_max else "minimum"
    _reduced(w, eqn, "all_reduce", [_groups(w, eqn), _GLOBAL], combined, eqn.results[0].type)


@lowers(devices.DeviceScatter)
def device_scatter(w: Writer, eqn: Equation) -> None:
    """`stablehlo.reduce_scatter`; what is no part of a dimension loses it."""
    op, x = eqn.op, eqn.operands[0].type
    assert isinstance(op, devices.DeviceScatter)
    shape = (*x.shape[: op.dimension], x.shape[op.dimension] // op.count, *x.shape[op.dimension + 1 :])
    attributes = [_groups(w, eqn), f"scatter_dimension = {op.dimension} : i64", _GLOBAL]
    _reduced(w, eqn, "reduce_scatter", attributes, "add", x.with_shape(shape))


@lowers(devices.DeviceGather, collective.AxisGather)
def device_gather(w: Writer, eqn: Equation) -> None:
    """`stablehlo.all_gather`, along a dimension of size one where there is none."""
    op, x = eqn.op, eqn.operands[0].type
    assert isinstance(op, devices.DeviceGather | collective.AxisGather)
    is_tiled = isinstance(op, devices.DeviceGather) and op.is_tiled
    given = x if is_tiled else x.with_shape((*x.shape[: op.dimension], 1, *x.shape[op.dimension :]))
    name = _reshaped(w, w.name(eqn.operands[0]), x, given, eqn.loc)
    attributes = [f"all_gather_dim = {op.dimension} : i64", _CHANNEL, _groups(w, eqn), _GLOBAL]
    _simple(w, eqn, "all_gather", name, given, attributes)


@lowers(devices.DeviceExchange)
def device_exchange(w: Writer, eqn: Equation) -> None:
    """`stablehlo.all_to_all`."""
    op = eqn.op
    assert isinstance(op, devices.DeviceExchange)
    along = [
        f"concat_dimension = {op.joined} : i64",
        f"split_count = {op.count} : i64",
        f"split_dimension = {op.cut} : i64",
    ]
    attributes = [_CHANNEL, _groups(w, eqn), *along]
    _simple(w, eqn, "all_to_all", w.name(eqn.operands[0]), eqn.operands[0].type, attributes)


@lowers(devices.DevicePermute)
def device_permute(w: Writer, eqn: Equation) -> None:
    """`stablehlo.collective_permute`: the same pairs in each group."""
    op = eqn.op
    assert isinstance(op, devices.DevicePermute)
    pairs = [(group[a], group[b]) for group in numbers(_place(w, eqn), op.over) for a, b in op.pairs]
    attributes = [_CHANNEL, f"source_target_pairs = {_dense(pairs, 2)}"]
    _simple(w, eqn, "collective_permute", w.name(eqn.operands[0]), eqn.operands[0].type, attributes)


@lowers(collective.AxisIndex)
def axis_index(w: Writer, eqn: Equation) -> None:
    """From the device's number; where XLA spreads values along other axes, in a region that is over these as well."""
    op, place = eqn.op, _place(w, eqn)
    assert isinstance(op, collective.AxisIndex)
    if op.size == 1:
        w.line(f"{w.define(eqn.results[0])} = stablehlo.constant dense<0> : tensor<i32>", eqn.loc)
        return
    axis = place.axes.index(op.axis)
    stride = int(np.prod(place.sizes[axis + 1 :]))
    others = [name for name in place.axes if name not in place.manual]
    result = w.define(eqn.results[0])
    found = result if not others else w.fresh()
    if others:
        w.raw(f"{result} = sdy.manual_computation() in_shardings=[] out_shardings=[{meshed(place, ())}] ")
        w.raw(f"manual_axes={braced(others)} () {{")
    kind = "tensor<ui32>"
    device, step, count, row, place_in = [w.fresh() for _ in range(5)]
    w.line(f"{device} = stablehlo.partition_id : {kind}", eqn.loc)
    w.line(f"{step} = stablehlo.constant dense<{stride}> : {kind}", eqn.loc)
    w.line(f"{count} = stablehlo.constant dense<{op.size}> : {kind}", eqn.loc)
    w.line(f"{row} = stablehlo.divide {device}, {step} : {kind}", eqn.loc)
    w.line(f"{place_in} = stablehlo.remainder {row}, {count} : {kind}", eqn.loc)
    w.line(f"{found} = stablehlo.convert {place_in} : ({kind}) -> tensor<i32>", eqn.loc)
    if others:
        w.returned("sdy.return", [found], ["tensor<i32>"])
        w.line("} : () -> tensor<i32>", eqn.loc)


def numbers(place: Manual, over: Sequence[str]) -> list[list[int]]:
    """The devices of a mesh in groups: those of one differ along some axes alone, and stand in the order of these."""
    rest = [d for d, name in enumerate(place.axes) if name not in over]
    order = [*rest, *[place.axes.index(name) for name in over]]
    grid = np.arange(int(np.prod(place.sizes))).reshape(place.sizes).transpose(order)
    found: list[list[int]] = grid.reshape(-1, place.size(over)).tolist()
    return found


def _place(w: Writer, eqn: Equation) -> Manual:
    axes = eqn.op.axes
    if w.place is None or not axes <= set(w.place.manual):
        raise CompileError(
            f"'{eqn.op.name}' is over {', '.join(sorted(axes))}, and stands in no vmap and no shard_map over that",
            eqn.loc,
        )
    return w.place


def _groups(w: Writer, eqn: Equation) -> str:
    rows = numbers(_place(w, eqn), _over(eqn))
    return f"replica_groups = {_dense(rows, len(rows[0]))}"


def _over(eqn: Equation) -> tuple[str, ...]:
    """The axes of an equation's devices, in their order."""
    op = eqn.op
    assert isinstance(op, devices.DeviceCollective | collective.Collective)
    return op.over if isinstance(op, devices.DeviceCollective) else (op.axis,)


def _dense(rows: Sequence[Sequence[int]], count: int) -> str:
    text = ", ".join([f"[{', '.join(map(str, row))}]" for row in rows])
    return f"dense<[{text}]> : tensor<{len(rows)}x{count}xi64>" if rows else f"dense<> : tensor<0x{count}xi64>"


def _reduced(w: Writer, eqn: Equation, name: str, attributes: Sequence[str], combined: str, given: TensorType) -> None:
    """A collective with a function of two scalars; its result in the shape of the equation's."""
    x, (result,) = eqn.operands[0], eqn.results
    if _place(w, eqn).size(_over(eqn)) == 1:
        w.bind(result, _reshaped(w, w.name(x), x.type, result.type, eqn.loc))
        return
    scalar = w.type(x.type.with_shape(()))
    own = w.fresh()
    w.raw(f'{own} = "stablehlo.{name}"({w.name(x)}) <{{{", ".join([_CHANNEL, *attributes])}}}> ({{')
    left, right, both = [w.fresh() for _ in range(3)]
    w.raw(f"^bb0({left}: {scalar}, {right}: {scalar}):")
    w.line(f"{both} = stablehlo.{combined} {left}, {right} : {scalar}", eqn.loc)
    w.returned("stablehlo.return", [both], [scalar])
    w.line(f"}}) : ({w.type(x.type)}) -> {w.type(given)}", eqn.loc)
    w.bind(result, _reshaped(w, own, given, result.type, eqn.loc))


def _simple(w: Writer, eqn: Equation, name: str, x: str, given: TensorType, attributes: Sequence[str]) -> None:
    (result,) = eqn.results
    if _place(w, eqn).size(_over(eqn)) == 1 and not isinstance(eqn.op, devices.DevicePermute):
        w.bind(result, _reshaped(w, x, given, result.type, eqn.loc))
        return
    signature = f"({w.type(given)}) -> {w.type(result.type)}"
    w.line(f'{w.define(result)} = "stablehlo.{name}"({x}) <{{{", ".join(attributes)}}}> : {signature}', eqn.loc)


def _reshaped(w: Writer, x: str, given: TensorType, wanted: TensorType, loc: Location | None) -> str:
    if given == wanted:
        return x
    name = w.fresh()
    w.line(f"{name} = stablehlo.reshape {x} : ({w.type(given)}) -> {w.type(wanted)}", loc)
    return name
