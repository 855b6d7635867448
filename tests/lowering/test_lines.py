"""The StableHLO text of shape ops, reductions, products and indexing, one line each as the specification prints it."""

from __future__ import annotations

import pytest

from rematc.ir.core import Op
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.indexing import Gather, ScatterAdd
from rematc.ir.ops.reduction import Argmax, ReduceMax, ReduceSum
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.ops.structural import Name, OptimizationBarrier, StopGradient, ToMemory
from rematc.ir.types import BF16, F8E4M3FN, F8E5M2, F32, I32, TensorType
from rematc.lowering.module import stablehlo_text
from rematc.lowering.validation import validate
from tests.support.samples import graph_of

X, Y, V = TensorType(F32, (2, 3)), TensorType(F32, (3, 4)), TensorType(F32, (3,))
SCALAR, INDEX = TensorType(F32, ()), TensorType(I32, ())
ROWS = GatherDimensions((1,), (0,), (0,), 1)
MATRICES = (((1,), (0,)), ((), ()))


def body(op: Op, *operands: TensorType) -> str:
    """The lines between the function's head and its return, without locations."""
    text = stablehlo_text(graph_of(op, operands))
    validate(text)
    lines = text.replace(" loc(unknown)", "").replace(" loc(#loc1)", "").splitlines()[2:]
    end = next(i for i, line in enumerate(lines) if "func.return" in line)
    return "\n".join(line.removeprefix("    ") for line in lines[:end])


@pytest.mark.parametrize(
    ("op", "operands", "line"),
    [
        (BroadcastInDim((2, 3), (1,)), [V], "broadcast_in_dim %arg0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>"),
        (Reshape((6,)), [X], "reshape %arg0 : (tensor<2x3xf32>) -> tensor<6xf32>"),
        (Transpose((1, 0)), [X], "transpose %arg0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>"),
        (Reverse((0, 1)), [X], "reverse %arg0, dims = [0, 1] : tensor<2x3xf32>"),
        (
            Concatenate(0),
            [V, V],
            "concatenate %arg0, %arg1, dim = 0 : (tensor<3xf32>, tensor<3xf32>) -> tensor<6xf32>",
        ),
        (Slice((0, 1), (2, 3), (1, 2)), [X], "slice %arg0 [0:2:1, 1:3:2] : (tensor<2x3xf32>) -> tensor<2x1xf32>"),
        (
            Pad((1,), (-1,), (2,)),
            [V, SCALAR],
            "pad %arg0, %arg1, low = [1], high = [-1], interior = [2] : (tensor<3xf32>, tensor<f32>) -> tensor<7xf32>",
        ),
        (
            DotGeneral(((2,), (1,)), ((0,), (0,)), None, "HIGH"),
            [TensorType(F32, (5, 2, 3)), TensorType(F32, (5, 3, 4))],
            "dot_general %arg0, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [1], "
            "precision = [HIGH, HIGH] : (tensor<5x2x3xf32>, tensor<5x3x4xf32>) -> tensor<5x2x4xf32>",
        ),
        (
            DotGeneral(*MATRICES, F32),
            [X.with_dtype(F8E4M3FN), Y.with_dtype(F8E5M2)],
            "dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : "
            "(tensor<2x3xf8E4M3FN>, tensor<3x4xf8E5M2>) -> tensor<2x4xf32>",
        ),
        (
            Gather(ROWS, (1, 3)),
            [X, TensorType(I32, (5, 1))],
            '"stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
            "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, "
            "slice_sizes = array<i64: 1, 3>}> : (tensor<2x3xf32>, tensor<5x1xi32>) -> tensor<5x3xf32>",
        ),
        (
            DynamicSlice((1, 2)),
            [X, INDEX, INDEX],
            "dynamic_slice %arg0, %arg1, %arg2, sizes = [1, 2] : "
            "(tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>",
        ),
        (
            DynamicUpdateSlice(),
            [V, TensorType(F32, (2,)), INDEX],
            "dynamic_update_slice %arg0, %arg1, %arg2 : (tensor<3xf32>, tensor<2xf32>, tensor<i32>) -> tensor<3xf32>",
        ),
    ],
)
def test_one_line(op: Op, operands: list[TensorType], line: str) -> None:
    spelled = line if line.startswith('"') else f"stablehlo.{line}"
    assert body(op, *operands) == f"%0 = {spelled}"


def test_a_reduction_starts_at_its_neutral_element() -> None:
    assert body(ReduceMax((1,)), X) == (
        "%0 = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        "%1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.maximum across dimensions = [1] : "
        "(tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>"
    )


def test_a_narrow_sum_is_taken_in_float32() -> None:
    assert body(ReduceSum((1,)), X.with_dtype(BF16)) == (
        "%0 = stablehlo.convert %arg0 : (tensor<2x3xbf16>) -> tensor<2x3xf32>\n"
        "%1 = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [1] : "
        "(tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n"
        "%3 = stablehlo.convert %2 : (tensor<2xf32>) -> tensor<2xbf16>"
    )


def test_operands_of_two_element_types_are_converted_to_the_results() -> None:
    assert body(DotGeneral(*MATRICES, F32), X, Y.with_dtype(BF16)).splitlines()[0] == (
        "%0 = stablehlo.convert %arg1 : (tensor<3x4xbf16>) -> tensor<3x4xf32>"
    )


def test_the_index_of_an_integer_extremum_asks_for_no_nan() -> None:
    text = body(Argmax(0, I32), TensorType(I32, (3,)))
    assert text.count("stablehlo.compare") == 3
    assert "FLOAT" not in text


def test_a_scatter_has_its_combiner_as_body() -> None:
    lines = body(ScatterAdd(ScatterDimensions.of(ROWS)), X, TensorType(I32, (5, 1)), TensorType(F32, (5, 3)))
    assert lines.splitlines()[1:] == [
        "^combine(%1: tensor<f32>, %2: tensor<f32>):",
        "  %3 = stablehlo.add %1, %2 : tensor<f32>",
        "  stablehlo.return %3 : tensor<f32>",
        "}) : (tensor<2x3xf32>, tensor<5x1xi32>, tensor<5x3xf32>) -> tensor<2x3xf32>",
    ]


@pytest.mark.parametrize("op", [Name("a"), StopGradient()])
def test_identities_are_no_lines(op: Op) -> None:
    assert body(op, X) == ""


def test_a_barrier_takes_everything_at_once_and_nothing_not_at_all() -> None:
    assert body(OptimizationBarrier(), X, V) == (
        "%0:2 = stablehlo.optimization_barrier %arg0, %arg1 : tensor<2x3xf32>, tensor<3xf32>"
    )
    assert body(OptimizationBarrier()) == ""


@pytest.mark.parametrize(("on_host", "memory"), [(True, "pinned_host"), (False, "device")])
def test_a_move_between_memories_is_an_annotation_that_xla_keeps(on_host: bool, memory: str) -> None:
    assert body(ToMemory(on_host), TensorType(F32, (3,), not on_host)) == (
        "%0 = stablehlo.custom_call @annotate_device_placement(%arg0) {has_side_effect = true, "
        f'mhlo.frontend_attributes = {{_xla_buffer_placement = "{memory}"}}}} : (tensor<3xf32>) -> tensor<3xf32>'
    )
