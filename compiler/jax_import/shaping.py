"""Import of primitives that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.jax_import.block import Block, imports
from rematc.ir.core import Value


@imports("broadcast_in_dim")
def broadcast_in_dim(block: Block, eqn: Any) -> Sequence[Value]:
    """`broadcast_in_dim`."""
    (x,) = block.operands(eqn)
    return [block.b.broadcast_in_dim(x, block.result_type(eqn).shape, eqn.params["broadcast_dimensions"])]
