"""Import of operations that rearrange elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.ir.ops import shape
from rematc.ir.ops.structural import Iota
from rematc.ir.values import Value


@imports("stablehlo.reshape", "stablehlo.dynamic_reshape")
def reshape(block: Block, operation: Any) -> Sequence[Value]:
    """`reshape`; the dynamic one has its static result type."""
    (type,) = block.result_types(operation)
    return [block.b.reshape(block.operands(operation)[0], type.shape)]


@imports("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def broadcast_in_dim(block: Block, operation: Any) -> Sequence[Value]:
    """`broadcast_in_dim`; the dynamic one has its static result type."""
    (type,) = block.result_types(operation)
    x = block.operands(operation)[0]
    dimensions = attributes(operation).integers("broadcast_dimensions")
    if x.type == type and dimensions == tuple(range(x.type.rank)):
        return [x]
    return block.b.emit(shape.BroadcastInDim(type.shape, dimensions), x)


@imports("stablehlo.broadcast")
def broadcast(block: Block, operation: Any) -> Sequence[Value]:
    """New dimensions in front."""
    (type,) = block.result_types(operation)
    (x,) = block.operands(operation)
    return [block.b.broadcast_in_dim(x, type.shape, range(type.rank - x.type.rank, type.rank))]


@imports("stablehlo.dynamic_iota")
def dynamic_iota(block: Block, operation: Any) -> Sequence[Value]:
    (type,) = block.result_types(operation)
    return block.b.emit(Iota(type, attributes(operation).integer("iota_dimension")))


@imports("stablehlo.transpose")
def transpose(block: Block, operation: Any) -> Sequence[Value]:
    op = shape.Transpose(attributes(operation).integers("permutation"))
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.reverse")
def reverse(block: Block, operation: Any) -> Sequence[Value]:
    op = shape.Reverse(attributes(operation).integers("dimensions"))
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.concatenate")
def concatenate(block: Block, operation: Any) -> Sequence[Value]:
    op = shape.Concatenate(attributes(operation).integer("dimension"))
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.slice")
def slice_(block: Block, operation: Any) -> Sequence[Value]:
    found = attributes(operation)
    op = shape.Slice(*[found.integers(name) for name in ("start_indices", "limit_indices", "strides")])
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.real_dynamic_slice")
def real_dynamic_slice(block: Block, operation: Any) -> Sequence[Value]:
    """`slice`, of constant start, limit and strides."""
    x, *given = block.operands(operation)
    bounds = [_integers(block, value, operation, "bounds") for value in given]
    return block.b.emit(shape.Slice(*bounds), x)


@imports("stablehlo.pad")
def pad(block: Block, operation: Any) -> Sequence[Value]:
    found = attributes(operation)
    op = shape.Pad(*[found.integers(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")])
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.dynamic_pad")
def dynamic_pad(block: Block, operation: Any) -> Sequence[Value]:
    """`pad`, of constant amounts."""
    x, fill, *given = block.operands(operation)
    return block.b.emit(shape.Pad(*[_integers(block, value, operation, "amounts") for value in given]), x, fill)


def _integers(block: Block, value: Value, operation: Any, what: str) -> tuple[int, ...]:
    return tuple([int(item) for item in block.constant_of(value, operation, what).reshape(-1)])
