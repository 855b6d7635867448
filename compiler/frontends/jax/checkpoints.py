"""Import of `jax.checkpoint` and `checkpoint_name`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.jax.custom_derivatives import with_jvp
from rematc.compiler.frontends.jax.fallback import transposable
from rematc.compiler.frontends.jax.policies import OwnRegion, asked_in, policy_of
from rematc.compiler.frontends.jax.retracing import trace
from rematc.compiler.tracing.derivative_order import of_order
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import Name
from rematc.ir.policy import Policy
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import closed, expanded
from rematc.lowering.jax_internals.locations import function_name


@imports("remat2", "remat", "checkpoint", keys=True)
def checkpoint(block: Block, eqn: Any) -> Sequence[Value]:
    """`checkpoint` of the region. A policy of the user's is asked about each equation in it, as JAX would."""
    params = eqn.params
    is_differentiated = bool(params["differentiated"])
    return _region(block, eqn, params["jaxpr"], params["policy"], params["prevent_cse"], is_differentiated)


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
