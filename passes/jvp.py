"""Forward-mode differentiation: a graph to the graph of its values and tangents.

Before:  graph @f(%x: f32[4]) -> (f32[4]) { %0: f32[4] = sine %x ... }
After:   graph @f(%x: f32[4], %t: f32[4]) -> (f32[4], f32[4]) {
           %0: f32[4] = sine %x   %1: f32[4] = cosine %x   %2: f32[4] = multiply %t, %1 ... }

Everything else (linearize, vjp, grad) starts here. Regions stay regions: the jvp of a checkpoint is a checkpoint, so
that derivatives of derivatives still know what to recompute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Value
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.passes.inline import inline_for_differentiation


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


def jvp(graph: Graph, has_tangent: Sequence[bool]) -> Jvp:
    """Differentiate `graph` forwards with respect to the parameters for which `has_tangent` is set.

    Raises CompileError with the equation's location where an op has no jvp.
    """
    graph = inline_for_differentiation(graph)
    b = Builder(graph.name)
    b.params.extend(graph.params)
    tangents: dict[Value, Value] = {}
    for param, is_set in zip(graph.params, has_tangent, strict=True):
        if is_set:
            tangents[param] = b.parameter(param.type, f"d{param.name}" if param.name else None)
    for eqn in graph.equations:
        _differentiate(b, eqn, tangents)
    b.loc = None
    result_tangents = [tangents.get(value) for value in graph.results]
    results = (*graph.results, *(value for value in result_tangents if value is not None))
    return Jvp(b.build(*results), tuple(value is not None for value in result_tangents))


def _differentiate(b: Builder, eqn: Equation, tangents: dict[Value, Value]) -> None:
    incoming = [tangents.get(value) for value in eqn.operands]
    has_derivative = any(type.dtype.is_inexact for type in eqn.result_types)
    if not has_derivative or all(tangent is None for tangent in incoming):
        b.append(eqn)
        return
    b.loc = eqn.loc
    if isinstance(eqn.op, Checkpoint):
        _differentiate_checkpoint(b, eqn, eqn.op, incoming, tangents)
        return
    b.append(eqn)
    try:
        outgoing = eqn.op.jvp(b, eqn.operands, eqn.results, incoming)
    except CompileError as error:
        error.loc = error.loc or eqn.loc
        raise
    for value, tangent in zip(eqn.results, outgoing, strict=True):
        if tangent is not None and value.type.dtype.is_inexact:
            tangents[value] = tangent


def _differentiate_checkpoint(
    b: Builder, eqn: Equation, op: Checkpoint, incoming: Sequence[Value | None], tangents: dict[Value, Value]
) -> None:
    body = jvp(op.body, [tangent is not None for tangent in incoming])
    present = [tangent for tangent in incoming if tangent is not None]
    prevent_cse = op.prevent_cse
    if isinstance(prevent_cse, tuple):
        prevent_cse = (*prevent_cse, *(True for _ in present))
    differentiated = replace(op, body=body.graph, prevent_cse=prevent_cse)
    count = len(eqn.results)
    results = (*eqn.results, *(Value(type) for type in body.graph.result_types[count:]))
    b.append(Equation(differentiated, (*eqn.operands, *present), results, eqn.loc))
    outgoing = iter(results[count:])
    for value, is_set in zip(eqn.results, body.has_tangent, strict=True):
        if is_set:
            tangents[value] = next(outgoing)
