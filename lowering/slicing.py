"""Slices of a program: in how many its largest stage runs, as asked for or as its target needs them."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from rematc.passes.planning.problem import simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from rematc.passes.slicing.slicing import Sliced, sliced
from rematc.passes.slicing.stages import bytes_of

OFF = "off"
AUTO = "auto"
#: In how many slices the largest stage runs: a number, `off` for none, `auto` for as few as the memory takes.
Slices = int | str
#: Plans whose times are as near are alike: more slices are more memory traffic, which the model knows in part.
_ALIKE = 0.01


def slices_of(slices: object) -> Slices:
    """What users pass, a number or a text. Raises CompileError for what says nothing about slices."""
    if isinstance(slices, str) and slices.isascii() and slices.isdigit():
        slices = int(slices)
    if slices in (OFF, AUTO) or (isinstance(slices, int) and not isinstance(slices, bool) and slices >= 1):
        assert isinstance(slices, int | str)
        return OFF if slices == 1 else slices
    hint = suggestion(slices, [AUTO, OFF]) if isinstance(slices, str) else ""
    raise CompileError(f"{slices!r} is no number of slices; pass one of 1 and more, 'auto', or 'off'{hint}")


def in_slices(
    graph: Graph, slices: Slices, target: Target, donated: Sequence[int] = (), budget: Budget | None = None
) -> Sliced | None:
    """A differentiated graph, forward and backward in one, with the stage around its largest value in slices.

    With `auto` and a budget there are as many as the fastest plan has that fits; without one as few as it takes that a
    slice of the value is no more than all else that stands at the peak, as it is predicted. None where that, or `off`,
    is none.

    Args:
        graph: what is to be lowered.
        slices: how many.
        target: for what.
        donated: the parameters in whose memory results may lie.
        budget: for what the graph is going to be planned.

    Raises CompileError, with the reasons, where nothing can run in so many slices, where the program is predicted to
    need more memory with them, and for arrays that several devices hold.
    """
    if slices == OFF:
        return None
    if has_placements(graph) or target.devices > 1:
        if slices == AUTO:
            return None
        raise CompileError(
            "a program whose arrays are spread over several devices runs in no slices yet; leave out slices"
        )
    with unwatched():
        if slices == AUTO:
            if budget is not None:
                return _of_fastest_plan(graph, target, donated, budget)
            return _as_few_as_it_takes(graph, target, donated)
        assert isinstance(slices, int), "it is neither of the texts"
        found = sliced(graph, slices)
        before, after = (_expected(one, target, donated) for one in (graph, found.graph))
    if after > before:
        raise CompileError(
            f"{found.count} slices save nothing: {found.value.type} of '{found.op}', the largest value that can be "
            f"cut, is not what takes the memory. The program is predicted to need {format_bytes(after)} with slices, "
            f"and {format_bytes(before)} without; leave them out, or write slices='auto'",
            found.loc,
        )
    return found


def _as_few_as_it_takes(graph: Graph, target: Target, donated: Sequence[int]) -> Sliced | None:
    whole, before = _expected(graph, target, donated), None
    found = _sliced(graph, 2)
    while found is not None:
        expected, slice = _expected(found.graph, target, donated), bytes_of(found.value.type) // found.count
        others = max(1, expected - slice)
        if slice <= others and expected < whole:
            return found
        if before is not None and expected >= before:
            return None  # smaller slices do not lower the peak: it is elsewhere
        before = expected
        more = _sliced(graph, max(2 * found.count, math.ceil(bytes_of(found.value.type) / others)))
        if more is None or more.count <= found.count:
            return found if expected < whole else None
        found = more
    return None


def _of_fastest_plan(graph: Graph, target: Target, donated: Sequence[int], budget: Budget) -> Sliced | None:
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
        return None
    found = _sliced(graph, 2)
    while found is not None and _is_less((0, (planner := planner_of(found.graph)).least_time), least):
        merit = _guess(planner, wanted)
        if _is_less(merit, least):
            best, least = (found, planner), merit
        more = _sliced(graph, 2 * found.count)
        found = more if more is not None and more.count > found.count else None
    if best is None or not _is_less(_merit(best[1], wanted), _merit(whole, wanted)):
        return None
    return best[0]


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


def _sliced(graph: Graph, count: int) -> Sliced | None:
    try:
        return sliced(graph, count)
    except CompileError:
        return None


def _expected(graph: Graph, target: Target, donated: Sequence[int]) -> int:
    """Bytes of temporary memory that a graph is predicted to take: on the CPU by a model of what XLA does with it."""
    if target.platform == "cpu":
        passed = run_passes(graph, default_pipeline(target.barrier_strategy)).graph
        return predict(passed, target, donated).peak
    flat = run_passes(graph, f"{BEFORE_PLAN},barriers{{strategy=none}},dce").graph
    return simulate(translate(flat, Machine(device_of(target.platform, target.device_kind))).problem).peak
