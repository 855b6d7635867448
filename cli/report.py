"""The report on a run of the command, as tables and as JSON."""

from __future__ import annotations

from rematc.cli.measurement import Run
from rematc.compiler.reports.overview import overview_tables, timeline_tables
from rematc.compiler.reports.profile import Profile
from rematc.compiler.reports.report import Report
from rematc.ir.tables import Table
from rematc.ir.units import format_seconds

#: Leaves of the gradient that a terminal shows without `-v`.
SHOWN = 5
#: The user's lines of a profile that it shows.
LINES = 10


def report_tables(
    heading: str, policy: str, report: Report, run: Run | None, profile: Profile | None = None
) -> list[Table]:
    """All of a report."""
    ran = [] if run is None else run_tables(run, len(run.gradients))
    ran += [] if profile is None else profile.tables()
    return [_head(heading, policy), *report.tables(policy), *ran]


def terminal_tables(
    heading: str,
    policy: str,
    report: Report,
    run: Run | None,
    profile: Profile | None = None,
    *,
    is_complete: bool,
    has_blocks: bool,
) -> list[Table]:
    """A report on a terminal, on one screen; with `is_complete` all of it, and the memory over the schedule."""
    if is_complete:
        predicted = None if report.inspection is None else report.inspection.predicted
        timeline = [] if predicted is None else timeline_tables(predicted, None, has_blocks=has_blocks)
        return [*report_tables(heading, policy, report, run, profile), *timeline]
    ran = [] if run is None else run_tables(run, SHOWN)
    ran += [] if profile is None else profile.tables(LINES)
    return [_head(heading, policy), *overview_tables(report, policy, has_blocks=has_blocks), *ran]


def _head(heading: str, policy: str) -> Table:
    return Table(heading, (), (), (), f"policy {policy}")


def run_tables(run: Run, most: int) -> list[Table]:
    """What a run gave: the loss, the gradient's norms, the time."""
    shown = run.gradients[:most]
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


def report_as_dict(
    report: Report, run: Run | None, facts: dict[str, object], profile: Profile | None = None
) -> dict[str, object]:
    """The report as JSON-able data, `facts` about the command first."""
    ran = {"run": None if run is None else run.as_dict(), "profile": None if profile is None else profile.as_dict()}
    return {**facts, **report.as_dict(), **ran}
