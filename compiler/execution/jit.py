"""Running functions: `jit`, and graphs executed as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.execution.calls import emit_op, trace_call
from rematc.compiler.execution.programs import program_of
from rematc.compiler.tracing.arguments import CallArguments, Function, Statics
from rematc.compiler.tracing.trace import current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Call
from rematc.lowering.dispatch import Dispatcher, Staged

P = ParamSpec("P")
R = TypeVar("R")

_NO_STATICS = Statics(frozenset(), frozenset())


def compiled(function: Function, statics: Statics = _NO_STATICS) -> Dispatcher:
    """`function`, compiled once for each shape, element type, structure and static value of its arguments.

    Inside a trace it is recorded as a call: its body is printed once, however often it is applied.
    """

    @functools.wraps(function, updated=())
    @collection_paused()
    def stage(*args: object, **kwargs: object) -> Staged:
        call = CallArguments.of(function, args, kwargs, statics)
        traced = trace_call(function, call)
        return Staged(program_of(traced.graph, traced.constants), traced.out_tree)

    def record(*args: object, **kwargs: object) -> object:
        call = CallArguments.of(function, args, kwargs, statics)
        traced = trace_call(function, call)
        trace = require_trace()
        trace.records.extend(traced.records)
        results = emit_op(Call(traced.graph), *call.arrays, *traced.captures)
        for tracer, is_weak in zip(results, traced.out_weak, strict=True):
            tracer.weak = is_weak
        return jax.tree_util.tree_unflatten(traced.out_tree, results)

    return Dispatcher(
        stage,
        static_argnums=sorted(statics.positions),
        static_argnames=sorted(statics.names),
        open_trace=current_trace,
        record=record,
        locate=user_location,
    )


def jit(
    fun: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, R]:
    """`fun`, traced and compiled at its first call for each signature of its arguments.

    Args:
        fun: a function of arrays and pytrees of arrays.
        static_argnums: positions of arguments whose value `fun` may branch on; a new value compiles anew.
        static_argnames: the same by name.
    """
    return compiled(fun, Statics.of(fun, static_argnums, static_argnames))


class Eager:
    """A transformed function called outside all traces: compiled like any other, with flags and strings static.

    Such a function is the user's own with another result, and users branch on `train=True`.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._jits: dict[tuple[object, ...], Dispatcher] = {}

    def __call__(self, *args: object, **kwargs: object) -> object:
        positions = [index for index, value in enumerate(args) if isinstance(value, (bool, str))]
        names = [name for name, value in kwargs.items() if isinstance(value, (bool, str))] if kwargs else []
        key = (*positions, *names)
        found = self._jits.get(key)
        if found is None:
            found = self._jits.setdefault(
                key, compiled(self._function, Statics(frozenset(positions), frozenset(names)))
            )
        return found(*args, **kwargs)


def transformed(fun: Function, record: Function) -> Callable[..., object]:
    """What `record` makes of `fun`, under the name of `fun`: recorded in the open trace, or compiled outside of all."""
    functools.update_wrapper(record, fun, updated=())
    eager = Eager(record)

    @functools.wraps(fun, updated=())
    def function(*args: object, **kwargs: object) -> object:
        return eager(*args, **kwargs) if current_trace() is None else record(*args, **kwargs)

    return function


def run_graph(graph: Graph, operands: Sequence[object]) -> list[object]:
    """Compile and run a graph; equal graphs are compiled once. Operands are arrays and numbers, one a parameter."""
    arrays = [
        operand if hasattr(operand, "dtype") else np.asarray(operand, value.type.dtype.numpy)
        for operand, value in zip(operands, graph.params, strict=True)
    ]
    results: list[object] = _dispatcher_of_graph(graph)(*arrays)
    return results


@functools.lru_cache(maxsize=512)
def _dispatcher_of_graph(graph: Graph) -> Dispatcher:
    staged = Staged(program_of(graph, ()), jax.tree_util.tree_structure([0] * len(graph.results)))
    return Dispatcher(lambda *leaves: staged)
