"""A graph in JAX, op by op: a second opinion on values and derivatives, written from JAX's documentation alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from rematc.ir.core import Graph, Op
from rematc.ir.ops import (
    arithmetic,
    conversion,
    convolution,
    dot,
    dynamic,
    indexing,
    inverse,
    logical,
    reduction,
    regions,
    rounding,
    shape,
    special,
    structural,
    transcendental,
    window,
)
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Value
from tests.support.op_samples.indexing import gathered_by_jax, scattered_by_jax

Function = Callable[..., Any]


#: Ops whose fields JAX's function does not need.
def _complementary(x: Any) -> Any:
    """erfc, of 8-bit floats in wider ones: XLA does not lower it."""
    return lax.erfc(x) if x.dtype.itemsize > 1 else lax.erfc(x.astype(np.float32)).astype(x.dtype)


def _acosh(x: Any) -> Any:
    # JAX's derivative is a number where the function is NaN; before 0.12 its sign is wrong for some complex numbers.
    if x.dtype.kind != "c":
        return lax.acosh(x * jnp.where(x < 1, jnp.nan, 1) if x.dtype.kind == "f" else x)
    same = jnp.log(x + jnp.sqrt(x + 1) * jnp.sqrt(x - 1))
    return same + lax.stop_gradient(lax.acosh(x) - same)


def _sign(x: Any) -> Any:
    # Of complex numbers its derivative is zero before jax 0.12.
    if x.dtype.kind != "c":
        return lax.sign(x)
    size = jnp.where(x == 0, 1, lax.abs(jnp.where(x == 0, 1, x)))
    return x / size


_PLAIN: dict[type[Op], Function] = {
    arithmetic.Negate: lax.neg,
    arithmetic.Add: lax.add,
    arithmetic.Subtract: lax.sub,
    arithmetic.Multiply: lax.mul,
    arithmetic.Divide: lax.div,
    # JAX's derivative in the exponent is NaN where the base is zero, ours is zero; so is that of 0^0 in the base.
    arithmetic.Power: lambda x, y: lax.pow(
        jnp.where((x == 0) & (y == 0), lax.stop_gradient(x), x), jnp.where(x == 0, lax.stop_gradient(y), y)
    ),
    arithmetic.Maximum: lax.max,
    arithmetic.Minimum: lax.min,
    arithmetic.Sign: _sign,
    arithmetic.Abs: lax.abs,
    arithmetic.Clamp: lambda low, x, high: _clamped(jnp.broadcast_to(low, x.shape), x, jnp.broadcast_to(high, x.shape)),
    dynamic.DynamicUpdateSlice: lambda x, update, *start: lax.dynamic_update_slice(
        x, update, start, allow_negative_indices=False
    ),
    inverse.Asin: lax.asin,
    inverse.Acos: lax.acos,
    inverse.Atan: lax.atan,
    inverse.Atan2: lax.atan2,
    inverse.Sinh: lax.sinh,
    inverse.Cosh: lax.cosh,
    inverse.Asinh: lax.asinh,
    inverse.Acosh: _acosh,
    inverse.Atanh: lax.atanh,
    logical.And: lax.bitwise_and,
    logical.Or: lax.bitwise_or,
    logical.Xor: lax.bitwise_xor,
    logical.Not: lax.bitwise_not,
    logical.Select: lambda predicate, x, y: lax.select(jnp.broadcast_to(predicate, x.shape), x, y),
    logical.ShiftLeft: lax.shift_left,
    logical.ShiftRightArithmetic: lax.shift_right_arithmetic,
    logical.ShiftRightLogical: lax.shift_right_logical,
    # XLA counts the bits of 4-bit signed integers in the 8 that it widens them to.
    logical.Popcnt: lambda x: (
        lax.population_count(x.astype(x.dtype.name.replace("int4", "uint4"))).astype(x.dtype)
        if x.dtype.name == "int4"
        else lax.population_count(x)
    ),
    logical.CountLeadingZeros: lax.clz,
    rounding.Floor: lax.floor,
    rounding.Ceil: lax.ceil,
    rounding.RoundNearestEven: lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    rounding.RoundNearestAfz: lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    rounding.Remainder: lax.rem,
    rounding.NextAfter: lax.nextafter,
    rounding.IsFinite: lax.is_finite,
    special.Erf: lax.erf,
    special.Erfc: _complementary,
    special.ErfInv: lax.erf_inv,
    special.Lgamma: lax.lgamma,
    special.Digamma: lax.digamma,
    special.Polygamma: lax.polygamma,
    structural.Name: lambda x: x,
    structural.StopGradient: lax.stop_gradient,
    structural.OptimizationBarrier: lambda *xs: xs,
    transcendental.Exponential: lax.exp,
    transcendental.ExponentialMinusOne: lax.expm1,
    transcendental.Log: lax.log,
    transcendental.LogPlusOne: lax.log1p,
    transcendental.Logistic: lax.logistic,
    transcendental.Sine: lax.sin,
    transcendental.Cosine: lax.cos,
    transcendental.Tan: lax.tan,
    transcendental.Tanh: lax.tanh,
    transcendental.Sqrt: lax.sqrt,
    transcendental.Rsqrt: lax.rsqrt,
    transcendental.Cbrt: lax.cbrt,
}

#: Ops whose fields are among the function's arguments.
_WITH_FIELDS: dict[type[Op], Callable[[Any], Function]] = {
    arithmetic.IntegerPower: lambda op: lambda x: lax.integer_pow(x, op.exponent),
    Case: lambda op: lambda index, *xs: _branched(op, index, xs),
    conversion.Convert: lambda op: lambda x: _converted(x, op.dtype.numpy),
    conversion.BitcastConvert: lambda op: lambda x: lax.bitcast_convert_type(x, op.dtype.numpy),
    conversion.ReducePrecision: lambda op: lambda x: lax.reduce_precision(x, op.exponent_bits, op.mantissa_bits),
    convolution.Convolution: lambda op: lambda x, kernel: _convolved(op, x, kernel),
    dot.DotGeneral: lambda op: lambda x, y: lax.dot_general(x, y, (op.contract, op.batch)),
    dynamic.DynamicSlice: lambda op: (
        lambda x, *start: lax.dynamic_slice(x, start, op.slice_sizes, allow_negative_indices=False)
    ),
    indexing.Gather: gathered_by_jax,
    **dict.fromkeys(
        (
            indexing.Scatter,
            indexing.ScatterAdd,
            indexing.ScatterMultiply,
            indexing.ScatterMinimum,
            indexing.ScatterMaximum,
        ),
        scattered_by_jax,
    ),
    logical.Compare: lambda op: getattr(lax, op.direction.lower()),
    Scan: lambda op: lambda *xs: _scanned(op, xs),
    While: lambda op: lambda *xs: _repeated(op, xs),
    reduction.ReduceSum: lambda op: lambda x: lax.reduce_sum(x, op.dimensions),
    reduction.ReduceProd: lambda op: lambda x: lax.reduce_prod(x, op.dimensions),
    reduction.ReduceMax: lambda op: lambda x: lax.reduce_max(x, op.dimensions),
    reduction.ReduceMin: lambda op: lambda x: lax.reduce_min(x, op.dimensions),
    reduction.ReduceAnd: lambda op: lambda x: lax.reduce_and(x, op.dimensions),
    reduction.ReduceOr: lambda op: lambda x: lax.reduce_or(x, op.dimensions),
    reduction.Argmax: lambda op: lambda x: lax.argmax(x, op.dimension, op.index_dtype.numpy),
    reduction.Argmin: lambda op: lambda x: lax.argmin(x, op.dimension, op.index_dtype.numpy),
    regions.Call: lambda op: lambda *xs: tuple(evaluate(op.body, xs)),
    regions.Checkpoint: lambda op: jax.checkpoint(lambda *xs: tuple(evaluate(op.body, xs))),
    shape.BroadcastInDim: lambda op: lambda x: lax.broadcast_in_dim(x, op.shape, op.dimensions),
    shape.Reshape: lambda op: lambda x: lax.reshape(x, op.shape),
    shape.Transpose: lambda op: lambda x: lax.transpose(x, op.permutation),
    shape.Reverse: lambda op: lambda x: lax.rev(x, op.dimensions),
    shape.Slice: lambda op: lambda x: lax.slice(x, op.start, op.limit, op.strides),
    shape.Pad: lambda op: lambda x, fill: lax.pad(x, fill, tuple(zip(op.low, op.high, op.interior, strict=True))),
    shape.Concatenate: lambda op: lambda *xs: lax.concatenate(xs, op.dimension),
    structural.Constant: lambda op: lambda: jnp.asarray(op.array),
    structural.Iota: lambda op: lambda: lax.broadcasted_iota(op.type.dtype.numpy, op.type.shape, op.dimension),
    window.ReduceWindowSum: lambda op: lambda x: _windowed(op, x, lax.add, 0),
    window.ReduceWindowMax: lambda op: lambda x: _windowed(op, x, lax.max, _lowest(x.dtype)),
    window.ReduceWindowMin: lambda op: lambda x: _windowed(op, x, lax.min, _highest(x.dtype)),
}

#: Ops that JAX has no public function for.
INEXPRESSIBLE: dict[type[Op], str] = {
    special.ErfcInv: "JAX has none",
    special.ComplexErf: "JAX has none",
    special.ComplexErfc: "JAX has none",
    special.Zeta: "JAX has no derivative of it",
    structural.ToMemory: "no fuzzed program has it",
    window.SelectAndGather: "JAX has it only inside the derivative of reduce_window",
    window.SelectAndScatter: "JAX has it only inside the derivative of reduce_window",
}


def is_expressible(graph: Graph) -> bool:
    """Whether JAX has every op of the graph."""
    return all(
        (type(eqn.op) in _PLAIN or type(eqn.op) in _WITH_FIELDS) and all(map(is_expressible, eqn.op.regions()))
        for eqn in graph.equations
    )


def known() -> frozenset[type[Op]]:
    """The ops that are evaluated."""
    return frozenset(_PLAIN) | frozenset(_WITH_FIELDS)


def evaluate(graph: Graph, arguments: Sequence[Any]) -> list[Any]:
    """The graph's results, by JAX."""
    env: dict[Value, Any] = dict(zip(graph.params, arguments, strict=True))
    for eqn in graph.equations:
        plain = _PLAIN.get(type(eqn.op))
        function = plain or _WITH_FIELDS[type(eqn.op)](eqn.op)
        results = function(*[env[value] for value in eqn.operands])
        if not isinstance(results, (tuple, list)):
            results = (results,)
        env.update(zip(eqn.results, results, strict=True))
    return [env[value] for value in graph.results]


