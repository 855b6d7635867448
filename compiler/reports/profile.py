"""A profile: what the forward pass, recomputation and the backward pass of a program take, and the user's lines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rematc.ir.locations import Location
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import counted, format_seconds
from rematc.lowering.hlo.module import HloModule, Instruction, op_name
from rematc.lowering.hlo.origins import Origin, location_of, origin_in, sources_of
from rematc.lowering.profiling import KernelTime, Trace

#: The parts, in the order of tables; what XLA added, as copies are, is of none.
FORWARD, RECOMPUTE, BACKWARD, OTHER = PARTS = ("forward", "recompute", "backward", "other")
_AT_ONCE = "kernels that run at one time, on several threads, count each"


@dataclass(frozen=True, slots=True)
class Kernel:
    """An instruction that runs.

    Attributes:
        name: XLA's name of it.
        opcode: what it is.
        seconds: what it takes in one run of the program, with all its executions.
        count: how many executions these are.
        origin: the phase and the equation that it comes from; None where they are not known.
        loc: the user's line; None where it is not known.
    """

    name: str
    opcode: str
    seconds: float
    count: float
    origin: Origin | None
    loc: Location | None

    @property
    def part(self) -> str:
        """One of `PARTS`."""
        return OTHER if self.origin is None else self.origin.part.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a program takes where. `print` shows it.

    Attributes:
        function: the program's name.
        runs: of how many runs the times are the mean.
        seconds: the median run, as the clock on the wall says.
        kernels: what ran, in the order in which it first did.
        files: the trace, where it was kept: for Perfetto (`trace.json.gz`) and xprof (`xplane.pb`).
    """

    function: str
    runs: int
    seconds: float
    kernels: tuple[Kernel, ...]
    files: tuple[Path, ...] = ()

    @property
    def busy_seconds(self) -> float:
        """What all kernels take; those that run at one time count each."""
        return sum(kernel.seconds for kernel in self.kernels)

    def by_part(self) -> dict[str, float]:
        """The seconds of each of `PARTS`."""
        return {part: sum(one.seconds for one in self.kernels if one.part == part) for part in PARTS}

    def by_line(self) -> dict[Location | None, dict[str, float]]:
        """The seconds of each of `PARTS` for each of the user's lines, most first; None is what has no line."""
        found: dict[Location | None, dict[str, float]] = {}
        for one in self.kernels:
            times = found.setdefault(one.loc, dict.fromkeys(PARTS, 0.0))
            times[one.part] += one.seconds
        return dict(sorted(found.items(), key=lambda row: -sum(row[1].values())))

    def __str__(self) -> str:
        return plain_text(self.tables())

    def tables(self, most: int | None = None) -> list[Table]:
        """By part and by line; of lines the first `most`."""
        return [self._parts(), self._lines(most)]

    def _parts(self) -> Table:
        present = [part for part in PARTS if any(one.part == part for one in self.kernels)]
        rows = [self._row(part, [one for one in self.kernels if one.part == part]) for part in present]
        title = f"profile: {counted(self.runs, 'run')} of {format_seconds(self.seconds)}"
        note = _AT_ONCE if self.busy_seconds > self.seconds else ""
        columns = ("part", "kernels", "executions", "time", "share")
        return Table(title, columns, (False, True, True, True, True), (*rows, self._row("total", self.kernels)), note)

    def _row(self, name: str, kernels: Sequence[Kernel]) -> tuple[str, ...]:
        seconds, total = sum(one.seconds for one in kernels), self.busy_seconds
        share = f"{100 * seconds / total:.0f} %" if total else "-"
        executions = sum(one.count for one in kernels)
        return name, str(len(kernels)), f"{executions:.0f}", format_seconds(seconds), share

    def _lines(self, most: int | None) -> Table:
        lines = self.by_line()
        shown = list(lines.items())[:most]
        columns = [part for part in PARTS if any(times[part] for times in lines.values())]
        rows = tuple(
            [
                (
                    "no line" if loc is None else loc.from_here().describe(),
                    *[format_seconds(times[part]) if times[part] else "-" for part in columns],
                    format_seconds(sum(times.values())),
                )
                for loc, times in shown
            ]
        )
        rest = len(lines) - len(shown)
        notes = [f"and {counted(rest, 'line')} more; -v shows all"] if rest else []
        notes += [f"trace: {file}" for file in self.files]
        flush = (False, *[True] * (len(columns) + 1))
        return Table("", ("line", *columns, "total"), flush, rows, "\n".join(notes))

    def as_dict(self) -> dict[str, object]:
        """The profile as JSON-able data."""
        return {
            "runs": self.runs,
            "seconds": self.seconds,
            "busy_seconds": self.busy_seconds,
            "parts": self.by_part(),
            "lines": [
                {"source": None if loc is None else str(loc), "function": "" if loc is None else loc.function, **times}
                for loc, times in self.by_line().items()
            ],
            "kernels": [
                {
                    "name": one.name,
                    "opcode": one.opcode,
                    "seconds": one.seconds,
                    "count": one.count,
                    "part": OTHER if one.origin is None else one.origin.part,
                    "value": None if one.origin is None else one.origin.value,
                    "source": None if one.loc is None else str(one.loc),
                }
                for one in self.kernels
            ],
            "files": [str(file) for file in self.files],
        }


def profile_of(name: str, module: HloModule, trace: Trace) -> Profile:
    """The profile of a traced program."""
    sources, runs = sources_of(module), len(trace.seconds)
    kernels = tuple([_kernel(one, module, sources, runs) for one in trace.kernels])
    return Profile(name, runs, statistics.median(trace.seconds), kernels, trace.files)


def _kernel(one: KernelTime, module: HloModule, sources: Mapping[str, Instruction], runs: int) -> Kernel:
    instruction = one.instruction
    source = sources.get(instruction.name)
    origin = None if source is None else origin_in(op_name(source))
    loc = None if source is None else location_of(source, module)
    return Kernel(instruction.name, instruction.opcode, one.seconds / runs, one.count / runs, origin, loc)
