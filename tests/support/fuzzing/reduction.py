"""The smallest program that still fails: what a find leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.splicing import splice
from rematc.ir.values import Value
from rematc.passes.regions import RegionRewriter


def reduced(graph: Graph, fails: Callable[[Graph], bool]) -> Graph:
    """A program that fails and of which nothing can be left out: every smaller one that we think of does not fail."""
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for candidate in _smaller(graph):
            if _size(candidate) < _size(graph) and fails(candidate):
                graph, has_shrunk = candidate, True
                break
    return graph


def _size(graph: Graph) -> tuple[int, int, int, int]:
    """Equations count more than anything else; among them those with regions."""
    inner = [_size(region) for eqn in graph.equations for region in eqn.op.regions()]
    elements = sum(value.type.size + value.type.rank for value in graph.params)
    uses = len(graph.results) + sum(len(eqn.operands) for eqn in graph.equations)
    return (
        sum(size[0] for size in inner) + len(graph.equations),
        sum(size[1] for size in inner) + len(graph.params),
        sum(size[2] for size in inner) + uses,
        elements,
    )


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Candidates, those that leave out most first."""
    for eqn in graph.equations:
        for value in eqn.results:
            yield live(replace_results(graph, (value,)))
    if len(graph.results) > 1:
        for value in dict.fromkeys(graph.results):
            yield live(replace_results(graph, (value,)))
    for eqn in reversed(graph.equations):
        yield live(_with_parameters(graph, eqn))
    for eqn in graph.equations:
        for value in eqn.operands:
            if len(eqn.results) == 1 and value.type == eqn.results[0].type:
                yield live(_substituted(graph, {eqn.results[0]: value}))
    for index, eqn in enumerate(graph.equations):
        if isinstance(eqn.op, (Call, Checkpoint)):
            yield live(_inlined(graph, index))
        for region in eqn.op.regions():
            for body in _smaller_bodies(region):
                op = _with_region(eqn.op, region, body)
                yield _with_equation(graph, index, Equation(op, eqn.operands, eqn.results, eqn.loc))
    if len(graph.results) > 1:
        for index in range(len(graph.results)):
            yield live(replace_results(graph, graph.results[:index] + graph.results[index + 1 :]))
    for index, value in enumerate(graph.params):
        for other in graph.params[:index]:
            if other.type == value.type:
                yield live(_substituted(graph, {value: other}))


def _smaller_bodies(body: Graph) -> Iterator[Graph]:
    """Of the same parameters and results."""
    for eqn in body.equations:
        for value in (*eqn.operands, *body.params):
            if len(eqn.results) == 1 and value.type == eqn.results[0].type:
                yield live(_substituted(body, {eqn.results[0]: value}), has_all_params=True)
    for index, eqn in enumerate(body.equations):
        if isinstance(eqn.op, (Call, Checkpoint)):
            yield live(_inlined(body, index), has_all_params=True)
        for region in eqn.op.regions():
            for inner in _smaller_bodies(region):
                op = _with_region(eqn.op, region, inner)
                yield _with_equation(body, index, Equation(op, eqn.operands, eqn.results, eqn.loc))


def _with_region(op: Op, old: Graph, new: Graph) -> Op:
    """The op with another body in the place of this one."""
    return RegionRewriter(lambda graph: new if graph is old else graph).op(op)


def replace_results(graph: Graph, results: tuple[Value, ...]) -> Graph:
    """The graph with other results."""
    return Graph(graph.name, graph.params, graph.equations, results)


def live(graph: Graph, has_all_params: bool = False) -> Graph:
    """The graph without equations, and parameters, that its results do not need."""
    needed = set(graph.results)
    kept: list[Equation] = []
    for eqn in reversed(graph.equations):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            kept.append(eqn)
    params = graph.params if has_all_params else tuple([value for value in graph.params if value in needed])
    return Graph(graph.name, params, tuple(reversed(kept)), graph.results)


def _with_parameters(graph: Graph, cut: Equation) -> Graph:
    """The graph with parameters in place of an equation's results."""
    equations = tuple([eqn for eqn in graph.equations if eqn is not cut])
    return Graph(graph.name, (*graph.params, *cut.results), equations, graph.results)


def _substituted(graph: Graph, env: dict[Value, Value]) -> Graph:
    """The graph with values in place of others; none stands in for a value defined before it."""
    equations = []
    for eqn in graph.equations:
        if all(value in env for value in eqn.results) and eqn.results:
            continue
        operands = tuple([env.get(value, value) for value in eqn.operands])
        equations.append(Equation(eqn.op, operands, eqn.results, eqn.loc))
    results = tuple([env.get(value, value) for value in graph.results])
    return Graph(graph.name, graph.params, tuple(equations), results)


def _inlined(graph: Graph, index: int) -> Graph:
    """The graph with the body of a call or checkpoint in its place."""
    eqn = graph.equations[index]
    assert isinstance(eqn.op, (Call, Checkpoint))
    equations = list(graph.equations[:index])
    results = splice(eqn.op.body, eqn.operands, equations)
    env = dict(zip(eqn.results, results, strict=True))
    rest = Graph(graph.name, graph.params, graph.equations[index + 1 :], graph.results)
    moved = _substituted(rest, env)
    return Graph(graph.name, graph.params, (*equations, *moved.equations), moved.results)


def _with_equation(graph: Graph, index: int, eqn: Equation) -> Graph:
    equations = (*graph.equations[:index], eqn, *graph.equations[index + 1 :])
    return Graph(graph.name, graph.params, equations, graph.results)
