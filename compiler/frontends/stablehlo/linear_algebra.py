"""Import of products, convolutions, Fourier transforms and triangular matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.reading import DTYPE_OF
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import PRECISIONS, DotGeneral
from rematc.ir.ops.fourier import Fft
from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.ir.types import DType
from rematc.ir.values import Value


def _precision(operation: Any) -> str:
    """The more exact of the operands' two."""
    found = attributes(operation).choices("precision_config")
    return max(found, key=PRECISIONS.index, default="DEFAULT")


def _result_dtype(operands: Sequence[Value], result: DType) -> DType | None:
    return None if all(operand.type.dtype is result for operand in operands) else result


@imports("stablehlo.dot_general")
def dot_general(block: Block, operation: Any) -> Sequence[Value]:
    """`dot_general`. Of an algorithm the element types are kept, as conversions; one that says more is an error."""
    operands, (type,) = block.operands(operation), block.result_types(operation)
    summed = type.dtype
    if "algorithm" in (found := attributes(operation)):
        left, right, summed = _algorithm(block, operation, stablehlo.DotAlgorithm(found.raw("algorithm")))
        operands = [block.b.convert(operands[0], left), block.b.convert(operands[1], right)]
    numbers = stablehlo.DotDimensionNumbers(attributes(operation).raw("dot_dimension_numbers"))
    contract = (tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions))
    batch = (tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions))
    op = DotGeneral(contract, batch, _result_dtype(operands, summed), _precision(operation))
    return (block.b.convert(block.b.emit1(op, *operands), type.dtype),)


def _algorithm(block: Block, operation: Any, found: Any) -> tuple[DType, DType, DType]:
    """The element types in which an algorithm takes its operands and sums, where these are all that it says."""
    names = [str(one) for one in (found.lhs_precision_type, found.rhs_precision_type, found.accumulation_type)]
    types = [DTYPE_OF.get(name) for name in names]
    counts = (found.lhs_component_count, found.rhs_component_count, found.num_primitive_operations)
    left, right, summed = types
    if left is None or right is None or summed is None or counts != (1, 1, 1):
        parts = "" if counts == (1, 1, 1) else f" from {counts[2]} products of {counts[0]} and {counts[1]} parts"
        block.fail(
            operation,
            f"multiplies {names[0]} by {names[1]} into {names[2]}{parts}, an algorithm that the IR does not have; "
            "leave out `algorithm`, or say `precision` instead",
        )
    return left, right, summed


@imports("stablehlo.dot")
def dot(block: Block, operation: Any) -> Sequence[Value]:
    """The last dimension of x with the first of y."""
    operands, (type,) = block.operands(operation), block.result_types(operation)
    contract = ((operands[0].type.rank - 1,), (0,))
    op = DotGeneral(contract, ((), ()), _result_dtype(operands, type.dtype), _precision(operation))
    return block.b.emit(op, *operands)


@imports("stablehlo.convolution", "stablehlo.dynamic_conv")
def convolution(block: Block, operation: Any) -> Sequence[Value]:
    """`convolution` with every attribute; the dynamic one has constant padding."""
    found, (type,) = attributes(operation), block.result_types(operation)
    x, kernel, *given = block.operands(operation)
    numbers = stablehlo.ConvDimensionNumbers(found.raw("dimension_numbers"))
    count = x.type.rank - 2
    padding = found.pairs("padding", count)
    if given:
        rows = block.constant_of(given[0], operation, "amounts of padding").reshape(count, 2)
        padding = tuple([(int(low), int(high)) for low, high in rows])
    ones = (1,) * count
    op = Convolution(
        found.integers("window_strides", ones),
        padding,
        found.integers("lhs_dilation", ones),
        found.integers("rhs_dilation", ones),
        found.booleans("window_reversal", (False,) * count),
        _dimensions(numbers),
        found.integer("feature_group_count", 1),
        found.integer("batch_group_count", 1),
        _result_dtype((x, kernel), type.dtype),
        _precision(operation),
    )
    return block.b.emit(op, x, kernel)


def _dimensions(numbers: Any) -> ConvolutionDimensions:
    return ConvolutionDimensions(
        (
            numbers.input_batch_dimension,
            numbers.input_feature_dimension,
            *numbers.input_spatial_dimensions,
        ),
        (
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ),
        (
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            *numbers.output_spatial_dimensions,
        ),
    )


@imports("stablehlo.fft")
def fft(block: Block, operation: Any) -> Sequence[Value]:
    found = attributes(operation)
    return block.b.emit(Fft(found.choice("fft_type"), found.integers("fft_length")), *block.operands(operation))


@imports("stablehlo.cholesky")
def cholesky(block: Block, operation: Any) -> Sequence[Value]:
    return block.b.emit(Cholesky(attributes(operation).boolean("lower")), *block.operands(operation))


@imports("stablehlo.triangular_solve")
def triangular_solve(block: Block, operation: Any) -> Sequence[Value]:
    found = attributes(operation)
    op = TriangularSolve(
        found.boolean("left_side"),
        found.boolean("lower"),
        found.boolean("unit_diagonal"),
        found.choice("transpose_a", "NO_TRANSPOSE"),
    )
    return block.b.emit(op, *block.operands(operation))
