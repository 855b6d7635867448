"""Backward loops compute again what forward loops do not stack: bit for bit the same, in less memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.passes.planning.budget import fitting_plan, plan_for_budget
from rematc.passes.planning.constraints import Constraints
from rematc.passes.planning.device import CPU
from rematc.passes.planning.loop_levels import LEVELS, chains, in_same_chunks, loop_levels
from rematc.passes.planning.loop_splits import LoopSplit
from rematc.passes.planning.loops import LoopChoice, LoopDecision, loop_pairs, recomputed, with_decisions
from rematc.passes.planning.needed_parts import with_states
from rematc.passes.planning.planned_loops import planned_loops
from rematc.passes.planning.planner import Planner
from rematc.passes.planning.problem import simulate
from rematc.passes.planning.region_paths import Inside
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from tests.support.same_bits import SameBits

ON_CPU = Machine(CPU)

STEPS, ROWS, WIDTH = 6, 16, 8
RANDOM = np.random.default_rng(0)
W = RANDOM.normal(size=(STEPS, WIDTH, WIDTH)).astype(np.float32) / 3
X = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)

scan: Callable[..., Any] = rematc.scan


def layers(w: Any, x: Any) -> Any:
    def step(c: Any, w: Any) -> Any:
        return c + np.tanh(np.tanh(c @ w) @ w), None

    return np.sum(scan(step, x, w)[0] ** 2)


def of_constants(w: Any, x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        return np.sin(c @ w[0]) * x, None

    return np.sum(scan(step, x, None, STEPS)[0] ** 2)


def backwards(w: Any, x: Any) -> Any:
    def step(c: Any, w: Any) -> Any:
        return np.sin(np.tanh(c @ w)), None

    return np.sum(scan(step, x, w, reverse=True)[0] ** 2)


def of_two_carries(w: Any, x: Any) -> Any:
    def step(c: Any, w: Any) -> Any:
        a, b = c
        return (np.tanh(b @ w), np.sin(a) * b), np.sum(np.cos(a) * b)

    (a, b), ys = scan(step, (x, x * x), w)
    return np.sum(a * b) + np.sum(np.exp(-ys * ys))


def stacked_for_others(w: Any, x: Any) -> Any:
    """What is stacked is a result of the loop as well, which the loss reads."""

    def step(c: Any, w: Any) -> Any:
        h = np.tanh(c @ w)
        return np.sin(h), h

    c, hs = scan(step, x, w)
    return np.sum(c) + np.sum(hs**3)


def nested(w: Any, x: Any) -> Any:
    def step(c: Any, w: Any) -> Any:
        inner, _ = scan(lambda d, _: (d + np.tanh(np.tanh(d @ w) @ w), None), c, None, 5)
        return c + inner, None

    return np.sum(scan(step, x, w)[0] ** 2)


def twice(w: Any, x: Any) -> Any:
    return layers(w, np.sin(x)) * layers(w[::-1], x)


def solver(w: Any, x: Any) -> Any:
    """Two stages of a step, in segments; the last state of each is a result."""

    def slope(y: Any, t: Any) -> Any:
        return np.tanh(np.tanh(y @ w[0] + t) @ w[1])

    def step(y: Any, t: Any) -> Any:
        middle = y + 0.1 * slope(y, t)
        return y + 0.2 * slope(middle, t + 0.1), None

    def segment(y: Any, t: Any) -> Any:
        y, _ = scan(step, y, t + np.arange(3, dtype=np.float32))
        return y, y

    return np.sum(scan(segment, x, np.arange(4, dtype=np.float32))[1] ** 2)


def recurrences(w: Any, x: Any) -> Any:
    """Layers, each a recurrence over a sequence, backwards, and layers of those in a loop once more."""

    def step(w: Any) -> Callable[..., Any]:
        def cell(h: Any, row: Any) -> Any:
            gate = 1 / (1 + np.exp(-(row @ w)))
            h = gate * h + (1 - gate) * np.tanh(h @ w)
            return h, np.sin(h) + row

        return cell

    def layer(rows: Any, w: Any) -> Any:
        h, rows = scan(step(w), rows[0] * 0, rows, reverse=True)
        return rows, np.sum(h)

    def group(rows: Any, _: Any) -> Any:
        rows, sums = scan(layer, rows, w)
        return rows, np.sum(sums)

    rows, sums = scan(group, x, None, 2)
    return np.sum(rows * rows) + np.sum(np.cos(sums))


def normed(w: Any, x: Any) -> Any:
    """Blocks of whose states nothing is read but what follows from them, in a loop in a loop."""

    def block(c: Any, w: Any) -> Any:
        centered = c - np.mean(c, axis=-1, keepdims=True)
        unit = centered / np.sqrt(np.mean(centered * centered, axis=-1, keepdims=True) + 1e-3)
        return c + np.tanh(np.tanh(unit @ w) @ w.T), None

    def group(c: Any, w: Any) -> Any:
        return scan(lambda c, _: block(c, w), c, None, 4)[0], np.sum(c)

    c, sums = scan(group, x, w)
    return np.sum(c * c) + np.sum(np.sin(sums))


def branched(w: Any, x: Any) -> Any:
    """Layers that are left out where a sum is negative; the signs differ from step to step."""

    def layer(w: Any, c: Any) -> Any:
        return c + np.tanh(np.sin(c @ w) @ w) * np.cos(c)

    def step(c: Any, w: Any) -> Any:
        c = np.tanh(c)
        return rematc.cond(np.sum(c) * w[0, 0] > 0, layer, lambda w, c: np.sin(c) * w[0], w, c), np.sum(c)

    last, sums = scan(step, x, w)
    return np.sum(last**2) + np.sum(sums)


def loops_in_branches(w: Any, x: Any) -> Any:
    """And branches in these."""

    def sines(w: Any, c: Any) -> Any:
        def inner(c: Any, scale: Any) -> Any:
            c = rematc.cond(scale * np.sum(c) > 0, lambda c: np.tanh(np.sin(c) @ w), lambda c: c * np.cos(c), c)
            return c, np.sum(np.exp(c * scale))

        c, sums = scan(inner, c, np.arange(-1.0, 2.0, dtype=np.float32))
        return c * np.sum(sums)

    def step(c: Any, w: Any) -> Any:
        c = np.tanh(c)
        return rematc.cond(np.sum(c) * w[0, 0] > 0, sines, lambda w, c: np.sin(c) * w[0], w, c), np.sum(c)

    last, sums = scan(step, x, w)
    return np.sum(last**2) + np.sum(sums)


LOSSES = [
    branched,
    loops_in_branches,
    layers,
    of_constants,
    backwards,
    of_two_carries,
    stacked_for_others,
    nested,
    twice,
    solver,
    pytest.param(recurrences, marks=pytest.mark.slow),
    pytest.param(normed, marks=pytest.mark.slow),
]


def flat(function: Callable[..., Any]) -> Graph:
    """The differentiated program that is planned."""
    return run_passes(rematc.trace(rematc.value_and_grad(function, (0, 1)), W, X), BEFORE_PLAN).graph


same_bits = SameBits(W, X)


@pytest.mark.parametrize("loss", LOSSES)
def test_at_each_level_values_and_gradients_are_the_same_to_the_bit(loss: Callable[..., Any]) -> None:
    graph = flat(loss)
    levels = loop_levels(graph, ON_CPU)
    assert len(levels) > 1
    for choices in levels[1:]:
        instead = with_decisions(graph, choices)
        verify(instead)
        assert same_bits(graph, instead), choices


def dropping(graph: Graph) -> list[Any]:
    """The levels without chunks."""
    return [
        level for level in loop_levels(graph, ON_CPU) if not any(isinstance(decision, LoopSplit) for decision in level)
    ]


@pytest.mark.parametrize("loss", [layers, backwards, nested, twice])
def test_the_last_level_stacks_the_carries_alone(loss: Callable[..., Any]) -> None:
    graph = flat(loss)
    peaks = [simulate(translate(with_decisions(graph, choices), ON_CPU).problem).peak for choices in dropping(graph)]
    assert peaks[-1] < 0.6 * peaks[0]
    last = with_decisions(graph, dropping(graph)[-1])
    stacks = [value for eqn in last.equations if eqn.op.name == "scan" for value in eqn.results if value.type.rank == 3]
    carries = [value for value in stacks if value.type.shape == (STEPS, ROWS, WIDTH)]
    assert len(carries) == (2 if loss is twice else 1), "one for each forward loop; else gradients of the weights"


def many(w: Any, x: Any) -> Any:
    """Values that share what leads to them, and one that is stacked twice."""

    def step(c: Any, w: Any) -> Any:
        a, b = c
        y = np.tanh(a @ w)
        z = np.sin(y * b)
        return (np.cos(z) * y, np.exp(-z * z) + np.tanh(b)), (z, z)

    (a, b), (ys, zs) = scan(step, (x, x * x), w)
    return np.sum(a * b) + np.sum(np.sin(ys) * np.cos(zs))


def one_by_one(graph: Graph) -> list[tuple[int, ...]]:
    """The stacks of the one pair that there is at each level: every price anew, of all that a step computes again."""
    (pair,) = loop_pairs(graph)
    loop = pair.loop
    body = translate(loop.body, ON_CPU)
    own = [body.own(node) for node in range(len(body.problem.cost))]
    cost = {eqn.results[0]: int(time) for eqn, time in zip(own, body.problem.cost, strict=True) if eqn.results}
    values, carries = loop.body.results[loop.carry :], loop.parts(loop.body.params).carry

    def taken(dropped: set[int]) -> tuple[int, int]:
        equations, read = recomputed(loop, dropped, pair.read)
        kept = {value for stack, value in enumerate(values) if stack not in dropped}
        stacked = sum(value.type.bytes for value in carries if value in read and value not in kept) * loop.length
        return loop.length * sum(cost.get(eqn.results[0], 0) for eqn in equations if eqn.results), stacked

    dropped: set[int] = set()
    found: list[tuple[int, int, tuple[int, ...]]] = []
    for _ in pair.droppable:
        before = taken(dropped)[0]
        left = [stack for stack in pair.droppable if stack not in dropped]
        prices = {one: (taken(dropped | {one})[0] - before) / (loop.length * values[one].type.bytes) for one in left}
        dropped.add(min(left, key=lambda one: (prices[one], one)))
        freed = loop.length * sum(values[one].type.bytes for one in dropped) - taken(dropped)[1]
        found.append((freed, taken(dropped)[0], tuple(sorted(dropped))))
    counts = set()
    for amounts in ([freed for freed, _, _ in found], [time for _, time, _ in found]):
        least = [max(amounts) * (step + 1) // LEVELS for step in range(LEVELS)]
        counts |= {next(count for count, now in enumerate(amounts) if now >= one) for one in least}
    return [found[count][-1] for count in sorted(counts)]


@pytest.mark.parametrize("loss", [layers, of_constants, backwards, of_two_carries, stacked_for_others, many])
def test_stacks_are_dropped_by_what_each_takes_beside_those_before_it(loss: Callable[..., Any]) -> None:
    graph = flat(loss)
    choices = [choice for (choice,) in dropping(graph)[1:]]
    assert [choice.dropped for choice in choices if isinstance(choice, LoopChoice)] == one_by_one(graph)


def test_inner_loops_come_after_those_around_them() -> None:
    graph = flat(nested)
    levels = [[len(choice.path) for choice in choices] for choices in dropping(graph)]
    assert all(depths == sorted(depths) for depths in levels)
    assert {depth for depths in levels for depth in depths} == {0, 1}


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("loss", [nested, solver, recurrences, normed, branched, loops_in_branches])
def test_whatever_is_dropped_around_inner_loops_and_branches_changes_no_bit(
    loss: Callable[..., Any], states: bool
) -> None:
    """One stack alone, all but one, and those of drawn subsets: what else is read says which part of a loop runs."""
    graph = flat(loss)
    pair = next(iter(loop_pairs(graph)))
    assert not pair.path
    draw = np.random.default_rng(1)
    ones = [[stack] for stack in pair.droppable]
    others = [[stack for stack in pair.droppable if stack != left] for left in pair.droppable]
    drawn = [[stack for stack in pair.droppable if draw.random() < 0.5] for _ in range(8)]
    assert len(pair.droppable) > 2
    for dropped in [*ones, *others, *drawn]:
        instead = with_decisions(graph, [pair.choice(dropped, states)])
        verify(instead)
        assert same_bits(graph, instead), dropped


def again_in(graph: Graph) -> list[Scan]:
    """The loops of a backward step that are computed again: they come before its own."""
    (backward,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan) and eqn.op.is_reversed]
    return [eqn.op for eqn in backward.body.equations if isinstance(eqn.op, Scan)][:-1]


def test_of_an_inner_loop_only_what_leads_from_known_stacks_runs_again() -> None:
    """Without a hidden value each step is by itself: no carry, one of four products; with the states gone all run."""
    graph = flat(solver)
    levels = [level for level in dropping(graph) if [len(choice.path) for choice in level] == [0]]
    again = [again_in(with_decisions(graph, level)) for level in levels]
    assert [len(loops) for loops in again] == [1] * len(levels)
    *_, hidden, all_of_them = [{*level[0].dropped} for level in levels]
    (state,) = all_of_them - hidden
    assert [loop.carry for (loop,) in again] == [int(state in level[0].dropped) for level in levels]
    products = [sum(eqn.op.is_product for eqn in loop.body.equations) for (loop,) in again]
    assert products[0] == 1 and products[-1] == 4
    assert products == sorted(products)


def test_of_branches_only_what_leads_from_known_stacks_runs_again() -> None:
    """A product that a branch computes is not computed again for what follows from it, where that is stacked."""

    def products(graph: Graph) -> int:
        branches = [eqn for loop in loops(graph) for eqn in loop.body.equations if isinstance(eqn.op, Case)]
        inside = [inner for eqn in branches for branch in eqn.op.regions() for inner in branch.equations]
        return sum(eqn.op.is_product for eqn in inside)

    def loops(graph: Graph) -> list[Scan]:
        return [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan)]

    graph = flat(branched)
    whole, *changed = [with_decisions(graph, level) for level in dropping(graph)]
    peaks = [simulate(translate(each, ON_CPU).problem).peak for each in changed]
    again = [products(each) - products(whole) for each in changed]
    assert {0, 1, 2} <= set(again), "none of a branch's two products, one and both"
    of_none = [peak for peak, count in zip(peaks, again, strict=True) if not count]
    assert min(of_none) < 0.7 * simulate(translate(whole, ON_CPU).problem).peak
    for each in changed:
        verify(each)
        backward = loops(each)[-1].body
        assert sum(isinstance(eqn.op, Case) for eqn in backward.equations) == 1, "joined with what reads it"
        negative: list[Any] = [W * -1, X]
        pairs = zip(evaluate(graph, negative), evaluate(each, negative), strict=True)
        assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def test_what_an_inner_loop_computes_again_is_known_by_its_own_op_and_line() -> None:
    graph = flat(solver)
    level = next(level for level in dropping(graph) if level)
    (loop,) = planned_loops(graph, level)
    (stack,) = loop.stacks
    assert stack.op == "tanh" and "test_loops.py:" in stack.where
    assert stack.where != loop.where


def test_inner_loops_compute_again_where_no_state_is_lost() -> None:
    """The levels between: an inner backward loop makes hidden values from states that the outer one still reads."""
    graph = flat(solver)
    levels = dropping(graph)
    outer = [level for level in levels if [len(choice.path) for choice in level] == [0]]
    (whole,) = max(outer, key=lambda level: len(level[0].dropped))
    between = [level for level in levels if len(level) == 2 and level[0] != whole]
    assert between and between[-1] in levels[: levels.index((whole,))]
    states_kept, states_gone = (with_decisions(graph, level) for level in (between[-1], levels[-1]))
    assert not again_in(run_passes(states_kept, "dce").graph), "no loop but the inner backward one is left"
    assert [loop.carry for loop in again_in(run_passes(states_gone, "dce").graph)] == [1]
    runs = [simulate(translate(each, ON_CPU).problem) for each in (graph, states_kept, states_gone)]
    assert runs[0].time < runs[1].time < runs[2].time
    assert runs[0].peak > runs[1].peak > runs[2].peak


def test_states_of_inner_loops_are_stacked_where_these_would_take_steps_again() -> None:
    """Nothing that is stacked says what a block begins with: with the states each of them is made again by itself."""
    graph = flat(normed)
    levels = dropping(graph)
    (pair, *_) = loop_pairs(graph)
    with_states = [level for level in levels if level and level[0].states]
    alone = max(with_states, key=lambda level: len(level[0].dropped))[:1]
    kept, gone = (with_decisions(graph, [pair.choice(alone[0].dropped, states)]) for states in (True, False))
    assert [loop.carry for loop in again_in(kept)] == [0]
    assert [loop.carry for loop in again_in(gone)] == [1]
    states = [value for eqn in kept.equations for value in eqn.results if value.type.shape == (STEPS, 4, ROWS, WIDTH)]
    assert len(states) == 1
    deepest = with_decisions(graph, with_states[-1])
    plain, run, chained = (simulate(translate(each, ON_CPU).problem) for each in (graph, deepest, gone))
    assert run.time < chained.time and run.peak < 0.5 * plain.peak


def test_a_loop_that_stacks_its_states_is_another_one() -> None:
    """Equal loops are merged: what a graph knows of itself by then is not the other one's."""
    (outer,) = [eqn for eqn in flat(normed).equations if isinstance(eqn.op, Scan) and not eqn.op.is_reversed]
    assert isinstance(outer.op, Scan)
    (inner,) = [eqn for eqn in outer.op.body.equations if isinstance(eqn.op, Scan)]
    assert isinstance(inner.op, Scan) and hash(inner.op) == hash(inner.op)
    states = {inner.results[0]: Value(stack_of(inner.op.body.results[0].type, inner.op.length))}
    assert with_states(inner, states).op != inner.op


