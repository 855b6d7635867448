"""What the functions of `rematc.random` have in common: their arguments, how they run, and random bits.

Each is a rule, a function of a builder and values. Inside a trace it adds its equations to the trace; outside all
traces it is compiled, once for each shape, as a function of its own. Either way the bits are the same.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from rematc.compiler.api.jit import compiled
from rematc.compiler.tracing.arguments import leaf_type
from rematc.compiler.tracing.options import Options
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.typed_keys import Key, with_words
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.builder import Builder
from rematc.ir.errors import CompileError
from rematc.ir.ops.logical import Or, ShiftLeft, ShiftRightLogical, Xor
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.types import F32, U8, U16, U32, U64, DType, Kind, TensorType, dtype_of_numpy
from rematc.ir.values import Value
from rematc.lowering.jax_internals.keys import key_generator
from rematc.lowering.signature import Owners

Rule = Callable[..., Value]
Shape = tuple[int, ...]

KEY = TensorType(U32, (2,))
UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}


def fail(message: str) -> NoReturn:
    """Raise CompileError at the user's line."""
    raise CompileError(message, user_location())


# -- arguments ---------------------------------------------------------------------------------------------------------


def checked_key(what: str, key: object) -> object:
    """A key: two words, u32[2]. A typed key of JAX's, of the same generator, gives its words."""
    key = with_words(key)
    if isinstance(key, Key):
        implementation = key_generator(key.key_dtype)
        if implementation != "threefry2x32":
            fail(f"{what} takes keys of the generator threefry2x32, got a key of '{implementation}'")
        key = key.words
    type = array_type(what, "the key", key)
    if type == KEY:
        return key
    if type.dtype is U32 and type.shape[-1:] == (2,):
        fail(
            f"{what} takes one key, {KEY}, got an array of keys, {type}; take one of them (keys[0]), "
            "or apply it to each with rematc.vmap"
        )
    fail(f"{what} takes a key, {KEY}, got {type}; make one with rematc.random.key(seed)")


def checked_shape(what: str, shape: object) -> Shape:
    """A shape: sizes that are known while tracing, none of them negative."""
    if isinstance(shape, Tracer):
        fail(f"the shape of {what} must be known while tracing, got a traced {shape.value.type}; pass Python integers")
    try:
        sizes = shape if isinstance(shape, Sequence) else (shape,)
        found = tuple([operator.index(size) for size in sizes])  # type: ignore[arg-type]  # others raise
    except TypeError:
        fail(f"the shape of {what} is a tuple of integers, got {shape!r}")
    if any(size < 0 for size in found):
        fail(f"the shape of {what} has a negative size: {found}")
    return found


def checked_dtype(what: str, dtype: object, is_allowed: Callable[[DType], bool], expected: str) -> DType:
    """An element type by any of its names. `expected` says what is allowed."""
    try:
        numpy = np.dtype(dtype)  # type: ignore[call-overload]  # anything that names a dtype
    except TypeError:
        fail(f"{what} takes {expected} as dtype, got {dtype!r}")
    found = dtype_of_numpy(numpy)
    if found is None or not is_allowed(found):
        fail(f"{what} takes {expected} as dtype, got {numpy}")
    return found


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    if dtype.kind is Kind.UINT:
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def is_sampled_float(dtype: DType) -> bool:
    """Whether floats of this type can be drawn: those whose bits are of a width that unsigned integers have."""
    return dtype.is_float and dtype.bits in (16, 32, 64)


FLOAT_DTYPES = "float16, bfloat16, float32 or float64"


