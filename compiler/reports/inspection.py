"""What a report can look into beyond its figures: what is in memory when, and the program at each stage."""

from __future__ import annotations

from typing import Protocol

from rematc.passes.memory_timeline import MemoryTimeline


class Inspection(Protocol):
    """A compiled program that can be looked into. What is asked for is made then."""

    @property
    def name(self) -> str:
        """The function's name."""

    @property
    def predicted(self) -> MemoryTimeline:
        """The memory over the schedule that is predicted, on one device."""

    @property
    def assigned(self) -> MemoryTimeline | None:
        """The memory over XLA's schedule, from its buffer assignment; None where XLA does not say."""

    def stages(self) -> dict[str, str]:
        """The program as text at each stage of the compiler, by the names that `--emit` takes."""
