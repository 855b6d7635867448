"""Which values a TPU holds as bfloat16 although they have 32 bits: those that nothing but products reads.

    %0: f32[64,8,192,32] = transpose ...   %1 = dot_general %0, %k   ...   %9 = dot_general %8, %0      half its bytes

Products of 32-bit numbers at default precision multiply bfloat16 ones there. XLA rounds a factor where it is written,
if that is for products alone.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.types import F32
from rematc.ir.values import Value
from rematc.passes.readers import is_reordered, read_only_by


def rounded_factors(graph: Graph) -> frozenset[Value]:
    """These values, not of the regions in the graph."""
    return frozenset(value for value in read_only_by(graph, _rounds, is_reordered) if value.type.dtype == F32)


def _rounds(eqn: Equation) -> bool:
    return isinstance(eqn.op, (DotGeneral, Convolution)) and eqn.op.precision == "DEFAULT"
