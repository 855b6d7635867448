"""Slices of a program: in how many its largest stage runs, as asked for or as its target needs them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.spelling import suggestion
from rematc.ir.units import format_bytes
from rematc.lowering.expectation import expected_peak, machine_of
from rematc.lowering.parts_of_devices import place_of_parts
from rematc.lowering.pipeline import BEFORE_PLAN, default_pipeline, run_passes
from rematc.lowering.planning import Budget, GraphPlanner, scaled
from rematc.lowering.propagation import shards_of
from rematc.lowering.target import Target
from rematc.passes.manager import unwatched
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.planning.one_device import on_one_device
from rematc.passes.planning.simulated_timeline import simulated
from rematc.passes.slicing.local_parts import LocalParts
from rematc.passes.slicing.slicing import WAYS, Sliced, Slicer

OFF = "off"
AUTO = "auto"
#: None, but where no plan fits a budget without.
NEEDED = "needed"
#: In how many slices the largest stage runs: a number, `off` for none, `auto` for as few as the memory takes, `needed`;
#: as a plan remembers it.
Slices = int | str | InSlices
#: Times of plans, or bytes of programs, that are as near are alike: the models know in part what slices cost.
_ALIKE = 0.01
#: With `auto`, of how many percent of the memory one percent more time is worth: slices that take a tenth longer save a
#: third.
_WORTH = 4
#: A slice is little where so many of them take no more than the program: of what a stage holds there are a few.
_LITTLE = 64
#: Where smaller slices do not help, what comes next in size may still be cut.
_VAIN = 2
#: Numbers of slices that are tried for an error's way out.
_HINTED = (4, 16, 64)
#: Whether it is known that no plan fits without slices.
_IS_TOO_LARGE: ContextVar[bool] = ContextVar("whole_is_too_large", default=False)


def slices_of(slices: object) -> Slices:
    """What users pass, a number or a text. Raises CompileError for what says nothing about slices."""
    if isinstance(slices, str) and slices.isascii() and slices.isdigit():
        slices = int(slices)
    if isinstance(slices, InSlices):
        return slices
    if slices in (OFF, AUTO, NEEDED) or (isinstance(slices, int) and not isinstance(slices, bool) and slices >= 1):
        assert isinstance(slices, int | str)
        return OFF if slices == 1 else slices
    hint = suggestion(slices, [AUTO, NEEDED, OFF]) if isinstance(slices, str) else ""
    raise CompileError(f"{slices!r} is no number of slices; pass one of 1 and more, 'auto', 'needed', or 'off'{hint}")


def is_cut(slices: Slices) -> bool:
    """Whether a program is to run in slices, be they needed or not."""
    return slices not in (OFF, NEEDED)


#: A differentiated graph, forward and backward in one, with segments chosen for so many slices of its largest value.
Derive = Callable[[int], Graph]


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of a differentiated graph.

    Attributes:
        graph: it, in slices if there are any.
        sliced: what they are; None without.
        slices: for how many the segments of the differentiated graph were chosen.
        whole: bytes that the program is predicted to take without slices; None where that was not asked.
    """

    graph: Graph
    sliced: Sliced | None = None
    slices: int = 1
    whole: int | None = None


