"""Random arrays for graphs, with what is special among the numbers, and their comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Graph
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.types import TensorType
from rematc.ir.values import Array

_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)


def array_of(type: TensorType, random: np.random.Generator, special: float = 0.3) -> Array:
    """An array of this type; of the floats this share are zeros of both signs, ones, infinities and NaNs."""
    if type.dtype.is_bool:
        return random.integers(0, 2, type.shape).astype(np.bool_)
    if type.dtype.is_integer:
        return random.integers(-3, 4, type.shape).astype(type.dtype.numpy)
    shape = (*type.shape, 2) if type.dtype.is_complex else type.shape
    drawn = random.normal(size=shape)
    chosen = np.where(random.random(shape) < special, random.choice(np.array(_SPECIAL), shape), drawn)
    if type.dtype.is_complex:
        return chosen.view(np.complex128)[..., 0].astype(type.dtype.numpy)
    return np.asarray(chosen).astype(type.dtype.numpy)


def arguments_for(graph: Graph, seed: int = 0, special: float = 0.3) -> list[Array]:
    """Arguments of the parameters' types."""
    random = np.random.default_rng(seed)
    return [array_of(type, random, special) for type in graph.param_types]


def same_bits(found: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Whether arrays are equal to the sign of a zero; all NaNs are alike."""
    return all(_same_bits(x, y) for x, y in zip(found, expected, strict=True))


def _same_bits(x: Array, y: Array) -> bool:
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind in "biu":
        return bool(np.array_equal(x, y))
    if x.dtype.kind == "c":
        half = f"f{x.dtype.itemsize // 2}"
        x, y = (np.ascontiguousarray(part).reshape(-1).view(half) for part in (x, y))
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    is_nan = np.isnan(wide_x)
    return bool(
        np.array_equal(wide_x, wide_y, equal_nan=True)
        and np.array_equal(np.signbit(wide_x[~is_nan]), np.signbit(wide_y[~is_nan]))
    )


def assert_near(found: Sequence[Array], expected: Sequence[Array], tolerance: float) -> None:
    """Equal but for so much of an element, and of one."""
    pairs: Sequence[tuple[Numeric, Numeric]] = list(zip(found, expected, strict=True))
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
