"""Lowering of branches to `stablehlo.case`."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.case.op import Case
from rematc.lowering.writer import Writer, lowers


@lowers(Case)
def case(w: Writer, eqn: Equation) -> None:
    """`%r:2 = "stablehlo.case"(%index) ({ ... }, { ... }) : (tensor<i32>) -> (tensor<...>, tensor<...>)`."""
    assert isinstance(eqn.op, Case)
    effect = eqn.op.effect
    if not eqn.results and not effect:
        return
    index, *operands = [w.name(value) for value in eqn.operands]
    before = w.token
    types = [*w.token_types(effect), *[w.type(value.type) for value in eqn.results]]
    w.raw(f'{w.define_all(eqn.results, effect)}"stablehlo.case"({index}) ({{')
    after = w.token
    for number, branch in enumerate(eqn.op.branches):
        if number:
            w.raw("}, {")
        with w.scope(is_inside=True):
            for param, operand in zip(branch.params, operands, strict=True):
                w.bind(param, operand)
            w.token = before
            w.body(branch)
            w.returned("stablehlo.return", [*w.tokens(effect), *[w.name(value) for value in branch.results]], types)
    w.raw(f"}}) : ({w.type(eqn.operands[0].type)}) -> ({', '.join(types)}) {w.loc(eqn.loc)}")
    w.token = after
