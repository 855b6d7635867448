"""The parts of a report as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rematc.compiler.reports.check import Check
from rematc.compiler.reports.derivative import DerivativeReport, RepeatedValue
from rematc.compiler.reports.fallbacks import ForeignPrimitive
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.residuals import SavedResidual, size_of
from rematc.ir.locations import relative
from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes, format_each, format_flops, format_ratio, format_seconds
from rematc.lowering.hlo.module import SourceLine
from rematc.passes.planning.constraints import Form
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.planned_loops import counted_loops
from rematc.passes.planning.summary import PlannedValue


def derivative_tables(one: DerivativeReport, *, is_headed: bool) -> list[Table]:
    """What one derivative saves and recomputes."""
    tables = [] if one.is_planned else _policy_tables(one)
    if one.effects.all:
        tables.append(_effects_table(one))
    if is_headed:
        tables.insert(0, Table(f"derivative of {one.function}, policy {one.policy}", (), (), ()))
    return tables


def _policy_tables(one: DerivativeReport) -> list[Table]:
    tables = [*_saved_tables(one), _arguments_table(one), _recomputed_table(one)]
    if one.repeated:
        tables.append(_repeated_table(one.repeated))
    return [*tables, _work_table(one)]


def plan_tables(plan: Plan) -> list[Table]:
    """What a plan keeps and computes again, and how much work that is."""
    work = plan.work
    parts = [counted(work.again.kernels, "kernel")] if plan.stages.begins else []
    parts += counted_loops(plan.loops, "steps of ")
    if plan.constraints.form is Form.BRANCHES:
        parts.append("branches")
    if not parts and work.again.flops:
        parts = ["checkpoints of the program's own"]
    again = ", ".join([" and ".join(parts), format_flops(work.again.flops)]) if parts else "nothing"
    kept = f"{counted(len(plan.kept), 'value')}, {format_bytes(sum(one.size for one in plan.kept))}"
    tables = [
        _planned_table(f"kept by the plan for the backward pass: {kept}", plan.kept),
        _planned_table(f"computed again by the plan: {again}", plan.computed_again),
    ]
    amounts = (("forward", work.forward), ("again", work.again), ("backward", work.backward), ("total", work.total))
    rows = tuple((name, str(part.kernels), format_flops(part.flops)) for name, part in amounts)
    return [*tables, Table("", ("work", "kernels", "FLOPs"), (False, True, True), rows)]


def _planned_table(what: str, values: Sequence[PlannedValue]) -> Table:
    return _sizes_table(what, [(one.type, one.size, str(one)) for one in values])


def _saved_tables(one: DerivativeReport) -> list[Table]:
    if not one.crossing:
        return [_saved_table("saved for the backward pass", one.residuals)]
    tables = [_saved_table("saved between segments, and in the last one", one.crossing)]
    if one.by_policy:
        tables.insert(0, _saved_table("saved by the policy", one.by_policy))
    return tables


def _saved_table(what: str, rows: Sequence[SavedResidual]) -> Table:
    return _residual_table(f"{what}: {counted(len(rows), 'value')}, {size_of(rows)}", rows)


def _arguments_table(one: DerivativeReport) -> Table:
    size = size_of(one.arguments)
    return _residual_table(f"kept without a copy: {counted(len(one.arguments), 'argument')}, {size}", one.arguments)


def _residual_table(title: str, rows: Sequence[SavedResidual]) -> Table:
    return _sizes_table(title, [(str(row.type), row.bytes, row.provenance) for row in rows])


def _sizes_table(title: str, rows: Iterable[tuple[str, int, str]]) -> Table:
    """Types, bytes of each, and what it is; what is alike, as in each layer of a model, is one row."""
    cells = tuple((type, format_each(size, count), what) for (type, size, what), count in Counter(rows).items())
    return Table(title, ("", "", ""), (False, True, False), cells)


def _recomputed_table(one: DerivativeReport) -> Table:
    if not one.recomputed:
        return Table("recomputed: nothing", (), (), ())
    title = (
        f"recomputed in the backward pass: {counted(one.recompute.equations, 'equation')}, "
        f"{format_flops(one.recompute.flops)}"
    )
    rows = tuple((op, str(work.equations), format_flops(work.flops)) for op, work in one.recomputed.items())
    return Table(title, ("", "", ""), (False, True, True), rows)


def _repeated_table(rows: Sequence[RepeatedValue]) -> Table:
    title = f"recomputed in several segments, which takes less than holding it: {counted(len(rows), 'value')}"
    cells = tuple(
        (str(row.type), f"in {row.segments}", format_flops(row.flops * row.segments), f"{row.op}{row.place}")
        for row in rows
    )
    return Table(title, ("", "", "", ""), (False, False, True, False), cells)


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
    notes = [f"without the FLOPs of calls of libraries, which are not known: {calls}"] if calls else []
    notes += ["of all devices together"] if one.is_spread else []
    note = "; ".join(notes)
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
