"""Stacks of loops: carries that a step reads, or writes, one row of are slices of a `scan`.

Before:  %c, %xs, %ys = scan %c0, %xs0, %zeros {... dynamic_slice %xs, %i ... dynamic_update_slice %ys, %y, %i ...}
After:   %c, %ys = scan %c0, %xs0 {... %x ... return %c, %y}, carry=1

Why: StableHLO's `while` has carries alone, and JAX prints a scan so. What one loop stacks and another one consumes step
by step is planned as such; a carry is held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.arithmetic import Add, Negate, Subtract
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.logical import Compare, Select
from rematc.ir.ops.regions import Call
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.ops.structural import Constant
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Stacks:
    """Which carries of a loop are no carries.

    Attributes:
        body: the step, of constants, and then carries.
        same: carries that a step gives on as they are, by their numbers among all parameters: constants.
        read: parameters, constants among them, of which a step reads its own row alone.
        written: carries of which a step writes its own row alone, and the row.
        is_reversed: whether the first step's row is the last one.
    """

    body: Graph
    same: frozenset[int]
    read: frozenset[int]
    written: dict[int, Value]
    is_reversed: bool


def find_stacks(body: Graph, consts: int, counters: Collection[int], steps: int) -> Stacks:
    """The stacks of a loop with counters, parameters by their numbers, that go from 0 by 1."""
    rows = _Rows(body, [body.params[index] for index in counters], steps)
    uses = _uses(body)
    same = {
        index for index, param in enumerate(body.params) if index >= consts and body.results[index - consts] is param
    }
    found: dict[bool, tuple[set[int], dict[int, Value]]] = {False: (set(), {}), True: (set(), {})}
    for index, param in enumerate(body.params):
        if not param.type.shape or param.type.shape[0] != steps:
            continue
        users = [user for user in uses.get(param, []) if user is not None or index not in same]
        if index < consts or index in same:
            direction = rows.all_read(param, users)
            if direction is not None:
                found[direction][0].add(index)
        else:
            written = rows.written(param, users, body.results[index - consts], uses)
            if written is not None:
                found[written[0]][1][index] = written[1]
    is_reversed = len(found[True][0]) + len(found[True][1]) > len(found[False][0]) + len(found[False][1])
    read, stacked = found[is_reversed]
    return Stacks(body, frozenset(same), frozenset(read), stacked, is_reversed)


def sliced_body(stacks: Stacks, consts: Sequence[int], carries: Sequence[int], count: int) -> Graph:
    """The step of constants and carries, by their numbers, and rows of what is read, to carries and rows.

    `count` are the constants that the step had before.
    """
    body = stacks.body
    b = Builder(body.name)
    env: dict[Value, Value] = {}
    for index in (*consts, *carries):
        env[body.params[index]] = b.parameter(body.params[index].type, body.params[index].name)
    rows: dict[Value, Value] = {}
    for index in sorted(stacks.read):
        param = body.params[index]
        rows[param] = b.parameter(param.type.with_shape(param.type.shape[1:]), param.name)
    read = {
        eqn.results[0]: rows[eqn.operands[0]]
        for eqn in body.equations
        if isinstance(eqn.op, DynamicSlice) and eqn.operands[0] in rows
    }

    def known(value: Value) -> Value:
        return env[value] if value in env else b.reshape(read[value], value.type.shape)

    made: dict[Value, Equation] = {}
    for eqn in body.equations:
        made.update(dict.fromkeys(eqn.results, eqn))
        if any(value in read for value in eqn.results):
            continue
        if any(value not in env and value not in read for value in eqn.operands):
            continue  # it writes a row, which is a result now
        with b.at(eqn.loc):
            if isinstance(eqn.op, Reshape) and eqn.operands[0] in read:
                env[eqn.results[0]] = b.reshape(read[eqn.operands[0]], eqn.results[0].type.shape)
                continue
            results = b.emit(eqn.op, *[known(value) for value in eqn.operands])
            env.update(zip(eqn.results, results, strict=True))
    outputs = [env[body.results[index - count]] for index in carries]
    for index in sorted(stacks.written):
        outputs.append(_row(b, stacks.written[index], made, known))
    return b.build(*outputs)


def _row(b: Builder, update: Value, made: dict[Value, Equation], known: Callable[[Value], Value]) -> Value:
    """A row that is written, without the dimension that it is written along."""
    shape, eqn = update.type.shape[1:], made.get(update)
    is_widened = eqn is not None and isinstance(eqn.op, (Reshape, BroadcastInDim))
    if is_widened and eqn is not None and eqn.operands[0].type.shape == shape:
        return known(eqn.operands[0])
    return b.reshape(known(update), shape)


def with_slices(body: Graph) -> Graph:
    """The step with what it reads and writes of stacks in sight: JAX has functions that do that."""
    b = Builder(body.name)
    params = [b.parameter(value.type, value.name) for value in body.params]
    return b.build(*_inlined(b, body, params))


def _inlined(b: Builder, graph: Graph, operands: Sequence[Value]) -> list[Value]:
    env = dict(zip(graph.params, operands, strict=True))
    for eqn in graph.equations:
        given = [env[value] for value in eqn.operands]
        with b.at(eqn.loc):
            if isinstance(eqn.op, Call) and _slices(eqn.op):
                results: Sequence[Value] = _inlined(b, eqn.op.body, given)
            else:
                results = b.emit(eqn.op, *given)
        env.update(zip(eqn.results, results, strict=True))
    return [env[value] for value in graph.results]


def _slices(function: Call) -> bool:
    """Whether a function reads or writes windows, or calls one that does."""
    return function.is_inlineable and any(
        isinstance(eqn.op, (DynamicSlice, DynamicUpdateSlice)) or (isinstance(eqn.op, Call) and _slices(eqn.op))
        for eqn in function.body.equations
    )


def _uses(graph: Graph) -> dict[Value, list[Equation | None]]:
    """Of each value the equations that read it, and None for each time that it is a result."""
    found: dict[Value, list[Equation | None]] = {}
    for eqn in graph.equations:
        for value in eqn.operands:
            found.setdefault(value, []).append(eqn)
    for value in graph.results:
        found.setdefault(value, []).append(None)
    return found


@dataclass(slots=True)
class _Rows:
    """Numbers that a step computes of its counters: `scale * counter + offset`, with scale -1, 0 or 1."""

    body: Graph
    counters: Sequence[Value]
    steps: int
    _of: dict[Value, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._of.update(dict.fromkeys(self.counters, (1, 0)))
        signs: dict[Value, Equation] = {}
        for eqn in self.body.equations:
            if len(eqn.results) != 1 or eqn.results[0].type.shape:
                continue
            if isinstance(eqn.op, Compare):
                signs[eqn.results[0]] = eqn
            found = self._computed(eqn, signs)
            if found is not None:
                self._of[eqn.results[0]] = found

    def _computed(self, eqn: Equation, signs: dict[Value, Equation]) -> tuple[int, int] | None:
        if isinstance(eqn.op, Constant):
            return (0, int(eqn.op.array)) if eqn.op.array.dtype.kind in "iu" else None
        if isinstance(eqn.op, Select):
            return self._chosen(eqn, signs)
        known = [self._of.get(value) for value in eqn.operands]
        match eqn.op, known:
            case Convert(), [(scale, offset)] if eqn.results[0].type.dtype.is_integer:
                return scale, offset
            case Negate(), [(scale, offset)]:
                return -scale, -offset
            case Add(), [(scale, offset), (other, more)] if abs(scale + other) <= 1:
                return scale + other, offset + more
            case Subtract(), [(scale, offset), (other, more)] if abs(scale - other) <= 1:
                return scale - other, offset - more
        return None

    def _chosen(self, eqn: Equation, signs: dict[Value, Equation]) -> tuple[int, int] | None:
        """`i < 0 ? i + n : i`, as JAX has it for numbers from the end, of a number that is never below 0."""
        sign = signs.get(eqn.operands[0])
        if sign is None or not isinstance(sign.op, Compare) or sign.op.direction != "LT":
            return None
        number, zero = (self._of.get(value) for value in sign.operands)
        is_below = number is None or zero != (0, 0) or min(number[1], number[1] + number[0] * (self.steps - 1)) < 0
        return None if is_below else self._of.get(eqn.operands[2])

    def direction(self, starts: Sequence[Value]) -> bool | None:
        """Whether rows are read, or written, from the last one on; None where it is not one row after another."""
        first, *others = [self._of.get(start) for start in starts]
        if any(start != (0, 0) for start in others):
            return None
        return {(1, 0): False, (-1, self.steps - 1): True}.get(first) if first is not None else None

    def all_read(self, param: Value, users: Sequence[Equation | None]) -> bool | None:
        """How a step reads its own row of a parameter, if it does nothing else with it."""
        found = {self._read(param, user) for user in users}
        return found.pop() if len(found) == 1 else None

    def _read(self, param: Value, user: Equation | None) -> bool | None:
        if user is None or not isinstance(user.op, DynamicSlice) or param in user.operands[1:]:
            return None
        is_row = user.op.slice_sizes == (1, *param.type.shape[1:])
        return self.direction(user.operands[1:]) if is_row else None

    def written(
        self, param: Value, users: Sequence[Equation | None], result: Value, uses: dict[Value, list[Equation | None]]
    ) -> tuple[bool, Value] | None:
        """How a step writes its own row of a carry, and what, if it does nothing else with it."""
        user = users[0] if len(users) == 1 else None
        if user is None or not isinstance(user.op, DynamicUpdateSlice) or user.operands[0] is not param:
            return None
        update, direction = user.operands[1], self.direction(user.operands[2:])
        is_row = update.type.shape == (1, *param.type.shape[1:]) and user.results[0] is result
        is_result_alone = len(uses[result]) == 1
        return (direction, update) if is_row and is_result_alone and direction is not None else None
