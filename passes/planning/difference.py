"""The difference of two plans of one program."""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.tables import Table, plain_text
from rematc.ir.units import format_bytes, format_seconds
from rematc.passes.planning.planned_program import PlannedProgram
from rematc.passes.planning.problem import Run, Stages


@dataclass(frozen=True, slots=True, eq=False)
class PlanDiff:
    """What two plans of one program do differently. Its text is a table.

    Attributes:
        program: the program.
        stages: the plans.
        budgets: bytes that they were made for.
        runs: what they take.
    """

    program: PlannedProgram
    stages: tuple[Stages, Stages]
    budgets: tuple[int, int]
    runs: tuple[Run, Run]

    @property
    def is_empty(self) -> bool:
        """Whether the plans run the same kernels again at the same places."""
        return self.stages[0] == self.stages[1]

    @property
    def kept_by_first(self) -> tuple[int, ...]:
        """The places of the kernels that only the second plan runs again."""
        return self._only(1)

    @property
    def kept_by_second(self) -> tuple[int, ...]:
        """The places of the kernels that only the first plan runs again."""
        return self._only(0)

    @property
    def moved(self) -> tuple[int, ...]:
        """The places of those that both run again, at other places or more often."""
        first, second = map(_begins, self.stages)
        return tuple(sorted(place for place in first.keys() & second.keys() if first[place] != second[place]))

    def _only(self, which: int) -> tuple[int, ...]:
        return tuple(sorted(_begins(self.stages[which]).keys() - _begins(self.stages[1 - which]).keys()))

    def tables(self) -> list[Table]:
        """The figures of both, then the kernels that they treat differently."""
        figures = (
            ("budget", *map(format_bytes, self.budgets)),
            ("predicted peak", *[format_bytes(run.peak) for run in self.runs]),
            ("predicted time", *[format_seconds(run.time / 1e9) for run in self.runs]),
            ("stages", *[str(len(stages.begins)) for stages in self.stages]),
        )
        tables = [Table("", ("", "first", "second"), (False, True, True), figures)]
        for title, places in (
            ("kept by the first plan, computed again by the second", self.kept_by_first),
            ("computed again by the first plan, kept by the second", self.kept_by_second),
            ("computed again by both, at other places", self.moved),
        ):
            if places:
                tables.append(kernel_table(title, self.program, places))
        return tables

    def __str__(self) -> str:
        return "the plans are the same" if self.is_empty else plain_text(self.tables()).rstrip()


def _begins(stages: Stages) -> dict[int, list[int]]:
    """For each kernel that runs again the beginnings of the stages in which it does."""
    found: dict[int, list[int]] = {}
    for begin, again in zip(stages.begins, stages.again, strict=True):
        for place in again:
            found.setdefault(place, []).append(begin)
    return found


def kernel_table(title: str, program: PlannedProgram, places: tuple[int, ...], note: str = "") -> Table:
    """Kernels, a line each."""
    rows = []
    for place in places:
        kernel = program.kernels[place]
        time = format_seconds(kernel.time / 1e9)
        rows.append((program.label(place), kernel.type, format_bytes(kernel.size), time, kernel.where))
    return Table(title, ("", "", "", "", ""), (False, False, True, True, False), tuple(rows), note)
