"""What a trace notes about primitives of JAX that have no import rule, and what reports say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.compiler.reports.residuals import describe_place
from rematc.ir.locations import Location


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """A note on a trace: the primitives of a JAX function that came in without an import rule.

    Attributes:
        function: the function's name.
        primitives: each with the line where it was met first.
        counts: of each, how many equations there are.
    """

    function: str
    primitives: dict[str, Location | None]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class ForeignPrimitive:
    """A primitive that is its own StableHLO lowering, and whose derivative is JAX's.

    Attributes:
        name: JAX's name of it.
        count: how many equations there are.
        place: where the first is, as ` from model.py:41 (attention)`; "" where it is not known.
    """

    name: str
    count: int
    place: str

    def __str__(self) -> str:
        return f"{self.name}{f' x{self.count}' if self.count > 1 else ''}{self.place}"


def foreign_primitives(records: Sequence[object]) -> tuple[ForeignPrimitive, ...]:
    """What came in through JAX in the functions of a trace, in the order in which it was met."""
    counts: dict[str, int] = {}
    places: dict[str, str] = {}
    for note in records:
        if not isinstance(note, Fallbacks):
            continue
        for name, loc in note.primitives.items():
            counts[name] = counts.get(name, 0) + note.counts[name]
            places.setdefault(name, describe_place(loc))
    return tuple([ForeignPrimitive(name, count, places[name]) for name, count in counts.items()])
