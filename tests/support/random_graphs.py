"""Random well-typed graphs, for laws that hold for every graph.

    @given(graphs())
    def test_law(graph): ...

Shapes are tiny, and so chosen that operands often fit; steps that do nothing (a reshape to the same shape, a
transpose back and forth) are as frequent as in what frontends write. A new family joins by a step in `STEPS`;
elementwise ops without fields join by being registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import OPS, Array, Graph, Op, Value
from rematc.ir.fields import record_of
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.elementwise import Elementwise
from rematc.ir.ops.indexing import Gather, ScatterAdd
from rematc.ir.ops.logical import Compare, Not, Select
from rematc.ir.ops.reduction import Argmax, Argmin, ReduceMax, ReduceMin, ReduceProd, ReduceSum
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.ops.structural import Constant, Iota, Name, OptimizationBarrier, StopGradient
from rematc.ir.ops.window import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from rematc.ir.ops.windows import GatherDimensions, ScatterDimensions
from rematc.ir.types import BOOL, F32, F64, I32, DType, TensorType

Draw = st.DrawFn
SHAPES = ((), (1,), (2,), (3,), (2, 3), (3, 2), (3, 3), (1, 3), (2, 1, 3), (0, 2))
DTYPES_DRAWN = (F32, F64, I32, BOOL)
NAMES = (None, "x", "x", "w", "params['w']", "a.b", "7", "ü", "arg0")
LOCATIONS = (
    None,
    Location("model.py", 12, 8),
    Location("model.py", 14, 0, "loss"),
    Location('a "b"\\c\n.py', 3, 1, "λ"),
)
MAX_ELEMENTS = 64


@st.composite
def graphs(
    draw: Draw,
    max_equations: int = 12,
    dtypes: Sequence[DType] = DTYPES_DRAWN,
    regions: int = 1,
    name: str = "main",
) -> Graph:
    """A graph of at most `max_equations` steps over values of `dtypes`; regions nest at most `regions` deep."""
    params = [TensorType(draw(st.sampled_from(dtypes)), draw(st.sampled_from(SHAPES))) for _ in range(draw(SMALL) + 1)]
    return draw(graphs_of(params, max_equations, regions, name))


@st.composite
def graphs_of(
    draw: Draw, params: Sequence[TensorType], max_equations: int = 12, regions: int = 1, name: str = "main"
) -> Graph:
    """A graph with parameters of these types."""
    b = Builder(name)
    pool = [b.parameter(type, draw(st.sampled_from(NAMES))) for type in params]
    steps = STEPS + REGION_STEPS if regions else STEPS
    for _ in range(draw(st.integers(1, max_equations))):
        b.loc = draw(st.sampled_from(LOCATIONS))
        step = draw(st.sampled_from(steps))
        pool.extend(step(draw, b, pool, regions))
    return b.build(*draw(st.lists(st.sampled_from(pool), max_size=4)), pool[-1])


def arguments_for(graph: Graph, seed: int = 0) -> list[Array]:
    """Arguments of the parameters' types, with zeros of both signs, infinities and NaNs among them."""
    random = np.random.default_rng(seed)
    return [_argument(type, random) for type in graph.param_types]


