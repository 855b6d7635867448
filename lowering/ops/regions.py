"""Lowering of ops that own graphs: `call` is a call of a private function, `checkpoint` its body in place.

A function that XLA must keep apart is one on the CPU alone: its compilers for other platforms inline all functions, or
are not known to run one, so that the body comes in the place of the call, behind a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.lowering.ops.structural import optimization_barrier
from rematc.lowering.writer import Writer, lowers

#: What XLA's pass `call-inliner` reads.
_NOT_INLINED = ' {mhlo.frontend_attributes = {inlineable = "false"}}'


@lowers(Call)
def call(w: Writer, eqn: Equation) -> None:
    """`%r:2 = func.call @f(%x) {mhlo.frontend_attributes = ...} : (tensor<...>) -> (tensor<...>, tensor<...>)`."""
    assert isinstance(eqn.op, Call)
    if eqn.op.pinned is not None:
        w.is_tuned = True
        if w.target.platform != "cpu":
            in_place(w, eqn.op.body, eqn, _behind_barrier(w, eqn, eqn.op.pinned))
            return
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


def _behind_barrier(w: Writer, eqn: Equation, pinned: Sequence[bool]) -> list[str]:
    """The names of the operands, those that are pinned as results of a barrier."""
    held = list(dict.fromkeys(value for value, is_set in zip(eqn.operands, pinned, strict=True) if is_set))
    copies = [Value(value.type, value.name) for value in held]
    optimization_barrier(w, Equation(OptimizationBarrier(), tuple(held), tuple(copies), eqn.loc))
    renamed = dict(zip(held, copies, strict=True))
    return [w.name(renamed[value] if is_set else value) for value, is_set in zip(eqn.operands, pinned, strict=True)]


def in_place(w: Writer, body: Graph, eqn: Equation, operands: Sequence[str] | None = None) -> None:
    """The equations of a body of the same operands and results as the equation; `operands` are their names."""
    operands = operands or [w.name(value) for value in eqn.operands]
    with w.scope():
        for param, name in zip(body.params, operands, strict=True):
            w.bind(param, name)
        w.body(body)
        results = [w.name(value) for value in body.results]
    for value, name in zip(eqn.results, results, strict=True):
        w.bind(value, name)
