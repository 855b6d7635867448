"""Formulas written with operators: values of one array type, and loops over them that stop where they converge.

Functions that StableHLO lacks are series, continued fractions and recurrences. They are written here once, as equations
of the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops import special, transcendental
from rematc.ir.ops.rounding import Floor
from rematc.ir.ops.while_.op import While
from rematc.ir.types import BOOL, C128, F64, TensorType
from rematc.ir.values import Value
from rematc.passes.jvp import jvp


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A value under a builder, with operators that emit; the other operand may be a Python number.

    Comparisons and `&`, `|`, `~` give and take truth values. `x ** 2` is not offered: a power is a product or `exp`.
    """

    b: Builder
    value: Value

    def like(self, other: Number | complex) -> Number:
        """`other` as a value of this type."""
        if isinstance(other, Number):
            return other
        return Number(self.b, self.b.full(self.value.type, other))

    def apply(self, op: Op) -> Number:
        """A unary op."""
        return Number(self.b, self.b.emit1(op, self.value))

    def __add__(self, other: Number | complex) -> Number:
        return Number(self.b, self.b.add(self.value, self.like(other).value))

    def __radd__(self, other: complex) -> Number:
        return self.like(other) + self

    def __sub__(self, other: Number | complex) -> Number:
        return Number(self.b, self.b.subtract(self.value, self.like(other).value))

    def __rsub__(self, other: complex) -> Number:
        return self.like(other) - self

    def __mul__(self, other: Number | complex) -> Number:
        return Number(self.b, self.b.multiply(self.value, self.like(other).value))

    def __rmul__(self, other: complex) -> Number:
        return self.like(other) * self

    def __truediv__(self, other: Number | complex) -> Number:
        return Number(self.b, self.b.divide(self.value, self.like(other).value))

    def __rtruediv__(self, other: complex) -> Number:
        return self.like(other) / self

    def __neg__(self) -> Number:
        return Number(self.b, self.b.negate(self.value))

    def __abs__(self) -> Number:
        return Number(self.b, self.b.abs(self.value))

    def _compare(self, other: Number | complex, direction: str) -> Number:
        return Number(self.b, self.b.compare(self.value, self.like(other).value, direction))

    def __lt__(self, other: Number | complex) -> Number:
        return self._compare(other, "LT")

    def __le__(self, other: Number | complex) -> Number:
        return self._compare(other, "LE")

    def __gt__(self, other: Number | complex) -> Number:
        return self._compare(other, "GT")

    def __ge__(self, other: Number | complex) -> Number:
        return self._compare(other, "GE")

    def equals(self, other: Number | complex) -> Number:
        """Where both are equal; `==` keeps its meaning for Python."""
        return self._compare(other, "EQ")

    def __and__(self, other: Number) -> Number:
        return Number(self.b, self.b.logical_and(self.value, other.value))

    def __or__(self, other: Number) -> Number:
        return Number(self.b, self.b.logical_or(self.value, other.value))

    def __invert__(self) -> Number:
        return Number(self.b, self.b.logical_not(self.value))


def exp(x: Number) -> Number:
    """e^x."""
    return Number(x.b, x.b.exponential(x.value))


def log(x: Number) -> Number:
    """The natural logarithm."""
    return Number(x.b, x.b.log(x.value))


def log_one_plus(x: Number) -> Number:
    """log(1 + x), accurate near 0."""
    return x.apply(transcendental.LogPlusOne())


def exp_minus_one(x: Number) -> Number:
    """e^x - 1, accurate near 0."""
    return x.apply(transcendental.ExponentialMinusOne())


def sqrt(x: Number) -> Number:
    """The square root."""
    return Number(x.b, x.b.sqrt(x.value))


def sin(x: Number) -> Number:
    """The sine."""
    return Number(x.b, x.b.sine(x.value))


def cos(x: Number) -> Number:
    """The cosine."""
    return Number(x.b, x.b.cosine(x.value))


def floor(x: Number) -> Number:
    """The whole number at or below."""
    return x.apply(Floor())


def log_gamma(x: Number) -> Number:
    """log |gamma(x)|."""
    return x.apply(special.Lgamma())


def erfc(x: Number) -> Number:
    """The complementary error function."""
    return x.apply(special.Erfc())


def where(condition: Number, x: Number | complex, y: Number | complex) -> Number:
    """x where the condition holds, else y; at least one of them is a `Number`.

    What is chosen from decides derivatives as well: at ties `maximum` would halve them.
    """
    model = x if isinstance(x, Number) else y
    assert isinstance(model, Number)
    chosen = model.b.select(condition.value, model.like(x).value, model.like(y).value)
    return Number(model.b, chosen)


