"""Functions that make arrays after others, and those that ask only about types: they need no elements.

The parameters are those of the NumPy functions of the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    as_operand,
    broadcast_operand,
    dispatching,
    dtype_of,
    fail,
    here,
    normalize_axis,
    promote,
    shape_of,
    static_shape,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.outputs import check_target, write
from rematc.compiler.frontends.numpy.promotion import NumpyDType, kind_of, result_dtype
from rematc.compiler.frontends.numpy.reshaping import reshape
from rematc.compiler.frontends.numpy.views import array_of, is_dense, itself, perhaps_view_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.rounding import Floor
from rematc.ir.types import F64, TensorType
from rematc.ir.values import Value

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any


def _like(a: ArrayLike, dtype: object, shape: object) -> TensorType:
    x = as_operand(a)
    sizes = shape_of(x) if shape is None else static_shape(shape, "an array")
    return TensorType(as_ir_dtype(dtype_of(x) if dtype is None else dtype), sizes)


def _filled(value: int) -> Callable[..., Tracer]:
    def apply(
        a: ArrayLike,
        dtype: object = None,
        order: str = "K",
        subok: bool = True,
        shape: object = None,
        *,
        device: object = None,
    ) -> Tracer:
        return array_of(here().full(_like(a, dtype, shape), value), is_dense=order == "C")

    return apply


zeros_like = _filled(0)
ones_like = _filled(1)


def full_like(
    a: ArrayLike,
    fill_value: ArrayLike,
    dtype: object = None,
    order: str = "K",
    subok: bool = True,
    shape: object = None,
    *,
    device: object = None,
) -> Tracer:
    """As np.full_like."""
    type = _like(a, dtype, shape)
    return array_of(broadcast_operand(as_operand(fill_value), type.dtype, type.shape), is_dense=order == "C")


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: object = None,
    axis: object = 0,
    *,
    device: object = None,
) -> Tracer | tuple[Tracer, Tracer]:
    """As np.linspace, between ends of which one is traced."""
    b = here()
    (first, last), common = promote(start, stop)
    computed = common if common.is_inexact else F64
    shape = np.broadcast_shapes(first.type.shape, last.type.shape)
    first, last = broadcast_operand(wrap(first), computed, shape), broadcast_operand(wrap(last), computed, shape)
    steps = num - 1 if endpoint else num
    whole = TensorType(computed, (num, *shape))
    dims = range(1, 1 + len(shape))
    step = b.divide(b.subtract(last, first), b.full(first.type, steps if steps > 0 else float("nan")))
    result = b.broadcast_in_dim(first, whole.shape, dims)
    if steps > 0:
        result = b.add(b.multiply(b.iota(whole, 0), b.broadcast_in_dim(step, whole.shape, dims)), result)
    if endpoint and num > 1:
        # The end is exactly `stop`, whatever the rounding of the steps.
        body = b.slice(result, (0,) * whole.rank, (num - 1, *shape))
        result = b.concatenate([body, b.reshape(last, (1, *shape))], 0)
    target = normalize_axis(axis, whole.rank, "np.linspace")
    order = [*range(1, whole.rank)]
    order.insert(target, 0)
    found = computed if dtype is None else as_ir_dtype(dtype)
    if found.is_integer and computed.is_float:
        result = b.emit1(Floor(), result)  # NumPy's rounding here, where a conversion cuts towards zero
    line = wrap(b.convert(b.transpose(result, order), found))
    return (line, wrap(step)) if retstep else line


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: object = None,
    axis: object = 0,
) -> Traced:
    """As np.logspace, between exponents, or of a base, of which one is traced."""
    root: Traced = as_operand(base)
    rank = len(np.broadcast_shapes(shape_of(start), shape_of(stop), shape_of(root)))
    ends: list[Traced] = [_of_rank(x, rank) for x in (start, stop)]
    exponents: Traced = linspace(ends[0], ends[1], num, endpoint, axis=axis)
    if shape_of(root):
        root = np.expand_dims(_of_rank(root, rank), normalize_axis(axis, rank + 1, "np.logspace"))
    line: Traced = root**exponents
    return line if dtype is None else line.astype(dtype)


def _of_rank(x: ArrayLike, rank: int) -> Traced:
    given: Traced = as_operand(x)
    shape = shape_of(given)
    return given if len(shape) in (0, rank) else np.reshape(given, (1,) * (rank - len(shape)) + shape)


def geomspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: object = 0
) -> Traced:
    """As np.geomspace, between ends of which one is traced."""
    (first, last), _ = promote(start, stop)
    common = np.result_type(first.type.dtype.numpy, last.type.dtype.numpy, float)
    shape = np.broadcast_shapes(first.type.shape, last.type.shape)
    low, high = [broadcast_operand(wrap(x), as_ir_dtype(common), shape) for x in (first, last)]
    # A line between logarithms: the ends are divided by the sign of the first one, so that they have some.
    sign: Traced = dispatching.sign(wrap(low))
    ends = [dispatching.divide(wrap(x), sign) for x in (low, high)]
    line = logspace(np.log10(ends[0]), np.log10(ends[1]), num, endpoint)
    # The ends are exact.
    inner = line[1 : num - 1] if endpoint and num > 1 else line[1:]
    parts = [ends[0][None][: min(num, 1)], inner, ends[1][None][: int(endpoint and num > 1)]]
    whole = np.concatenate([part for part in parts if part.shape[0]] or [line]) * sign
    target = normalize_axis(axis, whole.ndim, "np.geomspace")
    return np.moveaxis(whole if dtype is None else whole.astype(dtype), 0, target)


def array(
    x: ArrayLike, dtype: object = None, *, copy: object = True, order: str | None = "K", ndmin: int = 0, **_: object
) -> Tracer:
    """As np.array of a traced array, or of lists with traced arrays inside."""
    value = value_of(x, None if dtype is None else as_ir_dtype(dtype))
    made = _array(x, value, order, copy)
    return reshape(made, (1,) * (ndmin - made.ndim) + made.shape) if made.ndim < ndmin else made


def asarray(
    x: ArrayLike, dtype: object = None, order: str | None = None, *, copy: object = None, **_: object
) -> Tracer:
    """As np.asarray: a traced array of this dtype is returned itself."""
    return _array(x, value_of(x, None if dtype is None else as_ir_dtype(dtype)), order, copy)


def in_order(x: ArrayLike, dtype: object = None, order: str = "C", **_: object) -> Tracer:
    """As np.ascontiguousarray, np.asfortranarray: the array itself if it is in this order, a copy otherwise."""
    found = asarray(x, dtype, order)
    return found if found.ndim else reshape(found, (1,))


def _array(x: ArrayLike, value: Value, order: str | None, copy: object) -> Tracer:
    """An array of these elements: `x` itself if it may be, or a copy."""
    has_dtype = isinstance(x, Tracer) and x.value.type == value.type
    if copy or not has_dtype:
        if copy is False:
            fail("copy=False: the array has another dtype, so that it must be copied; leave copy out")
        return array_of(value, is_dense=order == "C" or sum([size != 1 for size in value.type.shape]) <= 1)
    if order in (None, "K", "A") or (order == "C" and is_dense(x)):
        return itself(x, value)
    return perhaps_view_of(x, value, is_dense=order == "C")


def copyto(dst: Tracer, src: ArrayLike, casting: str = "same_kind", where: ArrayLike = True) -> None:
    """As np.copyto."""
    target = check_target(dst, "np.copyto")
    write(wrap(value_of(src)), target, "np.copyto", as_operand(where))


# -- questions about types -------------------------------------------------------------------------------------------


def shape(a: ArrayLike) -> tuple[int, ...]:
    """As np.shape."""
    return shape_of(as_operand(a))


def ndim(a: ArrayLike) -> int:
    """As np.ndim."""
    return len(shape(a))


def size(a: ArrayLike, axis: int | None = None) -> int:
    """As np.size."""
    sizes = shape(a)
    return int(np.prod(sizes, dtype=np.int64)) if axis is None else sizes[axis]


def result_type(*arrays_and_dtypes: object) -> NumpyDType:
    """As np.result_type."""
    return result_dtype(*[_kind_or_dtype(item) for item in arrays_and_dtypes])


def _kind_or_dtype(item: object) -> NumpyDType | type:
    if isinstance(item, (str, type, np.dtype)):
        return np.dtype(item)
    return kind_of(item)


def can_cast(from_: object, to: object, casting: str = "safe") -> bool:
    """As np.can_cast."""
    source = dtype_of(from_) if isinstance(from_, Tracer) else from_
    return bool(np.can_cast(source, to, casting))  # type: ignore[arg-type]  # whatever the user passes


def iscomplexobj(x: ArrayLike) -> bool:
    """As np.iscomplexobj."""
    return np.issubdtype(dtype_of(x), np.complexfloating)


def isrealobj(x: ArrayLike) -> bool:
    """As np.isrealobj."""
    return not iscomplexobj(x)


def common_type(*arrays: ArrayLike) -> type:
    """As np.common_type."""
    return np.common_type(*[np.empty((), dtype_of(a)) for a in arrays])


def diag_indices_from(arr: ArrayLike) -> tuple[object, ...]:
    """As np.diag_indices_from: concrete index arrays."""
    sizes = shape(arr)
    if len(sizes) < 2 or len(set(sizes)) > 1:
        fail(f"np.diag_indices_from takes an array of equal dimensions, two or more, got shape {sizes}")
    return np.diag_indices(sizes[0], len(sizes))


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[object, ...]:
    """As np.tril_indices_from: concrete index arrays."""
    return np.tril_indices(shape(arr)[-2], k, shape(arr)[-1])


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[object, ...]:
    """As np.triu_indices_from: concrete index arrays."""
    return np.triu_indices(shape(arr)[-2], k, shape(arr)[-1])


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.zeros_like: zeros_like,
    np.ones_like: ones_like,
    np.empty_like: zeros_like,
    np.full_like: full_like,
    np.linspace: linspace,
    np.logspace: logspace,
    np.geomspace: geomspace,
    np.array: array,
    np.asarray: asarray,
    np.asanyarray: asarray,
    np.ascontiguousarray: in_order,
    np.copyto: copyto,
    np.shape: shape,
    np.ndim: ndim,
    np.size: size,
    np.result_type: result_type,
    np.can_cast: can_cast,
    np.iscomplexobj: iscomplexobj,
    np.isrealobj: isrealobj,
    np.common_type: common_type,
    np.diag_indices_from: diag_indices_from,
    np.tril_indices_from: tril_indices_from,
    np.triu_indices_from: triu_indices_from,
}
