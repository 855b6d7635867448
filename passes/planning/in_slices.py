"""How a program was cut before it was planned, as its plan remembers it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InSlices:
    """What is asked of the passes that cut a program (`rematc.passes.slicing.slicing.Slicer.cut`).

    Attributes:
        count: in about how many slices.
        way: which stages.
    """

    count: int
    way: str
