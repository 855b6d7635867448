"""What a page shows, out of a report."""

from __future__ import annotations

from dataclasses import dataclass

from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.check import Check
from rematc.compiler.reports.decisions import Decision
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.inspection import Inspection
from rematc.compiler.reports.pareto import Pareto


@dataclass(frozen=True, slots=True)
class Contents:
    """What a page shows.

    Attributes:
        title: what stands above.
        policy: the policy's text.
        target: what the program was compiled for.
        figures: what XLA says of the program.
        baseline: the same without any policy; None where that was not compiled.
        check: whether XLA kept the plan.
        budget: the plan for a budget of memory.
        decisions: what is kept and what is computed again.
        inspection: what is in memory when, and the program's text; None where that is not known.
        curve: memory against time; None where nobody asked for it.
        is_spread: whether values are spread over devices: sizes are those on each of them.
    """

    title: str
    policy: str
    target: str
    figures: Figures
    baseline: Figures | None
    check: Check | None
    budget: BudgetReport | None
    decisions: tuple[Decision, ...]
    inspection: Inspection | None
    curve: Pareto | None = None
    is_spread: bool = False
