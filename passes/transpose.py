"""Transposition: a graph linear in some parameters to its adjoint, which takes cotangents of the results.

Before:  graph @f(%c: f32[4], %t: f32[4]) -> (f32[4]) { %0: f32[4] = multiply %t, %c ... }     linear in %t
After:   graph @f(%c: f32[4], %ct: f32[4]) -> (f32[4]) { %0: f32[4] = multiply %ct, %c ... }

Equations that no linear parameter reaches are evaluated first, in order; then the linear ones are walked backwards,
and cotangents of a value used several times are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.shape import Slice
from rematc.ir.schedules import Schedule
from rematc.ir.values import LinearOperand, Value
from rematc.passes.cotangents import Cotangents
from rematc.passes.inline import inline_for_differentiation
from rematc.passes.locating import located
from rematc.passes.revolve import schedule


@dataclass(frozen=True, slots=True)
class Transposed:
    """The result of `transpose`.

    Attributes:
        graph: parameters: those in which the graph was not linear, then a cotangent for each result that has one;
            results: a cotangent for each linear parameter that has one.
        has_ct: for each linear parameter, whether its cotangent is more than a symbolic zero.
    """

    graph: Graph
    has_ct: tuple[bool, ...]


#: What was transposed: by its identity, and by which parameters and results. The graph is held so that no other one
#: gets its id.
_Known = dict[tuple[int, tuple[bool, ...], tuple[bool, ...]], tuple[Graph, Transposed]]


class _Context(Builder):
    """What transpose rules are given. A region that stands in several places is transposed once."""

    def __init__(self, name: str, known: _Known) -> None:
        super().__init__(name)
        self._known = known

    def adjoint_of(
        self, graph: Graph, is_linear: Sequence[bool], has_ct: Sequence[bool]
    ) -> tuple[Graph, tuple[bool, ...]]:
        key = id(graph), tuple(is_linear), tuple(has_ct)
        if key not in self._known:
            self._known[key] = graph, _transpose(graph, is_linear, has_ct, self._known)
        result = self._known[key][1]
        return result.graph, result.has_ct

    def schedule(self, steps: int, snapshots: int) -> Schedule:
        return schedule(steps, snapshots)


def transpose(graph: Graph, is_linear: Sequence[bool], has_ct: Sequence[bool] | None = None) -> Transposed:
    """The adjoint of `graph` in the parameters for which `is_linear` is set.

    `has_ct` says which results get a cotangent (all of them if it is left out); the others count as zero. Raises
    CompileError with the equation's location where an op has no transpose.
    """
    return _transpose(graph, is_linear, has_ct or (True,) * len(graph.results), {})


def _transpose(graph: Graph, is_linear: Sequence[bool], has_ct: Sequence[bool], known: _Known) -> Transposed:
    graph = inline_for_differentiation(graph)
    b = _Context(graph.name, known)
    linear = {value for value, is_set in zip(graph.params, is_linear, strict=True) if is_set}
    b.params.extend(value for value in graph.params if value not in linear)
    backwards: list[Equation] = []
    for eqn in graph.equations:
        if linear.isdisjoint(eqn.operands):
            b.append(eqn)
        else:
            backwards.append(eqn)
            linear.update(eqn.results)
    cts = Cotangents(b)
    for value, is_set in zip(graph.results, has_ct, strict=True):
        if is_set:
            ct = b.parameter(value.type, "ct")
            if value in linear:
                cts.add(value, ct)
    while backwards:
        _transpose_equation(b, backwards.pop(), linear, cts)
    wanted = [cts.take(value) for value, is_set in zip(graph.params, is_linear, strict=True) if is_set]
    b.loc = None
    return Transposed(b.build(*(ct for ct in wanted if ct is not None)), tuple(ct is not None for ct in wanted))


def _transpose_equation(b: _Context, eqn: Equation, linear: set[Value], cts: Cotangents) -> None:
    incoming = [cts.take(value) for value in eqn.results]
    if all(ct is None for ct in incoming):
        if eqn.op.effect:
            raise CompileError(
                f"'{eqn.op.name}' of a tangent cannot happen in a backward pass, which has no tangents but cotangents; "
                "apply it to the primal value, or to the cotangent in the backward rule of a rematc.custom_vjp",
                eqn.loc,
            )
        return
    b.loc = eqn.loc
    if isinstance(eqn.op, Slice) and incoming[0] is not None:
        cts.add_slice(eqn.operands[0], eqn.op, incoming[0])
        return
    operands = [LinearOperand(value.type) if value in linear else value for value in eqn.operands]
    with located(eqn):
        outgoing = eqn.op.transpose(b, incoming, operands)
    for value, ct in zip(eqn.operands, outgoing, strict=True):
        if ct is not None and value in linear:
            cts.add(value, ct)
