"""Import of elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.jax.custom_derivatives import with_own_jvp
from rematc.compiler.frontends.stablehlo.elementwise import total_order_key
from rematc.ir.core import Op
from rematc.ir.ops.arithmetic import Clamp, IntegerPower, Maximum, Minimum, Sign
from rematc.ir.ops.bessel import BesselIe
from rematc.ir.ops.conversion import BitcastConvert, ReducePrecision
from rematc.ir.ops.inverse import Atan2
from rematc.ir.ops.logical import Compare
from rematc.ir.ops.rounding import NextAfter, RoundNearestAfz, RoundNearestEven
from rematc.ir.ops.structural import StopGradient
from rematc.ir.ops.transcendental import Exponential
from rematc.ir.registry import OPS
from rematc.ir.types import BOOL, Kind
from rematc.ir.values import Value
from rematc.lowering.jax_internals.settings import is_jaxlib_before

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
    "bessel_i1e": "bessel_i1e",
    "cbrt": "cbrt",
    "digamma": "digamma",
    "igamma": "incomplete_gamma",
    "igamma_grad_a": "incomplete_gamma_slope",
    "igammac": "incomplete_gamma_complement",
    "polygamma": "polygamma",
    "regularized_incomplete_beta": "incomplete_beta",
    "zeta": "zeta",
    "div": "divide",
    "erf": "erf",
    "erf_inv": "erf_inv",
    "erfc": "erfc",
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
    "not": "not",
    "or": "or",
    "population_count": "popcnt",
    "real": "real",
    "rem": "remainder",
    "rsqrt": "rsqrt",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "shift_right_logical": "shift_right_logical",
    "sin": "sine",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "sub": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "xor",
}
_OPS: dict[str, Op] = {name: OPS[op]() for name, op in _SAME.items()}


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


@imports("exp")
def exponential(block: Block, eqn: Any) -> Sequence[Value]:
    """`exponential`, as accurate as can be where JAX asks for that: in its own derivatives of `erf` and `erfc`."""
    asked = eqn.params.get("accuracy")
    name = getattr(asked, "name", asked)
    if name not in (None, "DEFAULT", "HIGHEST"):
        block.fail(eqn, f"has accuracy = {asked}, which has no op; leave it out")
    return block.b.emit(Exponential(name == "HIGHEST"), *block.operands(eqn))


@imports(*("eq", "ne", "ge", "gt", "le", "lt"))
def compare(block: Block, eqn: Any) -> Sequence[Value]:
    """`compare`."""
    return block.b.emit(Compare(eqn.primitive.name.upper()), *alike(block, block.operands(eqn)))


@imports("eq_to", "le_to", "lt_to")
def compare_in_total_order(block: Block, eqn: Any) -> Sequence[Value]:
    """`compare`, of floats in IEEE 754's total order: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""
    x, y = alike(block, block.operands(eqn))
    if x.type.dtype.is_float:
        x, y = total_order_key(block.b, x), total_order_key(block.b, y)
    return block.b.emit(Compare(eqn.primitive.name.removesuffix("_to").upper()), x, y)


@imports("max", "min")
def extremum(block: Block, eqn: Any) -> Sequence[Value]:
    """`maximum` or `minimum`; complex numbers compare by their real parts first."""
    x, y = alike(block, block.operands(eqn))
    is_max = eqn.primitive.name == "max"
    if not x.type.dtype.is_complex:
        return block.b.emit(Maximum() if is_max else Minimum(), x, y)
    return [_of_complex(block, "GT" if is_max else "LT", x, y)]


def _of_complex(block: Block, direction: str, x: Value, y: Value) -> Value:
    """The greater or lesser of complex numbers; equal ones share the derivative in halves, as of real numbers.

    Where neither wins because a part is NaN it is y, without a derivative if it is NaN itself.
    """
    b = block.b
    (x_real, x_imag), (y_real, y_imag) = parts = [(b.real(z), b.imag(z)) for z in (x, y)]
    same_real = b.compare(x_real, y_real, "EQ")
    is_tie = b.logical_and(same_real, b.compare(x_imag, y_imag, "EQ"))
    half_real, half_imag = [b.add(*[b.scale(part, 0.5) for part in pair]) for pair in zip(*parts, strict=True)]

    def wins(real: Value, imag: Value, other_real: Value, other_imag: Value) -> Value:
        later = b.logical_and(same_real, b.compare(imag, other_imag, direction))
        return b.logical_or(b.compare(real, other_real, direction), later)

    rest = b.select(b.compare(y, y, "NE"), b.emit1(StopGradient(), y), y)
    rest = b.select(is_tie, b.from_parts(half_real, half_imag), rest)
    return b.select(wins(x_real, x_imag, y_real, y_imag), x, rest)


