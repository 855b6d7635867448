"""Import of elementwise primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.jax_import.block import Block, imports
from rematc.ir.core import OPS, Op, Value
from rematc.ir.ops.logical import Compare

#: Primitives that are one op without parameters, and its name.
_SAME = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "add": "add",
    "add_any": "add",
    "and": "and",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "ceil": "ceil",
    "clz": "count_leading_zeros",
    "complex": "complex",
    "cos": "cosine",
    "cosh": "cosh",
    "digamma": "digamma",
    "div": "divide",
    "erf": "erf",
    "erf_inv": "erf_inv",
    "erfc": "erfc",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "floor": "floor",
    "imag": "imag",
    "is_finite": "is_finite",
    "lgamma": "lgamma",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "mul": "multiply",
    "neg": "negate",
    "nextafter": "next_after",
    "not": "not",
    "or": "or",
    "population_count": "popcnt",
    "real": "real",
    "rem": "remainder",
    "rsqrt": "rsqrt",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "shift_right_logical": "shift_right_logical",
    "sign": "sign",
    "sin": "sine",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "sub": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "xor",
}
_OPS: dict[str, Op] = {name: OPS[op]() for name, op in _SAME.items() if op in OPS}


def alike(block: Block, operands: Sequence[Value]) -> list[Value]:
    """The operands of an elementwise primitive in one shape: scalars, and dimensions of size 1, are repeated."""
    first = operands[0].type.shape
    if all(value.type.shape == first for value in operands):
        return list(operands)
    rank = max(value.type.rank for value in operands)
    shapes = [value.type.shape for value in operands if value.type.rank == rank]
    shape = tuple([next((size for size in sizes if size != 1), 1) for sizes in zip(*shapes, strict=True)])
    return [
        block.b.broadcast_in_dim(value, shape, range(rank) if value.type.rank == rank else ()) for value in operands
    ]


@imports(*_OPS)
def same(block: Block, eqn: Any) -> Sequence[Value]:
    """The op that means the same."""
    operands = block.operands(eqn)
    return block.b.emit(_OPS[eqn.primitive.name], *(alike(block, operands) if len(operands) > 1 else operands))


@imports(*("eq", "ne", "ge", "gt", "le", "lt"))
def compare(block: Block, eqn: Any) -> Sequence[Value]:
    """`compare`."""
    return block.b.emit(Compare(eqn.primitive.name.upper()), *alike(block, block.operands(eqn)))