def test_what_an_outer_loop_does_not_read_inner_ones_do_not_stack() -> None:
    """Nor is it planned for: the forward loop's step has no stacks left but those that are read."""
    graph = flat(normed)
    (pair, *_) = loop_pairs(graph)
    instead = with_decisions(graph, [pair.choice(pair.droppable)])
    forward: Any = instead.equations[pair.forward].op
    (inner,) = [eqn.op for eqn in forward.body.equations if isinstance(eqn.op, Scan)]
    assert len(inner.body.results) == inner.carry


def test_a_plan_with_states_is_saved() -> None:
    graph = flat(normed)
    level = next(level for level in dropping(graph) if level and level[0].states)
    plan = replace(Planner(graph, ON_CPU).plan(2**30), loops=planned_loops(graph, level))
    assert '"states": true' in plan.to_json()
    assert rematc.Plan.from_json(plan.to_json()).loops == plan.loops


def test_what_another_reader_takes_stays_stacked() -> None:
    (pair,) = loop_pairs(flat(stacked_for_others))
    assert len(pair.droppable) < len(pair.read) or len(pair.read) < len(pair.loop.body.results) - 1


def _eqn(graph: Graph, index: int, operands: tuple[Any, ...], op: Any = None) -> Graph:
    """The graph with other operands, and perhaps another op, of one equation."""
    equations = list(graph.equations)
    equations[index] = replace(equations[index], operands=operands, op=op or equations[index].op)
    return Graph(graph.name, graph.params, tuple(equations), graph.results)


