"""Elementwise ops: the result at an index depends on the operands at that index alone.

Operands have one shape; there is no implicit broadcasting (StableHLO's rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.types import DTYPES, Kind, TensorType
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value

#: Arrays as rules compute with them; NumPy's stubs give arithmetic to no array of `generic` elements.
Numeric = np.ndarray[tuple[int, ...], np.dtype[Any]]

NUMBERS = frozenset({Kind.INT, Kind.UINT, Kind.FLOAT, Kind.COMPLEX})
SIGNED = frozenset({Kind.INT, Kind.FLOAT, Kind.COMPLEX})
REALS = frozenset({Kind.INT, Kind.UINT, Kind.FLOAT})
INEXACT = frozenset({Kind.FLOAT, Kind.COMPLEX})
FLOATS = frozenset({Kind.FLOAT})
COMPLEX = frozenset({Kind.COMPLEX})
INTEGRAL = frozenset({Kind.BOOL, Kind.INT, Kind.UINT})
INTEGERS = frozenset({Kind.INT, Kind.UINT})
ANY = frozenset(Kind)

ORDERED = frozenset({Kind.BOOL, Kind.INT, Kind.UINT, Kind.FLOAT})

NOT_LINEAR = "does not exist: the op is not linear in any operand"
NO_TANGENT = "does not exist: the operands are integers or booleans"


_WIDE: dict[np.dtype[np.generic], type[np.generic]] = {
    **{dtype.numpy: np.float32 for dtype in DTYPES.values() if dtype.is_float and dtype.bits <= 16},
    **{dtype.numpy: np.int8 for dtype in DTYPES.values() if dtype.kind is Kind.INT and dtype.bits < 8},
    **{dtype.numpy: np.uint8 for dtype in DTYPES.values() if dtype.kind is Kind.UINT and dtype.bits < 8},
}


def widened(x: Array) -> Numeric:
    """`x` in an element type that NumPy computes in: floats to 16 bits as float32, integers to 4 bits as int8."""
    wide = _WIDE.get(x.dtype)
    return x if wide is None else x.astype(wide)


def check_arity(op: Op, operands: Types, count: int) -> None:
    if len(operands) != count:
        raise TypeMismatchError(f"'{op.name}' takes {count} operands, got {len(operands)}")


def check_kind(op: Op, operand: TensorType, kinds: frozenset[Kind]) -> None:
    if operand.dtype.kind not in kinds:
        allowed = ", ".join(sorted(kind.value for kind in kinds))
        raise TypeMismatchError(f"'{op.name}' takes {allowed} elements, got {operand}")


def check_same(op: Op, operands: Types) -> None:
    first = operands[0]
    for other in operands[1:]:
        if other is not first and other != first:
            listed = ", ".join(map(str, operands))
            raise TypeMismatchError(f"'{op.name}' takes operands of one type, got {listed}")


class Elementwise(Op):
    """Family base: operands and result of one type, computed element by element.

    A member gives `evaluate` (NumPy arrays in, one out) and, if it has a derivative, `jvp`. It says what `weight` it
    has if it is less work than a transcendental function.
    """

    __slots__ = ()
    storage = Storage.FUSED
    is_elementwise = True
    arity: ClassVar[int]
    kinds: ClassVar[frozenset[Kind]] = NUMBERS
    no_transpose: ClassVar[str] = NOT_LINEAR

    def evaluate(self, *operands: Numeric) -> Any:
        raise NotImplementedError

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, self.arity)
        check_kind(self, operands[0], self.kinds)
        check_same(self, operands)
        return (operands[0],)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = self.evaluate(*[widened(x) for x in operands])
        return (np.asarray(result).astype(operands[0].dtype),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size if results[0].dtype.is_inexact else 0


class Unary(Elementwise):
    """y = f(x). A differentiable member gives `derivative`: f'(x), from x and y."""

    __slots__ = ()
    arity = 1

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        raise NotImplementedError

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,) = tangents
        if t is None:
            return (None,)
        return (b.multiply(t, self.derivative(b, primals[0], results[0])),)


class InverseFunction(Unary):
    """y = f(x), where x = g(y). A member gives `slope`, g'(y), from x and y: f'(x) = 1 / g'(y)."""

    __slots__ = ()

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        raise NotImplementedError

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,) = tangents
        if t is None:
            return (None,)
        return (b.divide(t, self.slope(b, primals[0], results[0])),)


class StepUnary(Unary):
    """A unary op that is constant between isolated points: its tangent is a symbolic zero."""

    __slots__ = ()
    weight = Weight.LIGHT

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None,)


class Binary(Elementwise):
    """z = f(x, y). A differentiable member gives `tangent_x` and `tangent_y`: the tangent of z from one operand's."""

    __slots__ = ()
    arity = 2

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        raise NotImplementedError

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        raise NotImplementedError

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, y), (z,), (tx, ty) = primals, results, tangents
        from_x = None if tx is None else self.tangent_x(b, tx, x, y, z)
        from_y = None if ty is None else self.tangent_y(b, ty, x, y, z)
        if from_x is None or from_y is None:
            return (from_y if from_x is None else from_x,)
        return (b.add(from_x, from_y),)


class StepBinary(Binary):
    """A binary op that is constant between isolated points, or has no derivative: its tangent is a symbolic zero."""

    __slots__ = ()

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None,)


def one_plus(b: Emitter, x: Value) -> Value:
    """1 + x."""
    return b.add(b.full(x.type, 1), x)


def one_minus(b: Emitter, x: Value) -> Value:
    """1 - x."""
    return b.subtract(b.full(x.type, 1), x)


def square(b: Emitter, x: Value) -> Value:
    """x^2."""
    return b.multiply(x, x)
