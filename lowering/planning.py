"""Plans of a graph for a budget of temporary memory, by what it is predicted to take on a target."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.spelling import suggestion
from rematc.ir.units import format_bytes
from rematc.lowering.donation import aliased_results, result_bytes
from rematc.lowering.pipeline import BEFORE_PLAN, MOVED, PassedGraph, run_passes
from rematc.lowering.planned_graphs import PlannedGraphs
from rematc.lowering.propagation import shards_of
from rematc.lowering.target import Target
from rematc.lowering.targeting import free_bytes
from rematc.passes.donated_updates import updated_early, updated_last
from rematc.passes.hoist import held_in_steps
from rematc.passes.planning.constraints import FREE, Constraints, Form
from rematc.passes.planning.device import device_of
from rematc.passes.planning.forms import forms_of
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.planned_program import PlannedProgram
from rematc.passes.planning.planner import Planner
from rematc.passes.planning.problem import Stages
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.summary import backward_begin

#: Bytes, `2GiB`, `50%` of what the program needs without recomputation, or `device`: what the device has free.
Amount = int | str
#: How many plans are made by what is expected of them, until one is expected to fit.
_GUESSES = 4
#: How many times as many bytes as a plan may take are simulated for it at most: what XLA fuses is not written.
_MOST = 2
#: Around how many of the kernels that write most one barrier is tried.
_LARGEST = 3
#: A plan that takes so little longer than none is as good as it gets.
_ALIKE = 0.005
#: A plan that is expected to leave this part of what it may take, or less, leaves nothing for another one.
_LEFT = 200
#: What is left of a budget for the prediction's error where XLA is not asked, in percent of what is planned for: the
#: error that nine of ten predictions are within (`benchmarks/prediction.py`, and `benchmarks/budget.py --predicted`).
ROOM = 15

DEVICE = "device"
_UNITS = {"b": 1} | {
    f"{prefix}{unit}".lower(): base ** (power + 1)
    for unit, base in (("iB", 1024), ("B", 1000))
    for power, prefix in enumerate("KMGT")
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[a-z]*)\s*", re.IGNORECASE)


def budget_bytes(budget: object, whole: Callable[[], int], free: Callable[[], int]) -> int:
    """A budget in bytes; `whole` is asked for what a percentage is of, and `free` for what the device has.

    Raises CompileError for what is no budget.
    """
    if budget == DEVICE:
        return free()
    match = _AMOUNT.fullmatch(budget) if isinstance(budget, str) else None
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return budget
    if match is not None:
        number, unit = float(match[1]), match[2].lower()
        if unit == "%":
            return int(whole() * number / 100)
        if unit in _UNITS or not unit:
            return int(number * _UNITS.get(unit, 1))
    hint = suggestion(budget, [DEVICE]) if isinstance(budget, str) else ""
    raise CompileError(f"{budget!r} is no budget; write bytes as a number, '2GiB', '500MB', '50%', or 'device'{hint}")


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget of temporary memory, and what its plan must not do. It stands wherever `budget=` takes an amount.

    Attributes:
        amount: bytes, "2GiB", "50%", or "device".
        keep: names of `checkpoint_name` whose values are never computed again.
        never_repeat: ops that never run again, by the names that `--emit ir` shows, such as `dot_general`.

    Raises CompileError for what is no budget, for ops that there are not, and for a text in place of several names.
    """

    amount: Amount
    keep: Sequence[str] = ()
    never_repeat: Sequence[str] = ()

    def __post_init__(self) -> None:
        budget_bytes(self.amount, lambda: 0, lambda: 0)
        assert self.constraints is not None, "what is wrong with them is an error"

    @classmethod
    def of(cls, budget: Budget | Amount) -> Budget:
        """What users pass. Raises CompileError for what is no budget."""
        return budget if isinstance(budget, Budget) else cls(budget)

    def of_whole(self, whole: int) -> Budget:
        """The same in bytes, where it is a percentage: of a program that takes so many, whatever becomes of it."""
        if not (isinstance(self.amount, str) and self.amount.strip().endswith("%")):
            return self
        return replace(self, amount=budget_bytes(self.amount, lambda: whole, lambda: 0))

    @property
    def constraints(self) -> Constraints:
        """What its plan must not do."""
        lists = [names if isinstance(names, str) else tuple(names) for names in (self.keep, self.never_repeat)]
        return Constraints(*lists)  # type: ignore[arg-type]  # a text is an error there


