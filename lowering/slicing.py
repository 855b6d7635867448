"""Slices of a program: in how many its largest stage runs, as asked for or as its target needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.placement import has_placements
from rematc.ir.spelling import suggestion
from rematc.ir.units import format_bytes
from rematc.lowering.pipeline import BEFORE_PLAN, default_pipeline, run_passes
from rematc.lowering.planning import Budget, GraphPlanner, scaled
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.prediction import predict
from rematc.passes.manager import unwatched
from rematc.passes.planning.device import device_of
from rematc.passes.planning.problem import Run, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from rematc.passes.slicing.slicing import Sliced, Slicer, sliced, sliced_once

OFF = "off"
AUTO = "auto"
#: In how many slices the largest stage runs: a number, `off` for none, `auto` for as few as the memory takes.
Slices = int | str
#: Times of plans, or bytes of programs, that are as near are alike: the models know in part what slices cost.
_ALIKE = 0.01
#: With `auto`, how near numbers of slices come to the least memory that any of them takes.
_NEAR = 1.1
#: A slice is little where so many of them take no more than the program: of what a stage holds there are a few.
_LITTLE = 16
#: With `auto`, how much longer than without slices a program may take: sums are read and written once a slice.
_SLOWER = 1.05
#: How to cut a graph in about so many slices: with nothing computed again first.
Way = Callable[[Slicer, int], Sliced]
_WAYS: tuple[Way, ...] = (Slicer.once, Slicer.everywhere)


def slices_of(slices: object) -> Slices:
    """What users pass, a number or a text. Raises CompileError for what says nothing about slices."""
    if isinstance(slices, str) and slices.isascii() and slices.isdigit():
        slices = int(slices)
    if slices in (OFF, AUTO) or (isinstance(slices, int) and not isinstance(slices, bool) and slices >= 1):
        assert isinstance(slices, int | str)
        return OFF if slices == 1 else slices
    hint = suggestion(slices, [AUTO, OFF]) if isinstance(slices, str) else ""
    raise CompileError(f"{slices!r} is no number of slices; pass one of 1 and more, 'auto', or 'off'{hint}")


#: A differentiated graph, forward and backward in one, with segments chosen for so many slices of its largest value.
Derive = Callable[[int], Graph]


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of a differentiated graph.

    Attributes:
        graph: it, in slices if there are any.
        sliced: what they are; None without.
        slices: for how many the segments of the differentiated graph were chosen.
    """

    graph: Graph
    sliced: Sliced | None = None
    slices: int = 1


def in_slices(
    derive: Derive, slices: Slices, target: Target, donated: Sequence[int] = (), budget: Budget | None = None
) -> Choice:
    """A differentiated graph with the stages around its largest values in slices.

    With `auto` and a budget there are as many as the fastest plan has that fits; without one as few as come near the
    least memory that any number is predicted to take. There are none where that saves nothing.

    Args:
        derive: gives what is to be lowered.
        slices: how many.
        target: for what.
        donated: the parameters in whose memory results may lie.
        budget: for what the graph is going to be planned.

    Raises CompileError, with the reasons, where nothing can run in so many slices, where the program is predicted to
    need no less memory with them, and for arrays that several devices hold.
    """
    graph = derive(1)
    if slices == OFF:
        return Choice(graph)
    if has_placements(graph) or target.devices > 1:
        if slices == AUTO:
            return Choice(graph)
        raise CompileError(
            "a program whose arrays are spread over several devices runs in no slices yet; leave out slices"
        )
    with unwatched():
        if slices == AUTO:
            if budget is not None:
                return _of_fastest_plan(graph, target, donated, budget)
            return _as_few_as_it_takes(derive, target, donated)
        assert isinstance(slices, int), "it is neither of the texts"
        before = _expected(graph, target, donated)
        choice, after = _least(derive, slices, target, donated)
    if after * (1 + _ALIKE) >= before:
        assert choice.sliced is not None, "there is an error where nothing can be cut"
        largest = choice.sliced.largest
        raise CompileError(
            f"{largest.count} slices save nothing: {largest.value.type} of '{largest.op}', the largest value that can "
            f"be cut, is not what takes the memory. The program is predicted to need {format_bytes(after)} with "
            f"slices, and {format_bytes(before)} without; leave them out, or write slices='auto'",
            largest.loc,
        )
    return choice


def _least(derive: Derive, count: int, target: Target, donated: Sequence[int]) -> tuple[Choice, int]:
    """The way to run in so many slices that is predicted to take least memory, and what it takes.

    Nothing is computed again but what the policy says, or all that is larger than a slice is cut, with what it takes.
    Of two that are alike the first is taken. Raises CompileError, with the reasons, where there is none.
    """
    staged = derive(count)
    everywhere = sliced(staged, count)
    after = _expected(everywhere.graph, target, donated)
    found = Choice(everywhere.graph, everywhere, count), after
    try:
        once = sliced_once(derive(1), count)
    except CompileError:
        return found
    least = _expected(once.graph, target, donated)
    return found if after * (1 + _ALIKE) < least else (Choice(once.graph, once), least)


