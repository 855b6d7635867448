"""What a rematerialization policy answers, and what a `checkpoint` asks of it.

Policies decide and nothing else: partial evaluation (`rematc.passes.partial_eval`) does the splitting. The built-in
policies stand in `rematc.passes.policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rematc.ir.core import Op, Types

#: The label of what crosses from one segment of a program to another (`rematc.passes.staging`); no user's name.
CROSSING = "@crossing"


def is_private(label: str) -> bool:
    """Whether a value's label is a note of the compiler's and no name that the user gave."""
    return label.startswith("@")


@dataclass(frozen=True, slots=True)
class Save:
    """The value may be a residual."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """The value is computed again in the backward graph."""


@dataclass(frozen=True, slots=True)
class Offload:
    """The value may be a residual, kept in another memory until the backward graph needs it.

    Attributes:
        src: memory it is computed in, "device".
        dst: memory it waits in, "pinned_host".
    """

    src: str = "device"
    dst: str = "pinned_host"


Decision = Save | Recompute | Offload
SAVE = Save()
RECOMPUTE = Recompute()


class Policy(Protocol):
    """Decides what may be a residual."""

    @property
    def spec(self) -> str:
        """The policy as text: `dots`, `names=a,b`, `file.py:function`."""

    @property
    def is_everything(self) -> bool:
        """Whether the policy lets every value be saved: then a checkpoint changes nothing."""

    @property
    def saves_least(self) -> bool:
        """Whether of what may be saved as few bytes are as will do: what follows from them by fusible work is not."""

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        """One decision per result of `op`, or a single one for all of them.

        `names` are those that `checkpoint_name` gave to the value, under whichever alias the backward graph reads it.
        """


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
