"""Linearization and the vjp: a graph to its forward graph, its residuals, and its linear or backward graph.

Before:  graph @f(%x: f32[4]) -> (f32[4]) { %0: f32[4] = sine %x ... }
After:   forward(%x) -> (sine %x, residual cosine %x)
         linear(%residual, %t) -> (%t * %residual)          backward(%residual, %ct) -> (%ct * %residual)

linearize = jvp + partial evaluation under the policy; vjp = linearize + transpose. (Radul et al., "You Only Linearize
Once", POPL 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.builder import Builder
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.jvp import Jvp, jvp
from rematc.passes.partial_eval import partial_eval
from rematc.passes.saving import Residual
from rematc.passes.simplify import Simplify
from rematc.passes.transpose import transpose


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


@collection_paused()
def linearize(graph: Graph, wrt: Sequence[bool], of: Sequence[bool] | None = None) -> Linearized:
    """Linearize `graph` with respect to the parameters for which `wrt` is set (inexact ones).

    `of` says which results get tangents (all of them if it is left out): what only the others need is not a residual.
    Raises CompileError with the equation's location where an op has no jvp.
    """
    differentiated = _only_tangents_of(jvp(graph, wrt), of)
    joint = CommonSubexpressions().run(Simplify().run(differentiated.graph))
    count = len(graph.params)
    is_unknown = [index >= count for index in range(len(joint.params))]
    part = partial_eval(joint, is_unknown, None)
    tangent_is_unknown = iter(part.is_unknown[len(graph.results) :])
    has_tangent = tuple([is_set and next(tangent_is_unknown) for is_set in differentiated.has_tangent])
    forward = part.known
    if sum(has_tangent) != sum(differentiated.has_tangent):
        forward = _without_known_tangents(forward, len(graph.results), len(part.residuals))
    return Linearized(forward, part.staged, part.residuals, has_tangent)


def _only_tangents_of(result: Jvp, of: Sequence[bool] | None) -> Jvp:
    if of is None:
        return result
    graph, count = result.graph, len(result.has_tangent)
    tangents = iter(graph.results[count:])
    kept = [next(tangents) if is_set else None for is_set in result.has_tangent]
    wanted = [value if is_set else None for value, is_set in zip(kept, of, strict=True)]
    results = (*graph.results[:count], *(value for value in wanted if value is not None))
    narrowed = Graph(graph.name, graph.params, graph.equations, results)
    return Jvp(narrowed, tuple(value is not None for value in wanted))


def _without_known_tangents(forward: Graph, results: int, residuals: int) -> Graph:
    """Drop tangents that turned out not to depend on the incoming ones: a linear map that is constant is zero."""
    kept = (*forward.results[:results], *forward.results[len(forward.results) - residuals :])
    return Graph(forward.name, forward.params, forward.equations, kept)


@collection_paused()
def vjp(graph: Graph, wrt: Sequence[bool], of: Sequence[bool] | None = None) -> Vjp:
    """The forward and backward graphs of `graph` with respect to the parameters for which `wrt` is set.

    `of` says which results get cotangents (all of them if it is left out).
    """
    linearized = linearize(graph, wrt, of)
    count = len(linearized.residuals)
    is_linear = [index >= count for index in range(len(linearized.linear.params))]
    backward = transpose(linearized.linear, is_linear)
    cleaned = DeadCode().run(backward.graph)
    return Vjp(linearized.forward, cleaned, linearized.residuals, linearized.has_tangent, backward.has_ct)
