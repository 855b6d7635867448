"""The loop that takes another one backwards from few snapshots of its carries, as a schedule says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.core import Emitter, Graph, TransposeContext
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.bodies import Inside, chosen, live_equations, others, spread
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.scan.adjoint import Adjoint
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import Constant
from rematc.ir.schedules import Schedule
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Derivatives, Operands, Tangents, Value


class _Instruction(Inside):
    """One instruction."""

    def number(self, value: int) -> Value:
        return self.emit(Constant.of(np.asarray(value, np.int32)))[0]

    def row(self, stack: Value, index: Value) -> Value:
        """One row of a stack."""
        shape = stack.type.shape[1:]
        zero = self.number(0)
        (window,) = self.emit(DynamicSlice((1, *shape)), stack, index, *[zero] * len(shape))
        return self.emit(Reshape(shape), window)[0]

    def with_row(self, stack: Value, row: Value, index: Value) -> Value:
        """The stack with one row replaced."""
        shape = row.type.shape
        zero = self.number(0)
        (window,) = self.emit(Reshape((1, *shape)), row)
        return self.emit(DynamicUpdateSlice(), stack, window, index, *[zero] * len(shape))[0]


def reversed_from_snapshots(adjoint: Adjoint, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
    """Emit the loop; the cts of the operands."""
    count = adjoint.op.length
    if not count:
        return _of_no_steps(adjoint, b, cts)
    snapshots = max(min(adjoint.op.snapshots, count), 1)
    return _Reversal(adjoint, snapshots).emit(b, b.schedule(count, snapshots), cts, operands)


def _of_no_steps(adjoint: Adjoint, b: Emitter, cts: Tangents) -> Derivatives:
    """The cts of the operands of a loop that takes no step: those of the carries, and zeros."""
    op = adjoint.op
    none: tuple[None, ...] = (None,) * len(adjoint.gets_ct)
    given = op.with_carries(none, cts[: op.carry])
    flags = op.with_carries(adjoint.gets_ct, adjoint.carries)
    rows = zip(given, flags, op.infer_operands(), strict=True)
    return tuple([(b.zeros(type) if ct is None else ct) if is_set else None for ct, is_set, type in rows])


def _first_snapshots(b: Emitter, first: Value, snapshots: int) -> Value:
    """A stack of snapshots whose first is the first carry, with one more row for the carry at hand.

    The others are written before they are read. They start as copies, not as zeros, which XLA would make early.
    """
    type = first.type
    return b.broadcast_in_dim(first, (snapshots + 1, *type.shape), range(1, type.rank + 1))


@dataclass(frozen=True, slots=True)
class _Reversal:
    """What the loop that follows a schedule is made of.

    Attributes:
        adjoint: of a step.
        snapshots: how many carries are kept at a time.
    """

    adjoint: Adjoint
    snapshots: int

    def emit(self, b: Emitter, plan: Schedule, cts: Tangents, operands: Operands) -> Derivatives:
        """Emit the loop; the cts of the operands."""
        adjoint, op, count = self.adjoint, self.adjoint.op, self.adjoint.op.length
        flags = op.parts(adjoint.is_linear)
        consts, carry, xs = (
            tuple([value for value in others(part, linear) if isinstance(value, Value)])
            for part, linear in zip(op.parts(operands), flags, strict=True)
        )
        given = [ct for ct in cts[op.carry :] if ct is not None]
        stacks = [_first_snapshots(b, value, self.snapshots) for value in carry]
        of_consts, _, of_xs = op.parts(adjoint.gets_ct)
        type_consts, _, type_xs = op.parts(op.body.param_types)
        sums = [b.zeros(type) for type in chosen(type_consts, of_consts)]
        carried = adjoint.carried(b, cts[: op.carry])
        rows = [b.zeros(type.with_shape((count + 1, *type.shape))) for type in chosen(type_xs, of_xs)]
        place = [count - 1 - step if op.is_reversed else step for step in plan.step]
        out = [index if is_adjoint else count for index, is_adjoint in zip(place, plan.is_adjoint, strict=True)]
        columns = [plan.is_adjoint, place, plan.source, plan.target, out]
        tables = [b.emit1(Constant.of(np.array(column, np.int32))) for column in columns]
        loop_consts, loop_carry = (*consts, *xs, *given), (*stacks, *sums, *carried, *rows)
        loop = with_fields(
            op,
            body=self._body((len(consts), len(xs)), loop_consts, loop_carry),
            length=len(plan.step),
            consts=len(loop_consts),
            carry=len(loop_carry),
            is_reversed=False,
            unroll=1,
            snapshots=0,
        )
        results = b.emit(loop, *loop_consts, *loop_carry, *tables)[len(stacks) :]
        full = results[len(sums) + len(carried) :]
        cut = [b.slice(row, (0,) * row.type.rank, (count, *row.type.shape[1:])) for row in full]
        outgoing = (*results[: len(sums) + len(carried)], *cut)
        return spread(outgoing, op.with_carries(adjoint.gets_ct, adjoint.carries))

    def _body(self, counts: tuple[int, int], consts: Sequence[Value], carry: Sequence[Value]) -> Graph:
        """One instruction."""
        op = self.adjoint.op
        const_params = [Value(value.type) for value in consts]
        carry_params = [Value(value.type) for value in carry]
        is_adjoint, place, source, target, out = table = [
            Value(TensorType(dtype, ())) for dtype in (I32, I32, I32, I32, I32)
        ]
        inside = _Instruction(op.body.name, (*const_params, *carry_params, *table))
        fixed, slices = const_params[: counts[0]], const_params[counts[0] :]
        states = op.parts(self.adjoint.is_linear).carry.count(False)
        rows = sum(op.parts(self.adjoint.gets_ct).xs)
        stacks, middle, buffers = (
            carry_params[:states],
            carry_params[states : len(carry_params) - rows],
            carry_params[len(carry_params) - rows :],
        )
        state = [inside.row(stack, source) for stack in stacks]
        stacks = [inside.with_row(stack, row, target) for stack, row in zip(stacks, state, strict=True)]
        sliced = [inside.row(stack, place) for stack in slices]
        operands = (*fixed, *state, *sliced, *middle)
        case = Case(self._branches(len(fixed), states, counts[1], operands))
        results = inside.emit(case, is_adjoint, *operands)
        at_hand = inside.number(self.snapshots)
        stacks = [inside.with_row(stack, row, at_hand) for stack, row in zip(stacks, results[:states], strict=True)]
        given = results[states + len(middle) :]
        buffers = [inside.with_row(stack, row, out) for stack, row in zip(buffers, given, strict=True)]
        return inside.build((*stacks, *results[states : states + len(middle)], *buffers))

    def _branches(self, consts: int, states: int, xs: int, operands: Sequence[Value]) -> tuple[Graph, Graph]:
        """A step, and the adjoint of a step: of consts, carries, slices of xs, cts of ys, sums, cts of carries."""
        adjoint, op, body = self.adjoint, self.adjoint.op, self.adjoint.op.body
        known = consts + states + xs
        of_consts, _, of_xs = adjoint.cts(adjoint.graph.results)
        cts_of_ys, sums = sum(adjoint.has_ct[op.carry :]), len(of_consts)

        params = [Value(value.type) for value in operands]
        middle = params[known + cts_of_ys :]
        wanted = others(body.results[: op.carry], op.parts(adjoint.is_linear).carry)
        step = Graph(body.name, others(body.params, adjoint.is_linear), live_equations(body, set(wanted)), wanted)
        forward = _Instruction(body.name, params)
        moved = forward.inline(step, params[:known])
        empty = [forward.zeros(ct.type) for ct in of_xs]
        advance = forward.build((*moved, *middle, *empty))

        params = [Value(value.type) for value in operands]
        middle = params[known + cts_of_ys :]
        backward = _Instruction(body.name, params)
        given = (*params[:known], *middle[sums:], *params[known : known + cts_of_ys])
        consts_ct, carry_ct, rows = adjoint.cts(backward.inline(adjoint.graph, given))
        totals = [backward.add(old, ct) for old, ct in zip(middle[:sums], consts_ct, strict=True)]
        carried = adjoint.carried(backward, carry_ct)
        state = params[consts : consts + states]
        return advance, backward.build((*state, *totals, *carried, *rows))
