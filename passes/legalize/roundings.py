"""Roundings of numbers that have the format already, which hold a number that is saved at what is saved of it.

Before:  %1 = dot_general %x, %w      (bf16)      After:  %1 = dot_general %x, %w
         %2 = reduce_precision %1 {e8m7}                  %2 = optimization_barrier %1
         %3 = reduce_max (convert %2)                     %3 = reduce_max (convert %2)

What was computed in float32 may go on in float32 where it is only rounded in between: the forward pass would read other
numbers than those that are saved for the backward pass. XLA:CPU rounds in float32 for that, in a kernel of its own that
no library evaluates, and writes the product and the rounded product as large as float32 numbers are. Behind a barrier
both passes read the saved one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import BF16
from rematc.ir.values import Value
from rematc.passes.legalize.rules import expands

#: The bits of the exponent and the mantissa of bfloat16. What is below its normal range is so in float32 as well, and
#: the CPU takes it for zero wherever it computes.
_BFLOAT16 = (8, 7)


@expands(ReducePrecision, but_on=("cuda", "rocm", "tpu"))
def reduce_precision(b: Builder, op: ReducePrecision, x: Value) -> Sequence[Value] | None:
    """A barrier, for bfloat16 rounded to bfloat16."""
    if x.type.dtype is not BF16 or (op.exponent_bits, op.mantissa_bits) != _BFLOAT16:
        return None
    return b.emit(OptimizationBarrier(), x)
