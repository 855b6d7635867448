"""Random integers, choices and masks. The recipes are those of `jax.random`."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from rematc.compiler.api.random.continuous import draw_gumbel, draw_uniform
from rematc.compiler.api.random.sampling import (
    UNSIGNED,
    Shape,
    apply,
    array_type,
    checked_broadcast,
    checked_dtype,
    checked_key,
    checked_shape,
    children,
    fail,
    is_sampled_float,
    limits,
    random_bits,
    spread,
    type_of,
)
from rematc.compiler.tracing.trace import Tracer, require_trace
from rematc.ir.builder import Builder
from rematc.ir.ops.cumulative import CumulativeSum
from rematc.ir.ops.rounding import Remainder
from rematc.ir.ops.sorting import Sort, TopK
from rematc.ir.types import F32, I32, I64, U32, DType, Kind, TensorType
from rematc.ir.values import Value


def bits(key: object, shape: object = (), dtype: object = np.uint32) -> Any:
    """Unsigned integers, all bits of them random.

    Args:
        key: u32[2].
        shape: of the result.
        dtype: of the result.

    Raises:
        CompileError: for what is no key, a negative size, a dtype that is not uint8, 16, 32 or 64.
    """
    found = checked_dtype("bits", dtype, lambda one: one in UNSIGNED.values(), "uint8, uint16, uint32 or uint64")
    return apply(random_bits, checked_key("bits", key), shape=checked_shape("bits", shape), width=found.bits)


def randint(key: object, shape: object, minval: object, maxval: object, dtype: object = np.int32) -> Any:
    """Integers from minval to maxval - 1.

    Each is the remainder of a number of twice as many bits, so that they are very nearly equally likely.

    Args:
        key: u32[2].
        shape: of the result.
        minval: the least, an integer array that broadcasts to `shape`.
        maxval: one more than the greatest.
        dtype: of the result.

    Raises:
        CompileError: for what is no key, a negative size, bounds or a dtype that are no integers, or do not broadcast.
    """
    sizes = checked_shape("randint", shape)
    checked_broadcast("randint", sizes, minval=minval, maxval=maxval)
    for name, bound in (("minval", minval), ("maxval", maxval)):
        if array_type("randint", name, bound).dtype.kind not in (Kind.INT, Kind.UINT):
            fail(f"randint takes integers as {name}, got {array_type('randint', name, bound)}")
    found = checked_dtype(
        "randint",
        dtype,
        lambda one: one.kind in (Kind.INT, Kind.UINT) and one.bits >= 8,
        "an integer type of 8 to 64 bits",
    )
    return apply(_randint, checked_key("randint", key), minval, maxval, shape=sizes, dtype=found)


def bernoulli(key: object, p: object = 0.5, shape: object = None) -> Any:
    """Booleans that are true with probability p.

    Args:
        key: u32[2].
        p: a float array that broadcasts to `shape`; its element type says how finely it is told from others.
        shape: of the result; by default that of `p`.

    Raises:
        CompileError: for what is no key, a negative size, a `p` that is no float or does not broadcast.
    """
    type = type_of("bernoulli", "p", p)
    sizes = checked_shape("bernoulli", type.shape if shape is None else shape)
    checked_broadcast("bernoulli", sizes, p=p)
    if not is_sampled_float(type.dtype):
        fail(f"bernoulli takes a probability, a float, as p, got {type}")
    return apply(draw_bernoulli, checked_key("bernoulli", key), p, shape=sizes, dtype=type.dtype)


def categorical(key: object, logits: object, axis: int = -1, shape: object = None) -> Any:
    """Indices along `axis`, each drawn with the probability exp(logit), up to a common factor.

    Args:
        key: u32[2].
        logits: float array.
        axis: the dimension of the classes.
        shape: of the result; it ends in the shape of `logits` without `axis`, which is the default.

    Returns:
        i32[*shape].

    Raises:
        CompileError: for what is no key, logits that are no floats, an axis or a shape that they do not have.
    """
    type = array_type("categorical", "logits", logits)
    if not is_sampled_float(type.dtype) or not type.rank:
        fail(f"categorical takes an array of floats as logits, got {type}")
    if not -type.rank <= axis < type.rank:
        fail(f"categorical along axis {axis} of logits {type}")
    axis %= type.rank
    rest = (*type.shape[:axis], *type.shape[axis + 1 :])
    sizes = checked_shape("categorical", rest if shape is None else shape)
    if sizes[len(sizes) - len(rest) :] != rest or len(sizes) < len(rest):
        fail(f"categorical along axis {axis} of logits {type} gives a shape that ends in {rest}, not {sizes}")
    if not type.shape[axis]:
        fail(f"categorical takes at least one class, got logits {type} along axis {axis}")
    prefix = sizes[: len(sizes) - len(rest)]
    return apply(_categorical, checked_key("categorical", key), logits, axis=axis, prefix=prefix)


def permutation(key: object, x: object, axis: int = 0, independent: bool = False) -> Any:
    """A random permutation of the integers below `x`, or of an array along `axis`.

    Args:
        key: u32[2].
        x: a number, or an array.
        axis: along which the array is permuted.
        independent: whether each line along `axis` is permuted on its own, instead of all of them alike.

    Raises:
        CompileError: for what is no key, a number that is not known while tracing or is negative, an axis that the
            array does not have.
    """
    checked = checked_key("permutation", key)
    type = array_type("permutation", "x", x)
    if not type.rank:
        return apply(_shuffled_range, checked, length=_count("permutation", x))
    if not -type.rank <= axis < type.rank:
        fail(f"permutation along axis {axis} of {type}")
    return apply(_permuted, checked, x, axis=axis % type.rank, independent=independent)


def choice(key: object, a: object, shape: object = (), replace: bool = True, p: object = None, axis: int = 0) -> Any:
    """Elements of `a`, or integers below it.

    Args:
        key: u32[2].
        a: a number, or an array.
        shape: of the drawn elements.
        replace: whether one may be drawn several times.
        p: how likely each is, a float array; by default all are equally likely.
        axis: along which the elements of `a` stand.

    Returns:
        `a` with the dimension `axis` replaced by `shape`.

    Raises:
        CompileError: for what is no key, no elements to draw from or too few without replacement, a `p` of another
            length.
    """
    checked, sizes = checked_key("choice", key), checked_shape("choice", shape)
    type = array_type("choice", "a", a)
    if type.rank and not -type.rank <= axis < type.rank:
        fail(f"choice along axis {axis} of {type}")
    axis = axis % type.rank if type.rank else 0
    count, draws = type.shape[axis] if type.rank else _count("choice", a), math.prod(sizes)
    if draws and not count:
        fail("choice has nothing to draw from")
    if not replace and draws > count:
        fail(f"choice cannot draw {draws} of {count} elements without replacement")
    if p is None:
        indices = apply(_indices, checked, count=count, shape=sizes, replace=replace)
    else:
        weights = type_of("choice", "p", p)
        if weights.shape != (count,) or not is_sampled_float(weights.dtype):
            fail(f"choice takes a float for each of the {count} elements as p, got {weights}")
        rule = _weighted if replace else _weighted_once
        indices = apply(rule, checked, p, shape=sizes, dtype=weights.dtype)
    return apply(_taken, a, indices, axis=axis) if type.rank else indices


def dropout(key: object, x: object, rate: object) -> Any:
    """`x` with elements set to 0 with probability `rate`, the others divided by 1 - rate.

    What the backward pass needs of it is the mask, a byte an element; under a checkpoint the mask is recomputed from
    the key, bit for bit.

    Args:
        key: u32[2].
        x: float array.
        rate: a number from 0 to 1, or a float scalar.

    Raises:
        CompileError: for what is no key, an `x` that is no float, a rate outside of [0, 1].
    """
    type = array_type("dropout", "x", x)
    if not type.dtype.is_inexact:
        fail(f"dropout takes an array of floats, got {type}")
    rate_type = type_of("dropout", "rate", rate)
    if rate_type.shape or not (rate_type.dtype.is_float or isinstance(rate, (int, np.integer))):
        fail(f"dropout takes a number from 0 to 1 as rate, got {rate_type}")
    if not isinstance(rate, Tracer) and not 0 <= float(rate) <= 1:  # type: ignore[arg-type]  # a number
        fail(f"dropout takes a number from 0 to 1 as rate, got {rate}")
    return apply(_dropout, checked_key("dropout", key), x, rate)


def _count(what: str, x: object) -> int:
    if isinstance(x, Tracer):
        fail(f"the length of {what} must be known while tracing, got a traced {x.value.type}; pass a Python integer")
    try:
        count = operator.index(x)  # type: ignore[arg-type]  # what is no integer raises
    except TypeError:
        fail(f"{what} takes an integer or an array, got {x!r}")
    if count < 0:
        fail(f"{what} of {count} elements")
    return count


# -- rules -------------------------------------------------------------------------------------------------------------


def draw_bernoulli(b: Builder, key: Value, p: Value, *, shape: Shape, dtype: DType) -> Value:
    """Whether uniform numbers are less than p."""
    scalar = TensorType(dtype, ())
    u = draw_uniform(b, key, b.full(scalar, 0), b.full(scalar, 1), shape=shape, dtype=dtype)
    return b.compare(u, spread(b, b.convert(p, dtype), shape), "LT")


def _randint(b: Builder, key: Value, minval: Value, maxval: Value, *, shape: Shape, dtype: DType) -> Value:
    if dtype.bits < 32:
        # Too few bits for remainders that are nearly equally likely.
        least, greatest = limits(dtype)
        low, high = (
            _clipped(b, bound, least, greatest + is_above, I32) for bound, is_above in ((minval, 0), (maxval, 1))
        )
        return b.convert(_randint(b, key, low, high, shape=shape, dtype=I32), dtype)
    unsigned = TensorType(UNSIGNED[dtype.bits], shape)
    low, high, is_beyond = _bounds(b, minval, maxval, shape, dtype)
    is_empty = b.compare(high, low, "LE")
    span = b.select(is_empty, b.full(unsigned, 1), b.convert(b.subtract(high, low), unsigned.dtype))
    # Where maxval is one more than the greatest integer of the type; all of its bits then count, as no remainder by 0
    # changes them.
    span = b.select(b.logical_and(is_beyond, b.logical_not(is_empty)), b.add(span, b.full(unsigned, 1)), span)
    words = [random_bits(b, own, shape, dtype.bits) for own in children(b, key, 2)]

    def remainder(x: Value) -> Value:
        return b.emit1(Remainder(), x, span)

    # The remainder of upper * 2^bits + lower, of which 2^bits does not fit the type: it is the square of its root.
    root = remainder(b.full(unsigned, 2 ** (dtype.bits // 2)))
    factor = remainder(b.multiply(root, root))
    upper, lower = (remainder(word) for word in words)
    offset = remainder(b.add(b.multiply(upper, factor), lower))
    return b.add(low, b.convert(offset, dtype))


def _bounds(b: Builder, minval: Value, maxval: Value, shape: Shape, dtype: DType) -> tuple[Value, Value, Value]:
    """The bounds within the element type, and whether maxval was beyond it."""
    least, greatest = limits(dtype)
    low = _clipped(b, minval, least, greatest, dtype)
    high = _clipped(b, maxval, least, greatest, dtype)
    limit = min(greatest, limits(maxval.type.dtype)[1])
    is_beyond = b.compare(maxval, b.full(maxval.type, limit), "GT")
    return spread(b, low, shape), spread(b, high, shape), spread(b, is_beyond, shape)


def _clipped(b: Builder, x: Value, low: int, high: int, dtype: DType) -> Value:
    """`x` as this integer type, what is outside of [low, high] at its ends."""
    least, greatest = limits(x.type.dtype)
    if low > least:
        x = b.maximum(x, b.full(x.type, low))
    if high < greatest:
        x = b.minimum(x, b.full(x.type, high))
    return b.convert(x, dtype)


def _categorical(b: Builder, key: Value, logits: Value, *, axis: int, prefix: Shape) -> Value:
    shape = (*prefix, *logits.type.shape)
    noise = draw_gumbel(b, key, shape=shape, dtype=logits.type.dtype)
    return b.argmax(b.add(noise, spread(b, logits, shape)), len(prefix) + axis, I32)


def _shuffled_range(b: Builder, key: Value, *, length: int) -> Value:
    return _shuffled(b, key, b.iota(TensorType(I32 if length < 2**31 else I64, (length,)), 0), 0)


def _permuted(b: Builder, key: Value, x: Value, *, axis: int, independent: bool) -> Value:
    if independent or x.type.rank == 1:
        return _shuffled(b, key, x, axis)
    return _taken(b, x, _shuffled_range(b, key, length=x.type.shape[axis]), axis=axis)


def _shuffled(b: Builder, key: Value, x: Value, axis: int) -> Value:
    """Sorted by random words: so often that two elements hardly ever have the same words each time."""
    rounds = math.ceil(3 * math.log(max(1, x.type.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        key, own = children(b, key, 2)
        words = random_bits(b, own, x.type.shape, U32.bits)
        x = b.emit(Sort(axis), words, x)[1]
    return x


def _indices(b: Builder, key: Value, *, count: int, shape: Shape, replace: bool) -> Value:
    index = TensorType(I32, ())
    if not math.prod(shape):
        return b.zeros(index.with_shape(shape))
    if replace:
        return _randint(b, key, b.full(index, 0), b.full(index, count), shape=shape, dtype=I32)
    drawn = b.slice(_shuffled_range(b, key, length=count), (0,), (math.prod(shape),))
    return b.reshape(drawn, shape)


def _weighted(b: Builder, key: Value, p: Value, *, shape: Shape, dtype: DType) -> Value:
    """The first place where the sums of p reach a uniform number from (0, their last]."""
    sums = b.emit1(CumulativeSum(0), b.convert(p, dtype))
    scalar = TensorType(dtype, ())
    u = draw_uniform(b, key, b.full(scalar, 0), b.full(scalar, 1), shape=shape, dtype=dtype)
    last = b.reshape(b.slice(sums, (sums.type.size - 1,), (sums.type.size,)), ())
    targets = b.multiply(spread(b, last, shape), b.subtract(b.full(u.type, 1), u))
    places = np.searchsorted(_tracer(sums), _tracer(targets))  # type: ignore[call-overload]  # dispatches on tracers
    return b.convert(places.value, I32)


def _weighted_once(b: Builder, key: Value, p: Value, *, shape: Shape, dtype: DType) -> Value:
    """The places of the greatest logarithms of p with Gumbel noise added.

    Source: Vieira, "Gumbel-max trick and weighted reservoir sampling", 2014.
    """
    noise = draw_gumbel(b, key, shape=p.type.shape, dtype=dtype)
    noisy = b.add(noise, b.log(b.convert(p, dtype)))
    return b.reshape(b.emit(TopK(math.prod(shape)), noisy)[1], shape)


def _taken(b: Builder, a: Value, indices: Value, *, axis: int) -> Value:
    found: Tracer = np.take(_tracer(a), _tracer(indices), axis)  # type: ignore[call-overload]  # dispatches on tracers
    return found.value


def _tracer(value: Value) -> Tracer:
    return require_trace().tracer(value)


def _dropout(b: Builder, key: Value, x: Value, rate: Value) -> Value:
    if not rate.type.dtype.is_float:
        rate = b.convert(rate, F32)
    kept = b.subtract(b.full(rate.type, 1), rate)
    mask = draw_bernoulli(b, key, kept, shape=x.type.shape, dtype=F32)
    # Where nothing is kept nothing is divided, by 0 least of all.
    is_some = b.compare(kept, b.zeros(kept.type), "GT")
    factor = b.convert(b.select(is_some, kept, b.full(kept.type, 1)), x.type.dtype)
    return b.select(mask, b.divide(x, spread(b, factor, x.type.shape)), b.zeros(x.type))