def in_slices(
    derive: Derive,
    slices: Slices,
    target: Target,
    donated: Sequence[int] = (),
    budget: Budget | None = None,
    shardings: Sequence[Any] = (),
) -> Choice:
    """A differentiated graph with the stages around its largest values in slices.

    With `auto` and a budget there are as many as the fastest plan has that fits; without one the number
    that is worth its time, as memory and time are predicted. There are none where that saves nothing. Whether they
    are `needed` is seen when the graph is planned: there are none here.

    Args:
        derive: gives what is to be lowered.
        slices: how many.
        target: for what.
        donated: the parameters in whose memory results may lie.
        budget: for what the graph is going to be planned.
        shardings: JAX's, of the first parameters: slices are of what each device has. None where nobody knows.

    Raises CompileError, with the reasons, where nothing can run in so many slices, where the program is predicted to
    need no less memory with them, and for arrays that several devices hold of which nobody knows how.
    """
    if not is_cut(slices):
        return Choice(derive(1))
    search = _Search(target, tuple(donated), tuple(shardings))
    with unwatched():
        if slices == AUTO:
            return (
                search.of_fastest_plan(derive(1), budget) if budget is not None else search.as_few_as_it_takes(derive)
            )
        before = search.expected(derive(1))
        if isinstance(slices, InSlices):
            found = search.slicer(derive(1)).cut(slices)
            return Choice(found.graph, found, whole=before)
        assert isinstance(slices, int), "it is neither of the texts"
        choice, after = search.least(derive, slices)
    if after * (1 + _ALIKE) >= before:
        assert choice.sliced is not None, "there is an error where nothing can be cut"
        largest = choice.sliced.largest
        raise CompileError(
            f"{largest.count} slices save nothing: {largest.value.type} of '{largest.op}', the largest value that can "
            f"be cut, is not what takes the memory. The program is predicted to need {format_bytes(after)} with "
            f"slices, and {format_bytes(before)} without; leave them out, or write slices='auto'",
            largest.loc,
        )
    return replace(choice, whole=before)


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for slices.

    Attributes:
        target: for what.
        donated: the parameters in whose memory results may lie.
        shardings: JAX's, of the first parameters.
    """

    target: Target
    donated: tuple[int, ...]
    shardings: tuple[Any, ...]

    def slicer(self, graph: Graph) -> Slicer:
        """Cuts a graph: of one that is spread over devices what each computes of its parts.

        Raises CompileError where nobody knows what that is.
        """
        where = place_of_parts(graph, self.target, self.shardings)
        if where is None:
            return Slicer(graph)
        flat = run_passes(graph, BEFORE_PLAN).graph
        return Slicer(flat, LocalParts(flat, shards_of(flat, self.target, self.shardings), where))

    def planner(self, graph: Graph, budget: Budget) -> GraphPlanner:
        """Plans a graph for a budget."""
        return GraphPlanner(
            graph, self.target, constraints=budget.constraints, donated=self.donated, shardings=self.shardings
        )

    def expected(self, graph: Graph) -> int:
        """Bytes of temporary memory that a graph is predicted to take."""
        passed = self._passed(graph)
        return expected_peak(passed, self.target, self.donated, shards_of(passed, self.target, self.shardings))

    def time(self, graph: Graph) -> int:
        """Nanoseconds that a graph takes by the model of its device."""
        passed = self._passed(graph)
        local, _ = on_one_device(passed, shards_of(passed, self.target, self.shardings))
        return simulated(local, machine_of(self.target)).time

    def _passed(self, graph: Graph) -> Graph:
        return run_passes(graph, default_pipeline(self.target.barrier_strategy), target=self.target).graph

    def least(self, derive: Derive, count: int) -> tuple[Choice, int]:
        """The way to run in so many slices that is predicted to take least memory, and what it takes.

        Nothing is computed again but what the policy says, or all that is larger than a slice is cut, with what it
        takes. Of ways that are alike the first is taken. Raises CompileError, with the reasons, where there is none.
        """
        slicer = self.slicer(derive(count))
        everywhere = slicer.everywhere(count)
        apart = _in(Slicer.apart, slicer, count) if everywhere.at_once else None
        through = _in(Slicer.through, slicer, count)
        ways = [Choice(found.graph, found, count) for found in (through, everywhere, apart) if found is not None]
        once = _in(Slicer.once, self.slicer(derive(1)), count)
        if once is not None:
            ways.insert(0, Choice(once.graph, once))
        expected = [self.expected(way.graph) for way in ways]
        return next(pair for pair in zip(ways, expected, strict=True) if pair[1] <= min(expected) * (1 + _ALIKE))

    def as_few_as_it_takes(self, derive: Derive) -> Choice:
        """The number of slices that is worth its time: with `_WORTH`, of what saves as much the fewest.

        There are twice as many each time, which cuts more, until a slice is little of what the program takes, or until
        `_VAIN` numbers in a row are worth less than one before.
        """
        best = Choice(derive(1))
        memory, time = self.expected(best.graph), self.time(best.graph)
        least, count, vain = 1.0, 2, 0
        while vain < _VAIN:
            try:
                choice, expected = self.least(derive, count)
            except CompileError:
                break
            assert choice.sliced is not None, "there is an error where nothing can be cut"
            largest = choice.sliced.largest
            merit = expected / memory * (self.time(choice.graph) / time) ** _WORTH
            vain += 1
            if merit * (1 + _ALIKE) < least:
                best, least, vain = choice, merit, 0
            if largest.count < count or largest.largest // largest.count * _LITTLE <= expected:
                break
            count = 2 * largest.count
        return replace(best, whole=memory)

    def of_fastest_plan(self, graph: Graph, budget: Budget) -> Choice:
        """As many slices as give the fastest plan for a budget; of plans alike in time the fewest.

        There are twice as many each time, until with so many it is slower where all is kept: each adds its terms to
        sums; or until `_VAIN` numbers in a row do not bring plans nearer to the budget. They are compared by the first
        guess at a plan; with the search for one that is expected to fit, only the best of them and none at all.
        """
        try:
            slicer = self.slicer(graph)
        except CompileError:
            return Choice(graph)
        whole = self.planner(graph, budget)
        wanted = whole.wanted(budget)
        is_too_large = _IS_TOO_LARGE.get()
        best, least = None, (1, whole.peak) if is_too_large else _guess(whole, wanted)
        if not _is_less((0, whole.least_time), least):
            return Choice(graph)
        for way in WAYS.values():
            found, nearest, vain = _in(way, slicer, 2), None, 0
            while found is not None and vain < _VAIN:
                planner = self.planner(found.graph, budget)
                if least[0] == 0 and not _is_less((0, planner.least_time), least):
                    break
                merit = _guess(planner, wanted)
                vain = vain + 1 if merit[0] and nearest is not None and merit[1] * (1 + _ALIKE) >= nearest else 0
                nearest = merit[1] if nearest is None else min(nearest, merit[1])
                if _is_less(merit, least):
                    best, least = (found, planner), merit
                more = _in(way, slicer, 2 * found.largest.count)
                found = more if more is not None and more.largest.count > found.largest.count else None
        if best is None or not (is_too_large or _is_less(_merit(best[1], wanted), _merit(whole, wanted))):
            return Choice(graph)
        return Choice(best[0].graph, best[0], whole=whole.whole)


@contextmanager
def too_large_whole(is_too_large: bool) -> Iterator[None]:
    """While slices are chosen for a program that may have been planned without, and fit no budget then."""
    token = _IS_TOO_LARGE.set(is_too_large)
    try:
        yield
    finally:
        _IS_TOO_LARGE.reset(token)


def fitting_slices(planner: GraphPlanner, budget: int) -> int | None:
    """A number of slices with which a plan of a graph is predicted to take so many bytes at most; None for none."""
    search = _Search(planner.target, planner.donated, planner.shardings)
    with unwatched():
        try:
            slicer = search.slicer(planner.before.graph)
        except CompileError:
            return None
        for count, way in itertools.product(_HINTED, (Slicer.everywhere, Slicer.through)):
            found = _in(way, slicer, count)
            if found is not None:
                sliced = GraphPlanner(found.graph, planner.target, donated=planner.donated, shardings=planner.shardings)
                plan = sliced.fitting(max(budget, scaled(budget, sliced.peak, sliced.whole)))
                if plan is None:
                    continue
                if sliced.expected(plan) <= budget or sliced.expected(sliced.smallest) <= budget:
                    return found.largest.count
    return None


def _is_less(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether a merit is less, and if both fit, by more than what is alike."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] * (1 + _ALIKE) < other[1])


def _guess(planner: GraphPlanner, wanted: int) -> tuple[int, int]:
    """The merit of the first plan that would be tried, by the bytes that are simulated."""
    plan = planner.fitting(scaled(wanted, planner.peak, planner.whole))
    return (1, planner.nearest) if plan is None else (0, plan.time)


def _merit(planner: GraphPlanner, wanted: int) -> tuple[int, int]:
    """Less is better: plans that are expected to fit by time in nanoseconds, others by the bytes that they take."""
    plan = planner.expected_within(scaled(wanted, planner.peak, planner.whole), wanted, 1.0)
    expected = planner.expected(plan)
    return (0, plan.time) if expected <= wanted else (1, expected)


def _in(way: Callable[[Slicer, int], Sliced], slicer: Slicer, count: int) -> Sliced | None:
    try:
        return way(slicer, count)
    except CompileError:
        return None