def test_a_stack_that_a_loop_reads_twice_is_dropped_for_both() -> None:
    graph = flat(layers)
    (pair,) = loop_pairs(graph)
    backward = graph.equations[pair.backward]
    loop: Any = backward.op
    dropped = graph.equations[pair.forward].results[pair.loop.carry + pair.droppable[0]]
    params = loop.body.params
    again = Value(params[backward.operands.index(dropped)].type)
    body = Graph(loop.body.name, (*params, again), loop.body.equations, loop.body.results)
    twice_read = _eqn(graph, pair.backward, (*backward.operands, dropped), replace(loop, body=body))
    verify(twice_read)
    instead = with_decisions(twice_read, [pair.choice(pair.droppable)])
    verify(instead)
    assert same_bits(graph, instead)


def test_work_with_an_effect_is_not_repeated() -> None:
    def loss(w: Any, x: Any) -> Any:
        def step(c: Any, w: Any) -> Any:
            h = np.tanh(c @ w)
            rematc.debug.callback(lambda _: None, h)
            return np.sin(h) * h, None

        return np.sum(scan(step, x, w)[0])

    graph = flat(loss)
    assert sum(eqn.op.name == "debug_callback" for eqn in _all(graph)) == 1
    for choices in loop_levels(graph, ON_CPU):
        after = run_passes(with_decisions(graph, choices), "dce").graph
        assert sum(eqn.op.name == "debug_callback" for eqn in _all(after)) == 1