def _branched(op: Case, index: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    last = len(op.branches) - 1
    functions = [lambda *xs, graph=graph: tuple(evaluate(graph, xs)) for graph in op.branches]
    inside = jnp.where((index < 0) | (index > last), last, index)
    found: tuple[Any, ...] = lax.switch(inside, functions, *operands)
    return found


def _scanned(op: Scan, operands: Sequence[Any]) -> tuple[Any, ...]:
    consts, carry, xs = op.parts(operands)

    def step(carried: tuple[Any, ...], slices: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        results = evaluate(op.body, [*consts, *carried, *slices])
        return tuple(results[: op.carry]), tuple(results[op.carry :])

    last, stacks = lax.scan(step, carry, xs, op.length, op.is_reversed, op.unroll)
    return (*last, *stacks)


def _repeated(op: While, operands: Sequence[Any]) -> tuple[Any, ...]:
    cond_consts, consts, carry = op.parts(operands)
    found: tuple[Any, ...] = lax.while_loop(
        lambda carried: evaluate(op.cond, [*cond_consts, *carried])[0],
        lambda carried: tuple(evaluate(op.body, [*consts, *carried])),
        carry,
    )
    return found


def _clamped(low: Any, x: Any, high: Any) -> Any:
    # XLA has no clamp of booleans.
    return lax.min(lax.max(low, x), high) if x.dtype == np.bool_ else lax.clamp(low, x, high)


def _converted(x: Any, dtype: Any) -> Any:
    if np.dtype(dtype) == np.bool_:
        return lax.ne(x, jnp.zeros((), x.dtype))
    if jnp.iscomplexobj(x) and np.dtype(dtype).kind != "c":
        x = lax.real(x)
    return lax.convert_element_type(x, dtype)


def _convolved(op: convolution.Convolution, x: Any, kernel: Any) -> Any:
    numbers = lax.ConvDimensionNumbers(op.dimensions.input, op.dimensions.kernel, op.dimensions.output)
    turned = [d for d, is_set in zip(op.dimensions.kernel[2:], op.window_reversal, strict=True) if is_set]
    return lax.conv_general_dilated(
        x,
        lax.rev(kernel, turned),
        op.window_strides,
        op.padding,
        op.lhs_dilation,
        op.rhs_dilation,
        numbers,
        op.feature_group_count,
        op.batch_group_count,
    )


def _windowed(op: window.WindowReduction, x: Any, function: Function, initial: Any) -> Any:
    return lax.reduce_window(
        x,
        np.asarray(initial, x.dtype)[()],
        function,
        op.window_dimensions,
        op.window_strides,
        op.padding,
        op.base_dilations,
        op.window_dilations,
    )


def _lowest(dtype: Any) -> Any:
    return _bounds(dtype)[0]


def _highest(dtype: Any) -> Any:
    return _bounds(dtype)[1]


def _bounds(dtype: Any) -> tuple[Any, Any]:
    if jnp.issubdtype(dtype, np.floating):
        of_floats: Any = ml_dtypes.finfo
        largest = float(of_floats(dtype).max)
        has_infinity = np.isinf(np.asarray(np.inf, dtype).astype(np.float64))
        return (-np.inf, np.inf) if has_infinity else (-largest, largest)
    limits: Any = ml_dtypes.iinfo
    return int(limits(dtype).min), int(limits(dtype).max)
