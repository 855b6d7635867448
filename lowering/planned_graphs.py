"""The graphs that run as planned, after the passes, and the bytes of temporary memory that each is expected to take.

Planning looks at many plans, of each as little as it needs: what a program takes before anything late in it is held
(`rematc.lowering.xla_cpu.held_readers`) is known first, and most plans that fit do so then. Looking for what is late
takes as long as all before. The last graphs are remembered: the plan that is compiled is among them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from rematc.ir.core import Graph
from rematc.lowering.donation import aliased_results
from rematc.lowering.expectation import expected_peak, machine_of
from rematc.lowering.pipeline import PassedGraph, default_pipeline, run_passes
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.held_readers import HoldReaders, Placed
from rematc.passes.barriers import has_recomputation
from rematc.passes.donated_updates import updated_last
from rematc.passes.manager import Watch
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.shards import WHOLE, Shards

#: Of how many plans the graphs are remembered.
_REMEMBERED = 4


@dataclass(slots=True)
class _Made:
    """What is known of a plan's graph.

    Attributes:
        passed: the graph after the passes.
        placed: its buffers, where XLA:CPU's are predicted.
        is_held: whether what is late is held in both of them.
    """

    passed: PassedGraph
    placed: Placed | None
    is_held: bool


class PlannedGraphs:
    """Of one program, on a target."""

    def __init__(
        self,
        applied: Callable[[Plan], Graph],
        target: Target,
        strategy: str,
        donated: Sequence[int] = (),
        shards: Shards = WHOLE,
    ) -> None:
        """`applied` is the graph that runs as planned, its recomputation in regions.

        `strategy` is how that is pinned, `donated` are the parameters in whose memory results may lie, `shards` is how
        values are spread over devices.
        """
        self._applied, self._target, self._strategy = applied, target, strategy
        self._donated, self._shards = tuple(donated), shards
        self._fusion = machine_of(target).device.fusion
        self._known: dict[Hashable, int] = {}
        self._before_held: dict[Hashable, int] = {}
        self._made: OrderedDict[Hashable, _Made] = OrderedDict()

    def passed(self, plan: Plan) -> PassedGraph:
        """The graph of a plan as it is lowered: after the passes, its updates last, what is late held."""
        made = self._of(plan)
        self._hold(made)
        return made.passed

    def expected(self, plan: Plan) -> int:
        """Bytes that XLA is expected to take for a plan, by a model of what it does with the program."""
        if plan.does not in self._known:
            first, made = self.expected_before_held(plan), self._of(plan)
            self._hold(made)
            self._known[plan.does] = first if made.placed is None else made.placed.peak
        return self._known[plan.does]

    def expected_before_held(self, plan: Plan) -> int:
        """The same before what is late is held, which is never less; with it where that is known."""
        if plan.does in self._known:
            return self._known[plan.does]
        if plan.does not in self._before_held:
            made = self._of(plan)
            self._before_held[plan.does] = self._peak(made.passed.graph) if made.placed is None else made.placed.peak
        return self._before_held[plan.does]

    def is_known(self, plan: Plan) -> bool:
        """Whether it was asked what is expected of a plan."""
        return plan.does in self._known or plan.does in self._before_held

    def expected_of(self, graph: Graph) -> int:
        """Bytes that XLA is expected to take for a graph that no plan is applied to."""
        passed = run_passes(graph, default_pipeline(self._strategy), target=self._target).graph
        return self._peak(self._with_updates_last(passed))

    def measured(self, plan: Plan, measured: int) -> None:
        """Expect of a plan what XLA takes for it."""
        self._known[plan.does] = measured

    @property
    def _is_placed(self) -> bool:
        """Whether a program is expected to take less where what is late in it is held."""
        return self._shards.is_whole and self._target.platform == "cpu"

    def _of(self, plan: Plan) -> _Made:
        key = plan.does
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        pipeline = default_pipeline(self._strategy)
        passed = run_passes(self._applied(plan), pipeline, target=self._target, holds_readers=not self._is_placed)
        passed = replace(passed, graph=self._with_updates_last(passed.graph))
        placed = Placed.of(passed.graph, self._target, self._donated) if self._is_placed else None
        self._made[key] = _Made(passed, placed, not self._is_placed)
        if len(self._made) > _REMEMBERED:
            self._made.popitem(last=False)
        return self._made[key]

    def _hold(self, made: _Made) -> None:
        if made.is_held:
            return
        assert made.placed is not None, "else it is held by the passes"
        watch = Watch()
        made.placed = watch.run(
            [HoldReaders()], made.placed, lambda _, placed: placed.with_readers_held(), lambda placed: (placed.graph,)
        )
        made.passed = PassedGraph(made.placed.graph, (*made.passed.records, *watch.records))
        made.is_held = True

    def _with_updates_last(self, graph: Graph) -> Graph:
        if not self._donated or not has_recomputation(graph):
            return graph  # without barriers it may be compiled in another order, as runs_depth_first says
        return updated_last(graph, aliased_results(graph, self._donated), self._fusion)

    def _peak(self, passed: Graph) -> int:
        return expected_peak(passed, self._target, self._donated, self._shards)