def _all(graph: Graph) -> list[Any]:
    found = []
    for eqn in graph.equations:
        found.append(eqn)
        for region in eqn.op.regions():
            found += _all(region)
    return found


def test_loops_in_chunks_hold_the_carries_of_chunks_and_the_stacks_of_one() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(scan(lambda c, _: (np.sin(c @ w[0]), None), x, None, 64)[0])

    graph = flat(loss)
    (pair,) = loop_pairs(graph)
    size = X.nbytes
    plain = simulate(translate(graph, ON_CPU).problem).peak
    split = with_decisions(graph, [LoopSplit((), pair.forward, pair.backward, 8)])
    verify(split)
    assert same_bits(graph, split)
    assert plain >= 64 * len(pair.own) * size
    assert simulate(translate(split, ON_CPU).problem).peak < (8 + (8 + 4) * len(pair.own)) * size
    (level, *_) = [level for level in loop_levels(graph, ON_CPU) if isinstance(next(iter(level), None), LoopSplit)]
    assert level == (LoopSplit((), pair.forward, pair.backward, 8),)


def test_a_prime_number_of_steps_stays_in_one_loop() -> None:
    def prime(w: Any, x: Any) -> Any:
        return np.sum(scan(lambda c, _: (np.sin(c @ w[0]), None), x, None, 13)[0])

    levels = loop_levels(flat(prime), ON_CPU)
    assert not any(isinstance(decision, LoopSplit) for level in levels for decision in level)


