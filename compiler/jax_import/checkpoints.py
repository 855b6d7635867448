"""Import of `jax.checkpoint` and `checkpoint_name`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.jax_import.block import Block, imports
from rematc.compiler.jax_import.policies import AskedPolicy, policy_of
from rematc.ir.core import Value
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import Name
from rematc.ir.policy import Policy
from rematc.lowering import jax_adapter


@imports("remat2", "remat", "checkpoint", keys=True)
def checkpoint(block: Block, eqn: Any) -> Sequence[Value]:
    """`checkpoint` of the region. A policy of the user's is asked about each equation in it, as JAX would."""
    params = eqn.params
    jaxpr = jax_adapter.closed(params["jaxpr"])
    asked = policy_of(params["policy"], len(block.shared.policies))
    policy: Policy | None = asked
    if isinstance(asked, AskedPolicy):
        with block.shared.asking(asked):
            region = block.region(jaxpr, jax_adapter.function_name(jaxpr.jaxpr))
    else:
        region = block.region(jaxpr, jax_adapter.function_name(jaxpr.jaxpr))
    prevent_cse = params["prevent_cse"]
    if not isinstance(prevent_cse, bool):
        prevent_cse = (*(True,) * len(region.captured), *prevent_cse)
    op = Checkpoint(region.graph, policy, _barriers(prevent_cse), bool(params.get("differentiated", False)))
    return block.b.emit(op, *region.captured, *block.operands(eqn))


def _barriers(prevent_cse: bool | tuple[bool, ...]) -> bool | tuple[bool, ...] | None:
    """JAX's default is that XLA must not merge the recomputation: where that needs a barrier is ours to know."""
    return None if prevent_cse is True else prevent_cse


@imports("name")
def name(block: Block, eqn: Any) -> Sequence[Value]:
    """`name`."""
    return block.b.emit(Name(eqn.params["name"]), *block.operands(eqn))
