"""Import of CHLO operations: special functions, broadcasting arithmetic, the greatest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rematc.compiler.frontends.stablehlo.block import REASONS, Block, attributes, imports, literal_of
from rematc.compiler.frontends.stablehlo.elementwise import total_order_key
from rematc.ir.ops.logical import Compare, Select
from rematc.ir.ops.sorting import TopK, take_along
from rematc.ir.registry import OPS
from rematc.ir.types import BOOL, DTYPES, Kind, TensorType
from rematc.ir.values import Array, Value

#: Operations whose op has their name, and no parameters.
SAME = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "conj", "cosh", "digamma", "erf", "erf_inv"),
    *("erfc", "lgamma", "next_after", "polygamma", "sinh", "tan", "zeta"),
)
#: StableHLO's operations that CHLO has with implicit broadcasting.
_BROADCAST = (
    *("add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "multiply", "next_after", "or"),
    *("polygamma", "power", "remainder", "select", "shift_left", "shift_right_arithmetic", "shift_right_logical"),
    *("subtract", "xor", "zeta"),
)


REASONS.update(
    {f"chlo.{name}": "the IR has no such function; write it by ops that it has" for name in SAME if name not in OPS}
)


@imports(*[f"chlo.{name}" for name in SAME if name in OPS])
def same(block: Block, operation: Any) -> Sequence[Value]:
    """The op of the operation's name; the conjugate of reals is themselves."""
    name = operation.name.partition(".")[2]
    operands = block.operands(operation)
    if name == "conj" and not operands[0].type.dtype.is_complex:
        return operands
    return block.b.emit(OPS[name](), *operands)


@imports(*[f"chlo.broadcast_{name}" for name in _BROADCAST])
def broadcast(block: Block, operation: Any) -> Sequence[Value]:
    """The operation of arrays that were broadcast before."""
    name = operation.name.removeprefix("chlo.broadcast_")
    (type,) = block.result_types(operation)
    found = attributes(operation)
    values = block.operands(operation)
    dimensions = found.integers("broadcast_dimensions")
    smaller = min(range(len(values)), key=lambda index: values[index].type.rank)
    operands = [
        _broadcast(block, value, type, dimensions if index == smaller else ()) for index, value in enumerate(values)
    ]
    if name == "compare":
        return block.b.emit(Compare(found.choice("comparison_direction")), *operands)
    if name not in OPS:
        block.fail(operation, f"broadcasts '{name}', which the IR does not have")
    return block.b.emit(OPS[name](), *operands)


def _broadcast(block: Block, x: Value, type: TensorType, dimensions: tuple[int, ...]) -> Value:
    """`x` with the shape of `type`, its dimensions the last ones unless said otherwise, those of size 1 repeated."""
    places = dimensions or tuple(range(type.rank - x.type.rank, type.rank))
    if len(places) != x.type.rank:
        places = tuple(range(type.rank - x.type.rank, type.rank))
    return block.b.broadcast_in_dim(x, type.shape, places)


@imports("chlo.constant_like")
def constant_like(block: Block, operation: Any) -> Sequence[Value]:
    """The constant at every place."""
    (type,) = block.result_types(operation)
    text = str(operation.attributes["value"]).partition(" : ")[0]
    if type.dtype.is_complex:
        block.fail(operation, "of a complex number cannot be imported; use stablehlo.constant")
    number = float(text) if not text.startswith("0x") else _of_bits(text, type)
    scalar = block.literal(literal_of(number, type))
    return [block.b.broadcast_in_dim(scalar, type.shape, ())]


def _of_bits(text: str, type: TensorType) -> float:
    raw = int(text, 16).to_bytes(type.dtype.numpy.itemsize, "little")
    return float(np.frombuffer(raw, type.dtype.numpy)[0])


@imports("chlo.square")
def square(block: Block, operation: Any) -> Sequence[Value]:
    (x,) = block.operands(operation)
    return [block.b.multiply(x, x)]


@imports("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf")
def is_inf(block: Block, operation: Any) -> Sequence[Value]:
    """A comparison with the infinity."""
    (x,) = block.operands(operation)
    b = block.b
    limit = -np.inf if operation.name == "chlo.is_neg_inf" else np.inf
    found = b.compare(b.abs(x) if operation.name == "chlo.is_inf" else x, b.full(x.type, limit), "EQ")
    (type,) = block.result_types(operation)
    return [found if type.dtype is BOOL else b.convert(found, type.dtype)]


@imports("chlo.top_k")
def top_k(block: Block, operation: Any) -> Sequence[Value]:
    """The greatest elements along the last dimension."""
    (x,) = block.operands(operation)
    return greatest(block, x, attributes(operation).integer("k"))


def greatest(block: Block, x: Value, k: int) -> Sequence[Value]:
    """`top_k` where all NaNs are made alike before, as the op takes them; else by the total order, as CHLO does."""
    if not x.type.dtype.is_float:
        return block.b.emit(TopK(k), x)
    alike = block.defined_by(x, Select)
    if alike is not None:
        compared = block.defined_by(alike.operands[0], Compare)
        same = (alike.operands[2],) * 2
        nan = block.constants.get(alike.operands[1])
        if compared and compared.op == Compare("NE") and compared.operands == same and _are_nan(nan):
            return block.b.emit(TopK(k), alike.operands[2])
    _, indices = block.b.emit(TopK(k), total_order_key(block.b, x))
    return [take_along(block.b, x, indices, x.type.rank - 1), indices]


def _are_nan(array: Array | None) -> bool:
    return array is not None and array.dtype.kind != "c" and bool(np.isnan(array.astype(np.float64)).all())


@imports("chlo.mulhi")
def mulhi(block: Block, operation: Any) -> Sequence[Value]:
    """The upper half of the product's bits: of a product twice as wide, or of products of halves."""
    x, y = block.operands(operation)
    dtype = x.type.dtype
    if dtype.bits >= 64:
        return [_mulhi_of_halves(block, x, y)]
    wide = DTYPES[f"{'i' if dtype.kind is Kind.INT else 'u'}{2 * dtype.bits}"]
    product = block.b.multiply(block.b.convert(x, wide), block.b.convert(y, wide))
    shift = "shift_right_arithmetic" if dtype.kind is Kind.INT else "shift_right_logical"
    upper = block.b.emit1(OPS[shift](), product, block.b.full(product.type, dtype.bits))
    return [block.b.convert(upper, dtype)]


def _mulhi_of_halves(block: Block, x: Value, y: Value) -> Value:
    """With x = x1 2³² + x0 and y alike: x1 y1 and what the other three products carry over.

    x0 and y0 are unsigned; of signed numbers x1 and y1 are signed, and so are the shifts (Warren, "Hacker's Delight",
    8-2).
    """
    b, type = block.b, x.type
    half, mask = b.full(type, 32), b.full(type, 2**32 - 1)
    shift = OPS["shift_right_arithmetic" if type.dtype.kind is Kind.INT else "shift_right_logical"]()
    low = OPS["and"]()
    x0, x1 = b.emit1(low, x, mask), b.emit1(shift, x, half)
    y0, y1 = b.emit1(low, y, mask), b.emit1(shift, y, half)
    carried = b.emit1(OPS["shift_right_logical"](), b.multiply(x0, y0), half)
    middle = b.add(b.multiply(x1, y0), carried)
    rest = b.add(b.multiply(x0, y1), b.emit1(low, middle, mask))
    upper = b.add(b.multiply(x1, y1), b.emit1(shift, middle, half))
    return b.add(upper, b.emit1(shift, rest, half))
