"""Reductions, whole and in windows, by a function that the op owns: `reduce` and `reduce_window` of StableHLO.

The function combines two tuples of scalars into one. In which order elements are combined is open, and so is how often
the initial values are: the function must be associative, and the initial values its neutral element. Sums, products
and extrema have ops of their own, with cheaper derivatives.

The derivative is that of the combinations, made in pairs: log2 n rounds of the function and its tangent, on batches of
the shape of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Graph, JvpContext, Op, VmapContext
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.batching import shifted
from rematc.ir.ops.bodies import spread, with_batch
from rematc.ir.ops.elementwise import NOT_LINEAR
from rematc.ir.ops.shape import check_dimensions, check_per_dimension, others, zeros_if_none
from rematc.ir.ops.window_dimension import Pairs, WindowDimension, untouched_by_windows, window_dimensions, windows_of
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing
from rematc.ir.types import BOOL, TensorType
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value

#: What is combined: values, and beside each its tangent or None.
Duals = tuple[tuple[Value, Value | None], ...]
Combine = Callable[[Duals, Duals], Duals]


class Batching(Emitter, Protocol):
    """What contexts of rules have that know batches."""

    def vmap_of(self, graph: Graph, is_batched: Sequence[bool], size: int) -> tuple[Graph, tuple[bool, ...]]: ...


def _at_arrays(b: Batching, body: Graph, shape: Sequence[int]) -> Graph:
    """The function of scalars applied at each index of arrays."""
    for size in reversed(shape):
        body, is_batched = b.vmap_of(body, (True,) * len(body.params), size)
        body = with_batch(body, size, is_batched, (True,) * len(body.results))
    return body


def _with_tangents(values: Primals, tangents: Tangents) -> Duals:
    return tuple(zip(values, tangents, strict=True))


def _halves(xs: Duals) -> tuple[Duals, Duals]:
    """Arrays, and their initial values."""
    return xs[: len(xs) // 2], xs[len(xs) // 2 :]


def _parts(xs: Duals) -> tuple[tuple[Value, ...], Derivatives]:
    return tuple([primal for primal, _ in xs]), tuple([tangent for _, tangent in xs])


def _each(xs: Duals, move: Callable[[Value], Value]) -> Duals:
    """A rearrangement of values and tangents alike."""
    return tuple([(move(primal), None if tangent is None else move(tangent)) for primal, tangent in xs])


def _broadcast(b: Emitter, xs: Duals, shape: tuple[int, ...], dimensions: Sequence[int]) -> Duals:
    return _each(xs, lambda x: b.broadcast_in_dim(x, shape, dimensions))


# -- the family --------------------------------------------------------------------------------------------------------


class Folding(Op):
    """Family base: operands are n arrays of one shape, then their n initial values."""

    __slots__ = ()
    body: Graph
    no_transpose = NOT_LINEAR

    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)

    def check(self, operands: Types) -> TensorType:
        """Check the operands against the function; the type of the first array."""
        count = len(operands) // 2
        if not count or len(operands) % 2:
            raise TypeMismatchError(
                f"'{self.name}' takes arrays and as many initial values, got {len(operands)} operands"
            )
        arrays, scalars = operands[:count], tuple(operands[count:])
        first = arrays[0]
        for array, scalar in zip(arrays, scalars, strict=True):
            if array.shape != first.shape or scalar != array.with_shape(()):
                raise TypeMismatchError(
                    f"'{self.name}' takes arrays of one shape and scalars of their types, got {array} and {scalar}"
                )
        if self.body.param_types != (*scalars, *scalars) or self.body.result_types != scalars:
            listed = ", ".join(map(str, scalars))
            raise TypeMismatchError(
                f"'{self.name}' takes a function ({listed}, {listed}) -> ({listed}), got '{self.body.name}' of "
                f"({', '.join(map(str, self.body.param_types))}) -> ({', '.join(map(str, self.body.result_types))})"
            )
        if self.body.effect:
            raise TypeMismatchError(
                f"'{self.name}' applies '{self.body.name}' in any order, and may repeat it, but '{self.body.name}' "
                "prints or calls back; take debug.print and debug.callback out of it"
            )
        return first

    def fold(self, rows: Sequence[Array], initial: Sequence[Array]) -> list[Array]:
        """The combination of the initial values with the scalars of each row, one row an operand, from the left."""
        found = list(initial)
        for elements in zip(*rows, strict=True):
            found = evaluate(self.body, [*found, *[np.asarray(element) for element in elements]])
        return found

    def folded(self, lines: Sequence[Array], initial: Sequence[Array]) -> tuple[Array, ...]:
        """Each line of the last dimension folded. lines: [*kept, elements]."""
        kept = lines[0].shape[:-1]
        results = [np.empty(kept, line.dtype) for line in lines]
        for place in np.ndindex(kept):
            for result, value in zip(results, self.fold([line[place] for line in lines], initial), strict=True):
                result[place] = value
        return tuple(results)

    def with_initial(self, b: Batching, combine: Combine, xs: Duals, initial: Duals) -> Duals:
        """Arrays folded by combining whole arrays; initial values are scalars, or have the leading dimensions."""
        raise NotImplementedError

    def of_batch(self) -> Folding:
        """The op with one dimension more in front, which it keeps."""
        raise NotImplementedError

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        def combine(xs: Duals, ys: Duals) -> Duals:
            values, given = _parts((*xs, *ys))
            at_arrays = _at_arrays(b, self.body, values[0].type.shape)
            graph, has_tangent = b.jvp_of(at_arrays, [tangent is not None for tangent in given])
            joint = b.inline(graph, (*values, *[tangent for tangent in given if tangent is not None]))
            return _with_tangents(joint[: len(xs)], spread(joint[len(xs) :], has_tangent))

        if not results[0].type.size:
            return (None,) * len(results)
        xs, initial = _halves(_with_tangents(primals, tangents))
        return _parts(self.with_initial(b, combine, xs, initial))[1]

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        def combine(xs: Duals, ys: Duals) -> Duals:
            values, _ = _parts((*xs, *ys))
            results = b.inline(_at_arrays(b, self.body, values[0].type.shape), values)
            return _with_tangents(results, [None] * len(results))

        whole, count = self.of_batch(), len(batch.operands) // 2
        arrays = batch[:count].all_batched(b)
        scalars = [x.type.with_shape(()) for x in arrays]
        types = whole.infer([*[x.type for x in arrays], *scalars])
        if not types[0].size:
            return tuple([b.zeros(type) for type in types])
        if not any(batch.is_batched[count:]):
            return b.emit(whole, *arrays, *batch.operands[count:])
        starts = batch[count:].all_batched(b)
        xs, initial = _halves(_with_tangents((*arrays, *starts), [None] * len(batch.operands)))
        return _parts(whole.with_initial(b, combine, xs, initial))[0]

    def flops_of_pair(self) -> int:
        """The work of combining two."""
        return sum(eqn.flops for eqn in self.body.equations)


@register
@dataclass(frozen=True, slots=True)
class Reduce(Folding):
    """All elements over `dimensions` combined by the function `body`.

    Attributes:
        dimensions: those that the results lack.
        body: (x..., y...) to the combination, all scalars.
    """

    name = "reduce"
    dimensions: tuple[int, ...]
    body: Graph

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        first = self.check(operands)
        check_dimensions(self, self.dimensions, first.rank)
        kept = tuple([first.shape[d] for d in others(self.dimensions, first.rank)])
        return tuple([operand.with_shape(kept) for operand in operands[: len(operands) // 2]])

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        count = len(operands) // 2
        order = (*others(self.dimensions, operands[0].ndim), *self.dimensions)
        moved = [operand.transpose(order) for operand in operands[:count]]
        kept = moved[0].shape[: len(order) - len(self.dimensions)]
        return self.folded([x.reshape(*kept, math.prod(x.shape[len(kept) :])) for x in moved], operands[count:])

    def with_initial(self, b: Batching, combine: Combine, xs: Duals, initial: Duals) -> Duals:
        """Halves combined until one is left, then with the initial values, which have the results' shape."""
        shape = xs[0][0].type.shape
        order = (*self.dimensions, *others(self.dimensions, len(shape)))
        kept = tuple([shape[d] for d in others(self.dimensions, len(shape))])
        initial = _broadcast(b, initial, kept, range(initial[0][0].type.rank))
        n = math.prod([shape[d] for d in self.dimensions])
        lines = _each(xs, lambda x: b.reshape(b.transpose(x, order), (n, *kept)))
        if not n:
            return initial
        while n > 1:
            half = n // 2
            first, second = _rows(b, lines, 0, half), _rows(b, lines, half, 2 * half)
            rest = _rows(b, lines, 2 * half, n)
            combined = combine(first, second)
            lines = combined if n % 2 == 0 else _joined(b, combined, rest)
            n -= half
        return combine(initial, _each(lines, lambda x: b.reshape(x, kept)))

    def of_batch(self) -> Reduce:
        return Reduce(shifted(self.dimensions), self.body)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        count = len(results)
        kept = others(self.dimensions, operands[0].rank)
        return tuple([Slicing((d,) * count + (None,) * count, (place,) * count) for place, d in enumerate(kept)])

    def flops(self, operands: Types, results: Types) -> int:
        return operands[0].size * self.flops_of_pair()


