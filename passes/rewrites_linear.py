"""Rewrites of linear maps whose tangents are known."""

from __future__ import annotations

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.ops.custom_vjp import CustomLinear
from rematc.ir.values import Value
from rematc.passes.rewriting import Scope, rewrites


@rewrites(CustomLinear)
def map_of_zeros(s: Scope, eqn: Equation) -> tuple[Value, ...] | None:
    """Zeros, where all tangents are.

    What the map does with them cannot be computed, as it is there for its transposition; and where no tangent that is
    asked for is in it, nothing transposes it.
    """
    assert isinstance(eqn.op, CustomLinear)
    tangents = [s.splat(value) for value in eqn.operands[eqn.op.residuals :]]
    if any(scalar is None or scalar != 0 for scalar in tangents):
        return None
    types = [value.type for value in eqn.results]
    return tuple([s.emit_splat(np.zeros((), type.dtype.numpy), type.shape, eqn.loc) for type in types])
