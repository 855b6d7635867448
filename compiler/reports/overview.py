"""The report in short: on one screen, what is kept and computed again, what is in memory when, what came of it."""

from __future__ import annotations

import os
from dataclasses import replace

from rematc.compiler.reports.decisions import line_costs
from rematc.compiler.reports.rendering import check_tables, figures_table
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.residuals import on_each_device
from rematc.compiler.reports.sparkline import sparkline
from rematc.ir.locations import Location
from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes, format_each, format_flops
from rematc.passes.memory_timeline import LiveBuffer, MemoryTimeline

#: Rows of each list, and of what stands at the peak; columns of the picture of memory.
ROWS, STANDING, COLUMNS = 4, 3, 72
_MORE = "-v shows all"
#: What XLA says, without what follows from it.
_FIGURES = ("temporary memory", "predicted", "FLOPs")


def overview_tables(report: Report, policy: str, *, has_blocks: bool) -> list[Table]:
    """The report as tables of a few rows each; what is alike, as in each layer of a model, is one row.

    Args:
        report: what is shown.
        policy: what the column of figures is headed with.
        has_blocks: whether the terminal's characters have blocks for the picture of memory.
    """
    tables = [_kept_table(report), _again_table(report), *_notes_tables(report)]
    if report.slices is not None:
        tables.append(report.slices.table())
    predicted = None if report.inspection is None else report.inspection.predicted
    if predicted is not None and predicted.peak:
        tables += timeline_tables(predicted, STANDING, has_blocks=has_blocks)
    figures = figures_table(report.target, report.figures, report.baseline, policy)
    tables.append(replace(figures, rows=tuple([row for row in figures.rows if row[0] in _FIGURES])))
    if report.budget is not None:
        tables.append(report.budget.table())
    return tables + (check_tables(report.check) if report.check is not None else [])


def _place(loc: Location | None) -> str:
    """The line in few letters: a file is called by its last name."""
    return "" if loc is None else Location(os.path.basename(loc.file), loc.line, 0, loc.function).describe()


# -- kept and computed again -------------------------------------------------------------------------------------------


def _kept_table(report: Report) -> Table:
    kept = [one for one in report.decisions if one.is_kept]
    size = format_bytes(sum(one.bytes for one in kept)) + on_each_device(report.is_spread)
    amount = f"{counted(sum(one.count for one in kept), 'value')}, {size}"
    shown, rest = kept[:ROWS], kept[ROWS:]
    rows = [
        (format_each(one.size, one.count), one.type, one.what.removeprefix("output of "), _place(one.loc))
        for one in shown
    ]
    notes = []
    if rest:
        size = format_bytes(sum(one.bytes for one in rest))
        notes.append(f"and {sum(one.count for one in rest)} more, {size}")
    arguments = [row for one in report.derivatives if not one.is_planned for row in one.arguments]
    if arguments:
        size = format_bytes(sum(row.bytes for row in arguments))
        notes.append(f"{counted(len(arguments), 'argument')} without a copy, {size}")
    note = "; ".join([*notes, *([_MORE] if notes else [])])
    return Table(f"kept for the backward pass: {amount}", ("",) * 4, (True, False, False, False), tuple(rows), note)


def _again_table(report: Report) -> Table:
    """The lines that cost most: half of the rows by bytes that are kept, the others by what is computed again."""
    found = report.decisions
    again = [one for one in found if not one.is_kept]
    work = _work(report)
    if not again:
        return Table("computed again: nothing", (), (), (), work)
    costs = line_costs(found)
    most = sorted(costs, key=lambda cost: -cost.kept)[: ROWS // 2]
    most += [cost for cost in sorted(costs, key=lambda cost: -cost.flops) if cost not in most][: ROWS - len(most)]
    rows = [
        (
            _place(cost.loc),
            format_bytes(cost.kept) if cost.kept else "",
            format_flops(cost.flops) if cost.again else "",
        )
        for cost in sorted(most, key=lambda cost: (cost.loc.file, cost.loc.line))
    ]
    rest = len(costs) - len(most)
    title = f"computed again: {counted(sum(one.count for one in again), 'evaluation')}"
    title += f", {format_flops(sum(one.flops for one in again))}"
    note = "; ".join(filter(None, [f"and {counted(rest, 'more line')}" if rest else "", work, _MORE]))
    return Table(title, ("line", "kept", "again"), (False, True, True), tuple(rows), note)


def _work(report: Report) -> str:
    """What the passes take beside that."""
    parts = [(one.forward.flops, one.backward.flops) for one in report.derivatives if not one.is_planned]
    if report.plan is not None:
        parts.append((report.plan.work.forward.flops, report.plan.work.backward.flops))
    forward, backward = [sum(part[index] for part in parts) for index in range(2)]
    return f"{format_flops(forward)} forward, {format_flops(backward)} backward"


def _notes_tables(report: Report) -> list[Table]:
    """What else there is to know of derivatives, a line each."""
    found = []
    effects = sum(one.effects.all for one in report.derivatives)
    if effects:
        found.append(
            Table(f"{counted(effects, 'effect')} (prints and callbacks), in the forward pass alone", (), (), ())
        )
    if report.foreign:
        found.append(Table(f"imported through JAX: {counted(len(report.foreign), 'primitive')}; {_MORE}", (), (), ()))
    return found


# -- in memory ---------------------------------------------------------------------------------------------------------


def timeline_tables(timeline: MemoryTimeline, most: int | None, *, has_blocks: bool) -> list[Table]:
    """The memory over the schedule as a line, and what stands at the peak, the largest first; None for all of it."""
    heights = timeline.highest(COLUMNS)
    title = (
        f"planned temporary memory over {counted(len(timeline.steps), 'step')}, {format_bytes(timeline.peak)} at most"
    )
    rows = [(sparkline(heights, has_blocks=has_blocks),)]
    begin = timeline.backward * len(heights) // len(timeline.steps)
    if 0 < begin < len(heights):
        rows.append(("forward".ljust(begin)[:begin] + "|backward",))
    return [Table(title, ("",), (False,), tuple(rows)), _peak_table(timeline, most)]


def _peak_table(timeline: MemoryTimeline, most: int | None) -> Table:
    at = timeline.steps[timeline.at]
    where = f" at {_place(at.loc)}" if at.loc is not None else ""
    groups: dict[tuple[object, ...], list[LiveBuffer]] = {}
    for buffer in timeline.standing(timeline.at):
        groups.setdefault((buffer.name, buffer.type, buffer.role, _place(buffer.loc)), []).append(buffer)
    found = sorted(groups.values(), key=lambda group: -sum(buffer.size for buffer in group))
    shown = [(group[0], len(group)) for group in found[:most]]
    rows = [(format_each(one.size, count), one.role, one.name, _place(one.loc)) for one, count in shown]
    notes = []
    rest = [buffer for group in found[len(rows) :] for buffer in group]
    if rest:
        notes.append(f"and {counted(len(rest), 'other buffer')}, {format_bytes(sum(one.size for one in rest))}")
    if at.workspace:
        notes.append(f"{format_bytes(at.workspace)} inside of the step")
    title = f"at the peak, step {timeline.at + 1}: {at.name}{where}, {at.phase}"
    return Table(title, ("",) * 4, (True, False, False, False), tuple(rows), "; ".join(notes))
