"""Import of matrix products, convolutions and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.ir.builder import Builder
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import PRECISIONS, DotGeneral
from rematc.ir.ops.fourier import Fft
from rematc.ir.types import DTYPES, DType
from rematc.ir.values import Value


def _names(precision: Any) -> tuple[str, ...]:
    """What JAX calls the precision of each operand, or the algorithm of both."""
    if precision is None:
        return ("DEFAULT",)
    pair = precision if isinstance(precision, tuple) and not hasattr(precision, "_fields") else (precision,)
    return tuple([str(getattr(item, "name", item)) for item in pair])


def _precision(found: Any) -> str | None:
    """The more exact of two precisions; None where JAX names an algorithm, which the IR has not."""
    names = _names(found)
    return max(names, key=PRECISIONS.index) if all(name in PRECISIONS for name in names) else None


def _algorithm(found: Any) -> tuple[DType, DType, DType] | None:
    """The element types in which an algorithm takes its operands and sums, where these are all that it says."""
    names = _names(found)
    parts = names[0].lower().split("_") if len(names) == 1 else ()
    if len(parts) != 3 or not all(part in DTYPES for part in parts):
        return None
    return (DTYPES[parts[0]], DTYPES[parts[1]], DTYPES[parts[2]])


def _result_dtype(x: Value, y: Value, result: DType) -> DType | None:
    return None if x.type.dtype is result and y.type.dtype is result else result


def _in_common_types(b: Builder, x: Value, y: Value, result: DType) -> tuple[Value, Value]:
    """Operands that a product takes: those of different types, and integers of a product of floats, are converted."""
    types = (x.type.dtype, y.type.dtype)
    is_narrow = all(dtype.is_float and dtype.bits <= 8 for dtype in types)
    if (types[0] is types[1] and types[0].kind is result.kind) or is_narrow:
        return x, y
    return b.convert(x, result), b.convert(y, result)


@imports("dot_general")
def dot_general(block: Block, eqn: Any) -> Sequence[Value]:
    """`dot_general`. Of an algorithm only the element types are kept; one that says more is as JAX lowers it."""
    x, y = block.operands(eqn)
    result = summed = block.result_type(eqn).dtype
    precision = _precision(eqn.params["precision"])
    if precision is None:
        types = _algorithm(eqn.params["precision"])
        if types is None:
            return block.fallback(eqn)
        x, y, summed = block.b.convert(x, types[0]), block.b.convert(y, types[1]), types[2]
    else:
        x, y = _in_common_types(block.b, x, y, result)
    (contract, batch) = eqn.params["dimension_numbers"]
    op = DotGeneral(
        (tuple(contract[0]), tuple(contract[1])),
        (tuple(batch[0]), tuple(batch[1])),
        _result_dtype(x, y, summed),
        precision or "DEFAULT",
    )
    return [block.b.convert(block.b.emit1(op, x, y), result)]


@imports("conv_general_dilated")
def conv_general_dilated(block: Block, eqn: Any) -> Sequence[Value]:
    """`convolution`."""
    x, kernel = block.operands(eqn)
    params = eqn.params
    precision = _precision(params["precision"])
    if precision is None:
        return block.fallback(eqn)
    numbers, result = params["dimension_numbers"], block.result_type(eqn).dtype
    x, kernel = _in_common_types(block.b, x, kernel, result)
    op = Convolution(
        tuple(params["window_strides"]),
        tuple([(int(low), int(high)) for low, high in params["padding"]]),
        tuple(params["lhs_dilation"]),
        tuple(params["rhs_dilation"]),
        (False,) * (x.type.rank - 2),
        ConvolutionDimensions(tuple(numbers.lhs_spec), tuple(numbers.rhs_spec), tuple(numbers.out_spec)),
        params["feature_group_count"],
        params["batch_group_count"],
        _result_dtype(x, kernel, result),
        precision,
    )
    return block.b.emit(op, x, kernel)


@imports("fft")
def fft(block: Block, eqn: Any) -> Sequence[Value]:
    """`fft`."""
    (x,) = block.operands(eqn)
    type = block.result_type(eqn)
    if not type.size or not x.type.size:
        return [block.b.zeros(type)]
    kind = getattr(eqn.params["fft_type"], "name", str(eqn.params["fft_type"]))
    return block.b.emit(Fft(kind, tuple(eqn.params["fft_lengths"])), x)
