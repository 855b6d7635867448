"""Elementwise ops: what they refuse, what their derivatives keep, and integer and rounding laws on any number."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.core import Graph, Op
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.ops.arithmetic import (
    Abs,
    Add,
    Clamp,
    Divide,
    IntegerPower,
    Maximum,
    Minimum,
    Multiply,
    Negate,
    Power,
    Sign,
    Subtract,
)
from rematc.ir.ops.conversion import BitcastConvert, Convert, ReducePrecision
from rematc.ir.ops.logical import And, Compare, CountLeadingZeros, Popcnt, Select, ShiftLeft, ShiftRightLogical
from rematc.ir.ops.rounding import Floor, IsFinite, RoundNearestAfz
from rematc.ir.ops.special import Erf, ErfInv, Polygamma
from rematc.ir.ops.transcendental import Exponential, ExponentialMinusOne, Logistic, Rsqrt, Sqrt, Tan, Tanh
from rematc.ir.types import BF16, BOOL, C64, DTYPES, F16, F32, F64, I8, I32, I64, U8, DType, TensorType
from rematc.ir.values import Value
from rematc.passes.jvp import jvp
from tests.support.samples import graph_of


def vector(dtype: DType, size: int = 4) -> TensorType:
    return TensorType(dtype, (size,))


REFUSED: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (Add(), (vector(F32),), "'add' takes 2 operands, got 1"),
    (Add(), (vector(F32), vector(F32, 5)), "'add' takes operands of one type, got f32[4], f32[5]"),
    (Subtract(), (vector(F32), vector(F64)), "'subtract' takes operands of one type, got f32[4], f64[4]"),
    (Negate(), (vector(BOOL),), "'negate' takes complex, float, int, uint elements, got bool[4]"),
    (Sign(), (vector(U8),), "'sign' takes complex, float, int elements, got u8[4]"),
    (Maximum(), (vector(C64), vector(C64)), "'maximum' takes bool, float, int, uint elements, got c64[4]"),
    (Exponential(), (vector(I32),), "'exponential' takes complex, float elements, got i32[4]"),
    (Erf(), (vector(C64),), "'erf' takes float elements, got c64[4]"),
    (And(), (vector(F32), vector(F32)), "'and' takes bool, int, uint elements, got f32[4]"),
    (ShiftLeft(), (vector(BOOL), vector(BOOL)), "'shift_left' takes int, uint elements, got bool[4]"),
    (IntegerPower(-1), (vector(I32),), "'integer_power' takes complex, float elements, got i32[4]"),
    (
        Clamp(),
        (vector(F32, 5), vector(F32), vector(F32)),
        "'clamp' of f32[4] takes bounds of type f32[4] or f32[], got f32[5]",
    ),
    (
        Clamp(),
        (vector(F32), vector(F32), vector(F64)),
        "'clamp' of f32[4] takes bounds of type f32[4] or f32[], got f64[4]",
    ),
    (Compare("LESS"), (vector(F32), vector(F32)), "'compare' has the directions EQ, NE, GE, GT, LE, LT, got 'LESS'"),
    (Compare("LT"), (vector(C64), vector(C64)), "'compare' LT takes real operands, got c64[4]"),
    (
        Select(),
        (vector(I32), vector(F32), vector(F32)),
        "'select' takes a predicate of type bool[4] or bool[], got i32[4]",
    ),
    (
        Select(),
        (vector(BOOL, 1), vector(F32), vector(F32)),
        "'select' takes a predicate of type bool[4] or bool[], got bool[1]",
    ),
    (Select(), (vector(BOOL), vector(F32), vector(F16)), "'select' takes operands of one type, got f32[4], f16[4]"),
    (BitcastConvert(BOOL), (vector(U8),), "'bitcast_convert' takes numbers, got bool; shift the bits and compare"),
    (BitcastConvert(F64), (vector(F32, 3),), "'bitcast_convert' to f64 takes 2 elements a row, got f32[3]"),
    (BitcastConvert(F64), (TensorType(F32, ()),), "'bitcast_convert' to f64 takes 2 elements a row, got f32[]"),
    (BitcastConvert(I64), (vector(C64),), "'bitcast_convert' of c64[4] to i64: both must be complex, or neither"),
    (
        ReducePrecision(0, 3),
        (vector(F32),),
        "'reduce_precision' takes at least 1 exponent bit and 0 mantissa bits, got 0 and 3",
    ),
    (IsFinite(), (vector(I32),), "'is_finite' takes float elements, got i32[4]"),
]


@pytest.mark.parametrize(("op", "operands", "message"), REFUSED, ids=[message[:48] for *_, message in REFUSED])
def test_operands_that_do_not_fit_are_named(op: Op, operands: tuple[TensorType, ...], message: str) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        op.infer(operands)
    assert caught.value.message == message


def test_polygamma_has_no_derivative_in_its_order() -> None:
    graph = graph_of(Polygamma(), (vector(F32), vector(F32)))
    with pytest.raises(MissingRuleError, match="jvp of 'polygamma' in its order does not exist"):
        jvp(graph, (True, True))


# -- what derivatives keep ---------------------------------------------------------------------------------------------


def residuals(op: Op, dtype: DType, arity: int) -> tuple[Graph, set[Value]]:
    """The jvp graph of an op, and the values that its linear equations read."""
    differentiated = jvp(graph_of(op, (vector(dtype),) * arity), (True,) * arity).graph
    linear, read = set(differentiated.params[arity:]), set[Value]()
    for eqn in differentiated.equations:
        if linear.isdisjoint(eqn.operands):
            continue
        read.update(value for value in eqn.operands if value not in linear)
        linear.update(eqn.results)
    return differentiated, read


def needs_operand(graph: Graph, wanted: set[Value]) -> bool:
    """Whether the wanted values need a primal operand besides the primal result, which the first equation gives."""
    needed = set(wanted)
    for eqn in reversed(graph.equations[1:]):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
    return graph.params[0] in needed


@pytest.mark.parametrize(
    "op",
    [Exponential(), ExponentialMinusOne(), Logistic(), Tan(), Tanh(), Sqrt(), Rsqrt(), ErfInv()],
    ids=lambda op: op.name,
)
def test_the_derivative_needs_the_result_alone(op: Op) -> None:
    """Then the operand need not be kept for the backward pass."""
    assert not needs_operand(*residuals(op, F32, 1))


def test_the_derivative_of_tanh_shares_no_sum_with_the_function() -> None:
    """1 + tanh x stands in a gelu: as a factor of the derivative it would be held until then."""
    graph, read = residuals(Tanh(), F32, 1)
    sums = {eqn.results[0] for eqn in graph.equations if isinstance(eqn.op, Add)}
    assert read
    assert sums.isdisjoint(read)


@pytest.mark.parametrize(
    ("op", "arity"), [(Maximum(), 2), (Minimum(), 2), (Abs(), 1)], ids=["maximum", "minimum", "abs"]
)
def test_choices_keep_booleans(op: Op, arity: int) -> None:
    """A choice is remembered in one byte an element, but for constants, which cost nothing."""
    graph, read = residuals(op, F32, arity)
    constants: set[Value] = set()
    for eqn in graph.equations:
        if constants.issuperset(eqn.operands):
            constants.update(eqn.results)
    assert {value.type.dtype for value in read - constants} == {BOOL}


@pytest.mark.parametrize("op", [Add(), Subtract(), Negate(), Convert(F64)], ids=lambda op: op.name)
def test_linear_ops_keep_nothing(op: Op) -> None:
    arity = 2 if isinstance(op, (Add, Subtract)) else 1
    assert residuals(op, F32, arity)[1] == set()


@pytest.mark.parametrize("op", [Floor(), Sign(), RoundNearestAfz()], ids=lambda op: op.name)
def test_steps_have_symbolic_zeros(op: Op) -> None:
    assert jvp(graph_of(op, (vector(F32),)), (True,)).has_tangent == (False,)


# -- laws on any number ------------------------------------------------------------------------------------------------

INTEGER_TYPES = [dtype for dtype in DTYPES.values() if dtype.is_integer]


def extent(dtype: DType) -> tuple[int, int]:
    low = 0 if dtype.kind.value == "uint" else -(2 ** (dtype.bits - 1))
    return low, low + 2**dtype.bits - 1


def wrapped(value: int, dtype: DType) -> int:
    low, _ = extent(dtype)
    count: int = 2**dtype.bits
    return (value - low) % count + low


@st.composite
def integer_operands(draw: st.DrawFn, count: int) -> tuple[DType, list[int]]:
    dtype = draw(st.sampled_from(INTEGER_TYPES))
    return dtype, [draw(st.integers(*extent(dtype))) for _ in range(count)]


def applied(op: Op, dtype: DType, *operands: float) -> Any:
    """The op's reference on arrays of one element."""
    arrays = [np.array([operand]).astype(dtype.numpy) for operand in operands]
    (result,) = op.reference(arrays)
    assert result.dtype == op.infer([vector(dtype, 1) for _ in arrays])[0].dtype.numpy
    return result[0]


