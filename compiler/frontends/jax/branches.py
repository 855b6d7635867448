"""Import of branches: `cond`, and what depends on the platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.ir.ops.case.op import Case
from rematc.ir.types import I32
from rematc.ir.values import Value
from rematc.lowering.jax_internals.locations import function_name


@imports("cond", keys=True)
def cond(block: Block, eqn: Any) -> Sequence[Value]:
    """`case` of the same index; of branches for platforms, the one for the target's platform."""
    branches = eqn.params["branches"]
    index, *operands = block.operands(eqn)
    platforms = eqn.params.get("branches_platforms")
    if platforms is not None:
        return block.inline(branches[_branch_of_platform(platforms, block.platform(eqn))], operands)
    if len(branches) == 1:
        return block.inline(branches[0], operands)
    names = [function_name(branch.jaxpr) for branch in branches]
    graphs, captured = block.regions(branches, names, [block.linear_in(operands)] * len(branches))
    return block.b.emit(Case(tuple(graphs)), block.b.convert(index, I32), *captured, *operands)


def _branch_of_platform(platforms: Sequence[Any], own: str) -> int:
    """Which entry is for a platform; an entry of None is for all those that no other names."""
    named = [index for index, listed in enumerate(platforms) if listed is not None and own in listed]
    return named[0] if named else list(platforms).index(None)