def _rows(b: Emitter, xs: Duals, start: int, limit: int) -> Duals:
    def cut(x: Value) -> Value:
        rest = x.type.shape[1:]
        return b.slice(x, (start, *[0] * len(rest)), (limit, *rest))

    return _each(xs, cut)


def _slices(b: Emitter, xs: Duals, start: Sequence[int], limit: Sequence[int], strides: Sequence[int]) -> Duals:
    return _each(xs, lambda x: b.slice(x, start, limit, strides))


def _joined(b: Emitter, xs: Duals, ys: Duals) -> Duals:
    """One after the other; where either has a tangent both get one."""
    found = []
    for (x, tx), (y, ty) in zip(xs, ys, strict=True):
        tangent = None
        if tx is not None or ty is not None:
            tangent = b.concatenate([zeros_if_none(b, tx, x.type), zeros_if_none(b, ty, y.type)], 0)
        found.append((b.concatenate([x, y], 0), tangent))
    return tuple(found)


@register
@dataclass(frozen=True, slots=True)
class ReduceWindow(Folding):
    """Each window over the arrays combined by the function `body`, padding and gaps being the initial values.

    Attributes:
        body: (x..., y...) to the combination, all scalars.
        window_dimensions: sizes of the window, one entry a dimension, as in all that follow.
        window_strides: distance of two windows.
        padding: initial values before and after the arrays; negative numbers cut off.
        base_dilations: distance of two elements of the arrays.
        window_dilations: distance of two positions of a window.
    """

    name = "reduce_window"
    body: Graph
    window_dimensions: tuple[int, ...]
    window_strides: tuple[int, ...]
    padding: Pairs
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]

    def windows(self) -> tuple[WindowDimension, ...]:
        """How the windows lie along each dimension."""
        return window_dimensions(
            self,
            self.window_dimensions,
            self.window_strides,
            self.padding,
            self.base_dilations,
            self.window_dilations,
        )

    def counts(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are along each dimension."""
        return tuple([window.count(n) for window, n in zip(self.windows(), shape, strict=True)])

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        first = self.check(operands)
        check_per_dimension(self, "window_dimensions", self.window_dimensions, first)
        counts = self.counts(first.shape)
        return tuple([operand.with_shape(counts) for operand in operands[: len(operands) // 2]])

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        count, taps = len(operands) // 2, math.prod(self.window_dimensions)
        initial = operands[count:]
        views = [windows_of(x, self.windows(), fill) for x, fill in zip(operands[:count], initial, strict=True)]
        return self.folded([view.reshape(*view.shape[: operands[0].ndim], taps) for view in views], initial)

    def with_initial(self, b: Batching, combine: Combine, xs: Duals, initial: Duals) -> Duals:
        """For each position of the window, a slice of the padded arrays, combined with those before.

        Over the leading dimensions that initial values have, windows have size 1.
        """
        shape = xs[0][0].type.shape
        windows, counts = self.windows(), self.counts(shape)
        padded = tuple([self._padded(b, x, start) for x, start in zip(xs, initial, strict=True)])
        lead = range(initial[0][0].type.rank)
        found = _broadcast(b, initial, counts, lead)
        for position in product(*[range(size) for size in self.window_dimensions]):
            start = [k * window.dilation for k, window in zip(position, windows, strict=True)]
            steps = zip(start, counts, self.window_strides, strict=True)
            limit = [first + (m - 1) * step + 1 for first, m, step in steps]
            found = combine(found, _slices(b, padded, start, limit, self.window_strides))
        return found

    def _padded(
        self, b: Emitter, x: tuple[Value, Value | None], initial: tuple[Value, Value | None]
    ) -> tuple[Value, Value | None]:
        """An array with its initial value in padding and gaps, and its tangent likewise."""
        windows = self.windows()
        low, high = [window.low for window in windows], [window.high for window in windows]
        interior = [window.base_dilation - 1 for window in windows]
        (primal, tangent), (fill, fill_tangent) = x, initial
        scalar = primal.type.with_shape(())

        def pad(value: Value, start: Value) -> Value:
            if not start.type.rank:
                return b.pad(value, start, low, high, interior)
            spread = b.pad(value, b.zeros(scalar), low, high, interior)
            inside = b.full(value.type.with_dtype(BOOL), True)
            mask = b.pad(inside, b.full(inside.type.with_shape(()), False), low, high, interior)
            return b.select(mask, spread, b.broadcast_in_dim(start, spread.type.shape, range(start.type.rank)))

        if tangent is None and fill_tangent is None:
            return pad(primal, fill), None
        own = zeros_if_none(b, tangent, primal.type)
        return pad(primal, fill), pad(own, zeros_if_none(b, fill_tangent, fill.type))

    def of_batch(self) -> ReduceWindow:
        return ReduceWindow(
            self.body,
            (1, *self.window_dimensions),
            (1, *self.window_strides),
            ((0, 0), *self.padding),
            (1, *self.base_dilations),
            (1, *self.window_dilations),
        )

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return untouched_by_windows(self.windows(), len(results), operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size * math.prod(self.window_dimensions) * self.flops_of_pair()