def checked_broadcast(what: str, shape: Shape, **operands: object) -> None:
    """The operands must broadcast to the shape of the result."""
    for name, operand in operands.items():
        type = array_type(what, name, operand)
        try:
            fits = np.broadcast_shapes(type.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            fail(f"{what} of shape {shape} takes a {name} that broadcasts to it, got {type}")


def type_of(what: str, name: str, operand: object) -> TensorType:
    """The type of an array or number; a Python float counts as f32, which is what random numbers are by default."""
    type = array_type(what, name, operand)
    return type.with_dtype(F32) if isinstance(operand, float) and not isinstance(operand, np.generic) else type


def array_type(what: str, name: str, operand: object) -> TensorType:
    """The type of an array or number."""
    try:
        return leaf_type(operand)[0]
    except (CompileError, TypeError, ValueError):
        fail(f"{what} takes an array as {name}, got a {type(operand).__name__}")


# -- running -----------------------------------------------------------------------------------------------------------


def apply(rule: Rule, *operands: object, **parameters: object) -> Any:
    """`rule(builder, *values, **parameters)` for the values of these operands.

    Args:
        rule: emits equations and gives one value.
        operands: arrays, numbers or tracers.
        parameters: what is known while tracing; hashable.
    """
    if current_trace() is not None:
        return _traced(rule, *operands, **parameters)
    return _compiled(rule, tuple(parameters))(*operands, **parameters)


def _traced(rule: Rule, *operands: object, **parameters: object) -> Tracer:
    trace = require_trace()
    builder = trace.enter_line()
    return trace.tracer(rule(builder, *[trace.lift(operand) for operand in operands], **parameters))


@functools.lru_cache(maxsize=64)
def _compiled(rule: Rule, names: tuple[str, ...]) -> Callable[..., object]:
    def function(*operands: object, **parameters: object) -> Tracer:
        return _traced(rule, *operands, **parameters)

    function.__name__ = function.__qualname__ = rule.__name__.lstrip("_")
    return compiled(function, Options(statics=Owners(frozenset(), frozenset(names))))


# -- bits --------------------------------------------------------------------------------------------------------------


def hashed(b: Builder, key: Value, shape: Shape) -> tuple[Value, Value]:
    """Two random words for each element of an array of this shape: the hash of its row-major index."""
    type = TensorType(U32, shape)
    size = type.size
    counter = TensorType(U64, shape) if size > 2**32 else type
    index = b.zeros(counter)
    stride = 1
    for dimension in reversed(range(len(shape))):
        step = b.iota(counter, dimension)
        index = b.add(index, b.multiply(step, b.full(counter, stride)) if stride > 1 else step)
        stride *= shape[dimension]
    if counter is type:
        high, low = b.zeros(type), index
    else:
        high = b.convert(b.emit1(ShiftRightLogical(), index, b.full(counter, 32)), U32)
        low = b.convert(index, U32)
    first, second = b.emit(Threefry2x32(), key, high, low)
    return first, second


def random_bits(b: Builder, key: Value, shape: Shape, width: int) -> Value:
    """Unsigned integers of this many bits, each with all its bits random."""
    first, second = hashed(b, key, shape)
    if width < 64:
        return b.convert(b.emit1(Xor(), first, second), UNSIGNED[width])
    type = TensorType(U64, shape)
    high = b.emit1(ShiftLeft(), b.convert(first, U64), b.full(type, 32))
    return b.emit1(Or(), high, b.convert(second, U64))


def split_key(b: Builder, key: Value, shape: Shape) -> Value:
    """New keys, one for each element of an array of this shape: u32[*shape, 2]."""
    words = [b.reshape(word, (*shape, 1)) for word in hashed(b, key, shape)]
    return b.concatenate(words, len(shape))


def children(b: Builder, key: Value, count: int) -> list[Value]:
    """`split_key`, the new keys apart."""
    keys = split_key(b, key, (count,))
    return [b.reshape(b.slice(keys, (index, 0), (index + 1, 2)), (2,)) for index in range(count)]


def spread(b: Builder, x: Value, shape: Shape) -> Value:
    """`x` broadcast to a shape, as NumPy does."""
    missing = len(shape) - x.type.rank
    kept = [d for d, size in enumerate(x.type.shape) if size == shape[missing + d]]
    return b.broadcast_in_dim(b.reshape(x, [x.type.shape[d] for d in kept]), shape, [missing + d for d in kept])
