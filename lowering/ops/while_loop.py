"""Lowering of loops as long as a condition holds to `stablehlo.while`."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.while_loop import While
from rematc.lowering.writer import UNKNOWN, Writer, lowers


@lowers(While)
def while_(w: Writer, eqn: Equation) -> None:
    """`%r:2 = stablehlo.while(%x = %init, ...) : ... cond { ... } do { ... }`."""
    assert isinstance(eqn.op, While)
    if not eqn.results:
        return
    cond_consts, body_consts, carry = ([w.name(value) for value in part] for part in eqn.op.parts(eqn.operands))
    args, result, types = [w.fresh() for _ in carry], w.fresh(), w.types(eqn.results)
    heads = ", ".join([f"{arg} = {value}" for arg, value in zip(args, carry, strict=True)])
    count = len(carry)
    w.raw(f"{result}{f':{count}' if count > 1 else ''} = stablehlo.while({heads}) : {types}")
    for head, graph, consts in (("cond {", eqn.op.cond, cond_consts), ("} do {", eqn.op.body, body_consts)):
        w.raw(head)
        with w.scope():
            for param, name in zip(graph.params, (*consts, *args), strict=True):
                w.bind(param, name)
            w.body(graph)
            w.raw(f"stablehlo.return {w.names(graph.results)} : {w.types(graph.results)} {UNKNOWN}")
    w.raw(f"}} {w.loc(eqn.loc)}")
    for position, value in enumerate(eqn.results):
        w.bind(value, f"{result}#{position}" if count > 1 else result)
