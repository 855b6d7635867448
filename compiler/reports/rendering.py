"""The parts of a report as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.compiler.reports.check import Check
from rematc.compiler.reports.derivative import DerivativeReport, RepeatedValue
from rematc.compiler.reports.fallbacks import ForeignPrimitive
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.residuals import SavedResidual, size_of
from rematc.ir.locations import relative
from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes, format_flops, format_ratio, format_seconds
from rematc.lowering.hlo.module import SourceLine
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.summary import PlannedValue

#: Residuals that are shown where not all of them are asked for.
SHOWN = 20


def derivative_tables(one: DerivativeReport, *, is_complete: bool, is_headed: bool) -> list[Table]:
    """What one derivative saves and recomputes; without `is_complete` long lists are cut."""
    tables = [] if one.is_planned else _policy_tables(one, is_complete)
    if one.effects.all:
        tables.append(_effects_table(one))
    if is_headed:
        tables.insert(0, Table(f"derivative of {one.function}, policy {one.policy}", (), (), ()))
    return tables


def _policy_tables(one: DerivativeReport, is_complete: bool) -> list[Table]:
    tables = [*_saved_tables(one, is_complete), _arguments_table(one, is_complete), _recomputed_table(one)]
    if one.repeated:
        tables.append(_repeated_table(one.repeated, is_complete))
    return [*tables, _work_table(one)]


def plan_tables(plan: Plan, *, is_complete: bool) -> list[Table]:
    """What a plan keeps and computes again, and how much work that is; without `is_complete` long lists are cut."""
    work = plan.work
    parts = [counted(work.again.kernels, "kernel")] if plan.stages.begins else []
    parts += [f"steps of {counted(len(plan.loops), 'loop')}"] if plan.loops else []
    again = ", ".join([" and ".join(parts), format_flops(work.again.flops)]) if parts else "nothing"
    kept = f"{counted(len(plan.kept), 'value')}, {format_bytes(sum(one.size for one in plan.kept))}"
    tables = [
        _planned_table(f"kept by the plan for the backward pass: {kept}", plan.kept, is_complete),
        _planned_table(f"computed again by the plan: {again}", plan.computed_again, is_complete),
    ]
    amounts = (("forward", work.forward), ("again", work.again), ("backward", work.backward), ("total", work.total))
    rows = tuple((name, str(part.kernels), format_flops(part.flops)) for name, part in amounts)
    return [*tables, Table("", ("work", "kernels", "FLOPs"), (False, True, True), rows)]


def _planned_table(what: str, values: Sequence[PlannedValue], is_complete: bool) -> Table:
    shown = values if is_complete else values[:SHOWN]
    rest = values[len(shown) :]
    note = f"and {len(rest)} more, {format_bytes(sum(one.size for one in rest))}; -v shows all" if rest else ""
    cells = tuple((one.type, format_bytes(one.size), str(one)) for one in shown)
    return Table(what, ("", "", ""), (False, True, False), cells, note)


def _saved_tables(one: DerivativeReport, is_complete: bool) -> list[Table]:
    if not one.crossing:
        return [_saved_table("saved for the backward pass", one.residuals, is_complete)]
    tables = [_saved_table("saved between segments, and in the last one", one.crossing, is_complete)]
    if one.by_policy:
        tables.insert(0, _saved_table("saved by the policy", one.by_policy, is_complete))
    return tables


def _saved_table(what: str, rows: Sequence[SavedResidual], is_complete: bool) -> Table:
    title = f"{what}: {counted(len(rows), 'value')}, {size_of(rows)}"
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


def foreign_table(foreign: Sequence[ForeignPrimitive]) -> Table:
    """The primitives that came in through JAX."""
    title = f"imported through JAX, whose lowering and derivatives they are: {counted(len(foreign), 'primitive')}"
    return Table(title, ("",), (False,), tuple([(str(one),) for one in foreign]))


def figures_table(target: str, planned: Figures, baseline: Figures | None, policy: str) -> Table:
    """What XLA says of a program, beside the same without a policy where that was compiled."""
    heading = f"XLA on {target}"
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


def check_tables(check: Check) -> list[Table]:
    """What was planned and what XLA runs, and what memory that saves where it was measured."""
    saving = check.saving
    memory = [] if saving is None else [Table(f"memory: {saving.message}", (), (), (), saving.way_out)]
    return [_products_table(check), *memory]


def _products_table(check: Check) -> Table:
    """The verdict as the title, merged products as rows, the way out below."""
    rows = tuple(
        (f"merged {row.count} of {row.planned}", row.product, _place(row.source)) for row in check.comparison.where
    )
    return Table(f"check: {check.message}", ("", "", ""), (False, False, False), rows, check.way_out)


def _place(source: SourceLine | None) -> str:
    return "" if source is None else f"from {relative(source.file)}:{source.line}"