@pytest.mark.parametrize(
    "choice",
    [
        LoopSplit((), 0, 1, 2),
        LoopSplit((), 0, 6, 4),
        LoopSplit((), 0, 6, 1),
        LoopSplit((Inside(3),), 0, 6, 2),
        LoopChoice((), 0, 1, (0,)),
        LoopChoice((), 0, 6, (9,)),
        LoopChoice((), 99, 100, (0,)),
        LoopChoice((Inside(3),), 0, 1, (0,)),
        LoopChoice((Inside(99),), 0, 1, (0,)),
        LoopChoice((Inside(0, 1),), 0, 1, (0,)),
    ],
)
def test_a_choice_for_loops_that_are_not_there_is_refused(choice: LoopDecision) -> None:
    with pytest.raises(CompileError, match="a loop or a branch that it speaks of is not there"):
        with_decisions(flat(layers), [choice])


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_more_budget_never_costs_more_time(loss: Callable[..., Any]) -> None:
    planner = Planner(flat(loss), ON_CPU)
    plans = planner.curve(7)
    assert all(plan.is_feasible for plan in plans)
    assert [plan.time for plan in plans] == sorted([plan.time for plan in plans], reverse=True)
    assert plans[-1].time <= plans[-1].time_without, "what is computed again may be less than what is stacked"
    assert all(plan.bound <= plan.time for plan in plans)
    assert all(same_bits(flat(loss), run_passes(planner.applied(plan), "barriers").graph) for plan in plans[:2])


