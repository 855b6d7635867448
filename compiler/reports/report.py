"""The report: what a policy saves and recomputes, and what XLA makes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape

from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.check import Check
from rematc.compiler.reports.decisions import Decision, decisions
from rematc.compiler.reports.derivative import DerivativeReport
from rematc.compiler.reports.fallbacks import ForeignPrimitive
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.html.contents import Contents
from rematc.compiler.reports.html.page import to_frame, to_page
from rematc.compiler.reports.html.vega import has_library
from rematc.compiler.reports.inspection import Inspection
from rematc.compiler.reports.pareto import Pareto
from rematc.compiler.reports.rendering import check_tables, derivative_tables, figures_table, foreign_table, plan_tables
from rematc.compiler.reports.slices import SlicesReport
from rematc.ir.tables import Table, plain_text
from rematc.passes.planning.plan import Plan


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
        inspection: what is in memory when, and the program at each stage; None where that is not known any more.
        slices: what of the program runs in slices.
    """

    derivatives: tuple[DerivativeReport, ...]
    target: str
    figures: Figures
    baseline: Figures | None = None
    check: Check | None = None
    foreign: tuple[ForeignPrimitive, ...] = ()
    budget: BudgetReport | None = None
    inspection: Inspection | None = field(default=None, repr=False, compare=False)
    slices: SlicesReport | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan for a budget of memory."""
        return None if self.budget is None else self.budget.plan

    @property
    def is_spread(self) -> bool:
        """Whether values are spread over devices: sizes are those on each of them."""
        return any(one.is_spread for one in self.derivatives)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What is kept and what is computed again, what is alike as one."""
        predicted = None if self.inspection is None or self.plan is None else self.inspection.predicted
        known = [] if predicted is None else [step.loc for step in predicted.steps]
        return decisions(self.derivatives, self.plan, known)

    def as_dict(self) -> dict[str, object]:
        """The report as JSON-able data."""
        return {
            "derivatives": [one.as_dict() for one in self.derivatives],
            "decisions": [one.as_dict() for one in self.decisions],
            "target": self.target,
            "xla": asdict(self.figures),
            "xla_without_policy": None if self.baseline is None else asdict(self.baseline),
            "check": None if self.check is None else self.check.as_dict(),
            "imported_through_jax": [asdict(one) | {"place": one.place.strip()} for one in self.foreign],
            "budget": None if self.budget is None else self.budget.as_dict(),
            "slices": None if self.slices is None else self.slices.as_dict(),
        }

    def tables(self, policy: str, *, is_headed: bool = False) -> list[Table]:
        """The report as tables, with all that there is (`rematc.compiler.reports.overview` has it on one screen).

        Args:
            policy: what the column of figures is headed with.
            is_headed: whether a derivative is headed with its function's name where it is the only one, too.
        """
        is_headed = is_headed or len(self.derivatives) > 1
        tables = []
        for one in self.derivatives:
            tables += derivative_tables(one, is_headed=is_headed)
        if self.budget is not None:
            tables += plan_tables(self.budget.plan)
        if self.slices is not None:
            tables.append(self.slices.table())
        if self.foreign:
            tables.append(foreign_table(self.foreign))
        tables.append(figures_table(self.target, self.figures, self.baseline, policy))
        if self.budget is not None:
            tables.append(self.budget.table())
        if self.check is not None:
            tables += check_tables(self.check)
        return tables

    @property
    def _policy(self) -> str:
        return ", ".join(dict.fromkeys(one.policy for one in self.derivatives)) or "none"

    def __str__(self) -> str:
        return plain_text(self.tables(self._policy, is_headed=True)).rstrip()

    def to_html(self, title: str | None = None, policy: str | None = None, curve: Pareto | None = None) -> str:
        """The report as one HTML page that needs no network: memory over time, source, tables, the program's text.

        Args:
            title: what stands above; by default the function's name.
            policy: what stands below that; by default the policies of the differentiated functions.
            curve: memory against time, of `rematc.pareto`, to be drawn with this program on it.

        Raises CompileError where the extra `rematc[html]` is not installed.
        """
        if title is None:
            title = "rematc" if self.inspection is None else self.inspection.name
        return to_page(
            Contents(
                title,
                self._policy if policy is None else policy,
                self.target,
                self.figures,
                self.baseline,
                self.check,
                self.budget,
                self.decisions,
                self.inspection,
                curve,
                self.is_spread,
            )
        )

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks; the report as text where the extra `rematc[html]` is not installed."""
        return to_frame(self.to_html()) if has_library() else f"<pre>{escape(str(self))}</pre>"
