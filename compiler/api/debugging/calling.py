"""Calls of Python functions from traced functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.functions.calls import emit_op
from rematc.compiler.tracing.arguments import is_array_like, leaf_type
from rematc.compiler.tracing.trace import current_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.host_functions import HostFunction
from rematc.ir.ops.effects import VMAP_METHODS, CallForResults, DebugCallback, IoCallback, PureCallback
from rematc.ir.types import TensorType
from rematc.ir.values import Array
from rematc.lowering.signature import function_name


def callback(function: Callable[..., object], *args: object, ordered: bool = False, **kwargs: object) -> None:
    """Call `function(*args, **kwargs)` when the program runs, with NumPy arrays for the arrays in the arguments.

    It is called as often as the line is executed, as `rematc.debug.print` prints. What it returns is let go.

    Args:
        function: called for its effect. What it raises is raised by the call of the program, as a CompileError with
            the user's exception as its cause.
        args: pytrees of arrays; other leaves are passed as they are.
        ordered: whether ordered prints and callbacks happen in the order of the program. Others may happen in any.
        kwargs: the same, by name.

    Raises:
        CompileError: at the user's line, for what is no function.
    """
    _check_function("debug.callback", function)
    if current_trace() is None:
        function(*args, **kwargs)
    else:
        call_for_effect(function, f"debug.callback of '{function_name(function)}'", args, kwargs, ordered)


def pure_callback(
    function: Callable[..., object],
    result_types: Any,
    *args: object,
    vmap_method: str = "sequential",
    **kwargs: object,
) -> Any:
    """What `function(*args, **kwargs)` gives, called with NumPy arrays when the program runs.

    It must be a function of its arguments alone: it may be called more often than the line is executed (a checkpoint
    calls it again), or not at all. It has no derivative; give it one with `custom_jvp` or `custom_vjp` around the call.

    Args:
        function: gives arrays of the announced structure, shapes and element types.
        result_types: a pytree of what has `shape` and `dtype`: `jax.ShapeDtypeStruct`s, or arrays like the results.
        args: pytrees of arrays; other leaves are passed as they are.
        vmap_method: how a batch is computed. "sequential" calls the function for each element; "expand_dims" and
            "broadcast_all" once for all, with a batch dimension in front of all arrays: of size 1 for those that all
            elements share, or of the batch's size.
        kwargs: the same, by name.

    Raises:
        CompileError: at the user's line, for what is no function or no type; where the program runs, for results of
            other types, and for what the function raises.
    """
    _check_function("pure_callback", function)
    if vmap_method not in VMAP_METHODS:
        raise CompileError(
            f"pure_callback has no vmap_method {vmap_method!r}; there is {', '.join(map(repr, VMAP_METHODS))}",
            user_location(),
        )
    return _called(
        "pure_callback",
        function,
        result_types,
        args,
        kwargs,
        lambda called, types: PureCallback(called, types, vmap_method),
    )


def io_callback(
    function: Callable[..., object],
    result_types: Any,
    *args: object,
    ordered: bool = False,
    **kwargs: object,
) -> Any:
    """What `function(*args, **kwargs)` gives, called with NumPy arrays for what it does, too, when the program runs.

    It is called exactly as often as the line is executed: its results are saved for the backward pass, whatever the
    policy. It has no derivative; hide arguments that have one with `stop_gradient`. The meaning is that of
    `jax.experimental.io_callback`.

    Args:
        function: gives arrays of the announced structure, shapes and element types.
        result_types: a pytree of what has `shape` and `dtype`: `jax.ShapeDtypeStruct`s, or arrays like the results.
        args: pytrees of arrays; other leaves are passed as they are.
        ordered: whether it happens in the order of the program, beside other ordered prints and callbacks.
        kwargs: the same as `args`, by name.

    Raises:
        CompileError: as `pure_callback` does.
    """
    _check_function("io_callback", function)
    return _called(
        "io_callback", function, result_types, args, kwargs, lambda called, types: IoCallback(called, types, ordered)
    )


def _called(
    name: str,
    function: Callable[..., object],
    result_types: Any,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    make: Callable[[HostFunction, tuple[TensorType, ...]], CallForResults],
) -> Any:
    """What an op of a Python function gives for these arguments; errors call it `name`."""
    leaves, tree = jax.tree_util.tree_flatten(result_types)
    types = tuple([_announced(leaf, name) for leaf in leaves])
    arrays, arguments = _taken_apart(args, kwargs)
    own = function_name(function)
    op = make(HostFunction(_Flat(function, arguments, tree, own), f"{name} of '{own}'", user_location()), types)
    if current_trace() is None:
        results: Sequence[object] = op.reference([np.asarray(array) for array in arrays])
    else:
        results = emit_op(op, *arrays)
    return jax.tree_util.tree_unflatten(tree, results)


def is_operand(leaf: object) -> bool:
    """Whether an argument is passed by the program: arrays are, and what is traced. Python's own numbers stay."""
    is_number = isinstance(leaf, (int, float, complex)) and not isinstance(leaf, np.generic)
    return is_array_like(leaf) and not is_number


