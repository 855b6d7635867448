"""Recompute so that a program needs no more temporary memory than a budget, at the least time.

Before:  a flat program, differentiated: forward and backward in one, everything kept
After:   the same, with what is computed again in `checkpoint` regions that the pass `barriers` pins

A program that fits stays as it is. A plan from a file is applied without solving again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.passes.manager import Pass, register_pass
from rematc.passes.planning.constraints import Constraints
from rematc.passes.planning.device import CPU, device_named
from rematc.passes.planning.forms import forms_of
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.planner import Planner
from rematc.passes.planning.shards import Machine


@register_pass
@dataclass(frozen=True, slots=True)
class PlanPass(Pass):
    """Plan a program and place its recomputation.

    Attributes:
        budget: bytes of temporary memory; None for no plan, or that of the file.
        device: whose rates say how long kernels take: one of `rematc.passes.planning.device.DEVICES`.
        keep: names of `checkpoint_name`, with `+` between them, whose values are not computed again.
        never_repeat: ops, likewise, that do not run again.
        file: of a plan (`rematc.Plan.to_json`) for this very program.
    """

    name: ClassVar[str] = "plan"
    budget: int | None = None
    device: str = CPU.name
    keep: str = ""
    never_repeat: str = ""
    file: str | None = None

    def __post_init__(self) -> None:
        device_named(self.device)
        if self.budget is not None and self.budget < 0:
            raise CompileError(f"a budget is a number of bytes, got {self.budget}")
        if self._constraints and self.budget is None:
            raise CompileError("keep and never_repeat are about a budget; add budget, or leave them out")
        if self.budget is not None and self.file is not None:
            raise CompileError("a plan from a file has its budget; leave out budget, or file")

    @property
    def _constraints(self) -> Constraints:
        keep, never = [tuple(filter(None, names.split("+"))) for names in (self.keep, self.never_repeat)]
        return Constraints(keep, never)

    def run(self, graph: Graph) -> Graph:
        if self.budget is None and self.file is None:
            return graph
        machine = Machine(device_named(self.device))
        planner = Planner(graph, machine, constraints=self._constraints, forms=forms_of(graph))
        if self.file is not None:
            return planner.applied(Plan.read(self.file))
        assert self.budget is not None
        plan = planner.plan(self.budget)
        if not plan.is_feasible:
            raise CompileError(
                f"no plan was found that needs {self.budget} bytes of temporary memory or less; the smallest takes "
                f"{plan.peak}, and holds\n{plan.describe_held()}"
            )
        return planner.applied(plan)
