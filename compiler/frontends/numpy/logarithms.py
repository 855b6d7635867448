"""logsumexp, softmax and log_softmax of scipy.special, which are no ufuncs: SciPy does not ask its arguments.

With SCIPY_ARRAY_API=1 SciPy's own trace; these do without. They stand in `rematc.numpy.special`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from rematc.compiler.frontends.numpy.elementwise import is_finite, stopped
from rematc.compiler.frontends.numpy.operands import (
    as_operand,
    dispatching,
    enter,
    fail,
    here,
    is_traced,
    value_of,
    wrap,
)

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any


def _largest(x: Traced, axis: Any) -> Traced:
    """The largest elements, without a tangent; 0 where they are infinite."""
    largest = dispatching.max(x, axis=axis, keepdims=True)
    b, value = here(), value_of(largest)
    fixed = b.select(is_finite(b, value), value, b.zeros(value.type))
    return wrap(stopped(b, fixed))


def _floating(a: Any) -> Traced:
    x: Traced = wrap(value_of(as_operand(a)))
    if np.issubdtype(x.dtype, np.complexfloating):
        fail("rematc.numpy.special takes real numbers here; set SCIPY_ARRAY_API=1 before importing SciPy for its own")
    return x if np.issubdtype(x.dtype, np.floating) else x.astype(float)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """As scipy.special.logsumexp."""
    if not is_traced((a, b)):
        return scipy.special.logsumexp(a, axis, b, keepdims, return_sign)
    enter(a, b)
    x = _floating(a)
    if b is not None:
        weights = as_operand(b)
        x = dispatching.where(dispatching.equal(weights, 0), -np.inf, x)
    largest = _largest(x, axis)
    terms = dispatching.exp(x - largest)
    total = dispatching.sum(terms if b is None else weights * terms, axis=axis, keepdims=keepdims)
    shift = largest if keepdims else dispatching.reshape(largest, total.shape)
    if return_sign:
        return dispatching.log(dispatching.abs(total)) + shift, dispatching.sign(total)
    return dispatching.log(total) + shift


def softmax(x: Any, axis: Any = None) -> Any:
    """As scipy.special.softmax."""
    if not is_traced(x):
        return scipy.special.softmax(x, axis)
    enter(x)
    given = _floating(x)
    terms = dispatching.exp(given - _largest(given, axis))
    return terms / dispatching.sum(terms, axis=axis, keepdims=True)


def log_softmax(x: Any, axis: Any = None) -> Any:
    """As scipy.special.log_softmax."""
    if not is_traced(x):
        return scipy.special.log_softmax(x, axis)
    enter(x)
    given = _floating(x)
    shifted = given - _largest(given, axis)
    return shifted - dispatching.log(dispatching.sum(dispatching.exp(shifted), axis=axis, keepdims=True))


FUNCTIONS: dict[str, Callable[..., Any]] = {"logsumexp": logsumexp, "softmax": softmax, "log_softmax": log_softmax}
