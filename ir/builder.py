"""The builder: how frontends, rules and frameworks write graphs.

Parameters come first, the results last:

    b = Builder("main")
    x, w = b.parameter(f32_4_8, "x"), b.parameter(f32_8_2, "w")
    graph = b.build(b.exponential(b.dot_general(x, w, ([1], [0]))))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.locations import Location
from rematc.ir.ops import (
    arithmetic,
    complex_parts,
    conversion,
    dot,
    dynamic,
    indexing,
    logical,
    reduction,
    structural,
    transcendental,
    window,
)
from rematc.ir.ops import shape as shape_ops
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.splicing import splice
from rematc.ir.types import I32, DType, TensorType
from rematc.ir.values import Array, Value


class Builder:
    """Collects equations in order and closes them into a `Graph`. Implements `rematc.ir.core.Emitter`.

    Attributes:
        loc: the location that new equations get.
        equations: the equations so far.
    """

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.loc: Location | None = None
        self.params: list[Value] = []
        self.equations: list[Equation] = []
        self._splats: dict[tuple[TensorType, str], Value] = {}

    # -- building ------------------------------------------------------------------------------------------------

    def parameter(self, type: TensorType, name: str | None = None) -> Value:
        """A new parameter of the graph."""
        value = Value(type, name)
        self.params.append(value)
        return value

    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        """Apply `op`; its results. Raises CompileError with the current location where the operands do not fit."""
        try:
            types = op.infer([value.type for value in operands])
        except CompileError as error:
            if error.loc is None:
                error.loc = self.loc
            raise
        results = tuple([Value(type) for type in types])
        self.equations.append(Equation(op, operands, results, self.loc))
        return results

    def emit1(self, op: Op, *operands: Value) -> Value:
        """Apply an op of one result; that result."""
        return self.emit(op, *operands)[0]

    def append(self, eqn: Equation) -> None:
        """Add an equation as it stands; its operands must be values of this builder."""
        self.equations.append(eqn)

    def inline(self, graph: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Copy the equations of `graph` here, its parameters replaced by `operands`; its results."""
        if len(operands) != len(graph.params):
            raise InternalError(f"graph '{graph.name}' takes {len(graph.params)} values, got {len(operands)}")
        return splice(graph, operands, self.equations)

    def inside(self, name: str) -> Builder:
        """A builder of a graph that an op of this one is to own."""
        return Builder(name)

    def build(self, *results: Value) -> Graph:
        """The graph of all equations so far with these results."""
        return Graph(self.name, tuple(self.params), tuple(self.equations), results)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let equations emitted inside the `with` share no constants with others."""
        others, self._splats = self._splats, {}
        try:
            yield
        finally:
            self._splats = others

    @contextmanager
    def at(self, loc: Location | None) -> Iterator[None]:
        """Give equations emitted inside the `with` this location."""
        previous, self.loc = self.loc, loc
        try:
            yield
        finally:
            self.loc = previous

    # -- values without operands ---------------------------------------------------------------------------------

    def constant(self, value: Array) -> Value:
        """A literal array."""
        return self.emit1(structural.Constant.of(value))

    def full(self, type: TensorType, value: complex) -> Value:
        """An array of one repeated value; the same one for the same type and value."""
        key = (type, repr(value))
        found = self._splats.get(key)
        if found is not None:
            return found
        scalar = self.constant(np.asarray(value).astype(type.dtype.numpy))
        made = self._splats[key] = self.broadcast_in_dim(scalar, type.shape, ())
        return made

    def zeros(self, type: TensorType) -> Value:
        return self.full(type, 0)

    def iota(self, type: TensorType, dimension: int) -> Value:
        return self.emit1(structural.Iota(type, dimension))

    # -- elementwise ---------------------------------------------------------------------------------------------

    def negate(self, x: Value) -> Value:
        return self.emit1(arithmetic.Negate(), x)

    def add(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Add(), x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Subtract(), x, y)

    def multiply(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Multiply(), x, y)

    def scale(self, x: Value, factor: complex) -> Value:
        """`x` times a constant."""
        return x if factor == 1 else self.multiply(x, self.full(x.type, factor))

    def divide(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Divide(), x, y)

    def power(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Power(), x, y)

    def maximum(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Maximum(), x, y)

    def minimum(self, x: Value, y: Value) -> Value:
        return self.emit1(arithmetic.Minimum(), x, y)

    def logical_and(self, x: Value, y: Value) -> Value:
        return self.emit1(logical.And(), x, y)

    def logical_or(self, x: Value, y: Value) -> Value:
        return self.emit1(logical.Or(), x, y)

    def logical_not(self, x: Value) -> Value:
        return self.emit1(logical.Not(), x)

    def compare(self, x: Value, y: Value, direction: str) -> Value:
        """Boolean array of `x direction y`; direction is EQ, NE, GE, GT, LE or LT."""
        return self.emit1(logical.Compare(direction), x, y)

    def select(self, predicate: Value, on_true: Value, on_false: Value) -> Value:
        return self.emit1(logical.Select(), predicate, on_true, on_false)

    def convert(self, x: Value, dtype: DType) -> Value:
        return x if x.type.dtype is dtype else self.emit1(conversion.Convert(dtype), x)

    def sign(self, x: Value) -> Value:
        return self.emit1(arithmetic.Sign(), x)

    def abs(self, x: Value) -> Value:
        return self.emit1(arithmetic.Abs(), x)

    def from_parts(self, x: Value, y: Value) -> Value:
        """The complex numbers with these real and imaginary parts."""
        return self.emit1(complex_parts.Complex(), x, y)

    def real(self, x: Value) -> Value:
        """The real parts of complex numbers."""
        return self.emit1(complex_parts.Real(), x)

    def imag(self, x: Value) -> Value:
        """The imaginary parts of complex numbers."""
        return self.emit1(complex_parts.Imag(), x)

    def conj(self, x: Value) -> Value:
        """The conjugates of complex numbers."""
        return self.emit1(complex_parts.Conj(), x)

    def exponential(self, x: Value) -> Value:
        return self.emit1(transcendental.Exponential(), x)

    def log(self, x: Value) -> Value:
        return self.emit1(transcendental.Log(), x)

    def sine(self, x: Value) -> Value:
        return self.emit1(transcendental.Sine(), x)

    def cosine(self, x: Value) -> Value:
        return self.emit1(transcendental.Cosine(), x)

    def sqrt(self, x: Value) -> Value:
        return self.emit1(transcendental.Sqrt(), x)

    def rsqrt(self, x: Value) -> Value:
        return self.emit1(transcendental.Rsqrt(), x)

    # -- shape ---------------------------------------------------------------------------------------------------

    def broadcast_in_dim(self, x: Value, shape: Sequence[int], dimensions: Sequence[int]) -> Value:
        """`x` broadcast to `shape`; dimension i of `x` becomes dimension `dimensions[i]` of the result."""
        if x.type.shape == tuple(shape):
            return x
        return self.emit1(shape_ops.BroadcastInDim(tuple(shape), tuple(dimensions)), x)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.type.shape == tuple(shape) else self.emit1(shape_ops.Reshape(tuple(shape)), x)

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Dimension i of the result is dimension `permutation[i]` of `x`."""
        if list(permutation) == list(range(x.type.rank)):
            return x
        return self.emit1(shape_ops.Transpose(tuple(permutation)), x)

    def reverse(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(shape_ops.Reverse(tuple(dimensions)), x) if dimensions else x

    def concatenate(self, xs: Sequence[Value], dimension: int) -> Value:
        return xs[0] if len(xs) == 1 else self.emit1(shape_ops.Concatenate(dimension), *xs)

    def slice(
        self, x: Value, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None
    ) -> Value:
        """Elements `start[i], start[i] + strides[i], ...` below `limit[i]` of each dimension."""
        steps = tuple(strides) if strides is not None else (1,) * x.type.rank
        if not any(start) and tuple(limit) == x.type.shape and all(step == 1 for step in steps):
            return x
        return self.emit1(shape_ops.Slice(tuple(start), tuple(limit), steps), x)

    def pad(
        self, x: Value, fill: Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None = None
    ) -> Value:
        """`x` with the scalar `fill` before, after and between its elements; negative edges cut off."""
        gaps = tuple(interior) if interior is not None else (0,) * x.type.rank
        if not (any(low) or any(high) or any(gaps)):
            return x
        return self.emit1(shape_ops.Pad(tuple(low), tuple(high), gaps), x, fill)

    # -- reductions and products ---------------------------------------------------------------------------------

    def reduce_sum(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(reduction.ReduceSum(tuple(dimensions)), x) if dimensions else x

    def reduce_max(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(reduction.ReduceMax(tuple(dimensions)), x) if dimensions else x

    def reduce_min(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(reduction.ReduceMin(tuple(dimensions)), x) if dimensions else x

    def reduce_prod(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(reduction.ReduceProd(tuple(dimensions)), x) if dimensions else x

    def reduce_and(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(reduction.ReduceAnd(tuple(dimensions)), x) if dimensions else x

    def reduce_or(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.emit1(reduction.ReduceOr(tuple(dimensions)), x) if dimensions else x

    def argmax(self, x: Value, dimension: int, index_dtype: DType = I32) -> Value:
        """Index of the maximum along `dimension`: the first of several, the first NaN if there is one."""
        return self.emit1(reduction.Argmax(dimension, index_dtype), x)

    def argmin(self, x: Value, dimension: int, index_dtype: DType = I32) -> Value:
        """Index of the minimum along `dimension`: the first of several, the first NaN if there is one."""
        return self.emit1(reduction.Argmin(dimension, index_dtype), x)

    def dot_general(
        self,
        x: Value,
        y: Value,
        contract: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        result_dtype: DType | None = None,
    ) -> Value:
        """Product of `x` and `y` summed over the `contract` dimensions, paired over the `batch` dimensions.

        Result dimensions: batch, the rest of `x`, the rest of `y` (StableHLO dot_general).
        """
        pair = (tuple(contract[0]), tuple(contract[1]))
        batched = (tuple(batch[0]), tuple(batch[1]))
        return self.emit1(dot.DotGeneral(pair, batched, result_dtype), x, y)

    def convolution(
        self,
        x: Value,
        kernel: Value,
        dimensions: ConvolutionDimensions,
        strides: Sequence[int] | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
    ) -> Value:
        """Windows of `x` times `kernel`; by default each step has its window, and none reaches over the edges.

        Dilations, groups and turned kernels: `emit1(Convolution(...), x, kernel)`.
        """
        ones = (1,) * (x.type.rank - 2)
        steps = ones if strides is None else tuple(strides)
        edges = ((0, 0),) * len(ones) if padding is None else tuple(padding)
        turned = (False,) * len(ones)
        return self.emit1(Convolution(steps, edges, ones, ones, turned, dimensions), x, kernel)

    def reduce_window_sum(
        self,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
    ) -> Value:
        """Sum of each window; by default each step has its window, and none reaches over the edges."""
        ones = (1,) * x.type.rank
        steps = ones if strides is None else tuple(strides)
        edges = ((0, 0),) * len(ones) if padding is None else tuple(padding)
        return self.emit1(window.ReduceWindowSum(tuple(sizes), steps, edges, ones, ones), x)

    # -- indexing ------------------------------------------------------------------------------------------------

    def gather(
        self,
        x: Value,
        indices: Value,
        dimension_numbers: GatherDimensions,
        slice_sizes: Sequence[int],
        indices_are_sorted: bool = False,
    ) -> Value:
        """Windows of `x` that start where `indices` says, moved inside where they reach over the edges."""
        return self.emit1(indexing.Gather(dimension_numbers, tuple(slice_sizes), indices_are_sorted), x, indices)

    def scatter_add(
        self,
        x: Value,
        indices: Value,
        updates: Value,
        dimension_numbers: ScatterDimensions,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> Value:
        """`x` with `updates` added to its windows; windows that reach over the edges are skipped."""
        op = indexing.ScatterAdd(dimension_numbers, indices_are_sorted, unique_indices)
        return self.emit1(op, x, indices, updates)

    def dynamic_slice(self, x: Value, start: Sequence[Value], slice_sizes: Sequence[int]) -> Value:
        """The window of `x` that starts at the scalars `start`, moved inside where it reaches over an edge."""
        return self.emit1(dynamic.DynamicSlice(tuple(slice_sizes)), x, *start)

    def dynamic_update_slice(self, x: Value, update: Value, start: Sequence[Value]) -> Value:
        """`x` with the window that starts at the scalars `start` replaced by `update`."""
        return self.emit1(dynamic.DynamicUpdateSlice(), x, update, *start)
