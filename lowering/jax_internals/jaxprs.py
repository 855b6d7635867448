"""Jaxprs, their equations and primitives: taken apart, changed, applied."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.ad_util import replace_rule_output_symbolic_zeros
from jax._src.dispatch import apply_primitive
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive
from jax.interpreters import ad


def closed(jaxpr: Any, constants: Sequence[Any] = ()) -> Any:
    """A jaxpr as a closed one."""
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, tuple(constants))


def has_primitive(jaxpr: Any, primitive: Any) -> bool:
    """Whether a jaxpr, closed or not, has an equation of a primitive, or one of the jaxprs inside."""
    waiting = [getattr(jaxpr, "jaxpr", jaxpr)]
    while waiting:
        for eqn in waiting.pop().eqns:
            if eqn.primitive is primitive:
                return True
            held = [one for value in eqn.params.values() for one in (value if isinstance(value, tuple) else (value,))]
            waiting += [getattr(one, "jaxpr", one) for one in held if isinstance(one, (ClosedJaxpr, Jaxpr))]
    return False


def captured_as_inputs(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A closed jaxpr whose constants are its last inputs, and the constants."""
    inner = jaxpr.jaxpr
    count = len(inner.constvars)
    if not count:
        return jaxpr, []
    debug_info = inner.debug_info
    if debug_info is not None and debug_info.arg_names is not None:
        debug_info = debug_info._replace(arg_names=(*debug_info.arg_names, *("",) * count))
    moved = inner.replace(constvars=[], invars=[*inner.invars, *inner.constvars], debug_info=debug_info)
    return closed(moved), list(jaxpr.consts)


def with_policies(jaxpr: Any, policy_for: Callable[[Any], Any]) -> Any:
    """A closed jaxpr whose checkpoint equations, not those in other equations, have other policies."""

    def changed(eqn: Any) -> Any:
        return eqn.replace(params={**eqn.params, "policy": policy_for(eqn.params["policy"])})

    eqns = [changed(eqn) if "policy" in eqn.params else eqn for eqn in jaxpr.jaxpr.eqns]
    return closed(jaxpr.jaxpr.replace(eqns=eqns), jaxpr.consts)


def with_plain_integers(eqn: Any) -> Any:
    """An equation whose parameters hold Python's integers where the user's were NumPy's, which stay in shapes."""
    changed = {name: _plain(one) for name, one in eqn.params.items() if _holds_numpy_integers(one)}
    return eqn.replace(params={**eqn.params, **changed}) if changed else eqn


def _holds_numpy_integers(one: Any) -> bool:
    if type(one) is tuple:
        return any(map(_holds_numpy_integers, one))
    return isinstance(one, np.integer)


def _plain(one: Any) -> Any:
    if type(one) is tuple:
        return tuple(map(_plain, one))
    return int(one) if isinstance(one, np.integer) else one


def apply_equation(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Apply an equation's primitive to JAX values, one for each of its inputs; its outputs.

    What says of a function that XLA must not inline it says nothing of the equations in it.
    """
    marks = {"inlineable": None} if eqn.ctx.xla_metadata else {}
    with eqn.ctx.manager, set_xla_metadata(**marks):  # type: ignore[no-untyped-call]
        return bind(eqn.primitive, operands, eqn.params)


def bind(primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Apply a primitive with the parameters of an equation; its outputs."""
    found = primitive.bind(*operands, **primitive.get_bind_params(params))
    return list(found) if primitive.multiple_results else [found]


def pulled_back(rule: Any, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The cotangents that the backward rule of a `custom_lin` equation gives; zeros without elements as arrays."""
    found = rule.call_wrapped(*residuals, *cts)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], (list, tuple)):
        found, _ = found  # beside them, since jax 0.12: what the rule wants logged
    instantiate: Any = ad.instantiate_zeros
    return [instantiate(replace_rule_output_symbolic_zeros(ct)) for ct in found]


def scan_parts(params: Any) -> tuple[int, int]:
    """How many consts and carries a scan's equation has."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def expanded(eqn: Any) -> Callable[..., list[Any]]:
    """What a `call_hi_primitive` equation is made of, as a function of the values of its inputs."""
    primitive = eqn.params["_prim"]

    def function(*operands: Any) -> list[Any]:
        found = primitive.expand(*jax.tree.unflatten(primitive.in_tree, operands))
        return jax.tree.leaves(found)

    return function


#: The primitives of JAX's own and ours, and how many modules there were when they were looked for.
_own: dict[Any, str] = {}
_searched = 0
_OWNERS = ("jax", "rematc")


def own_name(primitive: Any) -> str:
    """The name of a primitive of JAX's own, or of ours; "" for one of somebody else's, who may call it what he likes.

    JAX's are the ones that its modules hold, and ours are those of this package's.
    """
    found = _own.get(primitive)
    if found is not None:
        return found
    if _search() and primitive in _own:
        return _own[primitive]
    return ""


def _search() -> bool:
    """Look for such primitives where modules were loaded since the last time; whether there were any."""
    global _searched  # noqa: PLW0603  # a count beside the table that it belongs to
    if len(sys.modules) == _searched:
        return False
    _searched = len(sys.modules)
    for module in [one for name, one in list(sys.modules.items()) if name.partition(".")[0] in _OWNERS]:
        _own.update({one: one.name for one in list(vars(module).values()) if isinstance(one, Primitive)})
    return True


def is_lowered_when_called(primitive: Any) -> bool:
    """Whether a call of a primitive compiles its lowering, as those of JAX's own do."""
    implementation = primitive.impl
    return isinstance(implementation, functools.partial) and implementation.func is apply_primitive
