"""Lowering of loops as long as a condition holds to `stablehlo.while`."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.while_.op import While
from rematc.lowering.writer import Writer, lowers


@lowers(While)
def while_(w: Writer, eqn: Equation) -> None:
    """`%r:2 = stablehlo.while(%x = %init, ...) : ... cond { ... } do { ... }`.

    A condition with effects is evaluated before the loop and at the end of each step, and carried first: where XLA
    knows the number of steps it does not evaluate the loop's own. A token comes last.
    """
    op = eqn.op
    assert isinstance(op, While)
    if not eqn.results:
        return
    cond_consts, body_consts, carry = ([w.name(value) for value in part] for part in op.parts(eqn.operands))
    tests = _results(w, op.cond, [*cond_consts, *carry]) if op.cond.effect else []
    tokens, outside = w.tokens(op.effect), w.token
    types = [*["tensor<i1>"] * len(tests), *[w.type(value.type) for value in eqn.results], *w.token_types(op.effect)]
    args, result = [w.fresh() for _ in types], w.fresh()
    heads = ", ".join([f"{arg} = {value}" for arg, value in zip(args, (*tests, *carry, *tokens), strict=True)])
    count = len(types)
    w.raw(f"{result}{f':{count}' if count > 1 else ''} = stablehlo.while({heads}) : {', '.join(types)}")
    carried = args[len(tests) : len(tests) + len(carry)]
    w.raw("cond {")
    test = args[:1] if tests else _results(w, op.cond, [*cond_consts, *carried])
    w.returned("stablehlo.return", test, ["tensor<i1>"])
    w.raw("} do {")
    if tokens:
        w.token = args[-1]
    names = _results(w, op.body, [*body_consts, *carried])
    tests = _results(w, op.cond, [*cond_consts, *names]) if tests else []
    w.returned("stablehlo.return", [*tests, *names, *w.tokens(op.effect)], types)
    w.raw(f"}} {w.loc(eqn.loc)}")
    parts = [f"{result}#{index}" for index in range(count)] if count > 1 else [result]
    for value, name in zip(eqn.results, parts[len(tests) :], strict=False):
        w.bind(value, name)
    w.token = parts[-1] if tokens else outside


def _results(w: Writer, graph: Graph, operands: Sequence[str]) -> list[str]:
    """Write the equations of a graph; the names of its results."""
    with w.scope(is_inside=True):
        for param, name in zip(graph.params, operands, strict=True):
            w.bind(param, name)
        w.body(graph)
        return [w.name(value) for value in graph.results]