@given(integer_operands(2))
def test_integers_wrap_around(drawn: tuple[DType, list[int]]) -> None:
    dtype, (x, y) = drawn
    assert applied(Add(), dtype, x, y) == wrapped(x + y, dtype)
    assert applied(Subtract(), dtype, x, y) == wrapped(x - y, dtype)
    assert applied(Multiply(), dtype, x, y) == wrapped(x * y, dtype)
    assert applied(Negate(), dtype, x) == wrapped(-x, dtype)


@given(integer_operands(2))
def test_integers_divide_towards_zero(drawn: tuple[DType, list[int]]) -> None:
    dtype, (x, y) = drawn
    towards_zero = -1 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
    assert applied(Divide(), dtype, x, y) == wrapped(towards_zero, dtype)


@given(integer_operands(1), st.integers(0, 40))
def test_integer_powers_are_taken_modulo_the_width(drawn: tuple[DType, list[int]], exponent: int) -> None:
    dtype, (x,) = drawn
    assert applied(IntegerPower(exponent), dtype, x) == wrapped(x**exponent, dtype)
    if exponent <= extent(dtype)[1]:
        assert applied(Power(), dtype, x, exponent) == wrapped(x**exponent, dtype)


@given(integer_operands(2))
def test_bits_are_counted_and_shifted_within_the_width(drawn: tuple[DType, list[int]]) -> None:
    dtype, (x, distance) = drawn
    bits, amount = x % 2**dtype.bits, distance % 2**dtype.bits
    assert applied(Popcnt(), dtype, x) == wrapped(bits.bit_count(), dtype)
    assert applied(CountLeadingZeros(), dtype, x) == wrapped(dtype.bits - bits.bit_length(), dtype)
    is_inside = amount < dtype.bits
    assert applied(ShiftLeft(), dtype, x, distance) == wrapped(bits << amount if is_inside else 0, dtype)
    assert applied(ShiftRightLogical(), dtype, x, distance) == wrapped(bits >> amount if is_inside else 0, dtype)


