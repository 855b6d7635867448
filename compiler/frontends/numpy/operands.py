"""Operands of array functions: from what the user passes to values of one dtype and shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from rematc.compiler.frontends.numpy.promotion import NumpyDType, default_dtype, ir_dtype, kind_of, result_dtype
from rematc.compiler.tracing.trace import LITERAL_LIMIT, Trace, Tracer, current_trace, escaped, require_trace
from rematc.ir.builder import Builder
from rematc.ir.errors import CompileError
from rematc.ir.types import DType, TensorType
from rematc.ir.values import Value

#: A tracer, an array, a Python scalar, or nested lists of them.
ArrayLike = object
#: NumPy for code that is written in it: of tracers its functions are traced, which their types do not know.
dispatching: Any = np


def here() -> Builder:
    """The builder of the innermost open trace."""
    return require_trace().builder


def enter(*operands: ArrayLike) -> None:
    """Note the user's line. Raises CompileError where no trace is open: then one of `operands` has escaped its own."""
    trace = current_trace()
    if trace is None:
        raise escaped(next(_tracers_in(operands)))
    trace.enter_line()


def fail(message: str) -> NoReturn:
    """Raise CompileError at the user's line."""
    raise CompileError(message, here().loc)


def wrap(value: Value, weak: bool = False) -> Tracer:
    """The tracer of a value of the innermost open trace."""
    return require_trace().tracer(value, weak)


def is_traced(x: object) -> bool:
    """Whether `x` is a tracer, or a list or tuple with one somewhere inside."""
    return next(_tracers_in(x), None) is not None


def _tracers_in(x: object) -> Iterator[Tracer]:
    if isinstance(x, Tracer):
        yield x
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from _tracers_in(item)


def as_operand(x: ArrayLike) -> ArrayLike:
    """`x` without nested lists: they become arrays, stacked where they hold tracers."""
    if not isinstance(x, (list, tuple)):
        return x
    if not is_traced(x):
        return np.asarray(x)
    items = [as_operand(item) for item in x]
    shapes = {shape_of(item) for item in items}
    if len(shapes) > 1:
        fail(f"a list of arrays of different shapes is no array: {', '.join(map(str, sorted(shapes)))}")
    b, dtype = here(), ir_dtype(result_dtype(*[kind_of(item) for item in items]))
    rows = [value_of(item, dtype) for item in items]
    return wrap(b.concatenate([b.reshape(row, (1, *row.type.shape)) for row in rows], 0))


def shape_of(x: ArrayLike) -> tuple[int, ...]:
    """Shape of a tracer, an array or a scalar."""
    if isinstance(x, (bool, int, float, complex)):
        return ()
    if isinstance(x, (Tracer, np.ndarray)):
        return x.shape
    if is_traced(x):
        return shape_of(as_operand(x))
    return np.asarray(x).shape


def value_of(x: ArrayLike, dtype: DType | None = None) -> Value:
    """The value of an operand in the innermost open trace, converted to `dtype`."""
    trace = require_trace()
    x = as_operand(x)
    if dtype is None:
        return trace.lift(x)
    if isinstance(x, Tracer):
        return converted(trace.builder, trace.lift(x), dtype)
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return _scalar(trace, x, dtype, ())
    array = np.asarray(x)
    if array.size <= LITERAL_LIMIT:
        return trace.literal(array.astype(dtype.numpy))
    return converted(trace.builder, trace.lift(x), dtype)


def converted(b: Builder, value: Value, dtype: DType) -> Value:
    """The value in another dtype, as NumPy casts: a boolean is whether the number is not zero, complex ones too."""
    if dtype.is_bool and not value.type.dtype.is_bool:
        return b.compare(value, b.zeros(value.type), "NE")
    return b.convert(value, dtype)


def broadcast_operand(x: ArrayLike, dtype: DType, shape: tuple[int, ...]) -> Value:
    """The value of an operand, converted to `dtype` and broadcast to `shape` as NumPy does."""
    if isinstance(x, Tracer):
        trace = require_trace()
        value = trace.lift(x)
        if value.type.dtype is not dtype:
            value = converted(trace.builder, value, dtype)
        return value if value.type.shape == shape else broadcast_value(trace.builder, value, shape)
    if isinstance(x, (bool, int, float, complex)):
        return _scalar(require_trace(), x, dtype, shape)
    return broadcast_value(here(), value_of(x, dtype), shape)