@imports("sign")
def sign(block: Block, eqn: Any) -> Sequence[Value]:
    """`sign`; of unsigned integers, whether they are not 0. Its slope off the real line is 0 in JAX before 0.12."""
    (x,) = block.operands(eqn)
    if x.type.dtype.is_complex and is_jaxlib_before(0, 12):
        x = block.b.emit1(StopGradient(), x)
    if x.type.dtype.kind is not Kind.UINT:
        return block.b.emit(Sign(), x)
    return [block.b.convert(block.b.compare(x, block.b.zeros(x.type), "NE"), x.type.dtype)]


@imports("round")
def round_(block: Block, eqn: Any) -> Sequence[Value]:
    """Halves go away from zero, or to the even integer."""
    is_even = int(eqn.params["rounding_method"]) == 1
    return block.b.emit(RoundNearestEven() if is_even else RoundNearestAfz(), *block.operands(eqn))


@imports("nextafter")
def nextafter(block: Block, eqn: Any) -> Sequence[Value]:
    """`next_after`, whose derivative is JAX's: none before 0.12."""
    return with_own_jvp(block, eqn, lambda inner, operands: inner.b.emit(NextAfter(), *alike(inner, operands)))


@imports("square")
def square(block: Block, eqn: Any) -> Sequence[Value]:
    """x^2."""
    return block.b.emit(IntegerPower(2), *block.operands(eqn))


@imports("one_minus_square")
def one_minus_square(block: Block, eqn: Any) -> Sequence[Value]:
    """(1 + x)(1 - x)."""
    (x,) = block.operands(eqn)
    one = block.b.full(x.type, 1)
    return [block.b.multiply(block.b.add(one, x), block.b.subtract(one, x))]


@imports("polynomial")
def polynomial(block: Block, eqn: Any) -> Sequence[Value]:
    """Horner's rule; the coefficients come from the constant one on."""
    x, *coefficients = alike(block, block.operands(eqn))
    found = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        found = block.b.add(block.b.multiply(found, x), coefficient)
    return [found]


@imports("integer_pow")
def integer_pow(block: Block, eqn: Any) -> Sequence[Value]:
    """`integer_power`; x^0 is 1 whatever x."""
    (x,) = block.operands(eqn)
    exponent = int(eqn.params["y"])
    return [block.b.full(x.type, 1)] if exponent == 0 else block.b.emit(IntegerPower(exponent), x)


@imports("pow")
def pow_(block: Block, eqn: Any) -> Sequence[Value]:
    """`power`, an integer exponent as a number of the base's type."""
    x, y = block.operands(eqn)
    return [block.b.power(*alike(block, (x, block.b.convert(y, x.type.dtype))))]


@imports("exp2")
def exp2(block: Block, eqn: Any) -> Sequence[Value]:
    """e^(x log 2)."""
    (x,) = block.operands(eqn)
    return [block.b.exponential(block.b.scale(x, math.log(2)))]


@imports("log2")
def log2(block: Block, eqn: Any) -> Sequence[Value]:
    """log(x) / log(2)."""
    (x,) = block.operands(eqn)
    logarithm = block.b.log(x)
    return [block.b.divide(logarithm, block.b.full(x.type, math.log(2)))]


@imports("atan2")
def atan2(block: Block, eqn: Any) -> Sequence[Value]:
    """`atan2`; of complex numbers -i log((x + i y) / sqrt(x² + y²))."""
    y, x = alike(block, block.operands(eqn))
    if not x.type.dtype.is_complex:
        return block.b.emit(Atan2(), y, x)
    b = block.b
    root = b.sqrt(b.add(b.multiply(x, x), b.multiply(y, y)))
    return [b.scale(b.log(b.divide(b.add(x, b.scale(y, 1j)), root)), -1j)]


