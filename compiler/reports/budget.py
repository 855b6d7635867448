"""What a plan for a budget of memory takes: as predicted, and as XLA says."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes, format_flops, format_seconds


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """A plan for a budget.

    Attributes:
        budget: bytes of temporary memory that were asked for.
        planned: bytes that the plan was made for: less, where XLA took more than was predicted.
        predicted: bytes that the plan is predicted to need, in the model that it was made with.
        measured: bytes that XLA says it takes; None where it was not compiled.
        flops: floating-point operations without recomputation.
        extra_flops: those of what is computed again.
        seconds: predicted time of all kernels, without recomputation, on the device of the model.
        extra_seconds: that of what is computed again.
        least_extra_seconds: what no plan is below, for the bytes that this one was made for.
        stages: how many of them compute something again.
        device: whose rates the times are of.
        compilations: how many plans were compiled.
    """

    budget: int
    planned: int
    predicted: int
    measured: int | None
    flops: int
    extra_flops: int
    seconds: float
    extra_seconds: float
    least_extra_seconds: float
    stages: int
    device: str
    compilations: int = 0

    @property
    def gap(self) -> float:
        """How far from the optimum the time is at most, as a part of it, in the model."""
        least = self.seconds + self.least_extra_seconds
        return (self.extra_seconds - self.least_extra_seconds) / least if least else 0.0

    def as_dict(self) -> dict[str, object]:
        """The plan's figures as JSON-able data."""
        return {**asdict(self), "gap": self.gap}

    def table(self) -> Table:
        """The figures, one a line."""
        rows = [("budget", format_bytes(self.budget), "")]
        if self.planned != self.budget:
            rows.append(("planned for", format_bytes(self.planned), "XLA takes more than was predicted"))
        rows.append(("predicted", format_bytes(self.predicted), counted(self.stages, "stage")))
        if self.measured is not None:
            rows.append(("measured", format_bytes(self.measured), counted(self.compilations, "compilation")))
        rows += [
            ("computed again", format_flops(self.extra_flops), _part(self.extra_flops, self.flops)),
            (
                "extra time, predicted",
                format_seconds(self.extra_seconds),
                f"{_part(self.extra_seconds, self.seconds)} ({self.device})",
            ),
            ("no plan is below", format_seconds(self.least_extra_seconds), f"at most {self.gap:.1%} from the optimum"),
        ]
        return Table("plan", ("", "", ""), (False, True, False), tuple(rows))


def _part(amount: float, base: float) -> str:
    return f"{amount / base:.1%} more" if base else ""
