"""Reductions, whole and in windows, by a function that the op owns: `reduce` and `reduce_window` of StableHLO.

The function combines two tuples of scalars into one. In which order elements are combined is open, and so is how often
the initial values are: the function must be associative, and the initial values its neutral element. Sums, products
and extrema have ops of their own, with cheaper derivatives.

The derivative is that of the combinations, made in pairs: log2 n rounds of the function and its tangent at whole
arrays. So the function must consist of ops that work element by element where it is differentiated, and of functions of
such ops with a `custom_jvp` or `custom_vjp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NoReturn

import numpy as np

from rematc.ir.core import (
    Array,
    Derivatives,
    Emitter,
    Equation,
    Graph,
    Op,
    Primals,
    Tangents,
    Types,
    Value,
    register,
)
from rematc.ir.errors import InternalError, MissingRuleError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.batching import all_repeated, shifted
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.custom_vjp import CustomLinear, CustomVjp
from rematc.ir.ops.elementwise import NOT_LINEAR
from rematc.ir.ops.shape import BroadcastInDim, check_dimensions, check_per_dimension, others, zeros_if_none
from rematc.ir.ops.window_dimension import Pairs, WindowDimension, window_dimensions, windows_of
from rematc.ir.types import BOOL, TensorType

#: What is combined: values, and beside each its tangent or None.
Duals = tuple[tuple[Value, Value | None], ...]


# -- functions of scalars at arrays ------------------------------------------------------------------------------------


def _at_arrays(b: Emitter, body: Graph, operands: Duals) -> Duals:
    """The function applied at each index, and its tangent. Raises MissingRuleError for ops that mix indices."""
    shape = operands[0][0].type.shape
    env = dict(zip(body.params, operands, strict=True))
    for eqn in body.equations:
        found = _equation_at_arrays(b, body, eqn, [env[value] for value in eqn.operands], shape)
        env.update(zip(eqn.results, found, strict=True))
    return tuple([env[value] for value in body.results])


def _equation_at_arrays(
    b: Emitter, body: Graph, eqn: Equation, operands: Sequence[tuple[Value, Value | None]], shape: tuple[int, ...]
) -> list[tuple[Value, Value | None]]:
    primals, tangents = [primal for primal, _ in operands], [tangent for _, tangent in operands]
    if not primals:
        return [(b.broadcast_in_dim(value, shape, ()), None) for value in b.emit(eqn.op)]
    op = _op_at_arrays(body, eqn, shape)
    has_tangent = any(tangent is not None for tangent in tangents)
    outgoing: Derivatives = (None,) * len(eqn.results)
    if has_tangent and isinstance(op, (CustomJvp, CustomVjp)):
        results, outgoing = op.jvp_region(b, _no_jvp, primals, tangents)
    else:
        results = b.emit(op, *primals)
        if has_tangent and any(value.type.dtype.is_inexact for value in results):
            outgoing = op.jvp(b, primals, results, tangents)
    return [
        (value, tangent if value.type.dtype.is_inexact else None)
        for value, tangent in zip(results, outgoing, strict=True)
    ]


def _no_jvp(graph: Graph, has_tangent: Sequence[bool]) -> NoReturn:
    raise InternalError(f"the derivative of '{graph.name}' is its rule's")


def _op_at_arrays(function: Graph, eqn: Equation, shape: tuple[int, ...]) -> Op:
    """What applies an op of scalars at each index of arrays: itself, or its own functions so.

    Raises MissingRuleError for ops that mix indices.
    """
    op = eqn.op
    match op:
        # How a frontend applies them is for scalars.
        case CustomJvp():
            rule = None if op.rule is None else _graph_at_arrays(op.rule, shape)
            body = _graph_at_arrays(op.body, shape)
            return replace(op, body=body, rule=rule, adjoint=None, linear=(), source=None)
        case CustomVjp(forward=None) | CustomVjp(backward=None):
            return replace(op, body=_graph_at_arrays(op.body, shape), source=None)
        case CustomVjp(body, forward, backward) if forward is not None and backward is not None:
            body, forward, backward = (_graph_at_arrays(graph, shape) for graph in (body, forward, backward))
            return replace(op, body=body, forward=forward, backward=backward, source=None)
        case CustomLinear():
            return replace(op, backward=_graph_at_arrays(op.backward, shape))
    if op.regions() or not _is_elementwise(eqn, shape):
        raise MissingRuleError(
            f"the function '{function.name}' of a reduction uses '{op.name}', which does not work element by element; "
            "its derivative and its vmap need such ops",
            eqn.loc,
        )
    return op


def _is_elementwise(eqn: Equation, shape: tuple[int, ...]) -> bool:
    """Whether the op of an equation of scalars may be applied to arrays as it is."""
    if any(value.type.shape for value in (*eqn.operands, *eqn.results)):
        return False
    expected = tuple([value.type.with_shape(shape) for value in eqn.results])
    return eqn.op.infer([value.type.with_shape(shape) for value in eqn.operands]) == expected


def _graph_at_arrays(graph: Graph, shape: tuple[int, ...]) -> Graph:
    """The function of arrays that applies a function of scalars at each index."""
    env = {value: Value(value.type.with_shape(shape), value.name) for value in graph.params}
    params, equations = tuple(env.values()), []
    for eqn in graph.equations:
        results = tuple([Value(value.type.with_shape(shape)) for value in eqn.results])
        env.update(zip(eqn.results, results, strict=True))
        if eqn.operands:
            op = _op_at_arrays(graph, eqn, shape)
            equations.append(Equation(op, tuple([env[value] for value in eqn.operands]), results, eqn.loc))
            continue
        scalars = tuple([Value(value.type) for value in eqn.results])
        equations.append(Equation(eqn.op, (), scalars, eqn.loc))
        for scalar, result in zip(scalars, results, strict=True):
            equations.append(Equation(BroadcastInDim(shape, ()), (scalar,), (result,), eqn.loc))
    return Graph(graph.name, params, tuple(equations), tuple([env[value] for value in graph.results]))


def _with_tangents(values: Primals, tangents: Tangents) -> Duals:
    return tuple(zip(values, tangents, strict=True))


def _parts(xs: Duals) -> tuple[tuple[Value, ...], Derivatives]:
    return tuple([primal for primal, _ in xs]), tuple([tangent for _, tangent in xs])


def _each(xs: Duals, move: Callable[[Value], Value]) -> Duals:
    """A rearrangement of values and tangents alike."""
    return tuple([(move(primal), None if tangent is None else move(tangent)) for primal, tangent in xs])


def _repeated(b: Emitter, xs: Duals, shape: tuple[int, ...], dimensions: Sequence[int]) -> Duals:
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

    def combine(self, b: Emitter, xs: Duals, ys: Duals) -> Duals:
        return _at_arrays(b, self.body, (*xs, *ys))

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

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        count = len(results)
        xs = _with_tangents(primals[:count], tangents[:count])
        initial = _with_tangents(primals[count:], tangents[count:])
        return _parts(self._in_pairs(b, xs, _repeated(b, initial, results[0].type.shape, ())))[1]

    def _in_pairs(self, b: Emitter, xs: Duals, initial: Duals) -> Duals:
        """Halves combined until one is left, then with the initial values, which have the results' shape."""
        shape = xs[0][0].type.shape
        order = (*self.dimensions, *others(self.dimensions, len(shape)))
        kept = initial[0][0].type.shape
        n = math.prod([shape[d] for d in self.dimensions])
        lines = _each(xs, lambda x: b.reshape(b.transpose(x, order), (n, *kept)))
        if not n:
            return initial
        while n > 1:
            half = n // 2
            first, second = _rows(b, lines, 0, half), _rows(b, lines, half, 2 * half)
            rest = _rows(b, lines, 2 * half, n)
            combined = self.combine(b, first, second)
            lines = combined if n % 2 == 0 else _joined(b, combined, rest)
            n -= half
        return self.combine(b, initial, _each(lines, lambda x: b.reshape(x, kept)))

    def vmap(self, b: Emitter, size: int, operands: Primals, is_batched: Sequence[bool]) -> tuple[Value, ...]:
        count = len(operands) // 2
        arrays = all_repeated(b, size, operands[:count], is_batched[:count])
        whole = Reduce(shifted(self.dimensions), self.body)
        if not any(is_batched[count:]):
            return b.emit(whole, *arrays, *operands[count:])
        kept = whole.infer([*[x.type for x in arrays], *[x.type.with_shape(()) for x in operands[count:]]])[0].shape
        starts = all_repeated(b, size, operands[count:], is_batched[count:])
        initial = _repeated(b, _with_tangents(starts, [None] * count), kept, (0,))
        return _parts(whole._in_pairs(b, _with_tangents(arrays, [None] * count), initial))[0]

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

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        count = len(results)
        if not results[0].type.size:
            return (None,) * count
        xs = _with_tangents(primals[:count], tangents[:count])
        initial = _with_tangents(primals[count:], tangents[count:])
        return _parts(self._by_position(b, xs, initial))[1]

    def _by_position(self, b: Emitter, xs: Duals, initial: Duals) -> Duals:
        """For each position of the window, a slice of the padded arrays, combined with those before.

        Initial values are scalars, or have the arrays' leading dimensions, over which windows have size 1.
        """
        shape = xs[0][0].type.shape
        windows, counts = self.windows(), self.counts(shape)
        padded = tuple([self._padded(b, x, start) for x, start in zip(xs, initial, strict=True)])
        lead = range(initial[0][0].type.rank)
        found = _repeated(b, initial, counts, lead)
        for position in product(*[range(size) for size in self.window_dimensions]):
            start = [k * window.dilation for k, window in zip(position, windows, strict=True)]
            steps = zip(start, counts, self.window_strides, strict=True)
            limit = [first + (m - 1) * step + 1 for first, m, step in steps]
            found = self.combine(b, found, _slices(b, padded, start, limit, self.window_strides))
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

    def vmap(self, b: Emitter, size: int, operands: Primals, is_batched: Sequence[bool]) -> tuple[Value, ...]:
        count = len(operands) // 2
        arrays = all_repeated(b, size, operands[:count], is_batched[:count])
        whole = ReduceWindow(
            self.body,
            (1, *self.window_dimensions),
            (1, *self.window_strides),
            ((0, 0), *self.padding),
            (1, *self.base_dilations),
            (1, *self.window_dilations),
        )
        if not any(is_batched[count:]):
            return b.emit(whole, *arrays, *operands[count:])
        starts = all_repeated(b, size, operands[count:], is_batched[count:])
        if 0 in whole.counts(arrays[0].type.shape):
            return tuple([b.zeros(x.type.with_shape(whole.counts(x.type.shape))) for x in arrays])
        none = [None] * count
        return _parts(whole._by_position(b, _with_tangents(arrays, none), _with_tangents(starts, none)))[0]

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size * math.prod(self.window_dimensions) * self.flops_of_pair()
