"""Import of calls, branches, loops, and what keeps values apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.stacks import find_stacks, sliced_body, with_slices
from rematc.ir.core import Graph
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.bodies import live_equations
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.logical import Compare
from rematc.ir.ops.regions import Call
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import Constant, OptimizationBarrier
from rematc.ir.ops.while_.op import While
from rematc.ir.types import I32
from rematc.ir.values import Value

_FRONTEND = "mhlo.frontend_attributes"
#: What XLA is told of calls of functions, and the IR has, or that says nothing of the function.
_OF_CALLS = (("inlineable", "false"), ("inlineable", "true"), ("recomputes", "false"))


@imports("func.call")
def call(block: Block, operation: Any) -> Sequence[Value]:
    """`call` of the function's graph, apart from the caller where it says that it must not be inlined."""
    found = attributes(operation)
    graph, operands = block.module.function(found.symbol("callee"), block.location(operation)), block.flat(operation)
    is_apart = _FRONTEND in found and _is_kept_apart(block, operation)
    return block.b.emit(Call(graph, (False,) * len(operands) if is_apart else None), *operands)


def _is_kept_apart(block: Block, operation: Any) -> bool:
    """Whether XLA must not inline a call. Raises CompileError for what else it is told of the call."""
    frontend: Any = ir.DictAttr(operation.attributes[_FRONTEND])
    told = {one.name: ir.StringAttr(one.attr).value for one in frontend}
    others = {name: value for name, value in told.items() if (name, value) not in _OF_CALLS}
    if others:
        block.fail(operation, f"has {_FRONTEND} = {others}, which the IR does not have; take them out of the text")
    return told.get("inlineable") == "false"


@imports("stablehlo.composite")
def composite(block: Block, operation: Any) -> Sequence[Value]:
    """`call` of the function that the composite stands for."""
    graph = block.module.function(attributes(operation).symbol("decomposition"), block.location(operation))
    return block.b.emit(Call(graph), *block.operands(operation))


@imports("stablehlo.tuple")
def tuple_(block: Block, operation: Any) -> Sequence[Value]:
    """No equation: the arrays in a tuple, and in tuples inside it, are known by their places."""
    return block.flat(operation)


@imports("stablehlo.get_tuple_element")
def get_tuple_element(block: Block, operation: Any) -> Sequence[Value]:
    """No equation: as many arrays as the element has, behind those of the elements before."""
    found = block.flat(operation)
    kinds = ir.TupleType(operation.operands[0].type)
    counts = [_arrays_in(kinds.get_type(place)) for place in range(kinds.num_types)]
    index = attributes(operation).integer("index")
    first = sum(counts[:index])
    return found[first : first + counts[index]]


def _arrays_in(type: Any) -> int:
    """How many arrays a value of a type holds."""
    count, rest = 0, [type]
    while rest:
        current = rest.pop()
        if isinstance(current, ir.TupleType):
            rest += [current.get_type(place) for place in range(current.num_types)]
        else:
            count += 1
    return count


@imports("stablehlo.optimization_barrier")
def optimization_barrier(block: Block, operation: Any) -> Sequence[Value]:
    operands = block.operands(operation)
    return block.b.emit(OptimizationBarrier(is_plannable=True), *operands) if operands else ()


@imports("stablehlo.if")
def if_(block: Block, operation: Any) -> Sequence[Value]:
    """`case` of the predicate as a number: false comes first."""
    predicate = block.operands(operation)[0]
    return _case(block, operation, block.b.convert(predicate, I32), (1, 0))


@imports("stablehlo.case")
def case(block: Block, operation: Any) -> Sequence[Value]:
    return _case(block, operation, block.operands(operation)[0], range(len(operation.regions)))


def _case(block: Block, operation: Any, index: Value, order: Sequence[int]) -> Sequence[Value]:
    """The branches as graphs of all that any of them reads."""
    captured = block.shared_captures(operation)
    branches = [block.region(operation, number, f"branch{number}", captured).graph for number in order]
    return block.b.emit(Case(tuple(branches)), index, *[block.value(value, operation) for value in captured])


@imports("stablehlo.while")
def while_(block: Block, operation: Any) -> Sequence[Value]:
    """`scan` where a counter runs between constants, so that the loop can be differentiated backwards; else `while`."""
    first = block.operands(operation)
    cond, body = block.region(operation, 0, "cond"), block.region(operation, 1, "body")
    counter = _counter(block, first, cond.graph, len(cond.captured), body.graph, len(body.captured))
    if counter is not None:
        return _scan(block, body.graph, body.captured, first, *counter)
    op = While(cond.graph, body.graph, len(cond.captured), len(body.captured))
    return block.b.emit(op, *cond.captured, *body.captured, *first)


