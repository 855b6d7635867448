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
from rematc.ir.core import Derivatives, Equation, Graph, Primals, Tangents, Value
from rematc.ir.ops.regions import Region
from rematc.passes.inline import inline_for_differentiation, inline_recognized
from rematc.passes.locating import located
from rematc.passes.recognize import Recognize


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
    called = inline_for_differentiation(graph)
    graph = Recognize().run(called)
    result = _jvp(graph, has_tangent)
    return result if graph is called else Jvp(inline_recognized(result.graph), result.has_tangent)


def _jvp(graph: Graph, has_tangent: Sequence[bool]) -> Jvp:
    walk = _Jvp(graph)
    b = walk.builder
    for param, is_set in zip(graph.params, has_tangent, strict=True):
        if is_set:
            walk.tangents[param] = b.parameter(param.type, f"d{param.name}" if param.name else None)
    for eqn in graph.equations:
        walk.equation(eqn)
    primals = [walk.env.get(value, value) for value in graph.results]
    tangents = [walk.tangents.get(value) for value in primals]
    joint = b.build(*primals, *(value for value in tangents if value is not None))
    return Jvp(joint, tuple(value is not None for value in tangents))


class _Jvp:
    """One walk over a graph. `env` renames results of regions, which come out of new equations."""

    def __init__(self, graph: Graph) -> None:
        self.builder = Builder(graph.name)
        self.builder.params.extend(graph.params)
        self.tangents: dict[Value, Value] = {}
        self.env: dict[Value, Value] = {}

    def equation(self, eqn: Equation) -> None:
        """Emit an equation and the tangents of its results."""
        operands = tuple([self.env.get(value, value) for value in eqn.operands]) if self.env else eqn.operands
        incoming = [self.tangents.get(value) for value in operands]
        is_constant = all(tangent is None for tangent in incoming)
        if isinstance(eqn.op, Region) and not is_constant:
            self._region(eqn, eqn.op, operands, incoming)
            return
        if operands is not eqn.operands and operands != eqn.operands:
            eqn = Equation(eqn.op, operands, eqn.results, eqn.loc)
        self.builder.append(eqn)
        # Integers and booleans have no tangents, whatever they were computed from.
        if not is_constant and any(value.type.dtype.is_inexact for value in eqn.results):
            self.builder.loc = eqn.loc
            with located(eqn):
                self._note(eqn.results, eqn.op.jvp(self.builder, operands, eqn.results, incoming))

    def _region(self, eqn: Equation, op: Region, operands: Primals, incoming: Tangents) -> None:
        self.builder.loc = eqn.loc
        with located(eqn):
            results, outgoing = op.jvp_region(self.builder, jvp_of_region, operands, incoming)
        self.env.update(zip(eqn.results, results, strict=True))
        self._note(results, outgoing)

    def _note(self, results: Primals, outgoing: Derivatives) -> None:
        for value, tangent in zip(results, outgoing, strict=True):
            if tangent is not None and value.type.dtype.is_inexact:
                self.tangents[value] = tangent


def jvp_of_region(graph: Graph, has_tangent: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
    """`jvp` as the rules of regions call it."""
    result = _jvp(graph, has_tangent)
    return result.graph, result.has_tangent
