"""Running sums, products, extrema and log-sums along a dimension, and the recurrence that their derivatives are.

Result i combines elements 0 to i of its line; reversed, elements i to the last.

Each of them is y_i = f(y_{i-1}, x_i), so that its tangent obeys t_i = a_i t_{i-1} + b_i with the derivatives of f for
a_i and b_i / dx_i: `linear_recurrence`, which is linear in b and its own transpose in the other direction. No
division is made, so that the derivative of a product is right where elements are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.elementwise import (
    FLOATS,
    INEXACT,
    NOT_LINEAR,
    NUMBERS,
    ORDERED,
    Numeric,
    check_arity,
    check_kind,
    check_same,
    widened,
)
from rematc.ir.ops.reduction import highest, lowest
from rematc.ir.ops.shape import check_dimensions
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, except_along
from rematc.ir.types import I32, I64, DType, Kind, TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value, known


class Cumulative(Op):
    """Family base: each element of a line combined with those before it.

    A member gives `function`, NumPy's ufunc that combines two, and the derivative.
    """

    __slots__ = ()
    dimension: int
    is_reversed: bool
    function: ClassVar[np.ufunc]
    kinds: ClassVar[frozenset[Kind]] = NUMBERS
    no_transpose: ClassVar[str] = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, self.kinds)
        check_dimensions(self, (self.dimension,), x.rank)
        return (x,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        lines = _turned(self, widened(x))
        with np.errstate(all="ignore"):
            found = type(self).function.accumulate(lines, self.dimension, dtype=lines.dtype)
        return (np.ascontiguousarray(_turned(self, found)).astype(x.dtype),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(with_fields(self, dimension=self.dimension + 1), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return except_along(self.dimension, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size if results[0].dtype.is_inexact else 0

    def before(self, b: Emitter, x: Value, fill: Any) -> Value:
        """For each place the element of `x` that comes before it, and `fill` for the first."""
        return _moved(b, x, self.dimension, -1 if self.is_reversed else 1, fill)

    def recurrence(self, b: Emitter, factors: Value, terms: Value) -> Value:
        """The tangents t_i = factors_i t_{i-1} + terms_i, in this op's direction."""
        return b.emit1(LinearRecurrence(self.dimension, self.is_reversed), factors, terms)


def _turned(op: Cumulative | LinearRecurrence, x: Numeric) -> Numeric:
    return np.flip(x, op.dimension) if op.is_reversed else x


def _moved(b: Emitter, x: Value, dimension: int, distance: int, fill: Any) -> Value:
    """`x` moved along a dimension; what comes in is `fill`, what goes out is lost."""
    low = [distance if d == dimension else 0 for d in range(x.type.rank)]
    if not x.type.shape[dimension]:
        return x
    return b.pad(x, b.full(x.type.with_shape(()), fill), low, [-n for n in low])


@register
@dataclass(frozen=True, slots=True)
class CumulativeSum(Cumulative):
    """Running sums. Its transpose sums in the other direction."""

    name = "cumulative_sum"
    dimension: int
    is_reversed: bool = False
    function = np.add
    no_transpose = ""

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(CumulativeSum(self.dimension, not self.is_reversed), cts[0]),)


@register
@dataclass(frozen=True, slots=True)
class CumulativeProduct(Cumulative):
    """Running products: t_i = x_i t_{i-1} + y_{i-1} dx_i."""

    name = "cumulative_product"
    dimension: int
    is_reversed: bool = False
    function = np.multiply

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (y,), (t,) = primals, results, tangents
        if t is None:
            return (None,)
        return (self.recurrence(b, x, b.multiply(self.before(b, y, 1), t)),)


class CumulativeExtremum(Cumulative):
    """Family base of running extrema: the first of equal extrema has the derivative."""

    __slots__ = ()
    kinds = ORDERED
    #: the direction in which an element compares to the extremum before it where it is the new one
    better: ClassVar[str]

    def neutral(self, dtype: DType) -> Any:
        """What every element is as good as."""
        raise NotImplementedError

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (y,), (t,) = primals, results, tangents
        if t is None:
            return (None,)
        places = TensorType(I32 if x.type.size < 2**31 else I64, x.type.shape)
        first = b.full(places, x.type.shape[self.dimension] - 1 if self.is_reversed else 0)
        is_first = b.compare(b.iota(places, self.dimension), first, "EQ")
        is_better = b.compare(x, self.before(b, y, self.neutral(x.type.dtype)), self.better)
        is_new = b.logical_or(is_first, is_better)
        zero, one = b.zeros(t.type), b.full(t.type, 1)
        return (self.recurrence(b, b.select(is_new, zero, one), b.select(is_new, t, zero)),)