def _scalar(trace: Trace, x: complex, dtype: DType, shape: tuple[int, ...]) -> Value:
    if dtype.is_integer and isinstance(x, int):
        iinfo: Any = ml_dtypes.iinfo
        limits = iinfo(dtype.numpy)
        if not limits.min <= x <= limits.max:
            fail(f"Python integer {x} is out of bounds for {dtype.numpy}; convert the array to a wider dtype first")
    if isinstance(x, np.generic):
        x = x.item()
    return trace.builder.full(TensorType(dtype, shape), x)


def broadcast_value(b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """`value` with dimensions added in front and those of size 1 repeated."""
    rank = value.type.rank
    return b.broadcast_in_dim(value, shape, range(len(shape) - rank, len(shape)))


def broadcast_shape(what: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all `shapes` broadcast to. Raises CompileError, naming `what`, where there is none."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    # np.broadcast_shapes takes 20 microseconds, which every operator would pay.
    rank = max([len(shape) for shape in shapes])
    sizes = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, start=rank - len(shape)):
            if sizes[d] == 1:
                sizes[d] = size
            elif size not in (1, sizes[d]):
                listed = ", ".join(map(str, shapes))
                fail(
                    f"operands of {what} have shapes {listed}, which do not broadcast together; "
                    "sizes must match from the right, or be 1 (insert dimensions with x[:, None])"
                )
    return tuple(sizes)


def slice_along(x: Value, axis: int, start: int, stop: int) -> Value:
    """The elements from `start` to `stop` of one dimension."""
    low = [start if d == axis else 0 for d in range(x.type.rank)]
    high = [stop if d == axis else size for d, size in enumerate(x.type.shape)]
    return here().slice(x, low, high)


def promote(*operands: ArrayLike) -> tuple[list[Value], DType]:
    """The values of operands of any shapes, converted to the dtype that holds them all, and that dtype."""
    flat = [as_operand(x) for x in operands]
    dtype = ir_dtype(result_dtype(*[kind_of(x) for x in flat]))
    return [value_of(x, dtype) for x in flat], dtype


def promote_arrays(*operands: ArrayLike) -> list[Value]:
    """As `promote`, where NumPy makes arrays first: Python scalars are int64, float64 or complex128."""
    flat = [as_operand(x) for x in operands]
    dtype = ir_dtype(result_dtype(*[default_dtype(kind_of(x)) for x in flat]))
    return [value_of(x, dtype) for x in flat]


def as_ir_dtype(dtype: object) -> DType:
    """The IR's element type of what NumPy takes as a dtype."""
    given: NumpyDType = np.dtype(dtype)  # type: ignore[call-overload]  # whatever the user passes
    try:
        return ir_dtype(given)
    except TypeError as error:
        fail(f"{error}; use booleans, integers, floats up to 64 bits or complex numbers of them")


def dtype_of(x: ArrayLike) -> NumpyDType:
    """The dtype of an operand on its own."""
    return default_dtype(kind_of(as_operand(x)))


def normalize_axis(axis: object, ndim: int, what: str) -> int:
    """`axis` counted from the front."""
    index = static_int(axis, f"axis of {what}")
    if not -ndim <= index < ndim:
        fail(f"axis {index} of {what} is out of bounds for an array of {ndim} dimensions")
    return index + ndim if index < 0 else index


def normalize_axes(axis: object, ndim: int, what: str) -> tuple[int, ...]:
    """The axes that `axis` names: all for None, else one or several, counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list, range)):
        return (normalize_axis(axis, ndim, what),)
    axes = tuple([normalize_axis(item, ndim, what) for item in axis])
    if len(set(axes)) != len(axes):
        fail(f"axes {tuple(axis)} of {what} name a dimension twice")
    return axes


def static_int(x: object, what: str) -> int:
    """`x` as a Python integer. Raises CompileError where it is traced or no integer."""
    if isinstance(x, Tracer):
        fail(
            f"the {what} is a traced {x.value.type}; it must be known while tracing: "
            "pass it as a Python integer (static_argnums) or compute it from shapes"
        )
    if not hasattr(x, "__index__"):
        fail(f"the {what} must be an integer, found {type(x).__name__}")
    return int(x.__index__())


def static_shape(shape: object, what: str) -> tuple[int, ...]:
    """`shape` as a tuple of Python integers."""
    if isinstance(shape, (tuple, list)):
        return tuple([static_int(size, f"shape of {what}") for size in shape])
    if isinstance(shape, np.ndarray):
        return tuple([int(size) for size in shape])
    return (static_int(shape, f"shape of {what}"),)
