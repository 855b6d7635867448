"""Import of random bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.random_bits import RngBitGenerator
from rematc.ir.types import DTYPES
from rematc.ir.values import Value


@imports("stablehlo.rng_bit_generator")
def rng_bit_generator(block: Block, operation: Any) -> Sequence[Value]:
    """`rng_bit_generator`; floats are integers whose bits are read as theirs."""
    _, type = block.result_types(operation)
    algorithm = attributes(operation).choice("rng_algorithm")
    is_integer = type.dtype.is_integer
    drawn = type if is_integer else type.with_dtype(DTYPES[f"u{type.dtype.bits}"])
    state, bits = block.b.emit(RngBitGenerator(drawn, algorithm), *block.operands(operation))
    return [state, bits if is_integer else block.b.emit1(BitcastConvert(type.dtype), bits)]
