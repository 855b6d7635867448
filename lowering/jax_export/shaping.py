"""Export of ops that make, convert and move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.ir.core import Equation
from rematc.ir.ops import conversion, dynamic, shape, structural
from rematc.lowering.jax_export.evaluating import exports, lax


@exports(structural.Constant)
def constant(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The array itself."""
    assert isinstance(eqn.op, structural.Constant)
    return (eqn.op.array,)


@exports(structural.Iota)
def iota(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.broadcasted_iota`."""
    assert isinstance(eqn.op, structural.Iota)
    type = eqn.op.type
    if type.dtype.is_complex:
        steps = lax.broadcasted_iota("int32", type.shape, eqn.op.dimension)
        return (lax.convert_element_type(steps, type.dtype.numpy),)
    return (lax.broadcasted_iota(type.dtype.numpy, type.shape, eqn.op.dimension),)


@exports(conversion.Convert)
def convert(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.convert_element_type`; of complex numbers to others, their real parts."""
    assert isinstance(eqn.op, conversion.Convert)
    (x,) = operands
    source, target = eqn.operands[0].type.dtype, eqn.op.dtype
    if source.is_complex and not target.is_complex:
        x = lax.real(x)
    return (lax.convert_element_type(x, target.numpy),)


@exports(conversion.BitcastConvert)
def bitcast_convert(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.bitcast_convert_type`."""
    assert isinstance(eqn.op, conversion.BitcastConvert)
    return (lax.bitcast_convert_type(operands[0], eqn.op.dtype.numpy),)


@exports(conversion.ReducePrecision)
def reduce_precision(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reduce_precision`."""
    assert isinstance(eqn.op, conversion.ReducePrecision)
    return (lax.reduce_precision(operands[0], eqn.op.exponent_bits, eqn.op.mantissa_bits),)


@exports(shape.BroadcastInDim)
def broadcast_in_dim(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.broadcast_in_dim`."""
    assert isinstance(eqn.op, shape.BroadcastInDim)
    return (lax.broadcast_in_dim(operands[0], eqn.op.shape, eqn.op.dimensions),)


@exports(shape.Reshape)
def reshape(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reshape`."""
    assert isinstance(eqn.op, shape.Reshape)
    return (lax.reshape(operands[0], eqn.op.shape),)


@exports(shape.Transpose)
def transpose(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.transpose`."""
    assert isinstance(eqn.op, shape.Transpose)
    return (lax.transpose(operands[0], eqn.op.permutation),)


@exports(shape.Reverse)
def reverse(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.rev`."""
    assert isinstance(eqn.op, shape.Reverse)
    return (lax.rev(operands[0], eqn.op.dimensions),)


@exports(shape.Slice)
def slice_(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.slice`."""
    op = eqn.op
    assert isinstance(op, shape.Slice)
    strides = None if all(stride == 1 for stride in op.strides) else op.strides
    return (lax.slice(operands[0], op.start, op.limit, strides),)


@exports(shape.Pad)
def pad(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.pad`."""
    op = eqn.op
    assert isinstance(op, shape.Pad)
    x, fill = operands
    return (lax.pad(x, fill, tuple(zip(op.low, op.high, op.interior, strict=True))),)


@exports(shape.Concatenate)
def concatenate(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.concatenate`."""
    assert isinstance(eqn.op, shape.Concatenate)
    return (lax.concatenate(operands, eqn.op.dimension),)


@exports(dynamic.DynamicSlice)
def dynamic_slice(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.dynamic_slice`, whose negative starts are clamped, not counted from the end."""
    assert isinstance(eqn.op, dynamic.DynamicSlice)
    x, *starts = operands
    return (lax.dynamic_slice(x, starts, eqn.op.slice_sizes, allow_negative_indices=False),)


@exports(dynamic.DynamicUpdateSlice)
def dynamic_update_slice(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.dynamic_update_slice`, likewise."""
    x, update, *starts = operands
    return (lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False),)
