"""Simplification: each equation by local rules until none applies, constants evaluated; in regions too.

Before:  %0: f32[4] = negate %x        After:  %0: f32[4] = subtract %y, %x
         %1: f32[4] = add %0, %y               return %0
         return %1

Why: derivative rules are written for the general case, and frontends convert, reshape and broadcast step by step.
The rules stand in the modules `rewrites_*.py`; all are exact to the bit.
What they make superfluous is left for dce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.mapped import Border
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.values import Array, Value
from rematc.passes import (
    rewrites_elementwise,
    rewrites_gather,
    rewrites_linear,
    rewrites_scatter,
    rewrites_selection,
    rewrites_shape,
)
from rematc.passes.constant_sinking import repeated_in_steps
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter
from rematc.passes.rewriting import RULES, Rewritten, Scope

# Importing these modules enters their rules.
RULE_MODULES = (
    rewrites_elementwise,
    rewrites_gather,
    rewrites_linear,
    rewrites_scatter,
    rewrites_selection,
    rewrites_shape,
)


@register_pass
@dataclass(frozen=True, slots=True)
class Simplify(Pass):
    """Rewrite each equation to a simpler one of the same meaning.

    Attributes:
        max_elements: size of the largest array that is evaluated at compile time. Arrays of one repeated element are
            whatever their size.
    """

    name = "simplify"
    max_elements: int = 64

    def run(self, graph: Graph) -> Graph:
        return _Simplifier(self.max_elements).graph(graph)


class _Simplifier:
    def __init__(self, max_elements: int) -> None:
        self._max_elements = max_elements
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The simplified graph; the graph itself if no rule applies."""
        scope = Scope(self._max_elements)
        env: dict[Value, Value] = {}
        has_changed = False
        has_regions = bool(graph.with_regions)
        for eqn in graph.equations:
            new = eqn
            if env and not env.keys().isdisjoint(eqn.operands):
                operands = tuple([env.get(value, value) for value in eqn.operands])
                new = Equation(eqn.op, operands, eqn.results, eqn.loc)
            if has_regions:
                new = self._with_regions(scope, new)
            result = _simplified(scope, new)
            if isinstance(result, Equation):
                has_changed = has_changed or result is not eqn
                scope.append(result)
            else:
                env.update(zip(eqn.results, result, strict=True))
                has_changed = True
        if not has_changed:
            return graph
        results = tuple([env.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(scope.equations), results)

    def _with_regions(self, scope: Scope, eqn: Equation) -> Equation:
        eqn = repeated_in_steps(scope, eqn)
        op = self._regions.op(eqn.op)
        return eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)


def _simplified(scope: Scope, eqn: Equation) -> Equation | tuple[Value, ...]:
    """The simplest equation for these results, or the values that they are equal to."""
    while True:
        outcome = _first_rewrite(scope, eqn)
        if outcome is None:
            outcome = _folded(scope, eqn)
        if outcome is None:
            return eqn
        if isinstance(outcome, Value):
            return (outcome,)
        if isinstance(outcome, tuple):
            return outcome
        eqn = Equation(outcome.op, outcome.operands, eqn.results, eqn.loc)


def _first_rewrite(scope: Scope, eqn: Equation) -> Rewritten:
    for rule in RULES.get(type(eqn.op), ()):
        outcome = rule(scope, eqn)
        if outcome is not None:
            return outcome
    return None


def _folded(scope: Scope, eqn: Equation) -> Value | None:
    """The constant that an op of constants gives."""
    if not eqn.operands or len(eqn.results) != 1 or not all(map(scope.is_known, eqn.operands)):
        return None
    op, values = eqn.op, (*eqn.operands, *eqn.results)
    if not _is_folded(op) or any(value.type.on_host for value in values):
        return None
    type_ = eqn.results[0].type
    if op.is_exact and not any(value.type.dtype.is_complex for value in values):
        scalars = _all_known(map(scope.splat, eqn.operands))
        if scalars is not None:
            return scope.emit_splat(_evaluated(op, scalars), type_.shape, eqn.loc)
    arrays = _all_known(map(scope.constant, eqn.operands)) if type_.size <= scope.max_elements else None
    return None if arrays is None else scope.emit_constant(_evaluated(op, arrays), eqn.loc)


def _is_folded(op: Op) -> bool:
    # A broadcast constant is how a constant of one repeated element is written; what a device has, it alone knows.
    is_written = op.is_identity or isinstance(op, BroadcastInDim | Border)
    return not (is_written or op.is_opaque or op.axes or op.regions())


def _all_known(found: Iterable[Array | None]) -> list[Array] | None:
    known = []
    for array in found:
        if array is None:
            return None
        known.append(array)
    return known


def _evaluated(op: Op, operands: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        return op.reference(operands)[0]