def held_up_elsewhere(w: Any, x: Any) -> Any:
    """Two loops, and beside them what is needed whole, which takes many times as much."""
    rows = np.sin(x @ w[0])
    wide = np.exp(np.tile(rows, (8, 4)) * 0.1)
    return np.sum(wide / np.sum(wide)) + of_two_carries(w, x) + layers(w, x)


def test_levels_of_loops_are_not_tried_where_none_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the levels in the same chunks the ends are; of all, whether one takes less than the best so far."""
    tried: list[int] = []

    def counted(problem: Any, budget: int, **options: Any) -> Any:
        tried.append(budget)
        return fitting_plan(problem, budget, **options)

    def looked_for(problem: Any, budget: int, **options: Any) -> Any:
        halved.append(budget)
        return plan_for_budget(problem, budget, **options)

    halved: list[int] = []
    monkeypatch.setattr("rematc.passes.planning.planner.fitting_plan", counted)
    monkeypatch.setattr("rematc.passes.planning.planner.plan_for_budget", looked_for)
    once = Constraints(never_repeat=("scan",))  # else what loops begin with is not held
    smallest = Planner(flat(held_up_elsewhere), ON_CPU, constraints=once).plan(0)
    assert len(halved) <= 2
    levels = loop_levels(flat(held_up_elsewhere), ON_CPU, once)
    groups = list(in_same_chunks(levels))
    assert len(levels) > 4 * len(groups), "there is something to leave out"
    planner, over = Planner(flat(held_up_elsewhere), ON_CPU, constraints=once), smallest.peak - 2
    found = planner.plan(over)
    assert not found.is_feasible and found.peak == smallest.peak
    whole_and_sums = 2
    assert tried.count(over) == whole_and_sums * 2 * len(groups)
    tried.clear()
    again = planner.plan(over)
    assert again.peak == smallest.peak and not tried, "the smallest is known"


def of_many_stacks(w: Any, x: Any) -> Any:
    """A loop in a loop, in both of which some of what is stacked is cheap and some is dear."""

    def inner(c: Any, w: Any) -> Any:
        return np.sin(np.exp(-np.cos(c @ w)) + np.tanh(c)), np.sum(np.sin(c * w[0]))

    def outer(c: Any, w: Any) -> Any:
        c, ys = scan(inner, np.tanh(c @ w), w[None] * np.arange(1.0, 4.0, dtype=np.float32)[:, None, None])
        return np.sin(np.tanh(np.cos(c) @ w) * c), np.sum(ys)

    return np.sum(scan(outer, x, w)[0] ** 2) + np.sum(np.exp(np.sin(np.cos(x @ w[0]) @ w[1])))


@pytest.mark.parametrize("percent", [95, 60, 30])
def test_halving_finds_what_is_fastest_of_all_levels(percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And looks at some of them alone."""
    shapes = np.zeros((8, 256, 256), np.float32), np.zeros((256, 256), np.float32)
    graph = run_passes(rematc.trace(rematc.value_and_grad(of_many_stacks, (0, 1)), *shapes), BEFORE_PLAN).graph
    levels = loop_levels(graph, ON_CPU)
    budget = simulate(translate(graph, ON_CPU).problem).peak * percent // 100
    found = [fitting_plan(translate(with_decisions(graph, level), ON_CPU).problem, budget) for level in levels]
    of_all = min((one.run.time for one in found if one is not None), default=None)
    tried: list[Any] = []

    def counted(problem: Any, budget: int, **options: Any) -> Any:
        tried.append(problem)
        return fitting_plan(problem, budget, **options)

    monkeypatch.setattr("rematc.passes.planning.planner.fitting_plan", counted)
    plan = Planner(graph, ON_CPU).plan(budget)
    assert plan.is_feasible == (of_all is not None)
    assert of_all is None or plan.time <= of_all
    assert plan.bound <= min(translate(with_decisions(graph, level), ON_CPU).problem.cost.sum() for level in levels)
    assert of_all is None or len(tried) < len(levels), "of both modes"


