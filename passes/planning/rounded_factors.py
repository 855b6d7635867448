"""Which values a TPU holds as bfloat16 although they have 32 bits: those that nothing but products reads.

    %0: f32[64,8,192,32] = transpose ...   %1 = dot_general %0, %k   ...   %9 = dot_general %8, %0      half its bytes

Products of 32-bit numbers at default precision multiply bfloat16 ones there. XLA rounds a factor where it is written,
if that is for products alone.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import Transpose
from rematc.ir.types import F32
from rematc.ir.values import Value


def rounded_factors(graph: Graph) -> frozenset[Value]:
    """These values, not of the regions in the graph."""
    others = set(graph.results)  # what something else reads
    read = set[Value]()
    for eqn in reversed(graph.equations):
        hands_on = _hands_on(eqn)
        if not (_rounds(eqn) or (hands_on and others.isdisjoint(eqn.results))):
            others.update(eqn.operands)
        if not hands_on or not read.isdisjoint(eqn.results):
            read.update(eqn.operands)
    return frozenset(value for value in read - others if value.type.dtype == F32)


def _rounds(eqn: Equation) -> bool:
    return isinstance(eqn.op, (DotGeneral, Convolution)) and eqn.op.precision == "DEFAULT"


def _hands_on(eqn: Equation) -> bool:
    """Whether it gives its operand in another shape."""
    return isinstance(eqn.op, Transpose) or (
        eqn.op.storage in (Storage.ALIAS, Storage.BITCAST) and len(eqn.operands) == len(eqn.results) == 1
    )