class UnreachableBudgetError(CompileError):
    """A budget that no plan meets.

    Attributes:
        budget: bytes.
        expected: the bytes that the plan that came nearest was expected to take.
        reached: those that it takes, by XLA where it was asked.
        find_slices: gives a number of slices with which one is predicted to fit; None where there is none.
        is_constrained: whether there are ops or values that the plan must not compute again.
        is_in_slices: whether the program was in slices.
        is_far: whether it was refused before plans with the smallest peak were looked for.
    """

    def __init__(self, message: str, budget: int, expected: int, reached: int, loc: Location | None = None) -> None:
        super().__init__(message, loc)
        self.budget, self.expected, self.reached = budget, expected, reached
        self.find_slices: Callable[[], int | None] = lambda: None
        self.is_constrained = self.is_in_slices = self.is_far = False


#: Whether something else than a plan of the program as it stands can be looked for.
_HAS_ANOTHER_WAY: ContextVar[bool] = ContextVar("has_another_way", default=False)


@contextmanager
def having_another_way(has_one: bool) -> Iterator[None]:
    """While a plan for a budget is looked for that is not the only way: where none is near it, that is said soon."""
    token = _HAS_ANOTHER_WAY.set(has_one)
    try:
        yield
    finally:
        _HAS_ANOTHER_WAY.reset(token)


