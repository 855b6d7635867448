"""Python's operators on tracers. They are ufuncs, except that Python scalars stay Python scalars among themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from rematc.compiler.numpy.operands import enter, fail
from rematc.compiler.numpy.promotion import kind_of
from rematc.compiler.numpy.shaping import astype
from rematc.compiler.numpy.ufuncs import call_ufunc
from rematc.compiler.tracing.trace import Tracer

Binary = Callable[[Tracer, object], Tracer]


def refuse(tracer: Tracer, message: str) -> NoReturn:
    """Raise CompileError at the user's line."""
    enter(tracer)
    fail(message)


def _is_operand(x: object) -> bool:
    return isinstance(x, (Tracer, np.ndarray, int, float, complex, np.generic, list, tuple)) or (
        getattr(x, "__array_ufunc__", True) is not None and hasattr(x, "__array__")
    )


def operator(ufunc: np.ufunc) -> Binary:
    """`x + y`, where x is traced."""

    def apply(self: Tracer, other: object) -> Tracer:
        if not _is_operand(other):
            return NotImplemented  # type: ignore[no-any-return]  # Python's protocol
        enter(self)
        return _weakened(ufunc, self, other)

    return apply


def reflected(ufunc: np.ufunc) -> Binary:
    """`y + x`, where x is traced and y could not."""

    def apply(self: Tracer, other: object) -> Tracer:
        if not _is_operand(other):
            return NotImplemented  # type: ignore[no-any-return]  # Python's protocol
        enter(self)
        return _weakened(ufunc, other, self)

    return apply


def in_place(ufunc: np.ufunc) -> Binary:
    """`x += y`: NumPy writes into x, which therefore keeps its shape and dtype. The name is bound to a new array."""
    compute = power if ufunc is np.power else operator(ufunc)

    def apply(self: Tracer, other: object) -> Tracer:
        result = compute(self, other)
        if not isinstance(result, Tracer) or self.weak or result.value.type == self.value.type:
            return result
        if result.shape != self.shape or not _fits(result, self):
            refuse(
                self,
                f"{self.value.type} is updated in place by np.{ufunc.__name__} with a result {result.value.type}, "
                f"which NumPy cannot write into it; make a new array: x = np.{ufunc.__name__}(x, y)",
            )
        return astype(result, self.dtype)

    return apply


def _fits(result: Tracer, target: Tracer) -> bool:
    """Whether NumPy writes one dtype into the other (casting "same_kind")."""
    both_float = result.value.type.dtype.is_float and target.value.type.dtype.is_float
    return both_float or np.can_cast(result.dtype, target.dtype, "same_kind")


def refused(message: str) -> Callable[..., NoReturn]:
    """A method of NumPy's arrays that a tracer does not have."""

    def apply(self: Tracer, *arguments: object, **options: object) -> NoReturn:
        refuse(self, message)

    return apply


def _weakened(ufunc: np.ufunc, x: object, y: object) -> Tracer:
    """The ufunc as an operator: of two Python scalars it makes a Python scalar, where the ufunc makes an array."""
    result = call_ufunc(ufunc, x, y)
    assert isinstance(result, Tracer)
    if _is_weak(x) and _is_weak(y):
        result.weak = True
    return result


def _is_weak(x: object) -> bool:
    if isinstance(x, Tracer):
        return x.weak
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def unary(ufunc: np.ufunc) -> Callable[[Tracer], Tracer]:
    """`-x`, where x is traced."""

    def apply(self: Tracer) -> Tracer:
        enter(self)
        result = call_ufunc(ufunc, self)
        assert isinstance(result, Tracer)
        result.weak = self.weak
        return result

    return apply


def power(base: Tracer, exponent: object) -> Tracer:
    """`x ** y`, where x is traced."""
    if not _is_operand(exponent):
        return NotImplemented  # type: ignore[no-any-return]  # Python's protocol
    enter(base)
    # Python's own rule for its numbers: an integer to a negative power is a float.
    if kind_of(base) is int and isinstance(exponent, int) and exponent < 0:
        base = _weakened(np.multiply, base, 1.0)
    return _weakened(np.power, base, exponent)
