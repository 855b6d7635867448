"""Recompute so that a program needs no more temporary memory than a budget, at the least time.

Before:  a flat program, differentiated: forward and backward in one, everything kept
After:   the same, with what is computed again in `checkpoint` regions that the pass `barriers` pins

A program that fits stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import relative
from rematc.passes.manager import Pass, register_pass
from rematc.passes.planning.apply import apply
from rematc.passes.planning.budget import Found, plan_for_budget
from rematc.passes.planning.device import CPU, device_named
from rematc.passes.planning.translation import Translation, translate


@register_pass
@dataclass(frozen=True, slots=True)
class PlanPass(Pass):
    """Plan a program and place its recomputation.

    Attributes:
        budget: bytes of temporary memory; None for no plan.
        device: whose rates say how long kernels take: one of `rematc.passes.planning.device.DEVICES`.
    """

    name: ClassVar[str] = "plan"
    budget: int | None = None
    device: str = CPU.name

    def __post_init__(self) -> None:
        device_named(self.device)
        if self.budget is not None and self.budget < 0:
            raise CompileError(f"a budget is a number of bytes, got {self.budget}")

    def run(self, graph: Graph) -> Graph:
        if self.budget is None:
            return graph
        translation = translate(graph, device_named(self.device))
        found = plan_for_budget(translation.problem, self.budget)
        if not found.is_feasible:
            raise CompileError(
                f"no plan was found that needs {self.budget} bytes of temporary memory or less; the smallest takes "
                f"{found.run.peak}, and holds\n{describe_held(translation, found)}"
            )
        return apply(translation, found.stages)


def describe_held(translation: Translation, found: Found, most: int = 8) -> str:
    """The values that are live at a plan's peak, largest first, one a line: name or op, type, bytes, where it is."""
    problem = translation.problem
    held = sorted([value for value in found.held if problem.size[value]], key=lambda value: -problem.size[value])
    lines = []
    for index in held[:most]:
        value = translation.values[index]
        eqn = translation.own(int(problem.producer[index]))
        line = f"  {value.name or eqn.op.name}: {value.type}, {problem.size[index]} bytes"
        lines.append(line if eqn.loc is None else f"{line}, at {relative(eqn.loc.file)}:{eqn.loc.line}")
    if len(held) > most:
        rest = sum(int(problem.size[index]) for index in held[most:])
        lines.append(f"  and {len(held) - most} others of {rest} bytes")
    return "\n".join(lines)
