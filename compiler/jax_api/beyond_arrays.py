"""Functions that are more than functions of arrays, and our policies for JAX, which differentiates these."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from rematc.compiler.frontends.jax.block import NOT_INLINED
from rematc.compiler.frontends.jax.importing import graph_of_jaxpr
from rematc.compiler.frontends.jax.policies import AskedPolicy, decision_of
from rematc.compiler.tracing.derivative_order import of_order
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import Name
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy
from rematc.lowering.jax_internals.checkpoints import offloadable
from rematc.lowering.jax_internals.jaxprs import bind, own_name
from rematc.lowering.jax_internals.references import has_only_local_references, is_reference
from rematc.passes.aliases import find_aliases
from rematc.passes.policies import Either
from rematc.passes.policy_base import strongest

_partition: Any = jax.sharding.PartitionSpec  # which JAX leaves without annotations
#: Primitives whose derivative is no graph's.
_PRIMITIVES = {
    "shard_map": "it maps over devices (shard_map)",
    "xla_pmap": "it maps over devices (pmap)",
    "pallas_call": "it calls a kernel of Pallas",
    "run_state": "it reads or writes references",
    "compute_on": "it says where it is computed (compute_on)",
    "xla_metadata_call": "it has metadata for XLA (xla_metadata_call)",
}


#: Primitives of hijax that are no more than those of arrays.
_HIGH = ("RematTraced", "CheckpointName", "CheckpointNameFwd")
#: Functions with rules that may do what the functions themselves do not: a sum over devices, say.
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call")


def has_other_arguments(values: Sequence[Any]) -> bool:
    """Whether some of the arguments of a function are no arrays."""
    return not all(_is_array(jax.typeof(value)) for value in values)


def has_rules_over_devices(closed: Any) -> bool:
    """Whether a closed jaxpr stands inside of `shard_map`, and has derivative rules, which may be collective."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return False
    return any(own_name(eqn.primitive) in _WITH_RULES for jaxpr in _jaxprs(closed.jaxpr) for eqn in jaxpr.eqns)


def why_beyond_arrays(closed: Any) -> str:
    """Why what a closed jaxpr does cannot be left to graphs; empty where it can.

    References that it makes and keeps to itself are values in a graph.
    """
    has_references = has_only_local_references(closed)
    if closed.effects and not has_references:
        return f"it has effects ({', '.join(sorted({type(effect).__name__ for effect in closed.effects}))})"
    for jaxpr in _jaxprs(closed.jaxpr):
        reason = _why_values((*jaxpr.invars, *jaxpr.constvars), has_references)
        if reason:
            return reason
        for eqn in jaxpr.eqns:
            name = own_name(eqn.primitive)
            found = _PRIMITIVES.get(name) or _why_context(eqn)
            if found:
                return found
            if name == "call_hi_primitive" and type(eqn.params["_prim"]).__name__ not in _HIGH:
                return f"it has a primitive of its own kind ({type(eqn.params['_prim']).__name__})"
            reason = _why_values(eqn.outvars, has_references)
            if reason:
                return reason
    return ""


def _why_context(eqn: Any) -> str:
    if eqn.ctx.compute_type is not None:
        return f"it is computed on '{eqn.ctx.compute_type}' in part (compute_on)"
    metadata = eqn.ctx.xla_metadata
    return f"it has metadata for XLA ({metadata})" if metadata and dict(metadata) != NOT_INLINED else ""


def _why_values(variables: Iterable[Any], has_references: bool) -> str:
    for variable in variables:
        aval = variable.aval
        if has_references and is_reference(aval):
            continue
        if not _is_array(aval):
            return "it has values that are no arrays"
        if aval.sharding.spec != _partition(*(None,) * len(aval.shape)):
            return "its types say how they lie over devices (axes of type Explicit)"
    return ""


def _jaxprs(outer: Any) -> Iterator[Any]:
    """A jaxpr and all that are in it, each once."""
    jaxprs, seen = [outer], set[int]()
    while jaxprs:
        jaxpr = jaxprs.pop()
        if id(jaxpr) in seen:
            continue
        seen.add(id(jaxpr))
        yield jaxpr
        for eqn in jaxpr.eqns:
            jaxprs.extend(_inner(eqn.params.values()))


def _inner(params: Iterable[Any]) -> Iterable[Any]:
    """The jaxprs among the parameters of an equation."""
    for value in params:
        if isinstance(value, (tuple, list)):
            yield from _inner(value)
        elif isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, Jaxpr):
            yield value


def _is_array(aval: Any) -> bool:
    return isinstance(aval, jax.core.ShapedArray)


# -- policies ----------------------------------------------------------------------------------------------------------


def as_jax_policy(policy: Policy) -> Callable[..., Any]:
    """A policy of `jax.checkpoint`'s that decides about a primitive as ours does about the op that it becomes."""
    # JAX's policies are called once for each equation and derivative; the same equation comes again and again.
    asked: dict[Any, Any] = {}

    if isinstance(policy, AskedPolicy):
        return policy.function
    if policy.is_everything:
        # What gives no values, as a print, is no op that ours are asked about.
        everything: Callable[..., Any] = jax.checkpoint_policies.everything_saveable
        return everything
    if isinstance(policy, Either):
        return _either(as_jax_policy(policy.first), as_jax_policy(policy.second))

    def decide(primitive: Any, *avals: Any, **params: Any) -> Any:
        if own_name(primitive) == "name":
            types = _graph(primitive, avals, params).param_types
            return _answer(policy.decide(Name(params["name"]), types, (params["name"],)))
        key = (primitive, tuple(map(str, avals)), tuple([(name, str(value)) for name, value in params.items()]))
        if key not in asked:
            asked[key] = _asked(policy, primitive, avals, params)
        return asked[key]

    return decide


def _either(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """What one of both saves; what one offloads and none saves is offloaded."""

    def decide(primitive: Any, *avals: Any, **params: Any) -> Any:
        one, other = [decision_of(ask(primitive, *avals, **params)) or RECOMPUTE for ask in (first, second)]
        return _answer((strongest(one, other),))

    return decide


def _asked(policy: Policy, primitive: Any, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    try:
        graph = _graph(primitive, avals, params)
    except CompileError:
        return _answer((RECOMPUTE,))  # no op, so no policy of ours can name it
    root = find_aliases(graph.equations).root(graph.results[0]) if graph.results else None
    for eqn in graph.equations:
        if root in eqn.results:
            return _answer(policy.decide(eqn.op, eqn.operand_types, ()))
    return _answer((RECOMPUTE,))


def _graph(primitive: Any, avals: Sequence[Any], params: dict[str, Any]) -> Graph:
    """One equation of JAX's as a graph; on the mesh of its operands' types, whose axes a region may treat otherwise."""
    meshes = [aval.sharding.mesh for aval in avals if _is_array(aval)]
    mesh = next((mesh for mesh in meshes if not mesh.empty), None)
    with of_order(0), contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh):
        jaxpr = jax.make_jaxpr(functools.partial(bind, primitive, params=params))
        return graph_of_jaxpr(jaxpr(list(avals))).graph


def _answer(decisions: Sequence[Decision]) -> Any:
    decision = decisions[0]
    if isinstance(decision, Offload):
        return offloadable(decision.src, decision.dst)
    return decision is SAVE
