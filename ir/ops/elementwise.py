"""Elementwise ops: the result at an index depends on the operands at that index alone.

Operands have one shape; there is no implicit broadcasting (StableHLO's rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rematc.ir.core import Array, Derivatives, Emitter, Op, Primals, Tangents, Types, Value
from rematc.ir.errors import TypeMismatchError
from rematc.ir.types import Kind, TensorType

NUMBERS = frozenset({Kind.INT, Kind.UINT, Kind.FLOAT, Kind.COMPLEX})
SIGNED = frozenset({Kind.INT, Kind.FLOAT, Kind.COMPLEX})
REALS = frozenset({Kind.INT, Kind.UINT, Kind.FLOAT})
INEXACT = frozenset({Kind.FLOAT, Kind.COMPLEX})
FLOATS = frozenset({Kind.FLOAT})
INTEGRAL = frozenset({Kind.BOOL, Kind.INT, Kind.UINT})
INTEGERS = frozenset({Kind.INT, Kind.UINT})
ANY = frozenset(Kind)

NOT_LINEAR = "does not exist: the op is not linear in any operand"
PIECEWISE_CONSTANT = "is zero wherever it exists: the op is piecewise constant"


def widened(x: Array) -> Array:
    """`x` in an element type that NumPy computes in: 16-bit and narrower floats become float32."""
    return x.astype(np.float32) if x.dtype.itemsize <= 2 and _is_float(x.dtype) else x


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind in "fV"  # ml_dtypes' types are of kind V


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

    A member gives `evaluate` (NumPy arrays in, one out) and, if it has a derivative, `jvp`.
    """

    __slots__ = ()
    arity: ClassVar[int]
    kinds: ClassVar[frozenset[Kind]] = NUMBERS
    no_transpose: ClassVar[str] = NOT_LINEAR

    def evaluate(self, *operands: Array) -> Any:
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


class StepUnary(Unary):
    """A unary op that is constant between isolated points: its tangent is a symbolic zero."""

    __slots__ = ()

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
