"""Elementwise ops in StableHLO text."""

from __future__ import annotations

import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops.arithmetic import Clamp, IntegerPower
from rematc.ir.ops.conversion import Convert, ReducePrecision
from rematc.ir.ops.inverse import Atan2, Sinh
from rematc.ir.ops.logical import Compare, Select
from rematc.ir.ops.rounding import IsFinite
from rematc.ir.registry import OPS
from rematc.ir.types import BF16, BOOL, F32, I32, U8, DType, TensorType
from rematc.lowering.module import stablehlo_text
from rematc.lowering.validation import validate
from tests.support.samples import graph_of


def body(op: Op, *operands: TensorType) -> list[str]:
    """The lines of the one-equation function, without locations."""
    text = stablehlo_text(graph_of(op, operands))
    validate(text)
    lines = [line.strip().removesuffix(" loc(unknown)") for line in text.splitlines()]
    return lines[2 : lines.index("}") - 1]


def vector(dtype: DType) -> TensorType:
    return TensorType(dtype, (4,))


SCALAR = TensorType(F32, ())
LINES: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (Atan2(), (vector(F32), vector(F32)), "stablehlo.atan2 %arg0, %arg1 : tensor<4xf32>"),
    (Sinh(), (vector(BF16),), "chlo.sinh %arg0 : tensor<4xbf16> -> tensor<4xbf16>"),
    (
        Compare("LT"),
        (vector(U8), vector(U8)),
        "stablehlo.compare LT, %arg0, %arg1, UNSIGNED : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xi1>",
    ),
    (
        Compare("EQ"),
        (vector(F32), vector(F32)),
        "stablehlo.compare EQ, %arg0, %arg1, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>",
    ),
    (
        Select(),
        (TensorType(BOOL, ()), vector(F32), vector(F32)),
        "stablehlo.select %arg0, %arg1, %arg2 : tensor<i1>, tensor<4xf32>",
    ),
    (Clamp(), (vector(F32), vector(F32), vector(F32)), "stablehlo.clamp %arg0, %arg1, %arg2 : tensor<4xf32>"),
    (
        Clamp(),
        (SCALAR, vector(F32), SCALAR),
        "stablehlo.clamp %arg0, %arg1, %arg2 : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>",
    ),
    (Convert(I32), (vector(F32),), "stablehlo.convert %arg0 : (tensor<4xf32>) -> tensor<4xi32>"),
    (IsFinite(), (vector(F32),), "stablehlo.is_finite %arg0 : (tensor<4xf32>) -> tensor<4xi1>"),
    (ReducePrecision(5, 10), (vector(F32),), "stablehlo.reduce_precision %arg0, format = e5m10 : tensor<4xf32>"),
]


@pytest.mark.parametrize(("op", "operands", "line"), LINES, ids=[line.split()[0] for *_, line in LINES])
def test_forms(op: Op, operands: tuple[TensorType, ...], line: str) -> None:
    assert body(op, *operands) == [f"%0 = {line}"]


def test_an_integer_power_is_squares_and_products() -> None:
    assert body(IntegerPower(-6), vector(F32)) == [
        "%0 = stablehlo.multiply %arg0, %arg0 : tensor<4xf32>",
        "%1 = stablehlo.multiply %0, %0 : tensor<4xf32>",
        "%2 = stablehlo.multiply %0, %1 : tensor<4xf32>",
        "%3 = stablehlo.constant dense<1.0> : tensor<f32>",
        "%4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<4xf32>",
        "%5 = stablehlo.divide %4, %2 : tensor<4xf32>",
    ]


@pytest.mark.parametrize("exponent", [-5, -1, 0, 1, 2, 3, 15, 16, 100])
def test_flops_of_an_integer_power_count_its_lines(exponent: int) -> None:
    op = IntegerPower(exponent)
    lines = body(op, vector(F32))
    computed = [line for line in lines if "constant" not in line and "broadcast_in_dim" not in line]
    assert op.flops((vector(F32),), (vector(F32),)) == 4 * len(computed)


@pytest.mark.parametrize("name", ["divide", "remainder"])
def test_integers_are_divided_by_what_cannot_be_zero(name: str) -> None:
    """XLA of jaxlib 0.10 dies of constant quotients by zero, and finds constants where we see none."""
    op = OPS[name]()
    b = Builder()
    x, y = b.parameter(vector(I32)), b.parameter(vector(I32))
    by_constant = stablehlo_text(b.build(b.emit1(op, x, b.full(vector(I32), 3))))
    assert f"stablehlo.{name} %arg0" in by_constant and "select" not in by_constant
    by_variable = stablehlo_text(b.build(b.emit1(op, x, y)))
    assert "stablehlo.select" in by_variable and f"stablehlo.{name} %arg0, %arg1" not in by_variable
    assert body(op, vector(F32), vector(F32))[0].endswith(f"stablehlo.{name} %arg0, %arg1 : tensor<4xf32>")
