"""What a rematerialization policy answers, and what a `checkpoint` asks of it.

Policies decide and nothing else: partial evaluation (`rematc.passes.partial_eval`) does the splitting. The built-in
policies stand in `rematc.passes.policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.ir.core import Op, Policy
from rematc.ir.decisions import RECOMPUTE, SAVE, Decision, Offload, Recompute, Save
from rematc.ir.values import Types

__all__ = ["CROSSING", "RECOMPUTE", "SAVE", "Decision", "Offload", "Policy", "PolicyParser", "Recompute", "Save"]
__all__ += ["SaveNothing", "is_private"]

#: The label of what crosses from one segment of a program to another (`rematc.passes.staging`); no user's name.
CROSSING = "@crossing"


def is_private(label: str) -> bool:
    """Whether a value's label is a note of the compiler's and no name that the user gave."""
    return label.startswith("@")


PolicyParser = Callable[[str], Policy]


@dataclass(frozen=True, slots=True)
class SaveNothing:
    """The policy of a checkpoint that has none of its own: only its operands are residuals."""

    spec = "nothing"
    is_everything = False
    saves_least = False

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        """Recompute."""
        return (RECOMPUTE,)
