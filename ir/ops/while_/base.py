"""The signature of a while loop, on which its rules build that stand in files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rematc.ir.core import Graph, Op

T = TypeVar("T")


class WhileBase(Op):
    """What `While` says of itself before its rules."""

    __slots__ = ()
    cond: Graph
    body: Graph
    cond_consts: int
    body_consts: int

    def parts(self, operands: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """The condition's consts, the body's, and carries apart."""
        end = self.cond_consts + self.body_consts
        return tuple(operands[: self.cond_consts]), tuple(operands[self.cond_consts : end]), tuple(operands[end:])

    def regions(self) -> tuple[Graph, ...]:
        return (self.cond, self.body)
