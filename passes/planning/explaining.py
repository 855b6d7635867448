"""Why a kernel's values are kept or computed again, and what it would cost if it were the other way round."""

from __future__ import annotations

import difflib
from itertools import pairwise

from rematc.ir.errors import CompileError
from rematc.ir.units import counted, format_bytes, format_seconds
from rematc.passes.planning.planned_program import PlannedProgram
from rematc.passes.planning.problem import GIVEN, Stages
from rematc.passes.planning.refinement import without
from rematc.passes.planning.timeline import AFTER, Timeline

#: How many kernels of the same name, op or line are explained, and how many readers named.
MOST = 8


def explain(program: PlannedProgram, stages: Stages, budget: int, value: str) -> str:
    """What `rematc.Plan.explain` says."""
    places = _places(program, value)
    texts = [_Explanation(program, stages, budget, place).text() for place in places[:MOST]]
    if not places:
        around = [program.label(at) for at, kernel in enumerate(program.kernels) if _is_named(value, kernel.fused)]
        texts = [f"{value} is computed as a part of {', '.join(around[:MOST])}, and takes no memory of its own"]
    if len(places) > MOST:
        texts.append(f"and {len(places) - MOST} others; ask for one by its label, such as {program.label(places[-1])}")
    return "\n\n".join(texts)


def _is_named(value: str, names: tuple[str, ...]) -> bool:
    return any(name == value or name.endswith(f"/{value}") for name in names)


def _places(program: PlannedProgram, value: str) -> list[int]:
    """The kernels that a text means: by label, name, line, or op; none where it is fused into others."""
    kernels = program.kernels
    labels = [program.label(place) for place in range(len(kernels))]
    if value in labels:
        return [labels.index(value)]
    for ways in (
        [kernel.names for kernel in kernels],
        [(kernel.where,) for kernel in kernels],
        [(kernel.op,) for kernel in kernels],
    ):
        if found := [place for place, names in enumerate(ways) if _is_named(value, names)]:
            return found
    if any(_is_named(value, kernel.fused) for kernel in kernels):
        return []
    known = dict.fromkeys(
        name for kernel in kernels for name in (*kernel.names, kernel.where, kernel.op, *kernel.fused) if name
    )
    near = difflib.get_close_matches(value, [*known, *labels], n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise CompileError(
        f"the plan has no value '{value}'{hint} (names of checkpoint_name, FILE:LINE, ops, and labels of the plan's "
        "text are known)"
    )


class _Explanation:
    """One kernel of a plan, with what may be changed about it."""

    def __init__(self, program: PlannedProgram, stages: Stages, budget: int, place: int) -> None:
        self._program = program
        self._budget = budget
        self._place = place
        self._timeline = Timeline(program.problem, stages)
        self._before = self._timeline.peak, self._timeline.time

    def text(self) -> str:
        """What it is, what the plan does with it, what else could be done."""
        kernel = self._program.kernels[self._place]
        size = format_bytes(kernel.size) if kernel.size else "no temporary memory"
        title = f"{self._program.label(self._place)}: {kernel}, {size}, {format_seconds(kernel.time / 1e9)}"
        body = self._of_repeated() if len(self._timeline.runs[self._place]) > 1 else self._of_kept()
        return "\n  ".join([title, *body])

    def _of_repeated(self) -> list[str]:
        timeline, place = self._timeline, self._place
        keys = timeline.runs[place][1:]
        begins = [self._program.label(timeline.gap(key)) for key in keys]
        others = set[int]()
        for key in keys:
            if key in timeline.runs[place]:
                others |= {timeline.node(removed) for removed in without(timeline, key)} - {place}
        also = f", and {counted(len(others), 'kernel')} that {_does(len(others))} so for it alone" if others else ""
        return [
            f"computed again before {_listed(begins)}{also}",
            f"kept instead: {self._change()}",
        ]

    def _of_kept(self) -> list[str]:
        kernel, timeline, place = self._program.kernels[self._place], self._timeline, self._place
        values = self._program.problem.writes[place]
        readers = [timeline.node(key) for value in values for key in timeline.reads[value]]
        names = [self._program.label(node) for node in dict.fromkeys(readers)]
        lines = [f"kept: {f'read by {_listed(names)}' if names else 'a result'}{self._at_peak()}"]
        if not kernel.size:
            return [*lines, "a result of the program, or in the host's memory: computing it again would save nothing"]
        if not kernel.is_repeatable:
            return [*lines, "it is never computed again: a loop, a branch, a call, an effect, or a constraint"]
        hole = max(
            [hole for value in values for hole in self._holes(value)],
            key=lambda hole: timeline.gap(hole[1]) - timeline.gap(hole[0]),
            default=None,
        )
        gap = place if hole is None else timeline.gap(hole[1])
        if hole is None or gap - timeline.gap(hole[0]) <= 1:
            return [*lines, "it is read at once: there is nothing to save"]
        count = self._run(gap, place) - 1
        also = f" with {counted(count, 'kernel')} that it needs" if count else ""
        return [*lines, f"computed again instead, before {self._program.label(gap)}{also}: {self._change()}"]

    def _at_peak(self) -> str:
        if not len(self._timeline.keys):
            return ""
        step = int(self._timeline.live.argmax())
        is_held = not set(self._program.problem.writes[self._place]).isdisjoint(self._timeline.held(step))
        at = self._program.label(self._timeline.node(self._timeline.keys[step]))
        return f"; it is {'' if is_held else 'not '}live at the peak, when {at} runs"

    def _holes(self, value: int) -> list[tuple[int, int]]:
        """The write and the reads of a value as pairs of neighbours."""
        return list(pairwise([self._timeline.runs[self._place][0], *self._timeline.reads[value]]))

    def _run(self, gap: int, place: int) -> int:
        """Run a kernel again at a stage's beginning, with what it needs and is no longer live; how many that are."""
        timeline, problem = self._timeline, self._program.problem
        work, count = [place], 0
        while work:
            place = work.pop()
            key = timeline.key(gap, place)
            if key in timeline.runs[place]:
                continue
            needed = [value for value in problem.reads[place] if not self._is_live(value, key)]
            timeline.insert(key)
            count += 1
            work += [int(problem.producer[value]) for value in needed]
        return count

    def _is_live(self, value: int, key: int) -> bool:
        """Whether a value is there, or has to live until then since it cannot be computed again."""
        timeline, producer = self._timeline, self._timeline.producer[value]
        if producer == GIVEN or not timeline.size[value] or not self._program.kernels[producer].is_repeatable:
            return True
        end = timeline.end(value, timeline.begin(value, key))
        return end == AFTER or end >= key

    def _change(self) -> str:
        peak, time = self._timeline.peak, self._timeline.time
        before, before_time = self._before
        seconds = f"{format_seconds(abs(time - before_time) / 1e9)} {'less' if time < before_time else 'more'}"
        if peak == before:
            return f"{seconds}, and the peak stays {format_bytes(peak)}"
        within = "" if peak <= self._budget else f", more than the budget of {format_bytes(self._budget)}"
        return f"{seconds}, and the peak is {format_bytes(peak)} instead of {format_bytes(before)}{within}"


def _does(count: int) -> str:
    return "does" if count == 1 else "do"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST])
    return shown if len(names) <= MOST else f"{shown} and {len(names) - MOST} others"