def _counter(
    block: Block, first: Sequence[Value], cond: Graph, cond_consts: int, body: Graph, body_consts: int
) -> tuple[int, int] | None:
    """Which carry counts the steps, and how many there are, if that is known.

    The condition is `counter < limit` and nothing else, a step adds a constant to the counter, and both start and
    limit are constants.
    """
    if not cond.results or len(body.results) != len(first):
        return None
    needed = live_equations(cond, set(cond.results))
    if not needed or not isinstance(needed[-1].op, Compare) or len(needed) > 2 or cond_consts:
        return None
    constants = _constants(cond)
    left, right = needed[-1].operands
    direction = needed[-1].op.direction
    if left in constants:
        left, right, direction = right, left, {"GT": "LT", "GE": "LE"}.get(direction, "")
    if direction not in ("LT", "LE") or left not in cond.params or right not in constants:
        return None
    place = cond.params.index(left)
    start = block.constants.get(first[place])
    stride = _stride(body, body.params[body_consts + place], body.results[place])
    if start is None or start.dtype.kind != "i" or not stride or stride < 1:
        return None
    limit = int(constants[right]) + (direction == "LE")
    steps = max(-((int(start) - limit) // stride), 0)
    # A counter that overflows would go on counting from below.
    return (place, steps) if _fits(int(start) + steps * stride, start.dtype) else None


def _constants(graph: Graph) -> dict[Value, np.ndarray[Any, Any]]:
    """The scalar constants of a graph."""
    return {
        eqn.results[0]: eqn.op.array
        for eqn in graph.equations
        if isinstance(eqn.op, Constant) and not eqn.op.type.shape
    }


def _stride(body: Graph, counter: Value, result: Value) -> int | None:
    constants = _constants(body)
    for eqn in body.equations:
        if result in eqn.results and isinstance(eqn.op, Add) and counter in eqn.operands:
            other = eqn.operands[1] if eqn.operands[0] is counter else eqn.operands[0]
            return int(constants[other]) if other in constants else None
    return None


def _scan(
    block: Block, body: Graph, captured: Sequence[Value], first: Sequence[Value], place: int, steps: int
) -> Sequence[Value]:
    """The loop as a scan, of slices where it has stacks. A counter that only counts is left out of it."""
    consts = len(captured)
    body = with_slices(body)
    counters = _counters(block, body, consts, first, steps)
    assert consts + place in counters, "it counts"
    from_zero = [index for index, (start, stride) in counters.items() if (int(start), stride) == (0, 1)]
    stacks = find_stacks(body, consts, from_zero, steps)
    carries = [
        index
        for index in range(consts, consts + len(first))
        if index not in stacks.same and index not in stacks.written
    ]
    same = [index for index in (*range(consts), *sorted(stacks.same)) if index not in stacks.read]
    step = sliced_body(stacks, same, carries, consts)
    for counter in counters:
        step, carries = _without_counter(step, len(same), carries, counter)
    given = (*captured, *first)
    op = Scan(step, steps, len(same), len(carries), stacks.is_reversed)
    operands = [given[index] for index in (*same, *carries, *sorted(stacks.read))]
    found = dict(zip((*carries, *sorted(stacks.written)), block.b.emit(op, *operands), strict=True))
    for index, (start, stride) in counters.items():
        found[index] = block.literal(np.asarray(int(start) + steps * stride, start.dtype))
    return [found.get(index, given[index]) for index in range(consts, len(given))]


def _counters(
    block: Block, body: Graph, consts: int, first: Sequence[Value], steps: int
) -> dict[int, tuple[np.ndarray[Any, Any], int]]:
    """The carries that count steps, by their numbers among all parameters: where they start, and by how much."""
    found = {}
    for place, value in enumerate(first):
        start = block.constants.get(value)
        if start is not None and start.dtype.kind == "i" and not start.shape:
            stride = _stride(body, body.params[consts + place], body.results[place])
            if stride is not None and _fits(int(start) + steps * stride, start.dtype):
                found[consts + place] = (start, stride)
    return found


def _fits(number: int, dtype: np.dtype[Any]) -> bool:
    """Whether an integer of a type does not overflow before it is this number."""
    return bool(abs(number) < 2 ** (8 * dtype.itemsize - 1))


def _without_counter(step: Graph, consts: int, carries: list[int], counter: int) -> tuple[Graph, list[int]]:
    """A step and its carries without a counter, where that only counts."""
    place = carries.index(counter)
    param = step.params[consts + place]
    others = [value for index, value in enumerate(step.results) if index != place]
    used = set(others)
    kept = live_equations(step, used)
    if param in used:
        return step, carries
    params = tuple([value for value in step.params if value is not param])
    return Graph(step.name, params, kept, tuple(others)), [index for index in carries if index != counter]


@imports("chlo.scan")
def scan(block: Block, operation: Any) -> Sequence[Value]:
    """`scan` along the first dimension: slices go in as (slices, carries), and come out as (slices, carries)."""
    found, b = attributes(operation), block.b
    xs_count, carry_count = found.integers("operandSegmentSizes")
    dimension, is_reversed = found.integer("dimension"), found.boolean("is_reverse")
    operands = block.operands(operation)
    inner = block.region(operation, 0, "scan")
    consts, graph = len(inner.captured), inner.graph
    outputs = len(graph.results) - carry_count
    params = (*graph.params[:consts], *graph.params[consts + xs_count :], *graph.params[consts : consts + xs_count])
    body = Graph(graph.name, params, graph.equations, (*graph.results[outputs:], *graph.results[:outputs]))
    order = [dimension, *[d for d in range(operands[0].type.rank) if d != dimension]]
    xs = [b.transpose(x, order) for x in operands[:xs_count]]
    length = operands[0].type.shape[dimension]
    op = Scan(body, length, consts, carry_count, is_reversed)
    results = b.emit(op, *inner.captured, *operands[xs_count:], *xs)
    back = [*range(1, dimension + 1), 0]
    stacks = [b.transpose(y, [*back, *range(dimension + 1, y.type.rank)]) for y in results[carry_count:]]
    return [*stacks, *results[:carry_count]]
