"""Rows for products: matrices, convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.elementwise import NUMBERS
from rematc.ir.ops.shape import Reshape
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row, is_matrix


def _dot(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in NUMBERS)
    y = d.pick(lambda type: x is not None and type.dtype is x.type.dtype)
    if x is None or y is None:
        return ()
    pairs = [(i, j) for i, m in enumerate(x.type.shape) for j, n in enumerate(y.type.shape) if m == n]
    chosen: list[tuple[int, int]] = []
    for i, j in d.shuffled(pairs):
        if all(i != other_i and j != other_j for other_i, other_j in chosen):
            chosen.append((i, j))
    cut = d.integer(0, len(chosen))
    batched = chosen[cut:] if d.flip() else []
    return d.emit(DotGeneral(_columns(chosen[:cut]), _columns(batched)), x, y)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(i for i, _ in pairs), tuple(j for _, j in pairs)


def _convolution(d: Drawing) -> tuple[Value, ...]:
    """Of rows with each other, padded so that the kernel fits: features, or groups of them, or of the batch."""
    x = d.pick(lambda type: type.dtype.is_inexact and is_matrix(type))
    if x is None:
        return ()
    kernel = d.pick(lambda type: type.dtype is x.type.dtype and is_matrix(type))
    assert kernel is not None, "x itself fits"
    (m, n), (k, taps) = x.type.shape, kernel.type.shape
    kinds = ["features", "batch groups" if k % m == 0 else "batch", "feature groups" if k % m == 0 else "batch"]
    kind = d.one_of(kinds if m == k else kinds[1:])
    x_shape = (1, m, n) if kind in ("features", "feature groups") else (m, 1, n)
    kernel_shape = (1, k, taps) if kind == "features" else (k, 1, taps)
    dims = ConvolutionDimensions(*[tuple(d.shuffled(range(3))) for _ in range(3)])
    low, high = d.integer(0, taps), taps + d.integer(0, 2)
    lhs_dilation, rhs_dilation = [d.integer(1, 2) if d.integer(0, 2) == 0 else 1 for _ in range(2)]
    op = Convolution(
        (d.integer(1, 2),),
        ((low, high),),
        (lhs_dilation,),
        (rhs_dilation,),
        (d.flip(),),
        dims,
        feature_group_count=m if kind == "feature groups" else 1,
        batch_group_count=m if kind == "batch groups" else 1,
    )
    return d.emit(op, _arranged(d, x, x_shape, dims.input), _arranged(d, kernel, kernel_shape, dims.kernel))


def _arranged(d: Drawing, x: Value, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Value:
    """`x` with entry i of the shape in dimension `dimensions[i]`."""
    target = [0] * len(shape)
    for size, dimension in zip(shape, dimensions, strict=True):
        target[dimension] = size
    return d.b.emit1(Reshape(tuple(target)), x)


ROWS = (Row((DotGeneral,), _dot, 2), Row((Convolution,), _convolution))
