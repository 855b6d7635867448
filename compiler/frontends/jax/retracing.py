"""Jaxprs that JAX makes of an equation: its derivative, the adjoint of its derivative, the equation of a batch.

They go through the same importer as the user's function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from rematc.ir.collecting import users_code
from rematc.lowering.jax_internals.jaxprs import apply_equation, pulled_back
from rematc.lowering.jax_internals.keys import is_key
from rematc.lowering.jax_internals.shardings import explicit_sharding, varying_axes_of
from rematc.lowering.jax_internals.types import is_float0, is_weak

#: What a rule of the user's, or of JAX's, may raise where it is traced.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


def trace(function: Callable[..., Any], avals: Sequence[Any]) -> Any:
    """The closed jaxpr of a function of arrays of these abstract values, in the arithmetic they have."""
    with in_arithmetic_of(avals), users_code():
        return jax.make_jaxpr(function)(*structs(avals))


def structs(avals: Sequence[Any], *, is_alike: bool = False) -> list[Any]:
    """What JAX traces a function of arrays of these abstract values with; `is_alike`: as if devices had the same."""
    struct: Any = jax.ShapeDtypeStruct
    return [
        aval
        if not is_alike and varying_axes_of(aval)  # which a struct does not say
        else struct(
            aval.shape,
            aval.dtype,
            weak_type=is_weak(aval),
            sharding=explicit_sharding(aval),
        )
        for aval in avals
    ]


@contextmanager
def in_arithmetic_of(avals: Sequence[Any]) -> Iterator[None]:
    """With 64-bit arithmetic where one of the values has it."""
    with jax.enable_x64(True) if any(_is_wide(aval.dtype) for aval in avals) else nullcontext():
        yield


def _is_wide(dtype: Any) -> bool:
    return not is_key(dtype) and np.dtype(dtype) in (
        np.dtype(np.float64),
        np.dtype(np.complex128),
        np.dtype(np.int64),
        np.dtype(np.uint64),
    )


def jvp_of(eqn: Any, wrt: Sequence[bool]) -> Any:
    """The closed jaxpr (inputs, tangents of those in `wrt`) -> (outputs, tangents of the inexact ones).

    Raises what JAX's rule for the primitive, or the user's, raises.
    """
    return _derivative_of(eqn, wrt, jax.jvp)


def linearization_of(eqn: Any, wrt: Sequence[bool]) -> Any:
    """As `jvp_of`, of an equation that maps a function: one equation gives values alone, another one tangents."""

    def linearized(function: Any, primals: Any, tangents: Any) -> Any:
        results, linear = jax.linearize(function, *primals)
        return results, linear(*tangents)

    return _derivative_of(eqn, wrt, linearized)


def _derivative_of(eqn: Any, wrt: Sequence[bool], jvp: Callable[..., Any]) -> Any:
    avals = [atom.aval for atom in eqn.invars]
    count = len(avals)

    def derivative(*arrays: Any) -> list[Any]:
        primals, tangents = arrays[:count], arrays[count:]

        def function(*moving: Any) -> list[Any]:
            given = iter(moving)
            return apply_equation(
                eqn, [next(given) if is_set else one for one, is_set in zip(primals, wrt, strict=True)]
            )

        moving = [one for one, is_set in zip(primals, wrt, strict=True) if is_set]
        results, derivatives = jvp(function, moving, list(tangents))
        return [*results, *[one for one in derivatives if not is_float0(one.dtype)]]

    return trace(derivative, [*avals, *[aval for aval, is_set in zip(avals, wrt, strict=True) if is_set]])


def _in_type_of(ct: Any, aval: Any) -> Any:
    if is_float0(aval.dtype) or is_key(aval.dtype) or ct.dtype == aval.dtype:
        return ct
    return jax.lax.convert_element_type(ct, aval.dtype)


def backward_of(eqn: Any) -> Any:
    """The closed jaxpr (residuals, cts of the inexact outputs) -> cts, of an equation that stands for a linear map
    with a backward rule: JAX's `custom_lin`.
    """
    count, rule = eqn.params["num_res"], eqn.params["bwd"]
    outputs = [variable.aval for variable in eqn.outvars]
    is_zero = eqn.params["in_zeros"]
    inputs = [atom.aval for atom in eqn.invars]
    # What the forward rule keeps as a Python value, its backward rule may branch on.
    fixed = [atom.val if isinstance(atom, Literal) else None for atom in eqn.invars[:count]]

    def backward(*arrays: Any) -> list[Any]:
        given = iter(arrays[count:])
        residuals = [one if value is None else value for one, value in zip(arrays[:count], fixed, strict=True)]
        cts = [np.zeros(aval.shape, aval.dtype) if is_float0(aval.dtype) else next(given) for aval in outputs]
        found = pulled_back(rule, residuals, cts)
        given_back = [ct for ct, is_set in zip(found, is_zero, strict=True) if not is_set]
        # JAX takes what a rule gives for narrow arguments in float32, too.
        return [_in_type_of(ct, aval) for ct, aval in zip(given_back, inputs[count:], strict=True)]

    return trace(backward, [*inputs[:count], *[aval for aval in outputs if not is_float0(aval.dtype)]])