@pytest.mark.parametrize("loss", [branched, backwards])
def test_no_level_is_faster_than_the_bound(loss: Callable[..., Any]) -> None:
    """What drops more may take longer than what drops less, and what drops still more less than both."""
    graph = flat(loss)
    times = [translate(with_decisions(graph, level), ON_CPU).problem.cost.sum() for level in loop_levels(graph, ON_CPU)]
    assert times != sorted(times)
    assert Planner(graph, ON_CPU).plan(0).bound <= min(times)


def test_chains_of_levels_drop_more_and_more() -> None:
    levels = loop_levels(flat(of_many_stacks), ON_CPU)
    apart = chains(levels)
    assert sorted(map(str, levels)) == sorted(str(level) for chain in apart for level in chain)
    assert 1 < len(apart) < len(levels) / 2

    def dropped(level: Any) -> set[Any]:
        choices = [one for one in level if isinstance(one, LoopChoice)]
        return {(one.path, one.forward, one.backward, stack) for one in choices for stack in one.dropped}

    for chain in apart:
        assert all(dropped(less) < dropped(more) for less, more in itertools.pairwise(chain))


def step() -> Any:
    return rematc.value_and_grad(layers)


BIG = np.zeros((24, 64, 64), np.float32), np.zeros((512, 64), np.float32)


