"""Analysis: which values of a jaxpr are useful, i.e. may have a derivative that the jaxpr's results depend on.

Before:  b = custom_vjp_call a; c = stop_gradient b; d = mul a c      results: d
After:   d and a are useful, b and c are not

The other half of an activity analysis, whether a tangent reaches a value at all, is `Varying`. (Hascoët,
Naumann, Pascual, "To be recorded analysis in reverse-mode automatic differentiation", 2005.)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from rematc.ir.builder import Builder
from rematc.ir.ops.structural import StopGradient
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import own_name
from rematc.lowering.jax_internals.references import is_reference

_STOPS = "stop_gradient"
#: Calls whose function stands in the caller's equations, one input for each.
_CALLS = ("jit", "pjit")


def useful_variables(jaxpr: Any, results: Iterable[Any]) -> frozenset[Any]:
    """The inexact variables that the derivatives of some results may depend on.

    Args:
        jaxpr: JAX's `Jaxpr`.
        results: those of its outputs that are useful themselves.
    """
    useful = set(inexact_variables(results))
    for eqn in reversed(jaxpr.eqns):
        if own_name(eqn.primitive) == _STOPS:
            continue
        if any(is_reference(atom.aval) for atom in eqn.invars):
            useful.update(inexact_variables(eqn.invars))  # what is written is read elsewhere
        elif not useful.isdisjoint(eqn.outvars):
            useful.update(inexact_variables(_useful_inputs(eqn, useful)))
    return frozenset(useful)


def is_inexact(aval: Any) -> bool:
    """Whether an abstract value is an array that has derivatives."""
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and bool(jax.numpy.issubdtype(dtype, np.inexact))


def inexact_variables(atoms: Iterable[Any]) -> Iterator[Any]:
    """Those that are variables, and may vary."""
    return (atom for atom in atoms if not isinstance(atom, Literal) and is_inexact(atom.aval))


def _useful_inputs(eqn: Any, useful: Container[Any]) -> Iterable[Any]:
    """The inputs of an equation on which its useful outputs may depend."""
    if own_name(eqn.primitive) not in _CALLS:
        return list(eqn.invars)
    inner = eqn.params["jaxpr"].jaxpr
    results = [atom for atom, outer in zip(inner.outvars, eqn.outvars, strict=True) if outer in useful]
    found = useful_variables(inner, results)
    return [atom for atom, variable in zip(eqn.invars, inner.invars, strict=True) if variable in found]


class Varying:
    """Which values of a graph in the making may have a tangent, found as far as it is written.

    Those are the inexact parameters but for constants, and what follows from them.
    """

    def __init__(self, b: Builder, constants: dict[int, Value]) -> None:
        self._b = b
        self._constants = constants
        self._found: set[Value] = set()
        self._fixed: frozenset[Value] = frozenset()
        self._params = 0
        self._equations = 0

    def fix(self, params: Iterable[Value]) -> None:
        """Say of parameters, before anything is asked, that no tangent comes to them."""
        self._fixed = frozenset(params)

    def __contains__(self, value: Value) -> bool:
        params, equations = self._b.params, self._b.equations
        if self._params < len(params):
            fixed = self._fixed.union(self._constants.values())
            new = params[self._params :]
            self._found.update([one for one in new if one.type.dtype.is_inexact and one not in fixed])
            self._params = len(params)
        for eqn in equations[self._equations :]:
            if not isinstance(eqn.op, StopGradient) and not self._found.isdisjoint(eqn.operands):
                self._found.update([one for one in eqn.results if one.type.dtype.is_inexact])
        self._equations = len(equations)
        return value in self._found