@imports("bessel_i0e")
def bessel_i0e(block: Block, eqn: Any) -> Sequence[Value]:
    """The exponentially scaled modified Bessel function of order 0."""
    (x,) = block.operands(eqn)
    return block.b.emit(BesselIe(), block.b.zeros(x.type), x)


@imports("conj")
def conj(block: Block, eqn: Any) -> Sequence[Value]:
    """`conj`; real numbers become complex ones."""
    (x,) = block.operands(eqn)
    if x.type.dtype.is_complex:
        return [block.b.conj(x)]
    return [block.b.from_parts(x, block.b.zeros(x.type))]


@imports("clamp")
def clamp(block: Block, eqn: Any) -> Sequence[Value]:
    """`clamp`."""
    return block.b.emit(Clamp(), *block.operands(eqn))


@imports("select_n")
def select_n(block: Block, eqn: Any) -> Sequence[Value]:
    """`select`; of more than two cases by halves. An index outside chooses the nearest case."""
    which, *cases = block.operands(eqn)
    if len(cases) == 1:
        return cases
    if which.type.dtype is BOOL:
        return [block.b.select(which, cases[1], cases[0])]
    return [_chosen(block, which, 0, cases)]


def _chosen(block: Block, which: Value, first: int, cases: Sequence[Value]) -> Value:
    if len(cases) == 1:
        return cases[0]
    middle = len(cases) // 2
    is_lower = block.b.compare(which, block.b.full(which.type, first + middle), "LT")
    lower, upper = _chosen(block, which, first, cases[:middle]), _chosen(block, which, first + middle, cases[middle:])
    return block.b.select(is_lower, lower, upper)


@imports("convert_element_type")
def convert_element_type(block: Block, eqn: Any) -> Sequence[Value]:
    """`convert`; complex numbers become real by their real parts."""
    (x,) = block.operands(eqn)
    dtype = block.result_type(eqn).dtype
    if x.type.dtype.is_complex and not dtype.is_complex and dtype is not BOOL:
        x = block.b.real(x)
    return [block.b.convert(x, dtype)]


@imports("bitcast_convert_type")
def bitcast_convert_type(block: Block, eqn: Any) -> Sequence[Value]:
    """`bitcast_convert`, whose derivative is 0 in JAX."""
    (x,) = block.operands(eqn)
    type = block.result_type(eqn)
    if x.type == type:
        return block.b.emit(StopGradient(), x)
    return block.b.emit(BitcastConvert(type.dtype), block.b.emit1(StopGradient(), x))


@imports("reduce_precision")
def reduce_precision(block: Block, eqn: Any) -> Sequence[Value]:
    """`reduce_precision`; of complex numbers, of both parts."""
    (x,) = block.operands(eqn)
    op = ReducePrecision(int(eqn.params["exponent_bits"]), int(eqn.params["mantissa_bits"]))
    if not x.type.dtype.is_complex:
        return block.b.emit(op, x)
    return [block.b.from_parts(block.b.emit1(op, block.b.real(x)), block.b.emit1(op, block.b.imag(x)))]


@imports("stop_gradient")
def stop_gradient(block: Block, eqn: Any) -> Sequence[Value]:
    """`stop_gradient`."""
    return block.b.emit(StopGradient(), *block.operands(eqn))


@imports("copy", "copy_p")
def copy(block: Block, eqn: Any) -> Sequence[Value]:
    """The operand: XLA copies where it has to."""
    return block.operands(eqn)


@imports("tie")
def tie(block: Block, eqn: Any) -> Sequence[Value]:
    """The second operand."""
    return block.operands(eqn)[1:]


@imports("dce_sink")
def dce_sink(block: Block, eqn: Any) -> Sequence[Value]:
    """Nothing: what it keeps alive is not used."""
    return []


@imports("empty", "empty2")
def empty(block: Block, eqn: Any) -> Sequence[Value]:
    """Zeros."""
    return [block.b.zeros(block.result_type(eqn))]
