"""Linearization and the vjp: a graph to its forward graph, its residuals, and its linear or backward graph.

Before:  graph @f(%x: f32[4]) -> (f32[4]) { %0: f32[4] = sine %x ... }
After:   forward(%x) -> (sine %x, residual cosine %x)
         linear(%residual, %t) -> (%t * %residual)          backward(%residual, %ct) -> (%ct * %residual)

Both are pipelines: linearize = jvp + partial evaluation under the policy; vjp = linearize + transpose. (Radul et al.,
"You Only Linearize Once", POPL 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.passes.differentiation import derived
from rematc.passes.manager import parse_pipeline
from rematc.passes.saving import Residual

#: What has the derivative as a whole is recognised first. A derivative repeats what its primal computes: so cse.
LINEARIZE = "inline_transparent,recognize,jvp,simplify,cse,partial_eval"
VJP = f"{LINEARIZE},transpose,dce"
_LINEARIZE, _VJP = parse_pipeline(LINEARIZE), parse_pipeline(VJP)


@dataclass(frozen=True, slots=True)
class Linearized:
    """The result of `linearize`.

    Attributes:
        forward: parameters of the original graph; its results, then the residuals.
        linear: parameters: the residuals, then a tangent for each parameter differentiated; results: a tangent for
            each result that has one.
        residuals: what crosses, in order.
        has_tangent: for each result of the original graph, whether its tangent is more than a symbolic zero.
    """

    forward: Graph
    linear: Graph
    residuals: tuple[Residual, ...]
    has_tangent: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Vjp:
    """The result of `vjp`.

    Attributes:
        forward: parameters of the original graph; its results, then the residuals.
        backward: parameters: the residuals, then a cotangent for each result that has a tangent; results: a cotangent
            for each differentiated parameter that has one.
        residuals: what crosses, in order.
        has_tangent: for each result, whether `backward` takes its cotangent.
        has_ct: for each differentiated parameter, whether `backward` gives its cotangent; the others are zero.
    """

    forward: Graph
    backward: Graph
    residuals: tuple[Residual, ...]
    has_tangent: tuple[bool, ...]
    has_ct: tuple[bool, ...]


def under_policy(graph: Graph, policy: Policy, prevent_cse: bool | tuple[bool, ...] | None = None) -> Graph:
    """`graph` as one checkpoint region with this policy."""
    b = Builder(graph.name)
    params = [b.parameter(value.type, value.name) for value in graph.params]
    return b.build(*b.emit(Checkpoint(graph, policy, prevent_cse), *params))


def linearize(graph: Graph, wrt: Sequence[bool], of: Sequence[bool] | None = None) -> Linearized:
    """Linearize `graph` with respect to the parameters for which `wrt` is set (inexact ones).

    `of` says which results get tangents (all of them if it is left out): what only the others need is not a residual.
    Raises CompileError with the equation's location where an op has no jvp.
    """
    found = derived(graph, wrt, of, _LINEARIZE)
    assert found.forward is not None, "partial_eval sets it aside"
    return Linearized(found.forward, found.graph, found.residuals, found.has_tangent)


def vjp(graph: Graph, wrt: Sequence[bool], of: Sequence[bool] | None = None) -> Vjp:
    """The forward and backward graphs of `graph` with respect to the parameters for which `wrt` is set.

    `of` says which results get cotangents (all of them if it is left out).
    """
    found = derived(graph, wrt, of, _VJP)
    assert found.forward is not None, "partial_eval sets it aside"
    return Vjp(found.forward, _backward(found.graph), found.residuals, found.has_tangent, found.has_ct)


def _backward(graph: Graph) -> Graph:
    """The graph with locations that say that it is a backward pass, those of checkpoint regions, which dissolve, too.

    Other regions are as the equations that have them.
    """
    locs: dict[int, Location] = {}

    def marked(graph: Graph) -> Graph:
        equations = []
        for eqn in graph.equations:
            op, loc = eqn.op, eqn.loc
            if loc is not None:
                loc = locs.get(id(loc)) or locs.setdefault(id(loc), loc.backward())
            if isinstance(op, Checkpoint):
                op = replace(op, body=marked(op.body))
            equations.append(Equation(op, eqn.operands, eqn.results, loc))
        return Graph(graph.name, graph.params, tuple(equations), graph.results)

    return marked(graph)


def value_and_cotangents(pulled: Vjp) -> Graph:
    """The forward and the backward graph as one: parameters, then the cotangents of results that have a tangent; the
    results, then the cotangents of the parameters that have one.
    """
    forward, backward = pulled.forward, pulled.backward
    b = Builder(forward.name)
    results = b.inline(forward, [b.parameter(value.type, value.name) for value in forward.params])
    count = len(results) - len(pulled.residuals)
    cts = [b.parameter(value.type, value.name) for value in backward.params[len(pulled.residuals) :]]
    return b.build(*results[:count], *b.inline(backward, (*results[count:], *cts)))
