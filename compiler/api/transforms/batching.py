"""`vmap`: a function of one element as a function of a batch; and the collectives over the elements of a batch.

`vmap` traces its function on the types of one element, batches the graph (`rematc.passes.vmap`) and copies the result
into the open trace. Outside all traces it is compiled as a whole and cached by shape, as `grad` is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar, cast

import jax.tree_util
import numpy as np

from rematc.compiler.api.jit import transformed
from rematc.compiler.functions.calls import TracedFunction, apply_graph, emit_op1, trace_function
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.trace import Tracer, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.ops.collective import AxisGather, AxisIndex, AxisMax, AxisMin, AxisSum
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Transpose
from rematc.ir.types import I32, TensorType
from rematc.lowering.signature import Function, function_name
from rematc.passes.vmap import vmap as vmap_of_graph

P = ParamSpec("P")
R = TypeVar("R")

#: The sizes of the named axes whose functions are being traced.
_sizes: ContextVar[Mapping[str, int]] = ContextVar("sizes_of_named_axes")


class _Unmapped:
    """Stands for None in a flattened tree of axes, where None itself is an empty tree."""

    def __repr__(self) -> str:
        return "None"


_UNMAPPED = _Unmapped()
Axis = int | _Unmapped


def vmap(
    fun: Callable[P, R],
    in_axes: object = 0,
    out_axes: object = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
) -> Callable[P, R]:
    """`fun`, applied to each element of a batch at once.

    Args:
        fun: a function of arrays and pytrees of arrays.
        in_axes: along which axis of each positional argument the elements lie: an integer, None for what all elements
            share, or a tuple with an entry for each argument, which is an integer, None or a pytree prefix of them.
            Keyword arguments are mapped along axis 0.
        out_axes: where the results have the axis of the batch: an integer, None for what is the same for all
            elements, or a pytree prefix.
        axis_name: the name by which `psum`, `pmean`, `pmax`, `pmin`, `all_gather` and `axis_index` in `fun` call the
            batch.
        axis_size: the size of the batch, where no argument tells it.

    Raises:
        CompileError: on the call, where sizes disagree, an axis is out of range, or axes do not fit the arguments or
            the results.
    """
    name = function_name(fun)

    def record(*args: object, **kwargs: object) -> object:
        call = CallArguments.of(fun, args, kwargs)
        axes = _axes_of_arguments(name, call, in_axes, args, kwargs)
        size = _size(name, call, axes, axis_size)
        traced = _trace_element(fun, call, axes, axis_name, size)
        return _apply(name, call, axes, size, traced, axis_name, out_axes)

    return cast(Callable[P, R], transformed(fun, record))


def _trace_element(
    fun: Function, call: CallArguments, axes: Sequence[Axis], axis_name: str | None, size: int
) -> TracedFunction:
    types = [_element(type, axis) for type, axis in zip(call.types, axes, strict=True)]
    weak = [is_weak and axis is _UNMAPPED for is_weak, axis in zip(call.weak, axes, strict=True)]
    with _bound(axis_name, size):
        return trace_function(
            lambda *arrays: call.call(fun, arrays),
            types,
            weak,
            call.names,
            jax.tree_util.tree_structure(call.arrays),
            name=function_name(fun),
        )


def _element(type: TensorType, axis: Axis) -> TensorType:
    if not isinstance(axis, int):
        return type
    return type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))


def _apply(
    name: str,
    call: CallArguments,
    axes: Sequence[Axis],
    size: int,
    traced: TracedFunction,
    axis_name: str | None,
    out_axes: object,
) -> object:
    """The batched graph, recorded in the open trace; its results where `out_axes` wants them."""
    trace = require_trace()
    trace.records.extend(traced.records)
    closure = (*traced.captures, *traced.constants)
    is_batched = [isinstance(axis, int) for axis in axes]
    batched = vmap_of_graph(traced.graph, [*is_batched, *(False for _ in closure)], size, axis_name)
    arrays = [_moved(array, axis, 0) for array, axis in zip(call.arrays, axes, strict=True)]
    weak = [is_weak and not is_set for is_weak, is_set in zip(traced.out_weak, batched.is_batched, strict=True)]
    results = apply_graph(batched.graph, (*arrays, *closure), weak)
    spread = _axes_of_results(name, out_axes, traced.out_tree)
    placed = []
    for result, is_set, (place, axis) in zip(results, batched.is_batched, spread, strict=True):
        placed.append(_placed(name, result, is_set, size, place, axis))
    return jax.tree_util.tree_unflatten(traced.out_tree, placed)


def _placed(name: str, result: Tracer, is_batched: bool, size: int, place: str, axis: Axis) -> Tracer:
    """A result with its batch dimension at `axis`."""
    if not isinstance(axis, int):
        if is_batched:
            raise CompileError(
                f"out_axes says None for {place} of '{name}', which is not the same for all elements of the batch; "
                "give an axis, or combine the elements first (psum, pmean)",
                user_location(),
            )
        return result
    rank = result.ndim + int(not is_batched)
    at = _in_range(axis, rank, f"out_axes gives axis {axis} for {place} of '{name}', which with the batch has rank")
    if is_batched:
        return cast(Tracer, _moved(result, 0, at))
    others = tuple([d for d in range(rank) if d != at])
    shape = (*result.shape[:at], size, *result.shape[at:])
    return emit_op1(BroadcastInDim(shape, others), result)


def _moved(array: object, source: Axis, target: int) -> object:
    """The array with one axis moved, if it is mapped."""
    if not isinstance(source, int) or source == target:
        return array
    rank = array.ndim if hasattr(array, "ndim") else np.ndim(array)  # type: ignore[arg-type]  # an array of any library
    order = [d for d in range(rank) if d != source]
    order.insert(target, source)
    return emit_op1(Transpose(tuple(order)), array)


# -- axes --------------------------------------------------------------------------------------------------------------


def _axes_of_arguments(
    name: str, call: CallArguments, in_axes: object, args: Sequence[object], kwargs: dict[str, object]
) -> list[Axis]:
    """For each array of the call its axis, counted from the start."""
    prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(prefix, tuple) and len(prefix) != len(args):
        raise CompileError(
            f"in_axes of '{name}' has {len(prefix)} entries, but there are {len(args)} positional arguments; "
            "give one entry for each, or one axis for all",
            user_location(),
        )
    prefixes = prefix if isinstance(prefix, tuple) else (prefix,) * len(args)
    spread = [
        _spread(part, argument, f"in_axes[{position}] of '{name}'")
        for position, (part, argument) in enumerate(zip(prefixes, args, strict=True))
    ]
    by_keyword = {key: _spread(0, value, "") for key, value in kwargs.items()}
    axes: list[Axis] = []
    for axis, argument, type in zip(call.matching("in_axes", spread, by_keyword), call.names, call.types, strict=True):
        if not isinstance(axis, int):
            axes.append(_UNMAPPED)
            continue
        what = f"in_axes maps axis {axis} of {argument} for '{name}', but {argument} is {type} of rank"
        axes.append(_in_range(axis, type.rank, what))
    return axes


def _in_range(axis: int, rank: int, what: str) -> int:
    if not -rank <= axis < rank:
        raise CompileError(f"{what} {rank}; give an axis that it has, or None for what is shared", user_location())
    return axis % rank


def _spread(prefix: object, tree: object, what: str) -> object:
    """The tree with an axis for each leaf."""

    def repeat(axis: object, part: object) -> object:
        if axis is None:
            axis = _UNMAPPED
        elif isinstance(axis, bool) or not isinstance(axis, int):
            raise CompileError(f"{what} is an integer, None or a pytree of them; got {axis!r}", user_location())
        return jax.tree_util.tree_map(lambda _: axis, part)

    try:
        return jax.tree_util.tree_map(repeat, prefix, tree, is_leaf=lambda leaf: leaf is None)
    except (ValueError, TypeError) as error:
        found = jax.tree_util.tree_structure(tree)
        raise CompileError(
            f"{what} is {prefix!r}, which is no prefix of the structure {found}", user_location()
        ) from error


def _axes_of_results(name: str, out_axes: object, tree: jax.tree_util.PyTreeDef) -> list[tuple[str, Axis]]:
    """What each result is called, and its axis."""
    results = jax.tree_util.tree_unflatten(tree, range(tree.num_leaves))
    spread = _spread(out_axes, results, f"out_axes of '{name}'")
    paths, _ = jax.tree_util.tree_flatten_with_path(spread)
    return [(f"output{jax.tree_util.keystr(path)}" if path else "the output", axis) for path, axis in paths]


def _size(name: str, call: CallArguments, axes: Sequence[Axis], axis_size: int | None) -> int:
    """How many elements the batch has."""
    mapped = [
        (argument, axis, type.shape[axis])
        for argument, type, axis in zip(call.names, call.types, axes, strict=True)
        if isinstance(axis, int)
    ]
    sizes = {size for _, _, size in mapped} | ({axis_size} if axis_size is not None else set())
    if not sizes:
        raise CompileError(
            f"vmap of '{name}' maps no argument, so that the size of the batch is not known; "
            "give an axis in in_axes, or axis_size",
            user_location(),
        )
    if len(sizes) > 1:
        listed = [f"{argument} has size {size} along axis {axis}" for argument, axis, size in mapped]
        listed += [] if axis_size is None else [f"axis_size is {axis_size}"]
        raise CompileError(
            f"the arguments of '{name}' disagree about the size of the batch: {', '.join(listed)}; "
            "give None in in_axes for what all elements share",
            user_location(),
        )
    return sizes.pop()


# -- collectives -------------------------------------------------------------------------------------------------------


@contextmanager
def _bound(axis_name: str | None, size: int) -> Iterator[None]:
    """Let collectives over `axis_name` be traced meanwhile."""
    if axis_name is None:
        yield
        return
    token = _sizes.set({**_sizes.get({}), axis_name: size})
    try:
        yield
    finally:
        _sizes.reset(token)


@dataclass(frozen=True, slots=True)
class _NamedAxis:
    name: str
    size: int


def _axes_named(what: str, axis_name: object) -> list[_NamedAxis]:
    """The axes that a collective names: one, or a sequence of them."""
    known = _sizes.get({})
    found = []
    for name in (axis_name,) if isinstance(axis_name, str) else cast(Sequence[object], axis_name):
        if not isinstance(name, str) or name not in known:
            bound = ", ".join(map(repr, known)) or "none"
            raise CompileError(
                f"{what} over the axis {name!r}, but the axes named by the vmaps around it are: {bound}; "
                f"call it inside vmap(..., axis_name={name!r})",
                user_location(),
            )
        found.append(_NamedAxis(name, known[name]))
    return found


def psum(x: object, axis_name: str | Sequence[str]) -> object:
    """The sum of `x` over all elements of the batch, which every element gets.

    Args:
        x: an array or a pytree of arrays; of booleans the number that are true.
        axis_name: the `axis_name` of a `vmap` around the call, or several.
    """
    axes = _axes_named("psum", axis_name)
    return jax.tree_util.tree_map(functools.partial(_summed, axes=axes), x)


def _summed(leaf: object, axes: Sequence[_NamedAxis]) -> object:
    if isinstance(leaf, (int, float, complex)) and not isinstance(leaf, np.generic):
        return leaf * int(np.prod([axis.size for axis in axes]))
    if np.dtype(getattr(leaf, "dtype", np.float64)) == np.bool_:
        leaf = emit_op1(Convert(I32), leaf)
    for axis in axes:
        leaf = emit_op1(AxisSum(axis.name, axis.size), leaf)
    return leaf


def pmean(x: object, axis_name: str | Sequence[str]) -> object:
    """The mean of `x` over all elements of the batch, which every element gets; arguments as for `psum`."""
    axes = _axes_named("pmean", axis_name)
    count = int(np.prod([axis.size for axis in axes]))
    return jax.tree_util.tree_map(lambda leaf: leaf / count, psum(x, axis_name))


def pmax(x: object, axis_name: str | Sequence[str]) -> object:
    """The maximum of `x` over all elements of the batch, which every element gets; arguments as for `psum`.

    Equal maxima share the derivative equally.
    """
    return _extremum("pmax", AxisMax, x, axis_name)


def pmin(x: object, axis_name: str | Sequence[str]) -> object:
    """The minimum of `x` over all elements of the batch, which every element gets; as `pmax`."""
    return _extremum("pmin", AxisMin, x, axis_name)


def _extremum(what: str, op: type[AxisMax] | type[AxisMin], x: object, axis_name: str | Sequence[str]) -> object:
    def over_axes(leaf: object) -> object:
        for axis in axes:
            leaf = emit_op1(op(axis.name, axis.size), leaf)
        return leaf

    axes = _axes_named(what, axis_name)
    return jax.tree_util.tree_map(over_axes, x)


def all_gather(x: object, axis_name: str, *, axis: int = 0, tiled: bool = False) -> object:
    """What all elements of the batch have for `x`, which every element gets.

    Args:
        x: an array or a pytree of arrays.
        axis_name: the `axis_name` of a `vmap` around the call.
        axis: the place of the new axis, or, if `tiled`, the axis along which the arrays are joined.
        tiled: whether to join the arrays along an axis that they have, instead of stacking them along a new one.
    """
    (named,) = _axes_named("all_gather", axis_name)

    def gathered(leaf: object) -> Tracer:
        rank = np.ndim(leaf) + int(not tiled)  # type: ignore[arg-type]  # an array or a number
        at = _in_range(axis, rank, f"all_gather along axis {axis} of an array that with the batch has rank")
        stacked = emit_op1(AxisGather(named.name, named.size, at), leaf)
        if not tiled:
            return stacked
        shape = stacked.shape
        return emit_op1(Reshape((*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])), stacked)

    return jax.tree_util.tree_map(gathered, x)


def axis_index(axis_name: str) -> object:
    """The number of this element in the batch, an int32 scalar, under the `axis_name` of a `vmap` around the call."""
    (named,) = _axes_named("axis_index", axis_name)
    return emit_op1(AxisIndex(named.name, named.size))