def test_a_loop_of_layers_fits_what_a_policy_needs() -> None:
    every = rematc.compile(step(), *BIG).memory().temp_bytes
    least = rematc.compile(rematc.value_and_grad(layers, policy="nothing"), *BIG).memory().temp_bytes
    compiled = rematc.compile(step(), *BIG, budget=max(int(0.5 * every), least))
    assert compiled.lowered.budget is not None and compiled.plan is not None
    assert compiled.memory().temp_bytes <= max(int(0.5 * every), least)
    assert len(compiled.plan.loops) == 1


def test_a_plan_with_loops_is_saved_applied_and_explained() -> None:
    lowered = rematc.lower(step(), *BIG, budget="60%")
    plan = lowered.plan
    assert plan is not None and plan.loops
    read = rematc.Plan.from_json(plan.to_json())
    assert read == plan
    assert rematc.lower(step(), *BIG, plan=read).stablehlo() == lowered.stablehlo()
    assert "computed again in each step of the loop at" in str(plan)
    assert f"{plan.loops[0].length} steps would take" in plan.explain(plan.loops[0].stacks[0].where)
    assert plan.extra_flops > 0 and plan.peak < plan.peak_without
    assert plan.diff(plan).is_empty
    other = rematc.lower(step(), *BIG, budget="1GiB").plan
    assert other is not None
    with pytest.raises(CompileError, match="again in loops"):
        plan.diff(other)
    with pytest.raises(CompileError, match="another program"):
        rematc.lower(rematc.value_and_grad(nested), *BIG, plan=read)


def test_a_plan_with_chunks_is_saved_and_applied() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(scan(lambda c, _: (np.sin(c @ w), None), x, None, 60)[0])

    args = np.zeros((64, 64), np.float32), np.zeros((512, 64), np.float32)

    def made(**options: Any) -> Any:
        return rematc.lower(rematc.value_and_grad(loss), *args, **options)

    lowered = made(budget="40%")
    plan = lowered.plan
    assert plan is not None and "chunks" in plan.to_json()
    assert rematc.Plan.from_json(plan.to_json()) == plan
    assert made(plan=plan).stablehlo() == lowered.stablehlo()
    assert "computed again in chunks of" in str(plan)
    with pytest.raises(CompileError, match="a loop of it either drops"):
        rematc.Plan.from_json(plan.to_json().replace('"chunks"', '"chunk"'))
