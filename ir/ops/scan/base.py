"""The signature of a scan, on which its rules build that stand in files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from rematc.ir.core import Graph, Op
from rematc.ir.ops.bodies import reached_carries
from rematc.ir.types import TensorType

T = TypeVar("T")


class Parts(NamedTuple, Generic[T]):
    """Something for each operand of a loop, or for each parameter of its step."""

    consts: tuple[T, ...]
    carry: tuple[T, ...]
    xs: tuple[T, ...]


class ScanBase(Op):
    """What `Scan` says of itself before its rules."""

    __slots__ = ()
    is_cut_inside = True
    body: Graph
    length: int
    consts: int
    carry: int
    is_reversed: bool
    snapshots: int

    def parts(self, operands: Sequence[T]) -> Parts[T]:
        """Consts, carries and xs apart."""
        end = self.consts + self.carry
        return Parts(tuple(operands[: self.consts]), tuple(operands[self.consts : end]), tuple(operands[end:]))

    def with_carries(self, values: Sequence[T], carries: Sequence[T]) -> tuple[T, ...]:
        """Something for each parameter of a step, with others for the carries."""
        parts = self.parts(values)
        return (*parts.consts, *carries, *parts.xs)

    def over_steps(self, flags: Sequence[bool]) -> tuple[bool, ...]:
        reached = reached_carries(self.body, lambda carries: self.with_carries(flags, carries), self.parts(flags).carry)
        return self.with_carries(flags, reached)

    def infer_operands(self) -> tuple[TensorType, ...]:
        """The types of the operands."""
        consts, carry, xs = self.parts(self.body.param_types)
        return (*consts, *carry, *[stack_of(type, self.length) for type in xs])


def stack_of(type: TensorType, length: int) -> TensorType:
    """The type of one such array for each step."""
    return TensorType(type.dtype, (length, *type.shape), type.on_host)