@given(st.floats(width=32), st.sampled_from([dtype for dtype in INTEGER_TYPES if dtype.bits >= 8]))
def test_floats_become_the_nearest_integer_towards_zero(x: float, dtype: DType) -> None:
    low, high = extent(dtype)
    expected = 0 if math.isnan(x) else low if x <= low else high if x >= high else int(x)
    assert int(applied(Convert(dtype), F32, x)) == expected


@given(st.floats(width=32, allow_subnormal=False))
def test_reduced_precision_is_a_round_trip(x: float) -> None:
    """bfloat16 has float32's exponents; float16 has fewer, and subnormal numbers, which the op has not."""
    single = np.float32(x)
    np.testing.assert_array_equal(applied(ReducePrecision(8, 7), F32, x), single.astype(BF16.numpy).astype(np.float32))
    with np.errstate(over="ignore"):
        half = float(single.astype(np.float16))
    is_normal = abs(half) >= float(ml_dtypes.finfo(np.float16).smallest_normal)  # type: ignore[no-untyped-call]  # unannotated
    if is_normal or half == 0 or math.isnan(half):
        np.testing.assert_array_equal(applied(ReducePrecision(5, 10), F32, x), np.float32(half))


@given(st.floats(width=32))
def test_bits_survive_a_round_trip(x: float) -> None:
    (narrow,) = BitcastConvert(I8).reference([np.array([x], np.float32)])
    (back,) = BitcastConvert(F32).reference([narrow])
    assert narrow.shape == (1, 4)
    np.testing.assert_array_equal(back, np.array([x], np.float32))
