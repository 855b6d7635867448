"""What a trace notes about the derivatives in it."""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.core import Graph
from rematc.ir.policy import Policy
from rematc.passes.linearize import Vjp


@dataclass(frozen=True, slots=True)
class Differentiation:
    """A derivative in a trace.

    Attributes:
        function: name of the function differentiated.
        policy: the policy on the whole function, if any.
        primal: the function's graph as traced, under its policy.
        vjp: its forward and backward graphs and its residuals.
    """

    function: str
    policy: Policy | None
    primal: Graph
    vjp: Vjp
