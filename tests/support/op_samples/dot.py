"""Rows for ir/ops/dot.py."""

from __future__ import annotations

from typing import Any

from jax import lax

from rematc.ir.ops.dot import DotGeneral
from rematc.ir.types import BF16, C64, F8E4M3FN, F8E5M2, F16, F32, F64, I8, I32, U8, DType
from tests.support.samples import Factory, Sample, Tolerance, booleans, integers, normal

#: Of f32 products of up to 20 terms.
ORDERED = Tolerance(2e-6, 4e-6, "XLA and NumPy add in different orders")
NARROW = Tolerance(2**-7, 2**-7, "16-bit products are rounded once, from sums in different orders")

Dimensions = tuple[tuple[int, ...], tuple[int, ...]]
MATRICES: Dimensions = ((1,), (0,))
NONE: Dimensions = ((), ())


def in_jax(op: DotGeneral) -> Any:
    result = None if op.result_dtype is None else op.result_dtype.numpy
    return lambda x, y: lax.dot_general(x, y, (op.contract, op.batch), op.precision, result)


def dot(
    x: Factory,
    y: Factory,
    contract: Dimensions = MATRICES,
    batch: Dimensions = NONE,
    result: DType | None = None,
    tolerance: Tolerance = ORDERED,
    differentiable: tuple[int, ...] = (),
    label: str = "",
) -> Sample:
    op = DotGeneral(contract, batch, result)
    return Sample(op, (x, y), differentiable, jax=in_jax(op), tolerance=tolerance, label=label)


SAMPLES = (
    dot(normal(F32, 2, 3), normal(F32, 3, 4), differentiable=(0, 1)),
    dot(normal(F32, 2, 3), normal(F32, 3, 4), differentiable=(0,), label="tangent of x"),
    dot(normal(F32, 2, 3), normal(F32, 3, 4), differentiable=(1,), label="tangent of y"),
    dot(
        normal(F64, 2, 3, 4, 5),
        normal(F64, 6, 5, 2, 3),
        ((3, 1), (1, 3)),
        ((0,), (2,)),
        differentiable=(0, 1),
        label="contract out of order",
    ),
    dot(
        normal(F32, 2, 3, 4, 2),
        normal(F32, 3, 5, 2, 4),
        ((2,), (3,)),
        ((1, 0), (0, 2)),
        differentiable=(0, 1),
        label="batch out of order",
    ),
    dot(normal(F32, 2), normal(F32, 3), NONE, differentiable=(0, 1), label="outer"),
    dot(normal(F32, 5), normal(F32, 5), ((0,), (0,)), differentiable=(0, 1), label="inner"),
    dot(normal(F32, 5), normal(F32, 5), NONE, ((0,), (0,)), differentiable=(0, 1), label="elementwise"),
    dot(normal(F32), normal(F32, 2), NONE, differentiable=(0, 1), label="scalar"),
    dot(normal(F32, 2, 0), normal(F32, 0, 3), differentiable=(0, 1), label="nothing contracted"),
    dot(normal(C64, 2, 3), normal(C64, 3, 2), differentiable=(0, 1)),
    dot(normal(F32, 2, 3), normal(F32, 3, 4), result=F64, differentiable=(0, 1), label="to f64"),
    dot(normal(BF16, 3, 20), normal(BF16, 20, 2), differentiable=(0, 1), tolerance=NARROW),
    dot(normal(F16, 3, 20), normal(F16, 20, 2), differentiable=(0, 1), tolerance=NARROW),
    dot(normal(BF16, 3, 20), normal(BF16, 20, 2), result=F32, tolerance=ORDERED),
    dot(normal(F32, 3, 4), normal(BF16, 4, 2), result=F32, tolerance=ORDERED),
    dot(normal(F8E4M3FN, 3, 4), normal(F8E5M2, 4, 2), result=F32, tolerance=ORDERED),
    Sample(
        DotGeneral(MATRICES, NONE, None, "HIGHEST"),
        (normal(F32, 2, 3), normal(F32, 3, 2)),
        (0, 1),
        tolerance=ORDERED,
        label="precision",
    ),
    dot(integers(I32, -9, 9, 2, 3), integers(I32, -9, 9, 3, 2)),
    dot(integers(U8, 0, 255, 2, 3), integers(U8, 0, 255, 3, 2), label="wraps"),
    dot(integers(I8, -128, 127, 2, 3), integers(I8, -128, 127, 3, 2), result=I32),
    Sample(DotGeneral(MATRICES, NONE, I32), (integers(I8, -128, 127, 2, 3), integers(U8, 0, 255, 3, 2))),
    dot(booleans(3, 4), booleans(4, 3)),
)
