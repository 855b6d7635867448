"""What the built-in policies and those of users have in common."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Op
from rematc.ir.errors import CompileError
from rematc.ir.policy import Decision, Offload, Save
from rematc.ir.values import Types


class BuiltinPolicy:
    """Family base of the built-in policies; calling one answers for a single name, as a user's function does."""

    __slots__ = ()
    is_everything = False
    saves_least = False

    @property
    def spec(self) -> str:
        raise NotImplementedError

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        raise NotImplementedError

    def __call__(self, op: Op, operands: Types, name: str | None = None) -> Decision:
        return self.decide(op, operands, () if name is None else (name,))[0]


def strongest(first: Decision, second: Decision) -> Decision:
    """Saving on the device wins over saving on the host, which wins over recomputing."""
    for kind in (Save, Offload):
        for decision in (first, second):
            if isinstance(decision, kind):
                return decision
    return first


def combined(first: tuple[Decision, ...], second: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """The stronger decision for each result; a single decision is one for all results."""
    count = max(len(first), len(second))
    if {len(first), len(second)} - {1, count}:
        raise CompileError(f"policies gave {len(first)} and {len(second)} decisions for one op; give one per result")
    pairs = zip(_spread(first, count), _spread(second, count), strict=True)
    return tuple([strongest(one, other) for one, other in pairs])


def _spread(decisions: tuple[Decision, ...], count: int) -> tuple[Decision, ...]:
    return decisions * count if len(decisions) == 1 else decisions
