"""The report: what a policy saves and recomputes, and what XLA makes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.check import Check
from rematc.compiler.reports.derivative import DerivativeReport
from rematc.compiler.reports.fallbacks import ForeignPrimitive
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.rendering import check_tables, derivative_tables, figures_table, foreign_table, plan_tables
from rematc.ir.tables import Table, plain_text


@dataclass(frozen=True, slots=True)
class Report:
    """What rematc planned and what XLA made of it.

    Attributes:
        derivatives: the differentiated functions in the program.
        target: what the program was compiled for.
        figures: what XLA says of the program.
        baseline: the same without any policy, where it was compiled for comparison.
        check: whether XLA kept the plan.
        foreign: primitives of JAX's that came in without an import rule.
        budget: the plan for a budget of memory.
    """

    derivatives: tuple[DerivativeReport, ...]
    target: str
    figures: Figures
    baseline: Figures | None = None
    check: Check | None = None
    foreign: tuple[ForeignPrimitive, ...] = ()
    budget: BudgetReport | None = None

    def as_dict(self) -> dict[str, object]:
        """The report as JSON-able data."""
        return {
            "derivatives": [one.as_dict() for one in self.derivatives],
            "target": self.target,
            "xla": asdict(self.figures),
            "xla_without_policy": None if self.baseline is None else asdict(self.baseline),
            "check": None if self.check is None else self.check.as_dict(),
            "imported_through_jax": [asdict(one) | {"place": one.place.strip()} for one in self.foreign],
            "budget": None if self.budget is None else self.budget.as_dict(),
        }

    def tables(self, policy: str, *, is_complete: bool, is_headed: bool = False) -> list[Table]:
        """The report as tables.

        Args:
            policy: what the column of figures is headed with.
            is_complete: whether long lists are shown to their end.
            is_headed: whether a derivative is headed with its function's name where it is the only one, too.
        """
        is_headed = is_headed or len(self.derivatives) > 1
        tables = []
        for one in self.derivatives:
            tables += derivative_tables(one, is_complete=is_complete, is_headed=is_headed)
        if self.budget is not None:
            tables += plan_tables(self.budget.plan, is_complete=is_complete)
        if self.foreign:
            tables.append(foreign_table(self.foreign))
        tables.append(figures_table(self.target, self.figures, self.baseline, policy))
        if self.budget is not None:
            tables.append(self.budget.table())
        if self.check is not None:
            tables += check_tables(self.check)
        return tables

    def __str__(self) -> str:
        policies = dict.fromkeys(one.policy for one in self.derivatives)
        return plain_text(self.tables(", ".join(policies) or "none", is_complete=True, is_headed=True)).rstrip()
