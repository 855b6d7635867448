"""Lowering of branches to `stablehlo.case`."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.branches import Case
from rematc.lowering.writer import UNKNOWN, Writer, lowers


@lowers(Case)
def case(w: Writer, eqn: Equation) -> None:
    """`%r:2 = "stablehlo.case"(%index) ({ ... }, { ... }) : (tensor<i32>) -> (tensor<...>, tensor<...>)`."""
    assert isinstance(eqn.op, Case)
    if not eqn.results:
        return
    index, *operands = [w.name(value) for value in eqn.operands]
    count = len(eqn.results)
    name = w.fresh()
    w.raw(f'{name}{f":{count}" if count > 1 else ""} = "stablehlo.case"({index}) ({{')
    for number, branch in enumerate(eqn.op.branches):
        if number:
            w.raw("}, {")
        with w.scope():
            for param, operand in zip(branch.params, operands, strict=True):
                w.bind(param, operand)
            w.body(branch)
            w.raw(f"stablehlo.return {w.names(branch.results)} : {w.types(branch.results)} {UNKNOWN}")
    w.raw(f"}}) : ({w.type(eqn.operands[0].type)}) -> ({w.types(eqn.results)}) {w.loc(eqn.loc)}")
    for position, value in enumerate(eqn.results):
        w.bind(value, f"{name}#{position}" if count > 1 else name)
