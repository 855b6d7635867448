"""The signature of a case, on which its rules build that stand in files of their own."""

from __future__ import annotations

from rematc.ir.core import Graph, Op
from rematc.ir.types import I32, TensorType

INDEX = TensorType(I32, ())


class CaseBase(Op):
    """What `Case` says of itself before its rules."""

    __slots__ = ()
    is_cut_inside = True
    branches: tuple[Graph, ...]

    def regions(self) -> tuple[Graph, ...]:
        return self.branches
