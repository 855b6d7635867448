"""In which order the steps of a loop are taken backwards from few snapshots of its carries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Instructions, one after another: take the carry of a row, keep a copy in another, then a step or an adjoint.

    Attributes:
        is_adjoint: whether the instruction takes the adjoint of a step; else it takes the step.
        step: which step, counted in the order of the loop.
        source: the snapshot to start from; the number of snapshots where the carry at hand is the one.
        target: the snapshot to make of it; the number of snapshots for none.
    """

    is_adjoint: tuple[bool, ...]
    step: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def advances(self) -> int:
        """How many steps are taken beside the adjoint ones."""
        return len(self.is_adjoint) - sum(self.is_adjoint)
