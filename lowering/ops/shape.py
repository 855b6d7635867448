"""Lowering of shape ops: each is one StableHLO op of the same name."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import shape
from rematc.lowering.writer import Writer, ints, lowers


def _write(w: Writer, eqn: Equation, parameters: str) -> None:
    """`%r = stablehlo.<name> %x, %y <parameters> : (tensor<...>, tensor<...>) -> tensor<...>`."""
    operands = w.names(eqn.operands)
    (result,) = eqn.results
    signature = f"({w.types(eqn.operands)}) -> {w.type(result.type)}"
    w.line(f"{w.define(result)} = stablehlo.{eqn.op.name} {operands}{parameters} : {signature}", eqn.loc)


@lowers(shape.BroadcastInDim)
def broadcast_in_dim(w: Writer, eqn: Equation) -> None:
    """`stablehlo.broadcast_in_dim %x, dims = [0]`."""
    assert isinstance(eqn.op, shape.BroadcastInDim)
    _write(w, eqn, f", dims = {ints(eqn.op.dimensions)}")
    if w.is_nonzero(eqn.operands[0]):
        w.note_nonzero(eqn.results[0])


@lowers(shape.Reshape)
def reshape(w: Writer, eqn: Equation) -> None:
    """`stablehlo.reshape %x`."""
    _write(w, eqn, "")


@lowers(shape.Transpose)
def transpose(w: Writer, eqn: Equation) -> None:
    """`stablehlo.transpose %x, dims = [1, 0]`."""
    assert isinstance(eqn.op, shape.Transpose)
    _write(w, eqn, f", dims = {ints(eqn.op.permutation)}")


@lowers(shape.Reverse)
def reverse(w: Writer, eqn: Equation) -> None:
    """`stablehlo.reverse %x, dims = [0] : tensor<...>`."""
    assert isinstance(eqn.op, shape.Reverse)
    (operand,), (result,) = eqn.operands, eqn.results
    call = f"stablehlo.reverse {w.name(operand)}, dims = {ints(eqn.op.dimensions)}"
    w.line(f"{w.define(result)} = {call} : {w.type(result.type)}", eqn.loc)


@lowers(shape.Concatenate)
def concatenate(w: Writer, eqn: Equation) -> None:
    """`stablehlo.concatenate %x, %y, dim = 0`."""
    assert isinstance(eqn.op, shape.Concatenate)
    _write(w, eqn, f", dim = {eqn.op.dimension}")


@lowers(shape.Slice)
def slice_(w: Writer, eqn: Equation) -> None:
    """`stablehlo.slice %x [0:2, 1:4:2]`: start, limit, stride."""
    assert isinstance(eqn.op, shape.Slice)
    ranges = zip(eqn.op.start, eqn.op.limit, eqn.op.strides, strict=True)
    _write(w, eqn, f" [{', '.join([f'{start}:{limit}:{stride}' for start, limit, stride in ranges])}]")


@lowers(shape.Pad)
def pad(w: Writer, eqn: Equation) -> None:
    """`stablehlo.pad %x, %fill, low = [1], high = [0], interior = [0]`."""
    op = eqn.op
    assert isinstance(op, shape.Pad)
    _write(w, eqn, f", low = {ints(op.low)}, high = {ints(op.high)}, interior = {ints(op.interior)}")
