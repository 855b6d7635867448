"""What the page shows, as JSON-able data: columns and numbers of texts, so that 20,000 equations stay small."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.decisions import Decision, LineCost, line_costs
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.html.contents import Contents
from rematc.compiler.reports.pareto import Pareto
from rematc.compiler.reports.residuals import on_each_device
from rematc.ir.locations import Location, relative
from rematc.ir.units import counted, format_bytes, format_flops, format_ratio, format_seconds
from rematc.passes.memory_timeline import BACKWARD, FORWARD, RECOMPUTED, ROLES, MemoryTimeline

_PHASES = (FORWARD, RECOMPUTED, BACKWARD)
#: Of the steps that read a buffer the first ones and the last one are named.
_READERS = 4
#: Lines of a source file around one that costs something; files of no more lines are shown as a whole.
_AROUND, _WHOLE = 4, 300


@dataclass(slots=True)
class _Texts:
    """Texts by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def page_data(contents: Contents) -> dict[str, object]:
    """All that the page shows, but for the program's text."""
    texts = _Texts()
    inspection, found = contents.inspection, contents.decisions
    timelines = []
    if inspection is not None:
        for name, timeline in (("predicted", inspection.predicted), ("xla", inspection.assigned)):
            if timeline is not None and timeline.steps:
                timelines.append({"name": name} | _timeline(timeline, texts))
    return {
        "target": contents.target,
        "figures": _figures(contents),
        "verdicts": _verdicts(contents),
        "timelines": timelines,
        "roles": list(ROLES),
        "phases": list(_PHASES),
        "texts": list(texts.numbers),
        "files": _files(line_costs(found)),
        "decisions": [_decision(one) for one in found],
        "curve": None if contents.curve is None else _curve(contents.curve, contents.budget, contents.figures),
    }


def _figures(contents: Contents) -> list[dict[str, str]]:
    figures, baseline = contents.figures, contents.baseline
    beside = "" if baseline is None else f"{format_bytes(baseline.temp_bytes)} without a policy"
    if baseline is not None and baseline.temp_bytes:
        beside += f" ({format_ratio(figures.temp_bytes, baseline.temp_bytes)})"
    found = [{"label": "temporary memory", "value": format_bytes(figures.temp_bytes), "note": beside}]
    if figures.predicted_bytes is not None:
        ratio = format_ratio(figures.predicted_bytes, figures.temp_bytes)
        found.append({"label": "predicted", "value": format_bytes(figures.predicted_bytes), "note": f"{ratio} of it"})
    if contents.budget is not None:
        wanted = format_bytes(contents.budget.budget)
        found.append({"label": "budget", "value": wanted, "note": contents.budget.plan.constraints.text()})
    kept = [one for one in contents.decisions if one.is_kept]
    again = [one for one in contents.decisions if not one.is_kept]
    flops = format_flops(sum(one.flops for one in again))
    sizes, counts = (
        format_bytes(sum(one.bytes for one in kept)) + on_each_device(contents.is_spread),
        [sum(one.count for one in row) for row in (kept, again)],
    )
    found.append({"label": "kept", "value": sizes, "note": f"{counted(counts[0], 'value')} for the backward pass"})
    found.append({"label": "computed again", "value": flops, "note": counted(counts[1], "evaluation")})
    seconds = format_seconds(figures.compile_seconds)
    found.append({"label": "FLOPs, by XLA", "value": format_flops(figures.flops), "note": f"compiled in {seconds}"})
    return found


def _verdicts(contents: Contents) -> list[dict[str, object]]:
    if contents.check is None:
        return []
    found: list[dict[str, object]] = [{"text": f"check: {contents.check.message}", "isBad": contents.check.is_broken}]
    saving = contents.check.saving
    if saving is not None:
        found.append({"text": f"memory: {saving.message}", "isBad": saving.is_in_vain})
    return found


