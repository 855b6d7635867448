"""A compiled function as reports look into it: its memory over the schedule, and its text at each stage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.compiler.reports.buffers import buffers_of
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph
from rematc.ir.printer import print_graph
from rematc.lowering.expectation import expected_timeline
from rematc.lowering.hlo.assignment import assigned_timeline
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.runtime import Executable
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import linearize
from rematc.passes.memory_timeline import MemoryTimeline
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.shards import Shards


@dataclass(frozen=True)
class CompiledInspection:
    """What is in memory when, and the program at each stage (`rematc.compiler.reports.inspection.Inspection`).

    Attributes:
        graph: the graph after the passes.
        executable: what XLA made of it.
        records: the differentiations in it, innermost first.
        plan: its plan, if it has one.
        shards: how the graph is spread over devices.
    """

    graph: Graph
    executable: Executable
    records: Sequence[object]
    plan: Plan | None
    shards: Callable[[], Shards]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.executable.program.name

    @functools.cached_property
    def predicted(self) -> MemoryTimeline:
        """The memory over the predicted schedule, of one device."""
        is_differentiated = bool(self._differentiations)
        target = self.executable.target
        return expected_timeline(self.graph, target, self.shards(), is_differentiated=is_differentiated)

    @functools.cached_property
    def assigned(self) -> MemoryTimeline | None:
        """The memory over XLA's schedule; None where it does not say."""
        assignment = self.executable.buffer_assignment()
        if assignment is None:
            return None
        module = parse_hlo(self.executable.hlo_optimized())
        return assigned_timeline(module, assignment, is_differentiated=bool(self._differentiations))

    @property
    def _differentiations(self) -> list[Differentiation]:
        return [record for record in self.records if isinstance(record, Differentiation)]

    def stages(self) -> dict[str, str]:
        """The program as text at each stage of the compiler; graphs are those of the outermost derivative."""
        found: dict[str, str] = {}
        if self._differentiations:
            record = self._differentiations[-1]
            found |= {
                "primal": print_graph(record.primal),
                "linear": print_graph(clean(linear_graph(record))),
                "forward": print_graph(clean(record.vjp.forward)),
                "backward": print_graph(clean(record.vjp.backward)),
            }
        found["ir"] = print_graph(self.graph)
        if self.plan is not None:
            found["plan"] = str(self.plan)
        found["stablehlo"] = self.executable.program.text
        found["hlo"] = self.executable.hlo()
        found["hlo-optimized"] = optimized = self.executable.hlo_optimized()
        if (assignment := self.executable.buffer_assignment()) is not None:
            found["buffers"] = str(buffers_of(self.name, parse_hlo(optimized), assignment))
        return found


def linear_graph(record: Differentiation) -> Graph:
    """The linear graph of a differentiation: from residuals and tangents to the tangent of the function's value."""
    count = len(record.vjp.has_ct)
    wrt = [index < count for index in range(len(record.primal.params))]
    of = [index == 0 for index in range(len(record.primal.results))]
    return linearize(record.primal, wrt, of).linear


def clean(graph: Graph) -> Graph:
    """As the report counts it: equal equations merged, unused ones gone."""
    return DeadCode().run(CommonSubexpressions().run(graph))