def _as_few_as_it_takes(derive: Derive, target: Target, donated: Sequence[int]) -> Choice:
    """The way in which slices save most: without more recomputation, with it, and with segments chosen for that."""
    graph = derive(1)
    slicer = Slicer(graph)
    best, least = Choice(graph), _expected(graph, target, donated)
    for way in _WAYS:
        found, expected = _as_few(way, slicer, target, donated, least)
        if found is not None and expected * (1 + _ALIKE) < least:
            best, least = Choice(found.graph, found), expected
    if best.sliced is not None:
        count = best.sliced.largest.count
        found = _in(Slicer.everywhere, Slicer(derive(count)), count)
        if found is not None and _expected(found.graph, target, donated) * (1 + _ALIKE) < least:
            best = Choice(found.graph, found, count)
    return best


def _as_few(way: Way, slicer: Slicer, target: Target, donated: Sequence[int], whole: int) -> tuple[Sliced | None, int]:
    """As few slices as come near the least that any number of them is predicted to take, and what they take.

    There are twice as many each time, which cuts more, until a slice is little of what the program takes, or the
    device is no longer busy with it.
    """
    seen = list[tuple[Sliced, int]]()
    found, least_time = _in(way, slicer, 2), _simulated(slicer.graph, target).time
    while found is not None and (not seen or found.largest.count > seen[-1][0].largest.count):
        if seen and _simulated(found.graph, target).time > least_time * _SLOWER:
            break
        expected = _expected(found.graph, target, donated)
        seen.append((found, expected))
        if found.largest.largest // found.largest.count * _LITTLE <= expected:
            break
        found = _in(way, slicer, 2 * found.largest.count)
    least = min([expected for _, expected in seen], default=whole)
    if least >= whole:
        return None, whole
    return next(each for each in seen if each[1] <= least * _NEAR)


def _of_fastest_plan(graph: Graph, target: Target, donated: Sequence[int], budget: Budget) -> Choice:
    """As many slices as give the fastest plan for a budget; of plans alike in time the fewest.

    There are twice as many each time, until with so many it is slower where all is kept: each adds its terms to sums.
    They are compared by the first guess at a plan; with the search for one that is expected to fit, only the best of
    them and none at all.
    """

    def planner_of(graph: Graph) -> GraphPlanner:
        return GraphPlanner(graph, target, constraints=budget.constraints, donated=donated)

    whole = planner_of(graph)
    wanted = whole.wanted(budget)
    best, least = None, _guess(whole, wanted)
    if not _is_less((0, whole.least_time), least):
        return Choice(graph)
    slicer = Slicer(graph)
    for way in _WAYS:
        found = _in(way, slicer, 2)
        while found is not None and _is_less((0, (planner := planner_of(found.graph)).least_time), least):
            merit = _guess(planner, wanted)
            if _is_less(merit, least):
                best, least = (found, planner), merit
            more = _in(way, slicer, 2 * found.largest.count)
            found = more if more is not None and more.largest.count > found.largest.count else None
    if best is None or not _is_less(_merit(best[1], wanted), _merit(whole, wanted)):
        return Choice(graph)
    return Choice(best[0].graph, best[0])


def _is_less(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether a merit is less, and if both fit, by more than what is alike."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] * (1 + _ALIKE) < other[1])


def _guess(planner: GraphPlanner, wanted: int) -> tuple[int, int]:
    """The merit of the first plan that would be tried, by the bytes that are simulated."""
    plan = planner.plan(scaled(wanted, planner.peak, planner.whole))
    return (0, plan.time) if plan.is_feasible else (1, plan.peak)


def _merit(planner: GraphPlanner, wanted: int) -> tuple[int, int]:
    """Less is better: plans that are expected to fit by time in nanoseconds, others by the bytes that they take."""
    plan = planner.expected_within(scaled(wanted, planner.peak, planner.whole), wanted, 1.0)
    expected = planner.expected(plan)
    return (0, plan.time) if expected <= wanted else (1, expected)


def _in(way: Way, slicer: Slicer, count: int) -> Sliced | None:
    try:
        return way(slicer, count)
    except CompileError:
        return None


def _expected(graph: Graph, target: Target, donated: Sequence[int]) -> int:
    """Bytes of temporary memory that a graph is predicted to take: on the CPU by a model of what XLA does with it."""
    if target.platform == "cpu":
        passed = run_passes(graph, default_pipeline(target.barrier_strategy)).graph
        return predict(passed, target, donated).peak
    return _simulated(graph, target).peak


def _simulated(graph: Graph, target: Target) -> Run:
    """Bytes and nanoseconds that a graph takes by the models of its device."""
    flat = run_passes(graph, f"{BEFORE_PLAN},barriers{{strategy=none}},dce").graph
    return simulate(translate(flat, Machine(device_of(target.platform, target.device_kind))).problem)
