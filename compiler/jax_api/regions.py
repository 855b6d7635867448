"""What JAX does with a checkpointed function where it differentiates it: by its graph, under its policy."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax import checkpoint as jax_checkpoint  # by name: users may put ours in its place

from rematc.compiler.frontends.jax.activity import is_inexact
from rematc.compiler.frontends.jax.importing import Imported, graph_of_jaxpr
from rematc.compiler.frontends.jax.policies import OwnRegion
from rematc.compiler.functions.policies import check_names
from rematc.compiler.jax_api.beyond_arrays import as_jax_policy, why_beyond_arrays
from rematc.compiler.jax_api.traced import like, words
from rematc.compiler.reports.residuals import log_residuals
from rematc.compiler.tracing.derivative_order import derivative_order, of_order
from rematc.ir.core import Graph
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.lowering.jax_export.evaluating import differentiable_call, tangents_of
from rematc.lowering.jax_export.exporting import apply_graph
from rematc.lowering.jax_export.regions import regions_of_jax
from rematc.lowering.jax_internals.checkpoint_primitive import (
    Derivative,
    Derivatives,
    Linear,
    apply_region,
    avals_of_results,
    by_jax,
)
from rematc.lowering.jax_internals.jaxprs import captured_as_inputs, with_policies
from rematc.lowering.jax_internals.platform import on_platform
from rematc.lowering.jax_internals.settings import without_remat3
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from rematc.passes.fold_transposes import fold_transposes
from rematc.passes.jvp import jvp_of
from rematc.passes.linearize import Linearized, linearize
from rematc.passes.policies import nothing_saveable
from rematc.passes.staging.stage import staged_by_all
from rematc.passes.staging.whole import without_region

#: Rules of the user's are imported for so many derivatives of a checkpoint.
_ORDER = 1


@dataclass(frozen=True, slots=True, eq=False)
class _Graphs:
    """A jaxpr as a graph, and its derivatives, each made once.

    Attributes:
        imported: the jaxpr's.
        count: how many inputs the jaxpr has; the graph has those, then constants.
    """

    imported: Imported
    count: int
    _derivatives: dict[Derivatives, Graph] = field(default_factory=dict)
    _linearized: dict[tuple[Derivatives, tuple[bool, ...]], Linearized] = field(default_factory=dict)
    _forward: dict[tuple[Derivatives, tuple[bool, ...]], tuple[Any, Sequence[Any]]] = field(default_factory=dict)

    def derivative(self, derivatives: Derivatives) -> Graph:
        """The graph's derivatives, forwards."""
        if not derivatives:
            return self.imported.graph
        if derivatives not in self._derivatives:
            last = derivatives[-1].with_further(self.count, len(self.imported.constants))
            self._derivatives[derivatives] = jvp_of(self.derivative(derivatives[:-1]), last.wrt, last.of)
        return self._derivatives[derivatives]

    def linearized(self, derivatives: Derivatives, wrt: tuple[bool, ...]) -> Linearized:
        """One more derivative, split under the graph's policies."""
        key = (derivatives, wrt)
        if key not in self._linearized:
            more = Derivative(wrt, ()).with_further(self.count, len(self.imported.constants))
            self._linearized[key] = linearize(self.derivative(derivatives), more.wrt)
        return self._linearized[key]

    @property
    def has_rules(self) -> bool:
        """Whether functions in it have derivatives of the user's."""
        return any(issubclass(one, CustomDerivative) for one in self.imported.graph.op_types)

    def forward(
        self, derivatives: Derivatives, wrt: tuple[bool, ...], policy: Policy | None, operands: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """The forward part of one more derivative as a checkpoint of operands like these: a jaxpr, and more of them."""
        key = (derivatives, wrt)
        if key not in self._forward:
            graph = self.linearized(derivatives, wrt).forward

            def run(*given: Any) -> tuple[Any, ...]:
                return tuple(apply_graph(graph, given))

            run.__name__ = run.__qualname__ = graph.name
            # JAX's newer checkpoint is another primitive.
            with without_remat3():
                again = jax_checkpoint(run, policy=OwnRegion(policy, None, False))
                self._forward[key] = captured_as_inputs(jax.make_jaxpr(again)(*operands))
        return self._forward[key]

    def operands(self, operands: Sequence[Any], name: str) -> list[Any]:
        """What to pass for the parameters of any of the graphs of a function called `name`."""
        own = [words(value, None) for value in (*operands[: self.count], *self.imported.constants)]
        return [*on_platform(self.imported.choice, name, own), *operands[self.count :]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Region:
    """A checkpointed function at arguments of some types: the rules of `rematc_checkpoint`.

    Attributes:
        jaxpr: what JAX traced: a function that calls `jax.checkpoint`.
        name: of the user's function.
        names: of the jaxpr's first inputs.
        segments: whether it is cut into segments.
        policy: what may be saved.
    """

    jaxpr: Any = field(repr=False)
    name: str
    names: tuple[str, ...] = field(repr=False)
    segments: bool
    policy: Policy | None
    # By the jaxprs that it was so far (batched, or with fewer inputs), the number of derivatives for which they have
    # the user's rules, and what they are for.
    _graphs: weakref.WeakKeyDictionary[Any, dict[tuple[int, Target], _Graphs]] = field(
        default_factory=weakref.WeakKeyDictionary, repr=False
    )

    def apply(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The results, which know their derivatives."""
        if not self.jaxpr.effects:
            return apply_region(self.jaxpr, self, operands)
        # It makes references, which no equation of JAX's may have that knows its derivative: its graph has none.
        return differentiable_call(functools.partial(self._evaluated, ()), self._forward)(*operands)

    def _forward(
        self, wrt: tuple[bool, ...], primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        of = self.has_tangent(self.jaxpr, (), wrt)
        results, linear = self._split(self.jaxpr, (Derivative(wrt, of),), primals)
        outgoing = iter(linear(tangents))
        return results, [next(outgoing) if is_set else None for is_set in of]

    def _evaluated(self, derivatives: Derivatives, *operands: Any) -> tuple[Any, ...]:
        return tuple(self._by_graph(self.jaxpr, derivatives, operands))

    # -- the rules ----------------------------------------------------------------------------------------------------

    def has_tangent(self, jaxpr: Any, derivatives: Derivatives, wrt: tuple[bool, ...]) -> tuple[bool, ...]:
        if self._is_of_jax(jaxpr):
            return tuple(map(is_inexact, avals_of_results(jaxpr, derivatives)))
        return self._of(jaxpr, len(derivatives) + 1).linearized(derivatives, wrt).has_tangent

    def evaluate(self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]) -> Sequence[Any]:
        if self._is_of_jax(jaxpr):
            return self._by_jax(jaxpr, derivatives)(*operands)
        return self._by_graph(jaxpr, derivatives, operands)

    def split(
        self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]
    ) -> tuple[Sequence[Any], Linear] | None:
        return None if self._is_of_jax(jaxpr) else self._split(jaxpr, derivatives, operands)

    def checkpointed(self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]) -> Sequence[Any]:
        if not derivatives or self._is_of_jax(jaxpr):
            return self._by_jax(jaxpr, derivatives)(*operands)
        with regions_of_jax():
            return self._by_graph(jaxpr, derivatives, operands)

    # -- by graphs ----------------------------------------------------------------------------------------------------

    def _of(self, jaxpr: Any, count: int) -> _Graphs:
        """The graphs of a jaxpr, of which so many derivatives are taken."""
        known = self._graphs.setdefault(jaxpr, {})
        order = max(_ORDER, derivative_order()) + max(count - 1, 0)
        key = (order, current_target())
        if key not in known:
            names = (*self.names, *[None] * len(jaxpr.in_avals))[: len(jaxpr.in_avals)]
            with of_order(order):
                found = graph_of_jaxpr(jaxpr, self.name, names)
            check_names(_region_of(found.graph)[1].policy, found.graph, self.name)
            whole = replace(found, graph=_in_segments(found.graph)) if self.segments else found
            known[key] = _Graphs(whole, len(jaxpr.in_avals))
        return known[key]

    def _by_graph(self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]) -> list[Any]:
        graphs = self._of(jaxpr, len(derivatives))
        found = apply_graph(graphs.derivative(derivatives), graphs.operands(operands, self.name))
        return [like(value, aval) for value, aval in zip(found, avals_of_results(jaxpr, derivatives), strict=True)]

    def _split(self, jaxpr: Any, derivatives: Derivatives, operands: Sequence[Any]) -> tuple[Sequence[Any], Linear]:
        before, last = derivatives[:-1], derivatives[-1]
        graphs = self._of(jaxpr, len(derivatives))
        parts = graphs.linearized(before, last.wrt)
        log_residuals(self.name, parts.residuals, parts.forward)
        count = len(last.of)
        avals = avals_of_results(jaxpr, derivatives)
        given = graphs.operands(operands, self.name)
        places = {param: place for place, param in enumerate(parts.forward.params)}
        saved = parts.forward.results[count:]
        results: Sequence[Any]
        residuals: Sequence[Any]
        if self.segments or jaxpr.effects or not places.keys() >= set(saved):
            found = apply_graph(parts.forward, given)
            results, residuals = found[:count], found[count:]
        else:
            # Nothing but operands is saved: where this is differentiated again, it is a region again.
            residuals = [given[places[value]] for value in saved]
            if graphs.has_rules:
                # They may give other values than the function that they are of.
                again, captured = graphs.forward(before, last.wrt, self.policy, given)
                results = apply_region(again, self, [*given, *captured])[:count]
            else:
                results = apply_region(jaxpr, self, operands, before)
        results = [like(value, aval) for value, aval in zip(results, avals[:count], strict=True)]

        def linear(tangents: Sequence[Any]) -> Sequence[Any]:
            outgoing = tangents_of(parts, residuals, tangents)
            wanted = [t for t, is_set in zip(outgoing, last.of, strict=True) if is_set]
            return [like(t, aval) for t, aval in zip(wanted, avals[count:], strict=True)]

        return results, linear

    # -- by JAX -------------------------------------------------------------------------------------------------------

    def _is_of_jax(self, jaxpr: Any) -> bool:
        """Whether it became more than a function of arrays, which it was not, when it was batched."""
        return jaxpr is not self.jaxpr and bool(why_beyond_arrays(jaxpr))

    def _by_jax(self, jaxpr: Any, derivatives: Derivatives) -> Callable[..., Sequence[Any]]:
        """A function of arrays, with the derivatives that `jax.checkpoint` has, under the same policy."""
        policy = None if self.policy is None else as_jax_policy(self.policy)
        own = with_policies(jaxpr, lambda found: policy if isinstance(found, OwnRegion) else found)
        return by_jax(own, derivatives)


def _region_of(graph: Graph) -> tuple[int, Checkpoint]:
    """The region that the import of a function in `jax.checkpoint` is, and where."""
    ((index, op),) = [(index, eqn.op) for index, eqn in enumerate(graph.equations) if isinstance(eqn.op, Checkpoint)]
    return index, op


def _in_segments(graph: Graph) -> Graph:
    """The graph with its checkpoint region, all of it, cut into segments under the region's policy and barriers."""
    index, op = _region_of(graph)
    whole = fold_transposes(without_region(graph, index))
    cut = staged_by_all(whole, op.policy or nothing_saveable)
    if not isinstance(op.prevent_cse, bool):
        return cut
    equations = [
        replace(eqn, op=replace(eqn.op, prevent_cse=op.prevent_cse)) if isinstance(eqn.op, Checkpoint) else eqn
        for eqn in cut.equations
    ]
    return Graph(cut.name, cut.params, tuple(equations), cut.results)
