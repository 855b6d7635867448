"""Mutable arrays in jaxprs."""

from __future__ import annotations

from typing import Any

from jax._src.core import internal_mutable_array_effect
from jax._src.state.discharge import discharge_state
from jax._src.state.types import AbstractRef, TransformedRef

from rematc.lowering.jax_internals.jaxprs import captured_as_inputs, closed

#: The effect of equations that make references, and use them, where nobody else sees them.
_LOCAL = {internal_mutable_array_effect}


def is_part_of_reference(value: Any) -> bool:
    """Whether a value is a view of a mutable array, which has no abstract value."""
    return isinstance(value, TransformedRef)


def is_reference(aval: Any) -> bool:
    """Whether an abstract value is that of a mutable array."""
    return isinstance(aval, AbstractRef)


def has_only_local_references(one: Any) -> bool:
    """Whether the effects of a jaxpr, or an equation, are those of references that it makes itself, at any depth."""
    return set(one.effects) == _LOCAL


def makes_references(jaxpr: Any) -> bool:
    """Whether equations of a jaxpr make references: of itself, not of what it calls."""
    if internal_mutable_array_effect not in jaxpr.effects:
        return False
    return any(is_reference(variable.aval) for eqn in jaxpr.eqns for variable in eqn.outvars)


def without_own_references(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A closed jaxpr that holds the references it made as values, in loops and calls that use them, too.

    What makes references for itself alone, such as a function with a derivative rule, is left as it is: JAX would
    drop the rule.

    Returns:
        a closed jaxpr whose last inputs are what was captured, and the captured arrays.

    Raises:
        NotImplementedError: where JAX has no such form of an equation that uses a reference.
    """
    moved, captured = captured_as_inputs(jaxpr)
    inner = moved.jaxpr
    eqns = [eqn if _has_references(eqn) else eqn.replace(effects=eqn.effects - _LOCAL) for eqn in inner.eqns]
    return discharge_state(closed(inner.replace(eqns=eqns)), should_discharge=False, lower=False), captured


def _has_references(eqn: Any) -> bool:
    return any(is_reference(atom.aval) for atom in (*eqn.invars, *eqn.outvars))
