"""Differentiation as passes: what a pipeline such as `recognize,jvp,simplify,cse,partial_eval,transpose,dce` works on.

Before:  a graph, and which of its parameters it is differentiated by
After:   its forward graph, set aside, and a linear or backward graph over residuals

A pass of graphs that stands in such a pipeline works on the graph that is at hand: the graph itself, its values with
their tangents after `jvp`, the linear graph after `partial_eval`, its adjoint after `transpose`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.passes.jvp import jvp_of_recognized
from rematc.passes.manager import Pass, register_pass, run_watched
from rematc.passes.partial_eval import partial_eval
from rematc.passes.saving import Residual
from rematc.passes.transpose import transpose


@dataclass(frozen=True, slots=True)
class Derivation:
    """A differentiation under way.

    Attributes:
        graph: the graph at hand.
        wrt: for each parameter of the original graph, whether it is differentiated by it.
        of: for each of its results, whether it gets a tangent.
        has_tangent: for each of its results, whether its tangent is more than a symbolic zero, as far as is known.
        forward: the forward graph, once it is set aside: the original results, then the residuals.
        residuals: what crosses from it to the graph at hand, whose first parameters they are.
        has_ct: for each differentiated parameter, whether its cotangent is more than a symbolic zero.
    """

    graph: Graph
    wrt: tuple[bool, ...]
    of: tuple[bool, ...]
    has_tangent: tuple[bool, ...] = ()
    forward: Graph | None = None
    residuals: tuple[Residual, ...] = ()
    has_ct: tuple[bool, ...] = ()

    def graphs(self) -> tuple[Graph, ...]:
        """What there is of it."""
        return (self.graph,) if self.forward is None else (self.forward, self.graph)


class DerivativePass(Pass):
    """A pass that gives a graph of another meaning: it is named in pipelines of differentiations alone."""

    __slots__ = ()
    keeps_meaning = False

    def run(self, graph: Graph) -> Graph:
        raise CompileError(
            f"the pass '{self.name}' is a part of a differentiation; a pipeline for a whole program has none of it"
        )

    def derive(self, given: Derivation) -> Derivation:
        """The differentiation, one step on."""
        raise NotImplementedError


@collection_paused()
def derived(graph: Graph, wrt: Sequence[bool], of: Sequence[bool] | None, passes: Sequence[Pass]) -> Derivation:
    """Differentiate a graph by a pipeline; `of` says which results get tangents, all if it is left out."""
    start = Derivation(graph, tuple(wrt), (True,) * len(graph.results) if of is None else tuple(of))
    return run_watched(passes, start, _one, Derivation.graphs)


def _one(each: Pass, given: Derivation) -> Derivation:
    return each.derive(given) if isinstance(each, DerivativePass) else replace(given, graph=each.run(given.graph))


@register_pass
@dataclass(frozen=True, slots=True)
class Forwards(DerivativePass):
    """The graph with the tangents of its results; `inline_transparent` and `recognize` have gone over it."""

    name = "jvp"

    def derive(self, given: Derivation) -> Derivation:
        joint = jvp_of_recognized(given.graph, given.wrt)
        graph, count = joint.graph, len(joint.has_tangent)
        has_tangent = tuple([is_set and wanted for is_set, wanted in zip(joint.has_tangent, given.of, strict=True)])
        tangents = iter(graph.results[count:])
        found = [next(tangents) if is_set else None for is_set in joint.has_tangent]
        kept = [value for value, wanted in zip(found, given.of, strict=True) if wanted and value is not None]
        results = (*graph.results[:count], *kept)
        return replace(given, graph=Graph(graph.name, graph.params, graph.equations, results), has_tangent=has_tangent)


@register_pass
@dataclass(frozen=True, slots=True)
class Split(DerivativePass):
    """What the tangents do not reach, for the forward graph, and the linear graph; the policies of regions decide."""

    name = "partial_eval"

    def derive(self, given: Derivation) -> Derivation:
        params, results = len(given.wrt), len(given.of)
        part = partial_eval(given.graph, [index >= params for index in range(len(given.graph.params))], None)
        is_unknown = iter(part.is_unknown[results:])
        has_tangent = tuple([is_set and next(is_unknown) for is_set in given.has_tangent])
        forward = part.known
        if sum(has_tangent) != sum(given.has_tangent):
            forward = _without_known_tangents(forward, results, len(part.residuals))
        return replace(given, graph=part.staged, has_tangent=has_tangent, forward=forward, residuals=part.residuals)


def _without_known_tangents(forward: Graph, results: int, residuals: int) -> Graph:
    """Drop tangents that turned out not to depend on the incoming ones: a linear map that is constant is zero."""
    kept = (*forward.results[:results], *forward.results[len(forward.results) - residuals :])
    return Graph(forward.name, forward.params, forward.equations, kept)


@register_pass
@dataclass(frozen=True, slots=True)
class Backwards(DerivativePass):
    """The adjoint of the linear graph."""

    name = "transpose"

    def derive(self, given: Derivation) -> Derivation:
        count = len(given.residuals)
        backward = transpose(given.graph, [index >= count for index in range(len(given.graph.params))])
        return replace(given, graph=backward.graph, has_ct=backward.has_ct)
