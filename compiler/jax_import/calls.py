"""Import of calls: the functions that `jax.jit` marks are copied where they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.jax_import.block import Block, imports
from rematc.ir.core import Value
from rematc.lowering import jax_adapter


@imports("jit", "pjit", keys=True)
def jit(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations.

    JAX traces a function of its own once and remembers it, so the lines in it are those of its first caller. What is
    called from the user's code has the line of this call.
    """
    jaxpr = eqn.params["jaxpr"]
    loc = block.location(eqn) if jax_adapter.is_library_function(jaxpr.jaxpr) else None
    return block.inline(jaxpr, block.operands(eqn), loc)


@imports("closed_call", "core_call", "call", "core_closed_call", keys=True)
def call(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations."""
    jaxpr = eqn.params["call_jaxpr"]
    return block.inline(jax_adapter.closed(jaxpr), block.operands(eqn))
