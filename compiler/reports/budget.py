"""What a plan for a budget of memory takes: as predicted, and as XLA says."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes, format_flops, format_seconds
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.planned_loops import counted_loops


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """A plan for a budget, beside what was asked for and what XLA takes.

    Attributes:
        plan: made for less than the budget where XLA took more than was predicted.
        budget: bytes of temporary memory that were asked for.
        measured: bytes that XLA says it takes; None where it was not compiled.
        compilations: how many plans were compiled.
        function: the differentiated function that is planned, where it is a part of the program; None for all of that.
    """

    plan: Plan
    budget: int
    measured: int | None = None
    compilations: int = 0
    function: str | None = None

    def __post_init__(self) -> None:
        # Known from here on: what finds it holds on to all that was planned.
        _ = self.plan.bound

    @property
    def extra_seconds(self) -> float:
        """Predicted time of what is computed again, on the device of the model."""
        return (self.plan.time - self.plan.time_without) / 1e9

    def as_dict(self) -> dict[str, object]:
        """The plan's figures as JSON-able data."""
        plan = self.plan
        return {
            "budget": self.budget,
            "planned": plan.budget,
            "predicted": plan.peak,
            "measured": self.measured,
            "flops": plan.flops,
            "extra_flops": plan.extra_flops,
            "seconds": plan.time_without / 1e9,
            "extra_seconds": self.extra_seconds,
            "least_extra_seconds": (plan.bound - plan.time_without) / 1e9,
            "stages": len(plan.stages.begins),
            "loops": len(plan.loops),
            "device": plan.device,
            "compilations": self.compilations,
            "gap": plan.gap,
            "constraints": asdict(plan.constraints),
            "kept": [asdict(one) for one in plan.kept],
            "computed_again": [asdict(one) for one in plan.computed_again],
            "work": asdict(plan.work) | {"total": asdict(plan.work.total)},
        }

    def table(self) -> Table:
        """The figures, one a line."""
        plan = self.plan
        rows = [("budget", format_bytes(self.budget), plan.constraints.text())]
        again = ", ".join([counted(len(plan.stages.begins), "stage"), *counted_loops(plan.loops)])
        if plan.budget != self.budget:
            reason = "leaves room for the prediction's error"
            if self.measured is not None:
                reason = "XLA takes more than was predicted"
            rows.append(("planned for", format_bytes(plan.budget), reason))
        rows.append(
            ("predicted", format_bytes(plan.peak), again if self.measured is not None else f"{again}; not measured")
        )
        if self.measured is not None:
            rows.append(("measured", format_bytes(self.measured), counted(self.compilations, "compilation")))
        part = _part(plan.time - plan.time_without, plan.time_without)
        least = _signed((plan.bound - plan.time_without) / 1e9)
        rows += [
            ("computed again", format_flops(plan.extra_flops), _part(plan.extra_flops, plan.flops)),
            ("extra time, predicted", _signed(self.extra_seconds), f"{part} ({plan.device})"),
            ("no plan is below", least, f"at most {plan.gap:.1%} from the optimum"),
        ]
        title = "plan" if self.function is None else f"plan of {self.function}"
        return Table(title, ("", "", ""), (False, True, False), tuple(rows))


def _part(amount: float, base: float) -> str:
    return f"{abs(amount) / base:.1%} {'less' if amount < 0 else 'more'}" if base else ""


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else ''}{format_seconds(abs(seconds))}"


def log_plan(report: BudgetReport) -> None:
    """Log a plan, if somebody listens to `rematc.plans` at level INFO."""
    logger = logging.getLogger("rematc.plans")
    if logger.isEnabledFor(logging.INFO):
        logger.info(
            "\n".join(
                " ".join(cell for cell in row if cell)
                for row in (("plan of", report.function or ""), *report.table().rows)
            )
        )
