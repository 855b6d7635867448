"""Export of reductions, of windows and of running combinations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops import cumulative, folding, reduction, window
from rematc.ir.types import F32, dtype_of_numpy
from rematc.lowering.jax_export.evaluating import evaluate, exports, lax, with_own_jvp
from rematc.lowering.jax_export.opaque import opaque

_REDUCTIONS: dict[type[Op], Callable[..., Any]] = {
    reduction.ReduceSum: lax.reduce_sum,
    reduction.ReduceMax: lax.reduce_max,
    reduction.ReduceMin: lax.reduce_min,
    reduction.ReduceAnd: lax.reduce_and,
    reduction.ReduceOr: lax.reduce_or,
}


@exports(*_REDUCTIONS)
def reduce(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reduce_sum` and its kin."""
    assert isinstance(eqn.op, reduction.Reduction)
    return (_REDUCTIONS[type(eqn.op)](operands[0], eqn.op.dimensions),)


@exports(reduction.ReduceProd)
def reduce_prod(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reduce_prod`; of floats of 16 bits and less in float32, rounded once."""
    assert isinstance(eqn.op, reduction.ReduceProd)
    (x,) = operands
    dtype = eqn.operands[0].type.dtype
    if not dtype.is_float or dtype.bits >= F32.bits:
        return (lax.reduce_prod(x, eqn.op.dimensions),)
    wide = lax.reduce_prod(lax.convert_element_type(x, F32.numpy), eqn.op.dimensions)
    return (lax.convert_element_type(wide, dtype.numpy),)


@exports(reduction.Argmax)
def argmax(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.argmax`."""
    assert isinstance(eqn.op, reduction.Argmax)
    return (lax.argmax(operands[0], eqn.op.dimension, eqn.op.index_dtype.numpy),)


@exports(reduction.Argmin)
def argmin(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.argmin`."""
    assert isinstance(eqn.op, reduction.Argmin)
    return (lax.argmin(operands[0], eqn.op.dimension, eqn.op.index_dtype.numpy),)


# -- functions of two elements ----------------------------------------------------------------------------------------


def _combination(body: Graph) -> Callable[[Any, Any], Any]:
    def combine(left: Any, right: Any) -> Any:
        return tuple(evaluate(body, (*left, *right)))

    return combine


@exports(folding.Reduce)
def fold(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reduce` of a function, which JAX differentiates for one operand only."""
    assert isinstance(eqn.op, folding.Reduce)
    return with_own_jvp(_folded(eqn.op), eqn, operands)


@functools.lru_cache(maxsize=256)
def _folded(op: folding.Reduce) -> Callable[..., Sequence[Any]]:
    def run(*operands: Any) -> Sequence[Any]:
        count = len(operands) // 2
        return tuple(lax.reduce(operands[:count], operands[count:], _combination(op.body), op.dimensions))

    return run


@exports(folding.ReduceWindow)
def fold_windows(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reduce_window` of a function."""
    assert isinstance(eqn.op, folding.ReduceWindow)
    return with_own_jvp(_folded_windows(eqn.op), eqn, operands)


@functools.lru_cache(maxsize=256)
def _folded_windows(op: folding.ReduceWindow) -> Callable[..., Sequence[Any]]:
    def run(*operands: Any) -> Sequence[Any]:
        count = len(operands) // 2
        found = lax.reduce_window(
            operands[:count],
            operands[count:],
            _combination(op.body),
            op.window_dimensions,
            op.window_strides,
            op.padding,
            op.base_dilations,
            op.window_dilations,
        )
        return tuple(found)

    return run


# -- windows ----------------------------------------------------------------------------------------------------------


_OF_WINDOW: dict[type[Op], Callable[..., Any]] = {
    window.ReduceWindowSum: lax.add,
    window.ReduceWindowMax: lax.max,
    window.ReduceWindowMin: lax.min,
}


@exports(*_OF_WINDOW)
def reduce_window(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.reduce_window`; JAX differentiates no extremum of dilated windows."""
    assert isinstance(eqn.op, window.WindowReduction)
    if isinstance(eqn.op, window.ReduceWindowSum):
        return _windowed(eqn.op)(*operands)
    return with_own_jvp(_windowed(eqn.op), eqn, operands)


@functools.lru_cache(maxsize=256)
def _windowed(op: window.WindowReduction) -> Callable[..., Sequence[Any]]:
    def run(x: Any) -> Sequence[Any]:
        dtype = dtype_of_numpy(np.dtype(x.dtype))
        assert dtype is not None, f"{x.dtype} is the element type of no tensor"
        neutral = op.reduction(()).neutral(dtype)
        found = lax.reduce_window(
            x,
            neutral,
            _OF_WINDOW[type(op)],
            op.window_dimensions,
            op.window_strides,
            op.padding,
            op.base_dilations,
            op.window_dilations,
        )
        return (found,)

    return run


@exports(window.SelectAndGather, window.SelectAndScatter)
def select(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The primitives that JAX's derivative of pooling is made of."""
    return opaque(eqn, operands)


# -- running combinations ---------------------------------------------------------------------------------------------

_RUNNING: dict[type[Op], Callable[..., Any]] = {
    cumulative.CumulativeSum: lax.cumsum,
    cumulative.CumulativeProduct: lax.cumprod,
    cumulative.CumulativeMax: lax.cummax,
    cumulative.CumulativeMin: lax.cummin,
    cumulative.CumulativeLogsumexp: lax.cumlogsumexp,
}


@exports(cumulative.CumulativeSum)
def cumulative_sum(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.cumsum`."""
    assert isinstance(eqn.op, cumulative.CumulativeSum)
    return (lax.cumsum(operands[0], eqn.op.dimension, eqn.op.is_reversed),)


@exports(
    cumulative.CumulativeProduct,
    cumulative.CumulativeMax,
    cumulative.CumulativeMin,
    cumulative.CumulativeLogsumexp,
)
def running(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.cumprod` and its kin; the derivative is ours, the first of equal extrema has it."""
    assert isinstance(eqn.op, cumulative.Cumulative)
    if eqn.operands[0].type.dtype.is_bool:
        return opaque(eqn, operands)
    return with_own_jvp(_running(eqn.op), eqn, operands)


@functools.lru_cache(maxsize=256)
def _running(op: cumulative.Cumulative) -> Callable[..., Sequence[Any]]:
    return lambda x: (_RUNNING[type(op)](x, op.dimension, op.is_reversed),)


@exports(cumulative.LinearRecurrence)
def linear_recurrence(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.associative_scan` of the maps y -> a y + x."""
    assert isinstance(eqn.op, cumulative.LinearRecurrence)

    def after(first: Any, second: Any) -> Any:
        return lax.mul(second[0], first[0]), lax.add(lax.mul(second[0], first[1]), second[1])

    if not eqn.results[0].type.size:
        return (operands[1],)
    _, found = lax.associative_scan(after, tuple(operands), eqn.op.is_reversed, eqn.op.dimension)
    return (jax.numpy.asarray(found),)