@register
@dataclass(frozen=True, slots=True)
class CumulativeMax(CumulativeExtremum):
    """Running maxima; NaN from the first NaN on."""

    name = "cumulative_max"
    dimension: int
    is_reversed: bool = False
    function = np.maximum
    better = "GT"

    def neutral(self, dtype: DType) -> Any:
        return lowest(dtype)


@register
@dataclass(frozen=True, slots=True)
class CumulativeMin(CumulativeExtremum):
    """Running minima; NaN from the first NaN on."""

    name = "cumulative_min"
    dimension: int
    is_reversed: bool = False
    function = np.minimum
    better = "LT"

    def neutral(self, dtype: DType) -> Any:
        return highest(dtype)


@register
@dataclass(frozen=True, slots=True)
class CumulativeLogsumexp(Cumulative):
    """The logarithm of running sums of e^x: t_i = e^(y_{i-1} - y_i) t_{i-1} + e^(x_i - y_i) dx_i, all factors <= 1."""

    name = "cumulative_logsumexp"
    dimension: int
    is_reversed: bool = False
    function = np.logaddexp
    kinds = FLOATS

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (y,), (t,) = primals, results, tangents
        if t is None:
            return (None,)
        lowest = b.full(y.type, -np.inf)
        # As long as all is e^-inf, so is each share.
        total = b.select(b.compare(y, lowest, "EQ"), b.zeros(y.type), y)
        factors = b.exponential(b.subtract(self.before(b, y, -np.inf), total))
        return (self.recurrence(b, factors, b.multiply(b.exponential(b.subtract(x, total)), t)),)

    def flops(self, operands: Types, results: Types) -> int:
        return 4 * results[0].size


@register
@dataclass(frozen=True, slots=True)
class LinearRecurrence(Op):
    """y_i = a_i y_{i-1} + x_i along `dimension`, of operands a and x; y before the first is 0. Linear in x.

    Its tangent is that of x and of a_i's share da_i y_{i-1}, carried on by the same recurrence.
    """

    name = "linear_recurrence"
    dimension: int
    is_reversed: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        check_same(self, operands)
        check_kind(self, operands[0], INEXACT)
        check_dimensions(self, (self.dimension,), operands[0].rank)
        return (operands[1],)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        factors, terms = [np.moveaxis(_turned(self, widened(x)), self.dimension, 0) for x in operands]
        found: Numeric = np.array(terms)
        with np.errstate(all="ignore"):
            for i in range(1, len(found)):
                found[i] += factors[i] * found[i - 1]
        lines = np.moveaxis(found, 0, self.dimension)
        return (np.ascontiguousarray(_turned(self, lines)).astype(operands[1].dtype),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (a, _), (y,), (ta, tx) = primals, results, tangents
        terms = tx
        if ta is not None:
            before = _moved(b, y, self.dimension, -1 if self.is_reversed else 1, 0)
            share = b.multiply(ta, before)
            terms = share if tx is None else b.add(share, tx)
        return (None if terms is None else b.emit1(self, a, terms),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        """The cotangent of x_i is c_i plus a_{i+1} times that of x_{i+1}."""
        (ct,), (a, _) = cts, operands
        if ct is None:
            return (None, None)
        a = known(a, "linear_recurrence is not linear in its factors")
        following = _moved(b, a, self.dimension, 1 if self.is_reversed else -1, 0)
        return (None, b.emit1(LinearRecurrence(self.dimension, not self.is_reversed), following, ct))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        op = LinearRecurrence(self.dimension + 1, self.is_reversed)
        return b.emit(op, *batch.all_batched(b))

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return except_along(self.dimension, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return 2 * results[0].size
