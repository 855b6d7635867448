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
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.passes.jvp import jvp
from rematc.passes.partial_eval import Residual, partial_eval
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


def under_policy(graph: Graph, policy: Policy, prevent_cse: bool | tuple[bool, ...] = True) -> Graph:
    """`graph` as one checkpoint region with this policy."""
    b = Builder(graph.name)
    params = [b.parameter(value.type, value.name) for value in graph.params]
    return b.build(*b.emit(Checkpoint(graph, policy, prevent_cse), *params))


def linearize(graph: Graph, wrt: Sequence[bool]) -> Linearized:
    """Linearize `graph` with respect to the parameters for which `wrt` is set (inexact ones).

    Raises CompileError with the equation's location where an op has no jvp.
    """
    differentiated = jvp(graph, wrt)
    count = len(graph.params)
    is_unknown = [index >= count for index in range(len(differentiated.graph.params))]
    part = partial_eval(differentiated.graph, is_unknown, None)
    tangent_is_unknown = iter(part.is_unknown[len(graph.results) :])
    has_tangent = tuple([is_set and next(tangent_is_unknown) for is_set in differentiated.has_tangent])
    forward = part.known
    if sum(has_tangent) != sum(differentiated.has_tangent):
        forward = _without_known_tangents(forward, len(graph.results), len(part.residuals))
    return Linearized(forward, part.staged, part.residuals, has_tangent)


def _without_known_tangents(forward: Graph, results: int, residuals: int) -> Graph:
    """Drop tangents that turned out not to depend on the incoming ones: a linear map that is constant is zero."""
    kept = (*forward.results[:results], *forward.results[len(forward.results) - residuals :])
    return Graph(forward.name, forward.params, forward.equations, kept)


def vjp(graph: Graph, wrt: Sequence[bool]) -> Vjp:
    """The forward and backward graphs of `graph` with respect to the parameters for which `wrt` is set."""
    linearized = linearize(graph, wrt)
    count = len(linearized.residuals)
    is_linear = [index >= count for index in range(len(linearized.linear.params))]
    backward = transpose(linearized.linear, is_linear)
    return Vjp(
        linearized.forward, backward.graph, linearized.residuals, linearized.has_tangent, backward.has_ct
    )