def _timeline(timeline: MemoryTimeline, texts: _Texts) -> dict[str, object]:
    steps, buffers = timeline.steps, timeline.buffers
    return {
        "backward": timeline.backward,
        "arguments": timeline.arguments,
        "results": timeline.results,
        "block": timeline.block,
        "steps": {
            "name": [texts.of(step.name) for step in steps],
            "phase": [_PHASES.index(step.phase) for step in steps],
            "place": [texts.of(_place(step.loc)) for step in steps],
            "workspace": [step.workspace for step in steps],
        },
        "buffers": {
            "name": [texts.of(one.name) for one in buffers],
            "type": [texts.of(one.type) for one in buffers],
            "place": [texts.of(_place(one.loc)) for one in buffers],
            "size": [one.size for one in buffers],
            "begin": [one.begin for one in buffers],
            "end": [one.end for one in buffers],
            "role": [ROLES.index(one.role) for one in buffers],
            "readers": [_named(one.readers) for one in buffers],
            "count": [len(one.readers) for one in buffers],
        },
    }


def _named(readers: Sequence[int]) -> list[int]:
    return list(readers) if len(readers) <= _READERS else [*readers[: _READERS - 1], readers[-1]]


def _place(loc: Location | None) -> str:
    return "" if loc is None else Location(relative(loc.file), loc.line, 0, loc.function).describe()


def _decision(one: Decision) -> dict[str, object]:
    is_function = one.loc is None or one.loc.function
    return one.as_dict() | {"block": one.block if is_function else relative(one.block)}


# -- the source --------------------------------------------------------------------------------------------------------


def _files(costs: Sequence[LineCost]) -> list[dict[str, object]]:
    """The user's files with what their lines cost: whole ones where they are short, else what is around such lines."""
    of: dict[str, dict[int, LineCost]] = {}
    for cost in costs:
        of.setdefault(cost.loc.file, {})[cost.loc.line] = cost
    return [
        {"name": relative(file), "lines": list(_lines(file, lines))}
        for file, lines in sorted(of.items(), key=lambda item: -sum(cost.kept for cost in item[1].values()))
    ]


def _lines(file: str, costs: dict[int, LineCost]) -> Iterator[list[object]]:
    """Number, text, bytes kept, values kept, FLOPs computed again, evaluations; nothing where lines are left out."""
    text = [] if file.startswith("<") else linecache.getlines(file)
    shown = set(costs)
    if len(text) <= _WHOLE:
        shown |= set(range(1, len(text) + 1))
    else:
        shown |= {near for line in costs for near in range(line - _AROUND, line + _AROUND + 1)}
    last = 0
    for line in sorted(shown):
        if not 1 <= line <= max(len(text), *costs):
            continue
        if line != last + 1:
            yield []
        last = line
        cost = costs.get(line, LineCost(Location(file, line)))
        code = text[line - 1].rstrip("\n") if line <= len(text) else ""
        yield [line, code, cost.kept, cost.values, cost.flops, cost.again]


# -- the curve ---------------------------------------------------------------------------------------------------------


def _curve(curve: Pareto, budget: BudgetReport | None, figures: Figures) -> dict[str, object]:
    """The points, and this program among them where it has a plan."""
    points: list[dict[str, object]] = [
        {
            "name": point.name,
            "memory": point.memory,
            "extra": 100 * point.extra_seconds / curve.seconds if curve.seconds else 0.0,
            "flops": point.extra_flops,
            "kind": "policy" if point.plan is None and point.name != "everything" else "plan",
            "dominated": point.is_dominated,
            "measured": point.measured is not None,
        }
        for point in curve.points
    ]
    if budget is not None:
        is_measured = all(point.measured is not None for point in curve.points)
        predicted = figures.predicted_bytes
        memory = figures.temp_bytes if is_measured or predicted is None else predicted
        extra = 100 * budget.extra_seconds / curve.seconds if curve.seconds else 0.0
        points.append(
            {"name": "this plan", "memory": memory, "extra": extra, "flops": budget.plan.extra_flops}
            | {"kind": "chosen", "dominated": False, "measured": is_measured}
        )
    return {"device": curve.device, "points": points}
