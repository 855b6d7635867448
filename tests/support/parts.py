"""Ops applied in parts, as their slicings say, by the reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.ops.structural import Constant
from rematc.ir.slicings import SAME, Part, Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Array
from rematc.ir.verifier import verify
from tests.support.samples import type_of


def counts_of(slicing: Slicing, types: Sequence[TensorType]) -> list[int]:
    """The numbers of parts, more than one, in which a slicing cuts operands and results of these types."""
    named = zip(types, (*slicing.operands, *slicing.results), strict=True)
    size = math.gcd(*[type.shape[d] for type, d in named if d is not None and d != SAME])
    return [count for count in range(2, size + 1) if size % count == 0]


def ways(op: Op, operands: Sequence[Array]) -> list[tuple[Slicing, int]]:
    """Every slicing of the op on these operands with every number of parts that it may have, but one."""
    types = [type_of(array) for array in operands]
    results = op.infer(types)
    slicings = op.slicings(types, results)
    return [(slicing, count) for slicing in slicings for count in counts_of(slicing, [*types, *results])]


def in_parts(op: Op, slicing: Slicing, count: int, operands: Sequence[Array]) -> list[list[Array]]:
    """The results of each part."""
    found: list[list[Array]] = []
    for index in range(count):
        given = [_part_of(array, d, count, index) for array, d in zip(operands, slicing.operands, strict=True)]
        for place, operand in enumerate(slicing.into if index else ()):
            if operand is not None:
                given[operand] = found[-1][place]
        b = Builder("part")
        params = [b.parameter(type_of(array)) for array in given]
        number = b.emit1(Constant.of(np.asarray(index, np.int32)))
        graph = b.build(*op.part(b, Part(slicing, count, number), params))
        verify(graph)
        found.append([np.asarray(result) for result in evaluate(graph, given)])
    return found


def added_up(pieces: Sequence[Numeric]) -> Numeric:
    """Their sum, in their own element type."""
    found: Numeric = np.sum(pieces, 0, dtype=pieces[0].dtype)
    return found


def _part_of(array: Array, dimension: int | None, count: int, index: int) -> Array:
    return array if dimension is None else np.split(array, count, dimension)[index]
