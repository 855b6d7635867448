"""The elements of an array in another shape: reshape, ravel, flatten, resize, and the orders they are read in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    fail,
    here,
    slice_along,
    static_shape,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.views import (
    Reshaped,
    ReshapedBackwards,
    array_of,
    fortran_reshape,
    is_dense,
    only_splits,
    perhaps_view_of,
    view_of,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.types import TensorType
from rematc.ir.values import Value


def reshape(
    a: ArrayLike, /, shape: object = None, order: str = "C", *, newshape: object = None, copy: object = None
) -> Tracer:
    """As np.reshape."""
    if order not in {"C", "A", "F"}:
        fail(f"np.reshape takes the orders C, F and A, got {order!r}")
    x, b = value_of(a), here()
    sizes = list(static_shape(newshape if shape is None else shape, "np.reshape"))
    if sizes.count(-1) > 1:
        fail("np.reshape takes one -1 at most")
    if -1 in sizes:
        rest = math.prod(size for size in sizes if size != -1)
        if rest == 0 or x.type.size % rest:
            _refuse_reshape(x.type, sizes)
        sizes[sizes.index(-1)] = x.type.size // rest
    if math.prod(sizes) != x.type.size or min(sizes, default=0) < 0:
        _refuse_reshape(x.type, sizes)
    is_backwards = known_order(x.type.shape, order, "np.reshape") == "F"
    result = fortran_reshape(x, sizes) if is_backwards else b.reshape(x, sizes)
    is_view = only_splits(x.type.shape, sizes) or (is_dense(a) and not is_backwards)
    if copy is False and not is_view:
        fail("np.reshape(..., copy=False) may need a copy, as the array's memory is ordered; leave copy out")
    if copy:
        return array_of(result)
    if is_view:
        step = ReshapedBackwards(tuple(sizes)) if is_backwards else Reshaped(tuple(sizes))
        return view_of(a, result, step, is_dense=is_dense(a) and not is_backwards)
    return array_of(result) if is_dense(a) else perhaps_view_of(a, result)


def known_order(shape: Sequence[int], order: object, what: str) -> str:
    """The order C or F that is meant. Raises CompileError where it follows the array's memory, which is not known."""
    if order in (None, "C", "F"):
        return "F" if order == "F" else "C"
    if order not in ("A", "K"):
        fail(f"{what} takes the orders C, F, A and K, got {order!r}")
    if sum([size != 1 for size in shape]) > 1:
        fail(
            f"{what} with order={order!r} goes through the elements as they lie in memory, which is not known of a "
            "traced array; give the order that is meant: order='C' (rows) or order='F' (columns)"
        )
    return "C"


def _refuse_reshape(type: TensorType, sizes: Sequence[int]) -> None:
    fail(f"an array of shape {type.shape} has {type.size} elements and cannot be reshaped to {tuple(sizes)}")


def resize(a: ArrayLike, new_shape: object) -> Tracer:
    """As np.resize: the elements over and over, as many as there is room for."""
    b, sizes = here(), static_shape(new_shape, "np.resize")
    line, wanted = ravel(a).value, math.prod(sizes)
    size = line.type.size
    if not wanted or not size:
        return wrap(b.zeros(TensorType(line.type.dtype, sizes)))
    rows = -(-wanted // size)
    whole = b.reshape(b.broadcast_in_dim(line, (rows, size), (1,)), (rows * size,))
    return wrap(b.reshape(slice_along(whole, 0, 0, wanted), sizes))


def ravel(a: ArrayLike, order: str = "C") -> Tracer:
    """As np.ravel."""
    x = value_of(a)
    result, is_copy = _line(x, order, "np.ravel")
    if is_dense(a):
        return array_of(result) if is_copy else view_of(a, result, Reshaped(result.type.shape), is_dense=True)
    return perhaps_view_of(a, result, is_dense=True)


def flatten(a: Tracer, order: str = "C") -> Tracer:
    """As x.flatten: a copy in one dimension."""
    return array_of(_line(value_of(a), order, "x.flatten")[0])


def _line(x: Value, order: str, what: str) -> tuple[Value, bool]:
    """The elements in one dimension, and whether that takes a copy of an array in C order."""
    is_backwards = known_order(x.type.shape, order, what) == "F"
    turned = here().transpose(x, range(x.type.rank)[::-1]) if is_backwards else x
    return here().reshape(turned, (x.type.size,)), turned is not x
