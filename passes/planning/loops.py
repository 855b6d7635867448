"""Recomputation in loops: what a forward loop stacks for the backward one, this one computes again, step by step.

Before:  %1, %2 = scan %x, %ws {body: %h = tanh (dot %c, %w)   return %h, %c, %h}
         ...
         %8 = scan %7, %1, %ws, %2 {is_reversed, body: reads %c, %w and %h}
After:   %1 = scan %x, %ws {body: %h = tanh (dot %c, %w)   return %h, %c}
         ...
         %8 = scan %7, %1, %ws {is_reversed, body: %h = tanh (dot %c, %w), and reads %c, %w and %h}

A stack of residuals is a value of the loop's step with a time axis. The backward loop has it in the same slot, and with
the carry of that slot, which is stacked in its place, all that the step was made of. XLA merges nothing of two loops:
no barrier is needed. Neither loop is known to be a derivative: a pair is any two of so many steps, of which one alone
reads what the other one stacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.splicing import reading
from rematc.ir.values import Value
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.planning.joined_branches import with_joined_branches
from rematc.passes.planning.needed_parts import States, needed_parts, with_states
from rematc.passes.planning.region_paths import Inside, Path, bodies, of_another_program, with_body


@dataclass(frozen=True, slots=True)
class LoopChoice:
    """What the backward loop of a pair computes again.

    Attributes:
        path: the loops and branches in whose bodies the pair stands, from the outside.
        forward: the place of the loop that stacks.
        backward: that of the loop that reads.
        dropped: of what the forward loop stacks, counted from its first stack, what it does not any more.
        states: whether it stacks the carries of the loops in its step, instead, where these would take steps again.
    """

    path: Path
    forward: int
    backward: int
    dropped: tuple[int, ...]
    states: bool = False

    def stacks(self, graph: Graph) -> tuple[int, ...]:
        """Of what the forward loop stacks in the body that the path leads to, what is computed again."""
        return self.dropped

    def how(self, length: int) -> str:
        """How a loop of so many steps computes it again, in words."""
        return "in each step"

    def applied(self, graph: Graph) -> Graph:
        """The graph, the body that the path leads to, without these stacks.

        Raises CompileError where there are no such loops.
        """
        pair = pair_of(graph, self.forward, self.backward)
        if pair is None or not {*self.dropped} <= {*pair.droppable}:
            raise of_another_program()
        return _without(graph, pair, frozenset(self.dropped), {} if self.states else None)


class LoopDecision(Protocol):
    """What a plan decides about a pair of loops."""

    @property
    def path(self) -> Path:
        """The loops and branches in whose bodies the pair stands, from the outside."""

    @property
    def forward(self) -> int:
        """The place of the loop that stacks."""

    @property
    def backward(self) -> int:
        """That of the loop that reads."""

    def stacks(self, graph: Graph) -> tuple[int, ...]:
        """Of what the forward loop stacks in the body that the path leads to, what is computed again."""

    def how(self, length: int) -> str:
        """How a loop of so many steps computes it again, in words."""

    def applied(self, graph: Graph) -> Graph:
        """The graph, the body that the path leads to, as decided.

        Raises CompileError where there are no such loops.
        """


@dataclass(frozen=True, slots=True)
class LoopPair:
    """Two loops, one of which reads what the other one stacks.

    Attributes:
        path, forward, backward: as in `LoopChoice`.
        steps: how often the body that they stand in runs.
        own: the stacks that the other loop alone reads, in slices.
        droppable: those of them that it can compute again from what a step is made of.
        read: all stacks that it reads in slices.
        loop: the loop that stacks.
    """

    path: Path
    forward: int
    backward: int
    steps: int
    own: tuple[int, ...]
    droppable: tuple[int, ...]
    read: tuple[int, ...]
    loop: Scan

    def within(self, may_repeat: Callable[[Equation], bool]) -> LoopPair:
        """The pair of which only what may run again is dropped."""
        return replace(self, droppable=_droppable(self.loop, self.own, self.read, may_repeat))

    def choice(self, dropped: Collection[int], states: bool = False) -> LoopChoice:
        """That these stacks are computed again."""
        return LoopChoice(self.path, self.forward, self.backward, tuple(sorted(dropped)), states)


def with_decisions(graph: Graph, decisions: Sequence[LoopDecision]) -> Graph:
    """The graph in which loops compute again what is decided, one decision after the other.

    Raises CompileError where there are no such loops.
    """
    for decision in decisions:
        graph = with_body(graph, decision.path, decision.applied)
    return graph


def pair_of(graph: Graph, forward: int, backward: int) -> LoopPair | None:
    """The pair of these two loops of a graph, if they are one."""
    found = [pair for pair in _pairs_here(graph, (), 1) if (pair.forward, pair.backward) == (forward, backward)]
    return found[0] if found else None


def loop_pairs(graph: Graph, path: Path = (), steps: int = 1) -> Iterator[LoopPair]:
    """The pairs of loops in a graph, in the bodies of its loops and in its branches, those further outside first."""
    yield from _pairs_here(graph, path, steps)
    for place, eqn in enumerate(graph.equations):
        for region, body in bodies(eqn.op):
            times = eqn.op.length if isinstance(eqn.op, Scan) else 1
            yield from loop_pairs(body, (*path, Inside(place, region)), steps * times)


def _pairs_here(graph: Graph, path: Path, steps: int) -> Iterator[LoopPair]:
    readers: dict[Value, set[int]] = {}
    for index, eqn in enumerate(graph.equations):
        for value in eqn.operands:
            readers.setdefault(value, set()).add(index)
    for index, eqn in enumerate(graph.equations):
        if isinstance(eqn.op, Scan):
            yield from _pairs_of(graph, index, eqn.op, readers, path, steps)


def recomputed(
    loop: Scan, dropped: Collection[int], read: Collection[int], states: States | None = None
) -> tuple[list[Equation], set[Value]]:
    """The equations, or parts, of a step from its parameters, and the stacks that are read and not dropped, to those
    dropped.

    And what they read of these, or of `states` (`needed_parts`); a dropped stack of a parameter is read.
    """
    values = loop.body.results[loop.carry :]
    known = {values[stack] for stack in read if stack not in dropped}
    targets = {values[stack] for stack in dropped}
    equations = needed_parts(loop.body.equations, targets, known, states)
    made = {value for eqn in equations for value in eqn.results}
    taken = targets.union(*[eqn.operands for eqn in equations])
    return equations, {value for value in taken if value in known or value not in made}


def is_repeatable(eqn: Equation) -> bool:
    """Whether an equation may run again, with all that is in its regions."""
    op = eqn.op
    if op.effect or op.is_opaque or not op.is_repeatable:
        return False
    return all(is_repeatable(inner) for region in op.regions() for inner in region.equations)


def _pairs_of(
    graph: Graph, index: int, op: Scan, readers: dict[Value, set[int]], path: Path, steps: int
) -> Iterator[LoopPair]:
    by_reader: dict[int, list[int]] = {}
    kept = set(graph.results)
    for stack, value in enumerate(graph.equations[index].results[op.carry :]):
        found = readers.get(value, set())
        if len(found) == 1 and value not in kept and not value.type.on_host:
            by_reader.setdefault(next(iter(found)), []).append(stack)
    if op.snapshots or op.is_unrolled:
        return
    for reader, stacks in by_reader.items():
        other = graph.equations[reader].op
        if not isinstance(other, Scan) or other.length != op.length or other.is_unrolled or other.snapshots:
            continue
        consts, carry, xs = other.parts(graph.equations[reader].operands)
        results = graph.equations[index].results[op.carry :]
        read = tuple([stack for stack, value in enumerate(results) if value in xs])
        own = tuple([stack for stack in stacks if results[stack] not in (*consts, *carry)])
        if own:
            yield LoopPair(path, index, reader, steps, own, _droppable(op, own, read, is_repeatable), read, op)


def _droppable(
    op: Scan, stacks: Sequence[int], read: Sequence[int], may_repeat: Callable[[Equation], bool]
) -> tuple[int, ...]:
    """Those that follow from the parameters of a step by what may run again; a carry as it comes in does not."""
    carries, values = op.parts(op.body.params).carry, op.body.results[op.carry :]
    repeats = [may_repeat(eqn) for eqn in op.body.equations]

    def following(stacks: Sequence[int], kept: Set[int]) -> list[int]:
        """Those of some stacks that follow, each from the others of those that are kept."""
        known = Counter(values[stack] for stack in kept)
        fixed: set[Value] = set()
        for eqn, is_repeated in zip(op.body.equations, repeats, strict=True):
            if not is_repeated or any(value in fixed and not known[value] for value in eqn.operands):
                fixed.update(eqn.results)
        return [one for one in stacks if known[values[one]] > (one in kept) or values[one] not in fixed]

    candidates = [stack for stack in stacks if values[stack] not in carries]
    possible = following(candidates, set(read))
    while len(remaining := following(possible, set(read) - set(possible))) < len(possible):
        possible = remaining
    return tuple(possible)


def _without(graph: Graph, pair: LoopPair, dropped: frozenset[int], states: States | None) -> Graph:
    """The graph with both loops of a pair without some stacks."""
    equations = list(graph.equations)
    forward, backward = equations[pair.forward], equations[pair.backward]
    assert isinstance(backward.op, Scan), "a pair of loops"
    step = _Step(forward, pair.loop, backward, backward.op, dropped, states)
    equations[pair.forward], equations[pair.backward] = step.forward_loop(), step.backward_loop()
    return Graph(graph.name, graph.params, tuple(equations), graph.results)


class _Step:
    """One step of a pair of loops."""

    def __init__(
        self,
        forward: Equation,
        op: Scan,
        backward: Equation,
        other: Scan,
        dropped: frozenset[int],
        states: States | None,
    ) -> None:
        self._forward, self._op, self._backward, self._other = forward, op, backward, other
        self._dropped = dropped
        stacks, values = forward.results[op.carry :], op.body.results[op.carry :]
        params: dict[Value, list[Value]] = {}
        for operand, param in zip(other.parts(backward.operands).xs, other.parts(other.body.params).xs, strict=True):
            params.setdefault(operand, []).append(param)
        #: For values of the forward step the parameter of the backward one that is the same.
        self._there: dict[Value, Value] = {}
        self._instead: dict[Value, Value] = {}
        for index, (stack, value) in enumerate(zip(stacks, values, strict=True)):
            if index in dropped:
                self._instead |= dict.fromkeys(params[stack], value)
            elif stack in params:
                self._there.setdefault(value, params[stack][0])
        for operand, param in zip(op.parts(forward.operands).xs, op.parts(op.body.params).xs, strict=True):
            if operand in params:
                self._there.setdefault(param, params[operand][0])
        there = [index for index, stack in enumerate(stacks) if stack in params]
        self._equations, read = recomputed(op, dropped, there, states)
        self._states = states or {}
        self._read = [param for param in op.body.params if param in read and param not in self._there]
        carries = op.parts(op.body.params).carry
        self._new = {
            param: Value(stack_of(param.type, op.length), param.name)
            for param in (*[param for param in self._read if param in carries], *self._states.values())
        }

    def forward_loop(self) -> Equation:
        """The loop that stacks less, and what carries are needed; loops in it give no more than that, either."""
        op, eqn = self._op, self._forward
        kept = [index for index in range(len(eqn.results) - op.carry) if index not in self._dropped]
        results = op.body.results
        body = Graph(
            op.body.name,
            op.body.params,
            tuple([with_states(eqn, self._states) for eqn in op.body.equations]),
            (*results[: op.carry], *[results[op.carry + index] for index in kept], *self._new),
        )
        given = (*eqn.results[: op.carry], *[eqn.results[op.carry + index] for index in kept], *self._new.values())
        return Equation(replace(op, body=DeadCode().run(body)), eqn.operands, given, eqn.loc)

    def backward_loop(self) -> Equation:
        """The loop that computes again what it does not read."""
        op, other = self._op, self._other
        of_params = dict(zip(op.body.params, self._forward.operands, strict=True))
        consts, carry, xs = other.parts(other.body.params)
        own_consts, own_carry, own_xs = other.parts(self._backward.operands)
        read = (*self._read, *self._states.values())
        copies = {value: Value(value.type, value.name) for value in read}
        more_consts = [param for param in self._read if param in op.parts(op.body.params).consts]
        more_xs = [value for value in read if value not in more_consts]
        env = dict(self._there) | copies
        equations = []
        for eqn in self._equations:
            operands = tuple([env[value] for value in eqn.operands])
            results = tuple([Value(value.type, value.name) for value in eqn.results])
            env |= {old: new for old, new in zip(eqn.results, results, strict=True) if old not in self._there}
            equations.append(Equation(eqn.op, operands, results, eqn.loc))
        instead = {param: env[value] for param, value in self._instead.items()}
        equations += [reading(eqn, instead) for eqn in other.body.equations]
        left = [(param, operand) for param, operand in zip(xs, own_xs, strict=True) if param not in instead]
        params = (*consts, *[copies[param] for param in more_consts], *carry)
        params += (*[param for param, _ in left], *[copies[param] for param in more_xs])
        operands = (*own_consts, *[of_params[param] for param in more_consts], *own_carry)
        operands += (
            *[operand for _, operand in left],
            *[self._new[value] if value in self._new else of_params[value] for value in more_xs],
        )
        given = tuple([instead.get(value, value) for value in other.body.results])
        body = Graph(other.body.name, params, tuple(equations), given)
        if any(isinstance(eqn.op, Case) for eqn in self._equations):
            body = with_joined_branches(CommonSubexpressions().run(body))  # of the index, which both may compute
        loop = replace(other, body=body, consts=other.consts + len(more_consts))
        return Equation(loop, operands, self._backward.results, self._backward.loc)
