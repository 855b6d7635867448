"""Counters of a shape as sums of counters along its dimensions, so that a part of them is counted where it is read.

Before:  %0: u32[6] = iota {dimension=0}   %1: u32[2,3] = reshape %0
After:   %2: u32[2,3] = iota {dimension=0}   %3 = broadcast_in_dim 3   %4 = multiply %2, %3
         %5: u32[2,3] = iota {dimension=1}   %6 = add %4, %5

Random generators hash such counters. Reshaped, they have parts along their first dimension alone, and random bits for a
mask over attention's scores would be drawn whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import Iota
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class Counters(Pass):
    """Count along each dimension what is counted in one and reshaped; in regions too."""

    name: ClassVar[str] = "counters"

    def run(self, graph: Graph) -> Graph:
        return RegionRewriter(_rewritten).graph(graph)


def _rewritten(graph: Graph) -> Graph:
    regions = RegionRewriter(_rewritten)
    b, names = Builder(graph.name), dict[Value, Value]()
    b.params = list(graph.params)
    flat = set[Value]()
    is_same = True
    for eqn in graph.equations:
        if isinstance(eqn.op, Iota) and _has_numbers(eqn.results[0].type):
            flat.add(eqn.results[0])
        (first, *_) = eqn.operands or (None,)
        if isinstance(eqn.op, Reshape) and first in flat:
            with b.at(eqn.loc):
                names[eqn.results[0]] = _counted(b, eqn.results[0].type)
            is_same = False
            continue
        op, operands = regions.op(eqn.op), tuple([names.get(value, value) for value in eqn.operands])
        is_same = is_same and op is eqn.op
        b.append(Equation(op, operands, eqn.results, eqn.loc))
    return graph if is_same else b.build(*[names.get(value, value) for value in graph.results])


def _has_numbers(type: TensorType) -> bool:
    """Whether counters along one dimension, which are exact."""
    return type.rank == 1 and type.dtype.is_integer and type.size < 2 ** (type.dtype.bits - 1)


def _counted(b: Builder, type: TensorType) -> Value:
    """Counters of a shape in row-major order."""
    found = b.full(type, 0)
    for d in range(type.rank):
        stride = math.prod(type.shape[d + 1 :])
        along = b.iota(type, d)
        along = along if stride == 1 else b.multiply(along, b.full(type, stride))
        found = along if d == 0 else b.add(found, along)
    return found