class GraphPlanner:
    """Plans of a graph, forward and backward in one, for a target.

    Attributes:
        before: the graph that is planned: flat, after the passes that come first.
        peak: bytes that it takes without a plan, simulated.
        target: for what.
        donated: the parameters in whose memory results may lie.
        shardings: JAX's, of the first parameters; none where nobody knows them.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        strategy: str = "optimization_barrier",
        seconds: float | None = None,
        constraints: Constraints = FREE,
        donated: Sequence[int] = (),
        shardings: Sequence[Any] = (),
        slices: InSlices | None = None,
    ) -> None:
        """`strategy` is how its recomputation is going to be pinned (`rematc.passes.barriers`).

        After so many `seconds` of planning, in all, no plan is improved any more. `constraints` are those of its plans.
        `donated` are the parameters in whose memory results may lie. `shardings` are JAX's of the first parameters: of
        what is spread over devices, plans count what one of them holds, and what they send each other. `slices` are
        those of the graph's largest stage.
        """
        self._device = device_of(target.platform, target.device_kind)
        self.target, self.donated, self.shardings = target, tuple(donated), tuple(shardings)
        in_steps = run_passes(graph, BEFORE_PLAN)
        held = held_in_steps(in_steps.graph) if target.moves_invariants else in_steps.graph
        self.before = in_steps
        if held is not in_steps.graph:
            moved = run_passes(in_steps.graph, MOVED)
            self.before = PassedGraph(moved.graph, (*in_steps.records, *moved.records))
        # What is taken apart is the graph before updates are put in order: regions do not stand in the way then.
        forms = {} if held is in_steps.graph else {Form.IN_STEPS: held}
        forms |= forms_of(self.before.graph)
        self._forms = {form: self._in_order(one) for form, one in forms.items()}
        self.before = replace(self.before, graph=self._in_order(self.before.graph))
        self._shards = shards_of(self.before.graph, target, shardings)
        self._constraints, self._slices = constraints, slices
        self._planner = self._planner_of(constraints, seconds)
        self.peak = self._planner.peak
        self._plans: dict[tuple[Planner, int, bool], Plan] = {}
        self._graphs = PlannedGraphs(self.applied, target, strategy, self.donated, self._shards)

    @property
    def is_constrained(self) -> bool:
        """Whether there are ops or values that its plans must not compute again."""
        return bool(self._constraints)

    @property
    def is_in_slices(self) -> bool:
        """Whether the largest stage of the graph is."""
        return self._slices is not None

    def _in_order(self, graph: Graph) -> Graph:
        """The graph with each update of a donated parameter where it stands best."""
        if not self.donated:
            return graph
        updates = aliased_results(graph, self.donated)
        return updated_early(updated_last(graph, updates, self._device.fusion, is_held=False), updates)

    def _planner_of(self, constraints: Constraints, seconds: float | None) -> Planner:
        return Planner(self.before.graph, self._machine, seconds, constraints, self._forms)

    @property
    def _machine(self) -> Machine:
        return Machine(self._device, self._shards)

    @functools.cached_property
    def _other_planner(self) -> Planner | None:
        """Plans that compute in stages of their own what the device writes in one; None where it writes nothing so.

        What is computed again for one kernel in each stage is fused there, and holds less than it is planned for.
        """
        if not self._device.fusion.reduces_alone:
            return None
        constraints = replace(self._constraints, fuses_shared=True)
        return self._planner_of(constraints, self._planner.seconds_left)

    @functools.cached_property
    def whole(self) -> int:
        """Bytes that XLA is expected to take for the graph without a plan."""
        return self._graphs.expected_of(self.before.graph)

    def measured(self, plan: Plan, measured: int) -> None:
        """Expect of a plan what XLA takes for it."""
        self._graphs.measured(plan, measured)

    def measured_whole(self, measured: int) -> None:
        """Expect of the program without a plan what XLA takes for it."""
        whole = self.plan(self.peak)
        if not (whole.recomputes or whole.constraints.form):
            self.measured(whole, measured)

    def plan(self, budget: int) -> Plan:
        """The fastest plan for so many bytes, or the one with the smallest peak."""
        return self._plan(self._planner, budget)

    def fitting(self, budget: int) -> Plan | None:
        """The fastest plan for so many bytes, simulated; None where none is found, which is known soon."""
        key = self._planner, budget, False
        if key not in self._plans:
            plan = self._planner.fitting(budget)
            if plan is None:
                return None
            self._plans[key] = self._of_slices(plan)
        return self._plans[key] if self._plans[key].is_feasible else None

    @property
    def nearest(self) -> int:
        """Bytes, simulated, of the smallest plan that was looked at so far, or more than which each must take."""
        return self._planner.nearest

    def _plan(self, planner: Planner, budget: int, in_small_steps: bool = False) -> Plan:
        key = planner, budget, in_small_steps
        if key not in self._plans:
            self._plans[key] = self._of_slices(planner.plan(budget, in_small_steps=in_small_steps))
        return self._plans[key]

    def _of_slices(self, plan: Plan) -> Plan:
        return plan if self._slices is None else replace(plan, slices=self._slices)

    @functools.cached_property
    def smallest(self) -> Plan:
        """The plan that is expected to take least."""
        planners = [self._planner, *([self._other_planner] if self._other_planner else [])]
        plans = [self._plan(planner, 0) for planner in planners]
        if self._planner.has_small_steps(plans[0].peak):
            plans.append(self._plan(self._planner, 0, in_small_steps=True))
        return min(plans, key=self.expected)

    def curve(self, count: int) -> list[Plan]:
        """Plans from the smallest peak to that without recomputation, so many or fewer."""
        return [self._of_slices(plan) for plan in self._planner.curve(count)]

    def free(self) -> int:
        """Bytes that are free for temporary memory on the device, once the results have theirs.

        Raises CompileError where the device does not say.
        """
        return max(0, free_bytes(self.target) - result_bytes(self.before.graph, self.donated, self._shards))

    def own(self, plan: Plan) -> Plan:
        """A plan that was made before as one of this graph. Raises CompileError for one of another program."""
        return self._planner.own(plan)

    def applied(self, plan: Plan) -> Graph:
        """The graph that runs as planned, its recomputation in regions. Raises CompileError as `own` does."""
        return self._planner.applied(plan)

    def passed(self, plan: Plan) -> PassedGraph:
        """The same after the default passes, updates of donated parameters last."""
        return self._graphs.passed(plan)

    def expected(self, plan: Plan) -> int:
        """Bytes that XLA is expected to take for a plan, by a model of what it does with the program."""
        return self._graphs.expected(plan)

    def _fits(self, plan: Plan, limit: float) -> bool:
        """Whether a plan is expected to take no more; most do before what is late is looked for, which takes long."""
        return self._graphs.expected_before_held(plan) <= limit or self.expected(plan) <= limit

    def expected_within(self, target: int, aim: int, ratio: float) -> Plan:
        """The fastest plan that is found of which what is expected, times a ratio, is no more than is aimed at.

        A plan for the target is the first guess; those for less or more follow, until one fits and one for little more
        does not. More simulated bytes may be fewer expected ones: where none fits, plans are looked for between the
        smallest one and those that do not, and if none does either, it is the one that is expected to take least.
        """
        limit = aim / ratio
        arranged = self._arranged_within(limit)
        if arranged is not None:
            return replace(arranged, budget=target)
        self._within(self._planner, target, limit)
        fitting = self._known_within(limit)
        if not any(plan.time <= self.least_time * (1 + _ALIKE) for plan in fitting):
            if self._planner.has_small_steps(int(limit)):
                self._within(self._planner, target, limit, in_small_steps=True)
            if not self._known_within(limit) and self._other_planner is not None:
                self._within(self._other_planner, target, limit)
        fitting = self._known_within(limit)
        if not fitting:
            return min(self._looked_at(), key=self.expected)
        # One plan may have been made for several amounts, and says for which.
        return min(fitting, key=lambda plan: (plan.time, abs(plan.budget - target)))

    def _known_within(self, limit: float) -> list[Plan]:
        """The plans that were looked at so far and are expected to take no more."""
        return [plan for plan in self._looked_at() if self._fits(plan, limit)]

    def _looked_at(self) -> list[Plan]:
        """The plans so far of which it was asked what they are expected to take."""
        return [plan for plan in self._plans.values() if self._graphs.is_known(plan)]

    def _arranged_within(self, limit: float) -> Plan | None:
        """A plan without recomputation, behind barriers from one place on, that is expected to take no more.

        With a barrier the compiler orders kernels otherwise, and they are arranged for that: often this takes much less
        and costs nothing. None where no such plan fits, and where it is not needed. In the order of the program, which
        it comes near to then, all that is kept takes what is simulated: for much less than that, none is tried.
        """
        if limit * (100 + ROOM) < self.peak * 100:
            return None
        whole = self.plan(self.peak)
        if whole.recomputes or self._fits(whole, limit):
            return None
        behind = [replace(whole, stages=Stages((place,), ((),))) for place in _places(whole.program)]
        best = min(behind, key=self._graphs.expected_before_held, default=None)
        return best if best is not None and self._fits(best, limit) else None

    def _within(self, planner: Planner, target: int, limit: float, *, in_small_steps: bool = False) -> None:
        """Plan for one amount after the other, until a plan is expected to fit and one for little more is not."""
        tried: list[Plan] = []
        first = target

        def fitting() -> list[Plan]:
            return [plan for plan in tried if self._fits(plan, limit)]

        for _ in range(_GUESSES):
            tried.append(self._plan(planner, target, in_small_steps))
            if self._fits(tried[-1], limit) or not tried[-1].is_feasible:
                break
            high, expected = min(target, tried[-1].peak), self.expected(tried[-1])
            # XLA may take so many bytes more, or times as many: by both, in the middle of what would be the best.
            aim = int(limit) - int(limit) // (2 * _LEFT)
            target = max(0, min(scaled(high, aim, expected), high - (expected - aim)))
        if not fitting():
            tried.append(self._plan(planner, 0, in_small_steps))
        low = min(tried, key=lambda plan: plan.peak).peak
        if not fitting():
            # Of as many bytes the fastest one has fewer stages for XLA to fill.
            tried.append(self._plan(planner, low, in_small_steps))
        high = min([plan.peak for plan in tried if plan.peak > low], default=planner.peak)
        if fitting():
            # Above what did not fit, too: more simulated bytes may be fewer expected ones.
            high = min(planner.peak, _MOST * max(low, first))
        for _ in range(_GUESSES):
            if high <= low or self._is_best_of(tried, limit):
                break
            likely = [scaled(plan.peak, int(limit), self.expected(plan)) for plan in fitting()]
            middle = min((low + high) // 2, max([amount for amount in likely if amount > low], default=high))
            tried.append(self._plan(planner, middle, in_small_steps))
            if self._fits(tried[-1], limit):
                low = middle
            else:
                high = min(middle, tried[-1].peak)

    def _is_best_of(self, tried: Sequence[Plan], limit: float) -> bool:
        """Whether a plan fits, and no other one that does is much faster: one for more bytes that does not fit is not,
        or it is as fast as without a plan, or takes all that it may.
        """
        fitting = [plan for plan in tried if self._fits(plan, limit)]
        best = min(fitting, key=lambda plan: plan.time, default=None)
        if best is None:
            return False
        above = [plan.time for plan in tried if plan.peak > best.peak and plan not in fitting]
        if best.time <= max([self.least_time, *above]) * (1 + _ALIKE):
            return True
        enough = limit * (_LEFT - 1)
        return any(
            self._graphs.expected_before_held(plan) * _LEFT >= enough and self.expected(plan) * _LEFT >= enough
            for plan in fitting
        )

    @functools.cached_property
    def least_time(self) -> int:
        """Nanoseconds in which it runs where all is kept."""
        return self.plan(self.peak).time

    def wanted(self, budget: Budget) -> int:
        """A budget in bytes, where XLA is not asked: a percentage is of what it is expected to take without a plan."""
        return budget_bytes(budget.amount, lambda: self.whole, self.free)

    def predicted_within(self, wanted: int) -> Plan:
        """The plan for so many bytes where XLA is not asked: the fastest that is expected to fit with `ROOM` to spare.

        Raises CompileError where no plan is expected to fit, even without room.
        """
        self.refuse_far(wanted)
        aim = wanted * 100 // (100 + ROOM)
        plan = self.expected_within(scaled(aim, self.peak, self.whole), aim, 1.0)
        if self.expected(plan) > wanted:
            raise self.unreachable(wanted, plan, self.expected(plan))
        return plan

    def refuse_far(self, wanted: int) -> None:
        """Raises UnreachableBudgetError where there is another way, and no plan with `ROOM` for the prediction's error.

        Of a program that takes more than what is simulated a plan may take just that, behind barriers. In limited time
        that none was found says nothing.
        """
        if not _HAS_ANOTHER_WAY.get() or self.is_constrained or self._planner.seconds_left is not None:
            return
        near = max(wanted, scaled(wanted, self.peak, self.whole)) * (100 + ROOM) // 100
        # Not among the plans that are looked at: of these one may be taken that is expected to fit.
        if self._planner.fitting(near) is not None:
            return
        if self._planner.has_small_steps(near) and self._planner.fitting(near, in_small_steps=True) is not None:
            return
        reached = format_bytes(self.nearest)
        message = f"no plan was found for {format_bytes(wanted)} of temporary memory; the nearest takes {reached}"
        error = UnreachableBudgetError(message, wanted, self.nearest, self.nearest)
        error.is_far = True
        raise error

    def unreachable(
        self, budget: int, plan: Plan, expected: int, measured: int | None = None
    ) -> UnreachableBudgetError:
        """The error for a budget that no plan meets, of which this one came nearest."""
        reached = expected if measured is None else measured
        least, wanted = format_bytes(reached), format_bytes(budget)
        if least == wanted:
            least, wanted = f"{reached} bytes", f"{budget} bytes"
        smallest = f"predicted {least}" if measured is None else f"{least}, predicted {format_bytes(expected)}"
        if self._slices is not None:
            smallest += f", in {self._slices.count} slices"
        return UnreachableBudgetError(
            f"no plan was found for {wanted} of temporary memory; the smallest that was reached is "
            f"{smallest}. At its peak it holds\n{plan.describe_held()}",
            budget,
            expected,
            reached,
        )


def _places(program: PlannedProgram) -> list[int]:
    """Where a barrier may change what the compiler holds: around what writes most, and halfway."""
    count = len(program.kernels)
    largest = sorted(range(count), key=lambda place: (-program.kernels[place].size, place))[:_LARGEST]
    around = [place + side for place in largest for side in (0, 1)]
    return [place for place in dict.fromkeys([*around, count // 2, backward_begin(program)]) if 0 < place < count]


def scaled(amount: int, part: int, whole: int) -> int:
    """`amount` times `part` over `whole`; as it is where that is nothing."""
    return amount * part // whole if whole else amount
