"""The report as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.cli.check import check_table
from rematc.cli.measurement import Run
from rematc.cli.tables import Table
from rematc.cli.units import counted, format_flops, format_ratio, format_seconds
from rematc.compiler.reports.fallbacks import ForeignPrimitive
from rematc.compiler.reports.report import DerivativeReport, Figures, RepeatedValue, Report
from rematc.compiler.reports.residuals import SavedResidual, format_bytes

#: Residuals, and leaves of the gradient, that a terminal shows without -v.
SHOWN = 20


def report_tables(heading: str, policy: str, report: Report, run: Run | None, *, is_complete: bool) -> list[Table]:
    """All of a report; without `is_complete` long lists are cut."""
    tables = [Table(heading, (), (), (), f"policy {policy}")]
    for one in report.derivatives:
        tables += _derivative_tables(one, is_complete, len(report.derivatives) > 1)
    if report.foreign:
        tables.append(_foreign_table(report.foreign))
    tables.append(_figures_table(report, policy))
    if report.check is not None:
        tables.append(check_table(report.check))
    if run is not None:
        tables += run_tables(run, is_complete=is_complete)
    return tables


def _derivative_tables(one: DerivativeReport, is_complete: bool, is_one_of_several: bool) -> list[Table]:
    tables = [*_saved_tables(one, is_complete), _arguments_table(one, is_complete), _recomputed_table(one)]
    if one.repeated:
        tables.append(_repeated_table(one.repeated, is_complete))
    tables.append(_work_table(one))
    if one.effects.all:
        tables.append(_effects_table(one))
    if is_one_of_several:
        tables.insert(0, Table(f"derivative of {one.function}, policy {one.policy}", (), (), ()))
    return tables


def _saved_tables(one: DerivativeReport, is_complete: bool) -> list[Table]:
    if not one.crossing:
        return [_saved_table("saved for the backward pass", one.residuals, is_complete)]
    tables = [_saved_table("saved because it crosses from one segment to the next", one.crossing, is_complete)]
    if one.by_policy:
        tables.insert(0, _saved_table("saved by the policy", one.by_policy, is_complete))
    return tables


def _saved_table(what: str, rows: Sequence[SavedResidual], is_complete: bool) -> Table:
    title = f"{what}: {counted(len(rows), 'value')}, {format_bytes(sum(row.bytes for row in rows))}"
    shown = rows if is_complete else rows[:SHOWN]
    rest = rows[len(shown) :]
    note = f"and {len(rest)} more, {format_bytes(sum(row.bytes for row in rest))}; -v shows all" if rest else ""
    return _residual_table(title, shown, note)


def _arguments_table(one: DerivativeReport, is_complete: bool) -> Table:
    size = format_bytes(sum(row.bytes for row in one.arguments))
    title = f"kept without a copy: {counted(len(one.arguments), 'argument')}, {size}"
    if is_complete or len(one.arguments) <= SHOWN // 4:
        return _residual_table(title, one.arguments, "")
    return Table(f"{title}; -v shows them", (), (), ())


def _residual_table(title: str, rows: Sequence[SavedResidual], note: str) -> Table:
    cells = tuple((str(row.type), format_bytes(row.bytes), row.provenance) for row in rows)
    return Table(title, ("", "", ""), (False, True, False), cells, note)


def _recomputed_table(one: DerivativeReport) -> Table:
    if not one.recomputed:
        return Table("recomputed: nothing", (), (), ())
    title = (
        f"recomputed in the backward pass: {counted(one.recompute.equations, 'equation')}, "
        f"{format_flops(one.recompute.flops)}"
    )
    rows = tuple((op, str(work.equations), format_flops(work.flops)) for op, work in one.recomputed.items())
    return Table(title, ("", "", ""), (False, True, True), rows)


def _repeated_table(rows: Sequence[RepeatedValue], is_complete: bool) -> Table:
    title = f"recomputed in several segments, which takes less than holding it: {counted(len(rows), 'value')}"
    shown = rows if is_complete else rows[:SHOWN]
    note = f"and {len(rows) - len(shown)} more; -v shows all" if len(shown) < len(rows) else ""
    cells = tuple(
        (str(row.type), f"in {row.segments}", format_flops(row.flops * row.segments), f"{row.op}{row.place}")
        for row in shown
    )
    return Table(title, ("", "", "", ""), (False, False, True, False), cells, note)


def _effects_table(one: DerivativeReport) -> Table:
    title = f"{counted(one.effects.all, 'effect')} (prints and callbacks), in the forward pass alone"
    if one.effects.in_regions:
        title += f"; recomputation leaves out the {one.effects.in_regions} in checkpoint regions"
    return Table(title, (), (), ())


def _work_table(one: DerivativeReport) -> Table:
    total = one.forward + one.recompute + one.backward
    parts = (("forward", one.forward), ("recompute", one.recompute), ("backward", one.backward), ("total", total))
    rows = tuple((name, str(work.equations), format_flops(work.flops)) for name, work in parts)
    calls = ", ".join([f"{name} x{count}" if count > 1 else name for name, count in one.uncounted.items()])
    note = f"without the FLOPs of calls of libraries, which are not known: {calls}" if calls else ""
    return Table("", ("work", "equations", "FLOPs"), (False, True, True), rows, note)


def _foreign_table(foreign: Sequence[ForeignPrimitive]) -> Table:
    title = f"imported through JAX, whose lowering and derivatives they are: {counted(len(foreign), 'primitive')}"
    return Table(title, ("",), (False,), tuple([(str(one),) for one in foreign]))


def _figures_table(report: Report, policy: str) -> Table:
    heading = f"XLA on {report.platform}"
    planned, baseline = report.figures, report.baseline
    named = _figures(planned)
    if baseline is None:
        return Table("", (heading, f"policy {policy}"), (False, True), tuple(named.items()))
    ratios = {
        "temporary memory": format_ratio(planned.temp_bytes, baseline.temp_bytes),
        "predicted": format_ratio(planned.predicted_bytes or 0, baseline.predicted_bytes or 0),
        "FLOPs": format_ratio(planned.flops, baseline.flops),
        "compile time": format_ratio(planned.compile_seconds, baseline.compile_seconds),
    }
    others = _figures(baseline)
    cells = tuple((name, amount, others.get(name, "-"), ratios.get(name, "")) for name, amount in named.items())
    return Table("", (heading, f"policy {policy}", "no policy", "ratio"), (False, True, True, True), cells)


def _figures(figures: Figures) -> dict[str, str]:
    rows = {"temporary memory": format_bytes(figures.temp_bytes)}
    if figures.predicted_bytes is not None:
        rows["predicted"] = format_bytes(figures.predicted_bytes)
        rows["predicted / measured"] = format_ratio(figures.predicted_bytes, figures.temp_bytes)
    rows["FLOPs"] = format_flops(figures.flops)
    rows["compile time"] = format_seconds(figures.compile_seconds)
    return rows


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
