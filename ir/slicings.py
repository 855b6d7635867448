"""How ops act along the dimensions of what they take and give: what can run in slices, part after part.

A *slicing* cuts some operands along one dimension each into equal parts. Applied to one part of each, beside the other
operands as they are, the op gives one part of each result, or one term of a sum. The rule of an op, `Op.slicings`,
lists all that it has; along a dimension that no slicing names, the op needs its operand whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.types import F32, DType, TensorType
from rematc.ir.values import Types, Value

#: In the place of a dimension of a result: each part gives all of it, and the same.
SAME = -1


@dataclass(frozen=True, slots=True)
class Slicing:
    """One way to apply an op in parts. The number of parts divides the sizes of all dimensions that are named.

    Attributes:
        operands: for each operand the dimension that is cut; None for one that every part reads whole.
        results: for each result the dimension along which the parts' results lie one after another; None where they
            are combined: added up, unless `into` names an operand; `SAME` where each part gives the whole.
        into: for each result the operand, which nothing cuts, into which the parts combine it one after another: each
            part takes for it what the one before it has given. None for no such operand; empty where no result has one.
    """

    operands: tuple[int | None, ...]
    results: tuple[int | None, ...]
    into: tuple[int | None, ...] = ()

    @property
    def is_sum(self) -> bool:
        """Whether the results of the parts are combined."""
        return None in self.results

    def into_of(self, result: int) -> int | None:
        """The operand into which the parts combine a result."""
        return self.into[result] if self.into else None


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts in which an op is applied.

    Attributes:
        slicing: in which way.
        count: how many parts there are.
        index: the number of this one, an i32 scalar.
    """

    slicing: Slicing
    count: int
    index: Value

    def cut(self, sizes: Sequence[int], dimension: int | None) -> tuple[int, ...]:
        """Sizes of the whole as those of a part, which is cut along this dimension; of one that is not, as they are."""
        return tuple([size // self.count if d == dimension else size for d, size in enumerate(sizes)])


def sum_dtype(dtype: DType) -> DType:
    """The element type in which parts of a sum are added up: of narrow floats, that in which devices add them, too."""
    return F32 if dtype.is_float and dtype.bits < F32.bits else dtype


def everywhere(operands: Types, results: Types) -> tuple[Slicing, ...]:
    """Of an op that works at each place alone: along each dimension. Operands of rank 0 are read whole."""
    return tuple([along(d, operands, results) for d in range(results[0].rank)])


def except_along(dimension: int, operands: Types, results: Types) -> tuple[Slicing, ...]:
    """Of an op that works on lines along one dimension: along each of the others."""
    return tuple([along(d, operands, results) for d in range(results[0].rank) if d != dimension])


def along_leading(count: int, operands: Types, results: Types) -> tuple[Slicing, ...]:
    """Of an op that works on last dimensions: along each of so many first ones, which all operands and results have."""
    return tuple([along(d, operands, results) for d in range(count)])


def along(dimension: int, operands: Types, results: Types) -> Slicing:
    """Along one dimension of all operands and results but those of rank 0."""
    return Slicing(tuple([dimension if type.rank else None for type in operands]), tuple([dimension for _ in results]))


def kept_by_reshape(before: TensorType, after: TensorType) -> tuple[tuple[int, int], ...]:
    """Pairs of a dimension and what it becomes in a reshape: equal ones, and the major ones of joins and splits.

    Dimensions of size 1 are none of them.
    """
    if not before.size:
        return ()
    sources = [d for d, size in enumerate(before.shape) if size > 1]
    targets = [d for d, size in enumerate(after.shape) if size > 1]
    found, i, j = [], 0, 0
    while i < len(sources):
        found.append((sources[i], targets[j]))
        left, right = before.shape[sources[i]], after.shape[targets[j]]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * before.shape[sources[i]], i + 1
            else:
                right, j = right * after.shape[targets[j]], j + 1
    return tuple(found)
