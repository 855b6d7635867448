"""The signature of a while loop, on which its rules build that stand in files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from rematc.ir.core import Graph, Op
from rematc.ir.ops.bodies import reached_carries

T = TypeVar("T")


class Parts(NamedTuple, Generic[T]):
    """Something for each operand of a loop."""

    cond_consts: tuple[T, ...]
    body_consts: tuple[T, ...]
    carry: tuple[T, ...]


class WhileBase(Op):
    """What `While` says of itself before its rules."""

    __slots__ = ()
    is_cut_inside = True
    cond: Graph
    body: Graph
    cond_consts: int
    body_consts: int

    def parts(self, operands: Sequence[T]) -> Parts[T]:
        """The condition's consts, the body's, and carries apart."""
        end = self.cond_consts + self.body_consts
        cond, body, carry = operands[: self.cond_consts], operands[self.cond_consts : end], operands[end:]
        return Parts(tuple(cond), tuple(body), tuple(carry))

    def overwrites(self, result: int) -> int | None:
        return self.cond_consts + self.body_consts + result

    def over_steps(self, flags: Sequence[bool]) -> tuple[bool, ...]:
        of_cond, of_body, carry = self.parts(flags)
        return (*of_cond, *of_body, *reached_carries(self.body, lambda carries: (*of_body, *carries), carry))

    def regions(self) -> tuple[Graph, ...]:
        return (self.cond, self.body)