def same_bits(found: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Whether arrays are equal to the sign of a zero; all NaNs are alike."""
    return all(_same_bits(x, y) for x, y in zip(found, expected, strict=True))


def _same_bits(x: Array, y: Array) -> bool:
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind not in "fc":
        return bool(np.array_equal(x, y))
    real_x, real_y = (part.view(f"f{part.real.dtype.itemsize}") for part in (np.atleast_1d(x), np.atleast_1d(y)))
    is_nan = np.isnan(real_x)
    return bool(
        np.array_equal(real_x, real_y, equal_nan=True)
        and np.array_equal(np.signbit(real_x[~is_nan]), np.signbit(real_y[~is_nan]))
    )


_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)


def _argument(type: TensorType, random: np.random.Generator) -> Array:
    if type.dtype.is_bool:
        return random.integers(0, 2, type.shape).astype(np.bool_)
    if type.dtype.is_integer:
        return random.integers(-3, 4, type.shape).astype(type.dtype.numpy)
    drawn = random.normal(size=type.shape)
    special = random.choice(np.array(_SPECIAL), type.shape)
    return np.asarray(np.where(random.random(type.shape) < 0.3, special, drawn)).astype(type.dtype.numpy)


# -- steps: each emits an op whose operands are in the pool, or nothing where none fit --------------------------------

Step = Callable[[Draw, Builder, Sequence[Value], int], tuple[Value, ...]]
SMALL = st.integers(0, 3)


def _pick(draw: Draw, pool: Sequence[Value], fits: Callable[[TensorType], bool] = lambda type: True) -> Value | None:
    """A value of the pool, often a recent one."""
    found = [value for value in pool if fits(value.type)]
    if not found:
        return None
    return draw(st.sampled_from(found[-4:] if draw(st.booleans()) else found))


def _of_type(draw: Draw, pool: Sequence[Value], type: TensorType) -> Value:
    found = _pick(draw, pool, lambda other: other == type)
    assert found is not None, "the value whose type this is lies in the pool"
    return found


def _emit(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    results = op.infer([value.type for value in operands])
    if any(type.size > MAX_ELEMENTS for type in results):
        return ()
    return b.emit(op, *operands)


def _elementwise(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    classes = [cls for cls in OPS.values() if issubclass(cls, Elementwise) and not record_of(cls).fields]
    x = _pick(draw, pool)
    assert x is not None
    fitting = sorted(
        (cls for cls in classes if x.type.dtype.kind in cls.kinds and cls.arity <= 2), key=lambda cls: cls.name
    )
    cls = draw(st.sampled_from(fitting))
    return _emit(b, cls(), x, *(_of_type(draw, pool, x.type) for _ in range(cls.arity - 1)))


def _with_literal(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    """Arithmetic with a constant for which it may do nothing."""
    x = _pick(draw, pool)
    assert x is not None
    value = draw(st.sampled_from((0.0, -0.0, 1.0, -1.0, 2.0)))
    scalar = b.emit1(Constant.of(np.asarray(value).astype(x.type.dtype.numpy)))
    full = b.emit1(BroadcastInDim(x.type.shape, ()), scalar)
    names = ["add", "multiply"] if x.type.dtype.is_bool else ["add", "subtract", "multiply", "divide"]
    operands = draw(st.permutations([x, full]))
    return (full, *_emit(b, OPS[draw(st.sampled_from(names))](), *operands))


def _constant(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    type = TensorType(draw(st.sampled_from(DTYPES_DRAWN)), draw(st.sampled_from(SHAPES)))
    return _emit(b, Constant.of(_argument(type, np.random.default_rng(draw(SMALL)))))


def _iota(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    shape = draw(st.sampled_from([shape for shape in SHAPES if shape]))
    dtype = draw(st.sampled_from([F32, I32]))
    return _emit(b, Iota(TensorType(dtype, shape), draw(st.integers(0, len(shape) - 1))))


def _compare(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    return _emit(b, Compare(draw(st.sampled_from(["EQ", "NE", "GE", "LT"]))), x, _of_type(draw, pool, x.type))


def _select(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    predicate = _pick(draw, pool, lambda type: type.dtype is BOOL and type.shape in ((), x.type.shape))
    if predicate is None:
        return ()
    return _emit(b, Select(), predicate, *draw(st.permutations([x, _of_type(draw, pool, x.type)])))


def _convert(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    return _emit(b, Convert(draw(st.sampled_from(DTYPES_DRAWN))), x)


def _identity(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    return _emit(b, draw(st.sampled_from((Name("a"), Name('"'), StopGradient()))), x)


def _barrier(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    return _emit(b, OptimizationBarrier(), *draw(st.lists(st.sampled_from(pool), max_size=3)))


def _broadcast(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, lambda type: type.rank < 3)
    if x is None:
        return ()
    rank = x.type.rank + draw(st.integers(0, 1))
    dimensions = tuple(sorted(draw(st.permutations(range(rank)))[: x.type.rank]))
    shape = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    for size, dimension in zip(x.type.shape, dimensions, strict=True):
        if size != 1:
            shape[dimension] = size
    return _emit(b, BroadcastInDim(tuple(shape), dimensions), x)


def _reshape(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    shapes = [x.type.shape, tuple(reversed(x.type.shape)), (1, *x.type.shape), (x.type.size,)]
    squeezed = tuple(size for size in x.type.shape if size != 1)
    return _emit(b, Reshape(draw(st.sampled_from([*shapes, squeezed]))), x)


def _transpose(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    return _emit(b, Transpose(tuple(draw(st.permutations(range(x.type.rank))))), x)


def _reverse(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    return _emit(b, Reverse(_some_dimensions(draw, x)), x)


def _slice(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    start = [draw(st.integers(0, min(size, 1))) for size in x.type.shape]
    strides = tuple(draw(st.integers(1, 2)) for _ in start)
    return _emit(b, Slice(tuple(start), x.type.shape, strides), x)


def _pad(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    fill = b.emit1(Constant.of(np.asarray(draw(SMALL)).astype(x.type.dtype.numpy)))
    low, high = ([draw(st.integers(0 if size < 2 else -1, 1)) for size in x.type.shape] for _ in range(2))
    interior = tuple(draw(st.integers(0, 1)) for _ in low)
    return _emit(b, Pad(tuple(low), tuple(high), interior), x, fill)


def _concatenate(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, lambda type: type.rank > 0)
    if x is None:
        return ()
    rest = [_of_type(draw, pool, x.type) for _ in range(draw(st.integers(0, 2)))]
    return _emit(b, Concatenate(draw(st.integers(0, x.type.rank - 1))), x, *rest)


def _reduce(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, lambda type: not type.dtype.is_bool)
    if x is None:
        return ()
    cls = draw(st.sampled_from((ReduceSum, ReduceMax, ReduceMin, ReduceProd)))
    return _emit(b, cls(_some_dimensions(draw, x)), x)


def _argmax(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, lambda type: type.rank > 0 and type.size > 0 and type.dtype in (F32, F64, I32))
    if x is None:
        return ()
    cls = draw(st.sampled_from((Argmax, Argmin)))
    return _emit(b, cls(draw(st.integers(0, x.type.rank - 1)), I32), x)


def _dot(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, lambda type: type.dtype.is_inexact)
    if x is None:
        return ()
    y = _pick(draw, pool, lambda type: type.dtype is x.type.dtype)
    assert y is not None
    pairs = [(i, j) for i, m in enumerate(x.type.shape) for j, n in enumerate(y.type.shape) if m == n]
    drawn = draw(st.permutations(pairs)) if pairs else []
    chosen: list[tuple[int, int]] = []
    for i, j in drawn:
        if all(i != other_i and j != other_j for other_i, other_j in chosen):
            chosen.append((i, j))
    cut = draw(st.integers(0, len(chosen)))
    batched = chosen[cut:] if draw(st.booleans()) else []
    return _emit(b, DotGeneral(_columns(chosen[:cut]), _columns(batched)), x, y)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(i for i, _ in pairs), tuple(j for _, j in pairs)


def _window(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, lambda type: type.rank > 0 and type.size > 0 and not type.dtype.is_bool)
    if x is None:
        return ()
    ones = (1,) * x.type.rank
    window = tuple(draw(st.integers(1, size)) for size in x.type.shape)
    padding = tuple((draw(st.integers(0, 1)), draw(st.integers(0, 1))) for _ in ones)
    cls = draw(st.sampled_from((ReduceWindowSum, ReduceWindowMax, ReduceWindowMin)))
    return _emit(b, cls(window, draw(st.sampled_from((ones, window))), padding, ones, ones), x)


def _convolution(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    """Of a batch of rows by itself: one feature, padded so that the kernel fits."""
    x = _pick(draw, pool, lambda type: type.dtype.is_inexact and type.rank == 2 and type.size > 0)
    if x is None:
        return ()
    rows = b.emit1(Reshape((x.type.shape[0], 1, x.type.shape[1])), x)
    dims = ConvolutionDimensions(input=(0, 1, 2), kernel=(0, 1, 2), output=(0, 1, 2))
    stride, low, high = draw(st.integers(1, 2)), draw(SMALL), draw(SMALL)
    reversal = (draw(st.booleans()),)
    op = Convolution((stride,), ((low, high),), (1,), (1,), reversal, dims)
    return _emit(b, op, rows, rows)


def _starts(draw: Draw, b: Builder, x: Value) -> list[Value]:
    """Starts of a window, inside or outside."""
    return [b.emit1(Constant.of(np.asarray(draw(st.integers(-1, 3)), np.int32))) for _ in x.type.shape]


def _dynamic_slice(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None
    sizes = tuple(draw(st.integers(min(size, 1), size)) for size in x.type.shape)
    return _emit(b, DynamicSlice(sizes), x, *_starts(draw, b, x))


def _dynamic_update_slice(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool)
    assert x is not None

    def fits(type: TensorType) -> bool:
        return type.rank == x.type.rank and all(m <= n for m, n in zip(type.shape, x.type.shape, strict=True))

    update = _pick(draw, pool, lambda type: type.dtype is x.type.dtype and fits(type))
    assert update is not None
    return _emit(b, DynamicUpdateSlice(), x, update, *_starts(draw, b, x))


def _rows(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    """Some rows taken, and others added to what they were taken from."""
    x = _pick(draw, pool, lambda type: type.rank > 0 and type.size > 0 and not type.dtype.is_bool)
    if x is None:
        return ()
    rest = tuple(range(1, x.type.rank))
    dims = GatherDimensions(offset_dims=rest, collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1)
    found = draw(st.lists(st.integers(-1, 3), min_size=1, max_size=3))
    indices = b.emit1(Constant.of(np.array(found, np.int32).reshape(-1, 1)))
    rows = _emit(b, Gather(dims, (1, *x.type.shape[1:])), x, indices)
    if not rows or draw(st.booleans()):
        return rows
    return (*rows, *_emit(b, ScatterAdd(ScatterDimensions.of(dims)), x, indices, rows[0]))


def _twice(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    """An op that undoes itself, twice."""
    x = _pick(draw, pool)
    assert x is not None
    ops: list[Op] = [Reverse(tuple(range(x.type.rank))), Transpose(tuple(reversed(range(x.type.rank))))]
    ops.append(Not() if x.type.dtype.is_bool else Negate())
    op = draw(st.sampled_from(ops))
    first = b.emit1(op, x)
    return (first, b.emit1(op, first))


def _call(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    operands = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    body = draw(_bodies(operands, regions))
    return _emit(b, Call(body), *operands)


def _checkpoint(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    operands = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    body = draw(_bodies(operands, regions))
    per_operand: bool | tuple[bool, ...] = tuple(index == 0 for index in range(len(operands)))
    prevent_cse = draw(st.sampled_from((True, False, per_operand)))
    return _emit(b, Checkpoint(body, None, prevent_cse), *operands)


def _bodies(operands: Sequence[Value], regions: int) -> st.SearchStrategy[Graph]:
    types = [value.type for value in operands]
    return graphs_of(types, 4, regions - 1, "body")


def _some_dimensions(draw: Draw, x: Value) -> tuple[int, ...]:
    dimensions = draw(st.permutations(range(x.type.rank)))
    return tuple(sorted(dimensions[: draw(st.integers(0, x.type.rank))]))


STEPS: tuple[Step, ...] = (
    *(_elementwise, _elementwise, _with_literal, _constant, _iota, _compare, _select, _convert, _identity, _barrier),
    *(_broadcast, _reshape, _transpose, _reverse, _slice, _pad, _concatenate, _reduce, _argmax, _dot),
    *(_window, _convolution, _dynamic_slice, _dynamic_update_slice, _rows, _twice),
)
REGION_STEPS: tuple[Step, ...] = (_call, _checkpoint)
