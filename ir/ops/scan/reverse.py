"""The backward pass of a loop from few snapshots: the binomial schedule, and the loop that follows it.

A loop of n steps is reversed with S carries kept at a time, the first one among them: steps are taken again from the
nearest snapshot until the carry before the last open step is there, whose adjoint is taken next. With r the smallest
number for which C(S + r, S) >= n, the schedule takes r n - C(S + r, r - 1) steps beside the n adjoint ones, which is
the fewest that there can be.

Reference: Griewank & Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from rematc.ir.core import Derivatives, Emitter, Graph, Operands, Tangents, Value
from rematc.ir.ops.bodies import Equations, chosen, live_equations, others, spread
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import Constant
from rematc.ir.types import I32, TensorType

if TYPE_CHECKING:
    from rematc.ir.ops.scan.op import Scan


@dataclass(frozen=True, slots=True)
class Schedule:
    """Instructions, one after another: take the carry of a row, keep a copy in another, then a step or an adjoint.

    Attributes:
        is_adjoint: whether the instruction takes the adjoint of a step; else it takes the step.
        step: which step, counted in the order of the loop.
        source: the snapshot to start from; the number of snapshots where the carry at hand is the one.
        target: the snapshot to make of it; the number of snapshots for none.
    """

    is_adjoint: tuple[bool, ...]
    step: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def advances(self) -> int:
        """How many steps are taken beside the adjoint ones."""
        return len(self.is_adjoint) - sum(self.is_adjoint)


@lru_cache(maxsize=64)
def schedule(steps: int, snapshots: int) -> Schedule:
    """The schedule with the fewest steps; snapshot 0 is the first carry."""
    none = snapshots
    rows: list[tuple[bool, int, int, int]] = []
    # (first step, step after the last, the snapshot before it, whether that carry is at hand, whether to keep it)
    work = [(0, steps, 0, False, False)] if steps else []
    while work:
        first, end, slot, is_at_hand, is_new = work.pop()
        source, target = none if is_at_hand else slot, slot if is_new else none
        free = snapshots - slot
        if end - first == 1:
            rows.append((True, first, source, target))
            continue
        middle = end - 1 if free == 1 else first + _left(end - first, free)
        for step in range(first, middle):
            rows.append((False, step, source, target))
            source = target = none
        # The later steps first: what is pushed last comes next. Without a free snapshot their carry is not kept.
        work.append((first, middle, slot, False, False))
        work.append((middle, end, slot if free == 1 else slot + 1, True, free > 1))
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return Schedule(*columns)


def _left(steps: int, snapshots: int) -> int:
    """How many steps to take before the next snapshot."""
    sweeps = 1
    while comb(snapshots + sweeps, snapshots) < steps:
        sweeps += 1
    before = comb(snapshots + sweeps - 2, snapshots) if sweeps > 1 else 1
    return max(before, steps - comb(snapshots - 1 + sweeps, snapshots - 1), 1)


class Inside(Equations):
    """Equations of one instruction."""

    def number(self, value: int) -> Value:
        return self.emit(Constant.of(np.asarray(value, np.int32)))[0]

    def table(self, values: Sequence[int]) -> Value:
        return self.emit(Constant.of(np.asarray(values, np.int32)))[0]

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

    def inline(self, graph: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
        """The results of a graph."""
        env = dict(zip(graph.params, operands, strict=True))
        for eqn in graph.equations:
            self.copy(eqn, env)
        return tuple([env[value] for value in graph.results])


@dataclass(frozen=True, slots=True)
class Reversal:
    """What the loop that follows a schedule is made of.

    Attributes:
        op: the loop that is reversed.
        is_linear: which parameters of its step are linear.
        adjoint: a step's adjoint: known parameters, then the cts that are there, to cts of linear parameters.
        gets_ct: for each parameter of the step, whether `adjoint` gives its ct.
        has_ct: for each result of the step, whether `adjoint` takes its ct.
    """

    op: Scan
    is_linear: Sequence[bool]
    adjoint: Graph
    gets_ct: Sequence[bool]
    has_ct: Sequence[bool]

    def emit(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        """Emit the loop; the cts of the operands."""
        op, count = self.op, self.op.length
        if not count:
            return self._of_no_steps(b, cts)
        snapshots = max(min(op.snapshots, count), 1)
        plan = schedule(count, snapshots)
        flags = op.parts(self.is_linear)
        consts, carry, xs = (
            tuple([value for value in others(part, linear) if isinstance(value, Value)])
            for part, linear in zip(op.parts(operands), flags, strict=True)
        )
        given = [ct for ct in cts[op.carry :] if ct is not None]
        stacks = [self._first_snapshots(b, value, snapshots) for value in carry]
        types = [value.type for value in op.body.params]
        of_consts, _, of_xs = op.parts(self.gets_ct)
        type_consts, _, type_xs = op.parts(types)
        sums = [b.zeros(type) for type in chosen(type_consts, of_consts)]
        carried = [
            b.zeros(value.type) if ct is None else ct
            for ct, value in chosen(tuple(zip(cts, op.body.results, strict=True)), self.has_ct)
        ][: sum(self.has_ct[: op.carry])]
        rows = [b.zeros(type.with_shape((count + 1, *type.shape))) for type in chosen(type_xs, of_xs)]
        place = [count - 1 - step if op.is_reversed else step for step in plan.step]
        out = [index if is_adjoint else count for index, is_adjoint in zip(place, plan.is_adjoint, strict=True)]
        columns = [plan.is_adjoint, place, plan.source, plan.target, out]
        tables = [b.emit1(Constant.of(np.array(column, np.int32))) for column in columns]
        loop_consts, loop_carry = (*consts, *xs, *given), (*stacks, *sums, *carried, *rows)
        body = self._body((len(consts), len(xs), len(given)), loop_consts, loop_carry, snapshots)
        loop = replace(
            op,
            body=body,
            length=len(plan.step),
            consts=len(loop_consts),
            carry=len(loop_carry),
            is_reversed=False,
            unroll=1,
            snapshots=0,
        )
        results = b.emit(loop, *loop_consts, *loop_carry, *tables)[len(stacks) :]
        out_consts = spread(results, of_consts)
        out_carry = spread(results[len(sums) :], self.has_ct[: op.carry])
        full = results[len(sums) + len(carried) :]
        cut = [b.slice(row, (0,) * row.type.rank, (count, *row.type.shape[1:])) for row in full]
        return (*out_consts, *out_carry, *spread(cut, of_xs))

    def _of_no_steps(self, b: Emitter, cts: Tangents) -> Derivatives:
        """The cts of the operands of a loop that takes no step: those of the carries, and zeros."""
        op = self.op
        of_consts, _, of_xs = op.parts(self.gets_ct)
        types = op.infer_operands()
        given = [
            (b.zeros(type) if ct is None else ct) if is_set else None
            for ct, is_set, type in zip(cts, self.has_ct[: op.carry], op.parts(types)[1], strict=False)
        ]
        return (
            *[b.zeros(type) if is_set else None for type, is_set in zip(op.parts(types)[0], of_consts, strict=True)],
            *given,
            *[b.zeros(type) if is_set else None for type, is_set in zip(op.parts(types)[2], of_xs, strict=True)],
        )

    def _first_snapshots(self, b: Emitter, first: Value, snapshots: int) -> Value:
        """A stack of snapshots whose first is the first carry, with one more row for the carry at hand.

        The others are written before they are read. They start as copies, not as zeros, which XLA would make early.
        """
        type = first.type
        return b.broadcast_in_dim(first, (snapshots + 1, *type.shape), range(1, type.rank + 1))

    def _body(
        self, counts: tuple[int, int, int], consts: Sequence[Value], carry: Sequence[Value], snapshots: int
    ) -> Graph:
        """One instruction."""
        inside = Inside()
        const_params = [Value(value.type) for value in consts]
        carry_params = [Value(value.type) for value in carry]
        is_adjoint, place, source, target, out = table = [
            Value(TensorType(dtype, ())) for dtype in (I32, I32, I32, I32, I32)
        ]
        fixed, slices = const_params[: counts[0]], const_params[counts[0] :]
        states = self.op.carry - sum(self.op.parts(self.is_linear)[1])
        rows = sum(self.op.parts(self.gets_ct)[2])
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
        at_hand = inside.number(snapshots)
        stacks = [inside.with_row(stack, row, at_hand) for stack, row in zip(stacks, results[:states], strict=True)]
        given = results[states + len(middle) :]
        buffers = [inside.with_row(stack, row, out) for stack, row in zip(buffers, given, strict=True)]
        return Graph(
            self.op.body.name,
            (*const_params, *carry_params, *table),
            tuple(inside.all),
            (*stacks, *results[states : states + len(middle)], *buffers),
        )

    def _branches(self, consts: int, states: int, xs: int, operands: Sequence[Value]) -> tuple[Graph, Graph]:
        """A step, and the adjoint of a step: of consts, carries, slices of xs, cts of ys, sums, cts of carries."""
        body, known = self.op.body, consts + states + xs
        of_consts, _, of_xs = self.op.parts(spread(self.adjoint.results, self.gets_ct))
        cts_of_ys = sum(self.has_ct[self.op.carry :])
        sums = sum(ct is not None for ct in of_consts)

        params = [Value(value.type) for value in operands]
        middle = params[known + cts_of_ys :]
        linear_carry = self.op.parts(self.is_linear)[1]
        wanted = others(body.results[: self.op.carry], linear_carry)
        step = Graph(body.name, others(body.params, self.is_linear), live_equations(body, set(wanted)), wanted)
        forward = Inside()
        moved = forward.inline(step, params[:known])
        empty = [forward.zeros(ct.type) for ct in of_xs if ct is not None]
        advance = Graph(body.name, tuple(params), tuple(forward.all), (*moved, *middle, *empty))

        params = [Value(value.type) for value in operands]
        middle = params[known + cts_of_ys :]
        backward = Inside()
        cts = (*middle[sums:], *params[known : known + cts_of_ys])
        found = backward.inline(self.adjoint, (*params[:known], *cts))
        consts_ct, carry_ct, xs_ct = self.op.parts(spread(found, self.gets_ct))
        totals = [
            backward.add(old, ct)
            for old, ct in zip(middle[:sums], [ct for ct in consts_ct if ct is not None], strict=True)
        ]
        carried = [
            backward.zeros(value.type) if ct is None else ct
            for ct, value in chosen(
                tuple(zip(carry_ct, self.op.parts(body.params)[1], strict=True)), self.has_ct[: self.op.carry]
            )
        ]
        rows = [ct for ct in xs_ct if ct is not None]
        state = params[consts : consts + states]
        return advance, Graph(body.name, tuple(params), tuple(backward.all), (*state, *totals, *carried, *rows))