def minimum(x: Number, y: Number | complex) -> Number:
    """The smaller one."""
    return Number(x.b, x.b.minimum(x.value, x.like(y).value))


def maximum(x: Number, y: Number | complex) -> Number:
    """The larger one."""
    return Number(x.b, x.b.maximum(x.value, x.like(y).value))


def from_parts(x: Number, y: Number) -> Number:
    """x + iy."""
    return Number(x.b, x.b.from_parts(x.value, y.value))


def real(z: Number) -> Number:
    """The real part."""
    return Number(z.b, z.b.real(z.value))


def imag(z: Number) -> Number:
    """The imaginary part."""
    return Number(z.b, z.b.imag(z.value))


def polynomial(coefficients: Sequence[float], x: Number) -> Number:
    """The sum of coefficients[k] x^k, by Horner's rule."""
    total = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


Step = Callable[[Number, Sequence[Number], Sequence[Number]], tuple[Sequence[Number], Number]]


def repeat(
    step: Step, carry: Sequence[Number], consts: Sequence[Number], is_active: Number, limit: int
) -> tuple[Number, ...]:
    """Steps k = 1, 2, ..., each element as long as it is active: the last carries.

    Elements that are no longer active keep their carries, so that a result does not depend on its neighbours.

    Args:
        step: (k, consts, carries) to new carries, and where to go on.
        carry: the first carries, arrays of one shape.
        consts: what the steps read besides.
        is_active: where to start at all.
        limit: the most steps.
    """
    outer = is_active.b
    type = is_active.value.type.with_dtype(F64)
    counter = TensorType(F64, ())
    cond, body = Builder("goes_on"), Builder("step")
    types = [counter, is_active.value.type, *[one.value.type for one in carry]]
    k, active, *_ = [cond.parameter(one) for one in types]
    any_active = cond.reduce_or(active, tuple(range(active.type.rank)))
    below = cond.compare(k, cond.constant(np.asarray(float(limit))), "LE")
    conditions = cond.build(cond.logical_and(any_active, below))

    given = [Number(body, body.parameter(one.value.type)) for one in consts]
    k, active, *carried = [body.parameter(one) for one in types]
    old = [Number(body, value) for value in carried]
    index = Number(body, body.broadcast_in_dim(k, type.shape, ()))
    new, goes_on = step(index, given, old)
    mask = Number(body, active)
    kept = [where(mask, one, before).value for one, before in zip(new, old, strict=True)]
    following = body.add(k, body.constant(np.asarray(1.0)))
    steps = body.build(following, (mask & goes_on).value, *kept)

    op = While(conditions, steps, 0, len(consts))
    first = outer.constant(np.asarray(1.0))
    operands = [one.value for one in (*consts, *carry)]
    results = outer.emit(op, *operands[: len(consts)], first, is_active.value, *operands[len(consts) :])
    return tuple([Number(outer, value) for value in results[2:]])


def as_complex(x: Number) -> Number:
    """x + 0i."""
    return Number(x.b, x.b.convert(x.value, C128))


def truth_like(x: Number, is_true: bool) -> Number:
    """A truth value for each element of x."""
    return Number(x.b, x.b.full(x.value.type.with_dtype(BOOL), is_true))


Formula = Callable[..., Number]


def slope_of(formula: Formula, operands: Sequence[Number], index: int) -> Number:
    """The derivative of a formula with respect to one operand: the formula differentiated, sums term by term."""
    inner = Builder("formula")
    params = [inner.parameter(one.value.type) for one in operands]
    graph = inner.build(formula(*[Number(inner, param) for param in params]).value)
    joint = jvp(graph, [position == index for position in range(len(operands))]).graph
    b, (model, *_) = operands[0].b, operands
    _, slope = b.inline(joint, [*[one.value for one in operands], model.like(1.0).value])
    return Number(b, slope)


def by_formula(formula: Formula) -> Callable[..., Sequence[Value]]:
    """The rule of an op with operands of one type: `formula`, in double precision, and rounded once.

    In single precision the formulas miss float32's last digit: at the median by up to 8 of its units, at most by 4
    (the modified Bessel functions of the first kind) to 10^7 (densities). In double precision they miss its last digit
    by up to 2 10^3 units (the incomplete gamma function) and 4 10^3 (beta), those of jax.lax by 2 10^6 and 10^14.
    """

    def rule(b: Builder, op: Op, *operands: Value) -> Sequence[Value]:
        dtype = operands[0].type.dtype
        wide = C128 if dtype.is_complex else F64
        found = formula(*[Number(b, b.convert(x, wide)) for x in operands])
        return [b.convert(found.value, dtype)]

    return rule
