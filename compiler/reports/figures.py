"""What XLA says of a compiled program, in one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """What XLA says of a compiled program.

    Attributes:
        temp_bytes: temporary memory.
        flops: floating-point operations, a loop's body counted once.
        compile_seconds: time that XLA took.
        predicted_bytes: temporary memory as predicted from the plan; None for a program whose plan is not known.
    """

    temp_bytes: int
    flops: float
    compile_seconds: float
    predicted_bytes: int | None = None
