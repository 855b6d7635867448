"""Forward-mode differentiation: a graph to the graph of its values and tangents.

Before:  graph @f(%x: f32[4]) -> (f32[4]) { %0: f32[4] = sine %x ... }
After:   graph @f(%x: f32[4], %t: f32[4]) -> (f32[4], f32[4]) {
           %0: f32[4] = sine %x   %1: f32[4] = cosine %x   %2: f32[4] = multiply %t, %1 ... }

Everything else (linearize, vjp, grad) starts here. Regions stay regions: the jvp of a checkpoint is a checkpoint, so
that derivatives of derivatives still know what to recompute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.builder import Builder
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Equation, Graph
from rematc.ir.values import Primals, Tangents, Value
from rematc.passes.inline import inline_for_differentiation, inline_recognized
from rematc.passes.locating import located
from rematc.passes.recognize import Recognize
from rematc.passes.vmap import vmap


@dataclass(frozen=True, slots=True)
class Jvp:
    """The result of `jvp`.

    Attributes:
        graph: parameters: all primals, then a tangent for each parameter that has one; results: all primals, then a
            tangent for each result that has one.
        has_tangent: for each primal result, whether its tangent is more than a symbolic zero.
    """

    graph: Graph
    has_tangent: tuple[bool, ...]


@collection_paused()
def jvp(graph: Graph, has_tangent: Sequence[bool]) -> Jvp:
    """Differentiate `graph` forwards with respect to the parameters for which `has_tangent` is set.

    Raises CompileError with the equation's location where an op has no jvp.
    """
    return jvp_of_recognized(Recognize().run(inline_for_differentiation(graph)), has_tangent)


def jvp_of(graph: Graph, has_tangent: Sequence[bool], of: Sequence[bool]) -> Graph:
    """The graph of `jvp`, with tangents for the results for which `of` is set, and for no others."""
    found = jvp(graph, has_tangent)
    if found.has_tangent == tuple(of):
        return found.graph
    b = Builder(graph.name)
    results = b.inline(found.graph, [b.parameter(param.type, param.name) for param in found.graph.params])
    count = len(of)
    tangents = iter(results[count:])
    own = [next(tangents) if is_set else None for is_set in found.has_tangent]
    wanted = [(t, y) for t, y, is_set in zip(own, results, of, strict=False) if is_set]
    return b.build(*results[:count], *[b.zeros(y.type) if t is None else t for t, y in wanted])


def jvp_of_recognized(graph: Graph, has_tangent: Sequence[bool]) -> Jvp:
    """`jvp` of a graph that the passes `inline_transparent` and `recognize` have gone over."""
    result = _jvp(graph, has_tangent, {})
    return Jvp(inline_recognized(result.graph), result.has_tangent)


#: What was differentiated: by its identity and by which parameters. The graph is held so that no other one gets its id.
_Known = dict[tuple[int, tuple[bool, ...]], tuple[Graph, Jvp]]


def _jvp(graph: Graph, has_tangent: Sequence[bool], known: _Known) -> Jvp:
    walk = _Jvp(graph, known)
    b = walk.builder
    for param, is_set in zip(graph.params, has_tangent, strict=True):
        if is_set:
            walk.tangents[param] = b.parameter(param.type, f"d{param.name}" if param.name else None)
    for eqn in graph.equations:
        walk.equation(eqn)
    primals = [walk.env.get(value, value) for value in graph.results]
    tangents = [walk.tangents.get(value) for value in graph.results]
    joint = b.build(*primals, *(value for value in tangents if value is not None))
    return Jvp(joint, tuple(value is not None for value in tangents))


class _Context(Builder):
    """What jvp rules are given. `replaced` are values that a rule gives in the place of its equation's results.

    A region that stands in several places is differentiated once, and is one region again.
    """

    def __init__(self, name: str, known: _Known) -> None:
        super().__init__(name)
        self._known = known
        self.replaced: tuple[Value, ...] | None = None

    def jvp_of(self, graph: Graph, has_tangent: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
        key = id(graph), tuple(has_tangent)
        if key not in self._known:
            self._known[key] = graph, _jvp(graph, has_tangent, self._known)
        result = self._known[key][1]
        return result.graph, result.has_tangent

    def vmap_of(self, graph: Graph, is_batched: Sequence[bool], size: int) -> tuple[Graph, tuple[bool, ...]]:
        result = vmap(graph, is_batched, size)
        return inline_for_differentiation(result.graph), result.is_batched

    def instead(self, results: Primals) -> None:
        self.replaced = tuple(results)


class _Jvp:
    """One walk over a graph.

    `env` renames results that a rule has replaced, by operands, maybe. `tangents` are by the values of the graph: a
    result that is an operand has a tangent of its own, which a custom rule gives it.
    """

    def __init__(self, graph: Graph, known: _Known) -> None:
        self.builder = _Context(graph.name, known)
        self.builder.params.extend(graph.params)
        self.tangents: dict[Value, Value] = {}
        self.env: dict[Value, Value] = {}

    def equation(self, eqn: Equation) -> None:
        """Emit an equation and the tangents of its results."""
        incoming = [self.tangents.get(value) for value in eqn.operands]
        if self.env:
            operands = tuple([self.env.get(value, value) for value in eqn.operands])
            if operands != eqn.operands:
                eqn = Equation(eqn.op, operands, eqn.results, eqn.loc)
        self.builder.append(eqn)
        is_constant = all(tangent is None for tangent in incoming)
        # Integers and booleans have no tangents, whatever they were computed from; in regions others may have some.
        if not is_constant and (eqn.op.regions() or any(value.type.dtype.is_inexact for value in eqn.results)):
            self._tangents(eqn, incoming)

    def _tangents(self, eqn: Equation, incoming: Tangents) -> None:
        """Emit the tangents of the results of the last equation."""
        b, place = self.builder, len(self.builder.equations) - 1
        b.loc, b.replaced = eqn.loc, None
        with located(eqn):
            outgoing = eqn.op.jvp(b, eqn.operands, eqn.results, incoming)
        if b.replaced is not None:
            del b.equations[place]
            self.env.update(zip(eqn.results, b.replaced, strict=True))
        for value, tangent in zip(eqn.results, outgoing, strict=True):
            if tangent is not None and value.type.dtype.is_inexact:
                self.tangents[value] = tangent
