"""Import of `jax.checkpoint` and `checkpoint_name`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.jax.custom_derivatives import with_jvp
from rematc.compiler.frontends.jax.fallback import transposable
from rematc.compiler.frontends.jax.policies import OwnRegion, asked_in, policy_of
from rematc.compiler.frontends.jax.retracing import trace
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import Name
from rematc.ir.policy import Policy
from rematc.ir.values import Value
from rematc.lowering.jax_internals.checkpoint_primitive import expand_region
from rematc.lowering.jax_internals.jaxprs import closed, expanded
from rematc.lowering.jax_internals.locations import function_name
from rematc.passes.jvp import jvp_of


@imports("remat2", "remat", "checkpoint", keys=True)
def checkpoint(block: Block, eqn: Any) -> Sequence[Value]:
    """`checkpoint` of the region. A policy of the user's is asked about each equation in it, as JAX would."""
    params = eqn.params
    is_differentiated = bool(params["differentiated"])
    return _region(block, eqn, params["jaxpr"], params["policy"], params["prevent_cse"], is_differentiated)


@imports("rematc_checkpoint", keys=True)
def own_checkpoint(block: Block, eqn: Any) -> Sequence[Value]:
    """A region of `rematc.jax.checkpoint`: the `checkpoint` in it, or the derivatives of that.

    One that is to be cut has the derivative of what it is cut into.
    """
    jaxpr, derivatives = eqn.params["jaxpr"], eqn.params["derivatives"]
    operands = block.operands(eqn)
    is_cut = any(_is_cut(one.params.get("policy")) for one in jaxpr.jaxpr.eqns)
    if not derivatives:
        return with_jvp(block, eqn, jaxpr, 0) if is_cut else block.inline(jaxpr, operands)
    if is_cut:
        parts = trace(lambda *given: expand_region(**eqn.params, operands=given), [x.aval for x in eqn.invars])
        return block.inline(parts, operands)
    with of_order(derivative_order() + len(derivatives)):
        region = block.region(jaxpr, function_name(jaxpr.jaxpr))
    graph = region.graph
    for derivative in derivatives:
        whole = derivative.with_further(0, len(region.captured))
        graph = jvp_of(graph, whole.wrt, whole.of)
    return block.b.inline(graph, (*region.captured, *operands))


def _is_cut(policy: Any) -> bool:
    return isinstance(policy, OwnRegion) and policy.is_cut


@imports("call_hi_primitive", keys=True)
def call_hi_primitive(block: Block, eqn: Any) -> Sequence[Value]:
    """A primitive that says how it is made of others: regions and names of `jax_remat3`; any other as `custom_jvp`.

    Of tangents, in the rule of another, it has JAX's transpose: what it is made of may have none.
    """
    primitive = eqn.params["_prim"]
    match type(primitive).__name__:
        case "RematTraced":
            return _region(
                block, eqn, primitive.jaxpr, primitive.policy, getattr(primitive, "prevent_cse", True), False
            )
        case "CheckpointName" | "CheckpointNameFwd":
            return block.b.emit(Name(primitive.name), *block.operands(eqn))
    jaxpr = trace(expanded(eqn), [atom.aval for atom in eqn.invars])
    if block.linear_in(block.operands(eqn)):
        name = type(primitive).__name__
        with of_order(0), block.shared.unlisted():
            body = block.region(jaxpr, name)
        return transposable(block, eqn, body, name)
    return with_jvp(block, eqn, jaxpr, 0)


def _region(
    block: Block, eqn: Any, jaxpr: Any, policy: Any, prevent_cse: bool | Sequence[bool], is_differentiated: bool
) -> Sequence[Value]:
    jaxpr = closed(jaxpr)
    asked: Policy | None = policy_of(policy, block.shared.policies)
    with block.shared.asking(asked_in(asked)):
        region = block.region(jaxpr, function_name(jaxpr.jaxpr), block.linear_in(block.operands(eqn)))
    barriers = _barriers(policy, prevent_cse)
    if isinstance(barriers, tuple):
        barriers = (*(True,) * len(region.captured), *barriers)
    is_own = isinstance(policy, OwnRegion)
    op = Checkpoint(region.graph, asked, barriers, is_differentiated, is_plannable=not is_own)
    return block.b.emit(op, *region.captured, *block.operands(eqn))


def _barriers(policy: Any, prevent_cse: bool | Sequence[bool]) -> bool | tuple[bool, ...] | None:
    """JAX's default is that XLA must not merge the recomputation: where that needs a barrier is ours to know."""
    if isinstance(policy, OwnRegion) and policy.prevent_cse is True:
        return True
    if isinstance(prevent_cse, bool):
        return None if prevent_cse else False
    return tuple(prevent_cse)


@imports("name")
def name(block: Block, eqn: Any) -> Sequence[Value]:
    """`name`."""
    return block.b.emit(Name(eqn.params["name"]), *block.operands(eqn))
