"""Import of matrix products, convolutions and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.jax_import.block import Block, imports
from rematc.ir.core import Value
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import PRECISIONS, DotGeneral
from rematc.ir.ops.fourier import Fft
from rematc.ir.types import DType


def _precision(found: Any) -> str | None:
    """The more exact of two precisions; None where JAX names an algorithm, which the IR has not."""
    if found is None:
        return "DEFAULT"
    pair = found if isinstance(found, tuple) else (found, found)
    names = [getattr(item, "name", str(item)) for item in pair]
    return max(names, key=PRECISIONS.index) if all(name in PRECISIONS for name in names) else None


def _result_dtype(x: Value, y: Value, result: DType) -> DType | None:
    return None if x.type.dtype is result and y.type.dtype is result else result


@imports("dot_general")
def dot_general(block: Block, eqn: Any) -> Sequence[Value]:
    """`dot_general`; one by a certain algorithm as JAX lowers it."""
    x, y = block.operands(eqn)
    precision = _precision(eqn.params["precision"])
    if precision is None:
        return block.fallback(eqn)
    (contract, batch) = eqn.params["dimension_numbers"]
    op = DotGeneral(
        (tuple(contract[0]), tuple(contract[1])),
        (tuple(batch[0]), tuple(batch[1])),
        _result_dtype(x, y, block.result_type(eqn).dtype),
        precision,
    )
    return block.b.emit(op, x, y)


@imports("conv_general_dilated")
def conv_general_dilated(block: Block, eqn: Any) -> Sequence[Value]:
    """`convolution`."""
    x, kernel = block.operands(eqn)
    params = eqn.params
    precision = _precision(params["precision"])
    if precision is None:
        return block.fallback(eqn)
    numbers = params["dimension_numbers"]
    op = Convolution(
        tuple(params["window_strides"]),
        tuple([(int(low), int(high)) for low, high in params["padding"]]),
        tuple(params["lhs_dilation"]),
        tuple(params["rhs_dilation"]),
        (False,) * (x.type.rank - 2),
        ConvolutionDimensions(tuple(numbers.lhs_spec), tuple(numbers.rhs_spec), tuple(numbers.out_spec)),
        params["feature_group_count"],
        params["batch_group_count"],
        _result_dtype(x, kernel, block.result_type(eqn).dtype),
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
