"""Lowering of ops that own graphs: `call` is a call of a private function, `checkpoint` its body in place."""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.lowering.writer import Writer, lowers

#: What XLA's pass `call-inliner` reads.
_NOT_INLINED = ' {mhlo.frontend_attributes = {inlineable = "false"}}'


@lowers(Call)
def call(w: Writer, eqn: Equation) -> None:
    """`%r:2 = func.call @f(%x) {mhlo.frontend_attributes = ...} : (tensor<...>) -> (tensor<...>, tensor<...>)`."""
    assert isinstance(eqn.op, Call)
    tokens, types = w.tokens(eqn.op.effect), w.token_types(eqn.op.effect)
    given = ", ".join([*tokens, *[w.name(value) for value in eqn.operands]])
    taken = ", ".join([*types, *[w.type(value.type) for value in eqn.operands]])
    returned = ", ".join([*types, *[w.type(value.type) for value in eqn.results]])
    defined = w.define_all(eqn.results, eqn.op.effect)
    kept = "" if eqn.op.is_inlineable else _NOT_INLINED
    w.line(f"{defined}func.call @{w.function(eqn.op.body)}({given}){kept} : ({taken}) -> ({returned})", eqn.loc)


@lowers(Checkpoint)
def checkpoint(w: Writer, eqn: Equation) -> None:
    """The body's equations. The recomputing side must come as plain equations behind a barrier."""
    assert isinstance(eqn.op, Checkpoint)
    if eqn.op.is_differentiated:
        raise CompileError(
            f"the recomputation of checkpoint '{eqn.op.body.name}' reaches the lowering without a barrier; "
            "add the pass 'barriers' at the end of the pipeline",
            eqn.loc,
        )
    in_place(w, eqn.op.body, eqn)


def in_place(w: Writer, body: Graph, eqn: Equation) -> None:
    """The equations of a body of the same operands and results as the equation."""
    operands = [w.name(value) for value in eqn.operands]
    with w.scope():
        for param, name in zip(body.params, operands, strict=True):
            w.bind(param, name)
        w.body(body)
        results = [w.name(value) for value in body.results]
    for value, name in zip(eqn.results, results, strict=True):
        w.bind(value, name)
