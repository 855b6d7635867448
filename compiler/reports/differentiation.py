"""What a trace notes about the derivatives in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jax.sharding import NamedSharding

from rematc.ir.core import Graph
from rematc.ir.policy import Policy
from rematc.lowering.propagation import shards_of
from rematc.lowering.target import Target
from rematc.passes.linearize import Vjp
from rematc.passes.planning.shards import WHOLE, Shards


@dataclass(frozen=True, slots=True)
class Differentiation:
    """A derivative in a trace.

    Attributes:
        function: name of the function differentiated.
        policy: the policy on the whole function, if any.
        primal: the function's graph as traced, under its policy.
        vjp: its forward and backward graphs and its residuals.
        lying: JAX's shardings of the function's first parameters; None for what is not spread over devices, or of which
            nobody knows.
        target: what it is for.
    """

    function: str
    policy: Policy | None
    primal: Graph
    vjp: Vjp
    lying: Sequence[NamedSharding | None] = ()
    target: Target | None = None

    def shards(self) -> Shards:
        """How its values, of both graphs, are spread over devices."""
        if self.target is None or not any(self.lying):
            return WHOLE
        found = shards_of(self.vjp.forward, self.target, self.lying)
        found.follow_both(self.vjp.forward, self.vjp.backward, len(self.vjp.residuals))
        return found
