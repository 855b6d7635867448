"""The report on a run of the command, as tables and as JSON."""

from __future__ import annotations

from rematc.cli.measurement import Run
from rematc.compiler.reports.rendering import SHOWN
from rematc.compiler.reports.report import Report
from rematc.ir.tables import Table
from rematc.ir.units import format_seconds


def report_tables(heading: str, policy: str, report: Report, run: Run | None, *, is_complete: bool) -> list[Table]:
    """All of a report; without `is_complete` long lists are cut."""
    tables = [Table(heading, (), (), (), f"policy {policy}"), *report.tables(policy, is_complete=is_complete)]
    if run is not None:
        tables += run_tables(run, is_complete=is_complete)
    return tables


def run_tables(run: Run, *, is_complete: bool) -> list[Table]:
    """What a run gave: the loss, the gradient's norms, the time."""
    shown = run.gradients if is_complete else run.gradients[:SHOWN]
    rows = (
        ("loss", f"{run.loss:.6g}"),
        ("gradient norm", f"{run.gradient_norm:.6g}"),
        ("run time", f"{format_seconds(run.median_seconds)} (median of {run.count})"),
    )
    leaves = tuple((leaf.name, str(leaf.type), f"{leaf.norm:.6g}") for leaf in shown)
    rest = len(run.gradients) - len(shown)
    note = f"and {rest} more; -v shows all" if rest else ""
    return [
        Table("run", ("", ""), (False, False), rows),
        Table("", ("gradient", "type", "norm"), (False, False, True), leaves, note),
    ]


def report_as_dict(report: Report, run: Run | None, facts: dict[str, object]) -> dict[str, object]:
    """The report as JSON-able data, `facts` about the command first."""
    return {**facts, **report.as_dict(), "run": None if run is None else run.as_dict()}
