"""Import of calls of Python functions: prints, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.jax.values import type_of
from rematc.ir.host_functions import HostFunction
from rematc.ir.ops.effects import VMAP_METHODS, DebugCallback, IoCallback, PureCallback
from rematc.ir.values import Array, Value


@dataclass(frozen=True, slots=True)
class _Print:
    """What `jax.debug.print` does with the arrays, on the host.

    Attributes:
        format: the text, with places for the arguments where it has some.
        tree: of (arguments, keyword arguments).
        statics: (place, leaf) for each leaf that is no array.
        has_places: whether the text has places.
        options: how NumPy prints arrays.
    """

    format: str
    tree: jax.tree_util.PyTreeDef
    statics: tuple[tuple[int, Any], ...]
    has_places: bool
    options: tuple[tuple[str, Any], ...]

    def __call__(self, *arrays: Array) -> tuple[()]:
        statics, given = dict(self.statics), iter(arrays)
        leaves = [statics[place] if place in statics else next(given) for place in range(self.tree.num_leaves)]
        args, kwargs = jax.tree_util.tree_unflatten(self.tree, leaves)
        with np.printoptions(**dict(self.options)):
            if self.has_places:
                print(self.format.format(*args, **kwargs))
            else:
                print(" ".join([self.format, *map(str, args)]))
        return ()


@dataclass(frozen=True, slots=True)
class _Results:
    """A function whose results are NumPy arrays; equal to another of the same function."""

    function: Callable[..., Any]

    def __call__(self, *arrays: Array) -> list[Array]:
        return [np.asarray(one) for one in self.function(*arrays)]


@imports("debug_print")
def debug_print(block: Block, eqn: Any) -> Sequence[Value]:
    """`debug_callback` of a function that prints as JAX does."""
    params = eqn.params
    if params.get("logging_record") is not None:
        block.fail(eqn, "that logs cannot be imported; print without a logging level")
    function = _Print(
        params["fmt"],
        params["in_tree"],
        tuple(dict(params["static_args"]).items()),
        params["has_placeholders"],
        _options(params),
    )
    called = HostFunction(function, f"jax.debug.print of {params['fmt']!r}", block.location(eqn))
    return block.b.emit(DebugCallback(called, bool(params["ordered"])), *block.operands(eqn))


def _options(params: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(dict(params["np_printoptions"]).items())


@imports("debug_callback")
def debug_callback(block: Block, eqn: Any) -> Sequence[Value]:
    """`debug_callback`."""
    called = HostFunction(eqn.params["callback"], "jax.debug.callback", block.location(eqn))
    is_ordered = "Ordered" in type(eqn.params["effect"]).__name__
    return block.b.emit(DebugCallback(called, is_ordered), *block.operands(eqn))


@imports("io_callback")
def io_callback(block: Block, eqn: Any) -> Sequence[Value]:
    """`io_callback`; `debug_callback` of a function without results."""
    function, is_ordered = eqn.params["callback"], bool(eqn.params["ordered"])
    name, loc = "jax io_callback", block.location(eqn)
    if not eqn.outvars:
        return block.b.emit(DebugCallback(HostFunction(function, name, loc), is_ordered), *block.operands(eqn))
    types = tuple([type_of(variable.aval) for variable in eqn.outvars])
    op = IoCallback(HostFunction(_Results(function), name, loc), types, is_ordered)
    return block.b.emit(op, *block.operands(eqn))


@imports("pure_callback")
def pure_callback(block: Block, eqn: Any) -> Sequence[Value]:
    """`pure_callback`; where JAX would not batch it, a batch is computed by a call for each element."""
    called = HostFunction(_Results(eqn.params["callback"]), "jax.pure_callback", block.location(eqn))
    types = tuple([type_of(variable.aval) for variable in eqn.outvars])
    method = eqn.params["vmap_method"]
    op = PureCallback(called, types, method if method in VMAP_METHODS else "sequential")
    return block.b.emit(op, *block.operands(eqn))
