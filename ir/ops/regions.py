"""Ops that own graphs: `call` and `checkpoint`. A region is closed; what it reads are its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Array, Graph, Op, Types, register
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.policy import Policy
from rematc.ir.types import TensorType

BY_PASS = "is a graph transformation: passes/jvp.py differentiates the body"
BY_TRANSPOSE_PASS = "is a graph transformation: passes/transpose.py transposes the body"


class Region(Op):
    """Family base: the op's meaning is that of its body applied to the operands."""

    __slots__ = ()
    body: Graph
    no_jvp = BY_PASS
    no_transpose = BY_TRANSPOSE_PASS

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if tuple(operands) != self.body.param_types:
            found, expected = (", ".join(map(str, types)) for types in (operands, self.body.param_types))
            raise TypeMismatchError(f"'{self.name}' of '{self.body.name}' takes ({expected}), got ({found})")
        return self.body.result_types

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(evaluate(self.body, operands))

    def flops(self, operands: Types, results: Types) -> int:
        return sum(eqn.flops for eqn in self.body.equations)

    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)


@register
@dataclass(frozen=True, slots=True)
class Call(Region):
    """A function applied: kept as a function in StableHLO, so that a body used often is printed once."""

    name = "call"
    body: Graph


@register
@dataclass(frozen=True, slots=True)
class Checkpoint(Region):
    """A region whose intermediate values are recomputed when it is differentiated, but for what the policy saves.

    Attributes:
        body: the region.
        policy: what may be saved; None is nothing but the operands.
        prevent_cse: whether XLA must not merge the recomputation with the forward evaluation; for all operands, or
            one entry per operand.
        is_differentiated: whether this is the backward (or tangent) side of a region: what it computes from
            residuals is recomputation, and is kept behind a barrier.
    """

    name = "checkpoint"
    body: Graph
    policy: Policy | None = None
    prevent_cse: bool | tuple[bool, ...] = True
    is_differentiated: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if isinstance(self.prevent_cse, tuple) and len(self.prevent_cse) != len(operands):
            raise TypeMismatchError(
                f"'checkpoint' has {len(operands)} operands but prevent_cse for {len(self.prevent_cse)}"
            )
        return Region.infer(self, operands)

    @property
    def pinned(self) -> tuple[bool, ...]:
        """prevent_cse, one entry per operand."""
        if isinstance(self.prevent_cse, tuple):
            return self.prevent_cse
        return (self.prevent_cse,) * len(self.body.params)

    def without_unused(self, used: Sequence[bool]) -> tuple[Checkpoint, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results: (op, indices of the operands it still takes, of the results it gives)."""
        body = self.body
        results = tuple(index for index, is_used in enumerate(used) if is_used)
        live = {body.results[index] for index in results}
        kept = []
        for eqn in reversed(body.equations):
            if any(value in live for value in eqn.results):
                live.update(eqn.operands)
                kept.append(eqn)
        operands = tuple(index for index, value in enumerate(body.params) if value in live)
        pruned = Graph(
            body.name,
            tuple(body.params[index] for index in operands),
            tuple(reversed(kept)),
            tuple(body.results[index] for index in results),
        )
        prevent_cse = self.prevent_cse
        if isinstance(prevent_cse, tuple):
            prevent_cse = tuple(prevent_cse[index] for index in operands)
        return Checkpoint(pruned, self.policy, prevent_cse, self.is_differentiated), operands, results
