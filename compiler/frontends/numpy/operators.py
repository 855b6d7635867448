"""Python's operators on tracers. They are ufuncs, except that Python scalars stay Python scalars among themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy.operands import enter, fail
from rematc.compiler.frontends.numpy.outputs import check_target, fits, write
from rematc.compiler.frontends.numpy.promotion import kind_of
from rematc.compiler.frontends.numpy.refusals import refuse
from rematc.compiler.frontends.numpy.shaping import astype
from rematc.compiler.frontends.numpy.ufuncs import call_ufunc
from rematc.compiler.tracing.trace import Tracer

Binary = Callable[[Tracer, object], Tracer]


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
        if ufunc is np.multiply and isinstance(other, (list, tuple)) and not self.shape and self.dtype.kind in "iu":
            fail(
                f"a {type(other).__name__} is repeated a traced number of times, but the number is not known while "
                "tracing; pass it as static (static_argnums), or make an array of the list to multiply its elements"
            )
        return _weakened(ufunc, other, self)

    return apply


def in_place(ufunc: np.ufunc) -> Binary:
    """`x += y`: written into the array x, which keeps its dtype and shape; of a scalar, the name has a new one."""
    compute = power if ufunc is np.power else operator(ufunc)

    def apply(self: Tracer, other: object) -> Tracer:
        if self.weak or (not self.ndim and self.place is None):
            return _scalar_updated(ufunc, self, compute(self, other))
        name = f"np.{ufunc.__name__}"
        enter(self)
        check_target(self, name)
        result = compute(self, other)
        if not isinstance(result, Tracer):
            return result
        return write(result, self, name)

    return apply


def _scalar_updated(ufunc: np.ufunc, scalar: Tracer, result: Tracer) -> Tracer:
    """The result; that of a parameter, which may be an array without dimensions, in the parameter's dtype."""
    if not isinstance(result, Tracer) or scalar.weak or result.value.type == scalar.value.type:
        return result
    if scalar.value not in scalar.owner.builder.params:
        return result
    if result.shape or not fits(result, scalar):
        refuse(
            scalar,
            f"{scalar.value.type} is updated in place by np.{ufunc.__name__} with a result {result.value.type}, which "
            f"NumPy cannot write into it; make a new array: x = np.{ufunc.__name__}(x, y)",
        )
    return astype(result, scalar.dtype)


def _weakened(ufunc: np.ufunc, *operands: object) -> Tracer:
    """The ufunc as an operator: of Python scalars it makes a Python scalar, where the ufunc makes an array."""
    result = call_ufunc(ufunc, *operands)
    assert isinstance(result, Tracer)
    if all(_is_weak(x) for x in operands):
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


def power(base: Tracer, exponent: object, modulo: None = None) -> Tracer:
    """`x ** y`, where x is traced."""
    if modulo is not None:
        refuse(base, "pow(x, y, z) is of Python's integers; write x**y % z")
    if not _is_operand(exponent):
        return NotImplemented  # type: ignore[no-any-return]  # Python's protocol
    enter(base)
    # Python's own rule for its numbers: an integer to a negative power is a float.
    if kind_of(base) is int and isinstance(exponent, int) and exponent < 0:
        base = _weakened(np.multiply, base, 1.0)
    if type(exponent) is int and exponent == 2 and base.dtype == np.bool_ and (base.shape or base.place):
        # NumPy's arrays have squares of their own, of booleans in int8.
        return _weakened(np.square, base)
    return _weakened(np.power, base, exponent)