def call_for_effect(
    function: Callable[..., object], name: str, args: tuple[object, ...], kwargs: dict[str, object], ordered: bool
) -> None:
    """Record a call in the trace that is open; errors call it `name`."""
    arrays, arguments = _taken_apart(args, kwargs)
    called = HostFunction(function if arguments.is_flat else _Flat(function, arguments), name, user_location())
    emit_op(DebugCallback(called, ordered), *arrays)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Arguments without their arrays.

    Attributes:
        leaves: all leaves; None at the places of arrays.
        tree: of (args, kwargs).
        places: of the arrays among the leaves.
    """

    leaves: tuple[object, ...]
    tree: jax.tree_util.PyTreeDef
    places: tuple[int, ...]

    @property
    def is_flat(self) -> bool:
        """Whether the arguments are arrays, passed by position."""
        count = len(self.leaves)
        flat = jax.tree_util.tree_structure(((0,) * count, {}))
        return len(self.places) == count and self.tree == flat

    def call(self, function: Callable[..., object], arrays: Sequence[Array]) -> object:
        """Call the function with these arrays."""
        leaves = list(self.leaves)
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = array
        args, kwargs = jax.tree_util.tree_unflatten(self.tree, leaves)
        return function(*args, **kwargs)


def _taken_apart(args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[list[object], _Arguments]:
    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    places = tuple([index for index, leaf in enumerate(leaves) if is_operand(leaf)])
    arrays = [leaves[index] for index in places]
    kept = tuple([None if is_operand(leaf) else leaf for leaf in leaves])
    return arrays, _Arguments(kept, tree, places)


@dataclass(frozen=True, slots=True)
class _Flat:
    """A function of pytrees as one of arrays; of results, where their structure is known, as a flat list of them."""

    function: Callable[..., object]
    arguments: _Arguments
    out_tree: jax.tree_util.PyTreeDef | None = None
    name: str = ""

    def __call__(self, *arrays: Array) -> object:
        output = self.arguments.call(self.function, arrays)
        if self.out_tree is None:
            return ()
        leaves, tree = jax.tree_util.tree_flatten(output)
        if tree != self.out_tree:
            raise TypeError(f"'{self.name}' gave the structure {tree}, announced was {self.out_tree}")
        return leaves


def _check_function(what: str, function: object) -> None:
    if not callable(function):
        raise CompileError(f"{what} takes a function first, got a {type(function).__name__}", user_location())


def _announced(leaf: object, name: str) -> TensorType:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise CompileError(
            f"{name} takes the types of the results second, such as jax.ShapeDtypeStruct(shape, dtype), "
            f"got a {type(leaf).__name__}",
            user_location(),
        )
    return leaf_type(leaf)[0]
