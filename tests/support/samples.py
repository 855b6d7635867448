"""Sample applications of ops: each row drives all rules of its op (tests/ir/test_op_rules.py).

A family of ops has a file `tests/support/op_samples/<family>.py` that exposes `SAMPLES`:

    SAMPLES = (
        Sample(Sine(), (normal(F32, 3, 4),), differentiable=(0,), jax=lax.sin),
        Sample(Sine(), (literal(F32, [0.0, -0.0, math.inf, math.nan]),), label="special", signed_zeros=True),
    )

Operands are made by factories from a seeded generator, so rows are cheap to import and give the same arrays each time.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import rematc.ir.ops
from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.types import F64, DType, Kind, TensorType, dtype_of_numpy
from rematc.ir.values import Array

Factory = Callable[[np.random.Generator], Array]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be from what is expected, and why it is not exact.

    Attributes:
        relative: to the expected element.
        absolute: in the result's own unit.
        reason: what rounds differently.
    """

    relative: float
    absolute: float
    reason: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One application of an op.

    Attributes:
        op: the op with its parameters.
        operands: a factory for each operand.
        differentiable: the operands that get a tangent; none for rows that only check values.
        jax: the same function in JAX, of the same operands, where there is one; its result is an array or a tuple.
        tolerance: of XLA and JAX against the reference; by default a few units in the last place (`tolerance_of`).
        step: of central differences, in double precision; None where the op has a kink, a pole or a rounding there,
            so that only JAX judges the derivative.
        tangent_rounding: the relative rounding that the op makes of tangents on purpose (`reduce_precision`).
        signed_zeros: whether zeros of the results must agree in sign (rows of special values).
        label: sets rows of one op and one type apart.
    """

    op: Op
    operands: tuple[Factory, ...]
    differentiable: tuple[int, ...] = ()
    jax: Callable[..., Any] | None = None
    tolerance: Tolerance | None = None
    step: float | None = 1e-5
    tangent_rounding: float = 0.0
    signed_zeros: bool = False
    label: str = ""

    @property
    def id(self) -> str:
        types = ",".join(str(type) for type in self.types)
        return f"{self.op.name}-{types}-{self.label}" if self.label else f"{self.op.name}-{types}"

    def arrays(self) -> list[Array]:
        """The operands."""
        random = np.random.default_rng(17)
        return [make(random) for make in self.operands]

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(type_of(array) for array in self.arrays())


# -- operands ----------------------------------------------------------------------------------------------------------


def normal(dtype: DType, *shape: int, scale: float = 1.0) -> Factory:
    """Numbers around 0; complex ones in both parts."""

    def make(random: np.random.Generator) -> Array:
        values = random.standard_normal(shape) * scale
        if dtype.is_complex:
            return np.asarray(values + 1j * random.standard_normal(shape) * scale, dtype.numpy)
        return np.asarray(values, dtype.numpy)

    return make


def uniform(dtype: DType, low: float, high: float, *shape: int) -> Factory:
    """Numbers between `low` and `high`; complex ones in both parts."""

    def make(random: np.random.Generator) -> Array:
        values = random.uniform(low, high, shape)
        if dtype.is_complex:
            return np.asarray(values + 1j * random.uniform(low, high, shape), dtype.numpy)
        return np.asarray(values, dtype.numpy)

    return make


def integers(dtype: DType, low: int, high: int, *shape: int) -> Factory:
    """Whole numbers, `low` and `high` among them, of any element type."""
    return lambda random: random.integers(low, high, shape, endpoint=True).astype(dtype.numpy)


def booleans(*shape: int) -> Factory:
    """Truth values."""
    return lambda random: random.integers(0, 1, shape, endpoint=True).astype(np.bool_)


def distinct(dtype: DType, *shape: int) -> Factory:
    """Numbers around 0 in random order, no two less than 0.25 apart: for extrema and sorts, which jump at ties."""

    def make(random: np.random.Generator) -> Array:
        count = int(np.prod(shape))
        return np.asarray((random.permutation(count) - count / 2 + 0.25) / 4, dtype.numpy).reshape(shape)

    return make


def literal(dtype: DType, values: Any) -> Factory:
    """These numbers."""

    def make(random: np.random.Generator) -> Array:
        with np.errstate(all="ignore"):  # edges of one type may be beyond the other's
            return np.asarray(values).astype(dtype.numpy)

    return make


# -- rows --------------------------------------------------------------------------------------------------------------


def _modules(package: Any) -> list[Any]:
    found = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in found]


@cache
def families() -> dict[str, tuple[Sample, ...]]:
    """The rows of each file in `tests/support/op_samples`. Enters every op in the registry, too."""
    op_samples = importlib.import_module("tests.support.op_samples")
    _modules(rematc.ir.ops)
    return {module.__name__.rpartition(".")[2]: module.SAMPLES for module in _modules(op_samples)}


@cache
def rows() -> dict[str, tuple[str, int]]:
    """Family and index of each row, by an id unique to it."""
    found: dict[str, tuple[str, int]] = {}
    for family, samples in families().items():
        for index, sample in enumerate(samples):
            key, count = f"{family}-{sample.id}", 1
            while key in found:
                count += 1
                key = f"{family}-{sample.id}-{count}"
            found[key] = (family, index)
    return found


# -- what the checks share ---------------------------------------------------------------------------------------------


def type_of(array: Array) -> TensorType:
    """The type of a value that holds this array."""
    dtype = dtype_of_numpy(array.dtype)
    assert dtype is not None, f"no element type for {array.dtype}"
    return TensorType(dtype, array.shape)


def graph_of(op: Op, types: Sequence[TensorType]) -> Graph:
    """The graph of one equation."""
    b = Builder("sample")
    params = [b.parameter(type) for type in types]
    return b.build(*b.emit(op, *params))


def in_double(array: Array) -> Numeric:
    """Floats as float64, complex numbers as complex128, others as they are."""
    dtype = type_of(array).dtype
    if not dtype.is_inexact:
        return array
    return array.astype(np.complex128 if dtype.is_complex else np.float64)


def epsilon(dtype: DType) -> float:
    """One unit in the last place of 1."""
    if not dtype.is_inexact:
        return 0.0
    part = np.empty(0, dtype.numpy).real.dtype if dtype.is_complex else dtype.numpy
    return float(ml_dtypes.finfo(part).eps)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it unannotated


def tolerance_of(sample: Sample, expected: Array) -> Tolerance:
    """The sample's tolerance; by default 8 units in the last place."""
    if sample.tolerance is not None:
        return sample.tolerance
    unit = epsilon(type_of(expected).dtype)
    return Tolerance(
        8 * unit, 8 * unit * min(1, magnitude(expected)), "XLA and NumPy approximate functions differently"
    )


def magnitude(array: Array) -> float:
    """The largest finite absolute value."""
    if not type_of(array).dtype.is_inexact:
        return 0.0
    values = np.abs(in_double(array))
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


def assert_close(actual: Array, expected: Array, tolerance: Tolerance, signed_zeros: bool = False) -> None:
    """Same type, same elements within the tolerance, the same NaNs and infinities; on request the same zeros."""
    assert type_of(actual) == type_of(expected)
    if not type_of(expected).dtype.is_inexact:
        np.testing.assert_array_equal(actual, expected)
        return
    np.testing.assert_allclose(
        in_double(actual), in_double(expected), tolerance.relative, tolerance.absolute, err_msg=tolerance.reason
    )
    if signed_zeros and type_of(expected).dtype.kind is Kind.FLOAT:
        is_zero = in_double(expected) == 0
        np.testing.assert_array_equal(np.signbit(in_double(actual)[is_zero]), np.signbit(in_double(expected)[is_zero]))


def is_double(sample: Sample) -> bool:
    """Whether all inexact operands are in double precision."""
    return all(not type.dtype.is_inexact or epsilon(type.dtype) == epsilon(F64) for type in sample.types)
