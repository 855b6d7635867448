"""Branches: `cond` and `switch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.tree_util
import numpy as np

from rematc.compiler.api.leaves import Leaves, described, executed, line_of, structure_text
from rematc.compiler.functions.calls import TracedFunction, emit_op, emit_op1, trace_function, with_types
from rematc.compiler.tracing.arguments import leaf_type
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.conversion import Convert
from rematc.ir.types import I32, TensorType, dtype_of_numpy
from rematc.ir.values import Value
from rematc.lowering.signature import Function, function_name


def cond(pred: object, true_fun: Callable[..., object], false_fun: Callable[..., object], *operands: object) -> object:
    """`true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`; the meaning is `jax.lax.cond`'s.

    Only the branch that is taken is evaluated, and differentiated.

    Args:
        pred: a boolean scalar; a number holds where it is not zero.
        true_fun: a function of the operands.
        false_fun: another one, whose results have the same structure, shapes and element types.
        operands: pytrees of arrays; what the functions close over need not be among them.

    Raises:
        CompileError: at the user's line, where the branches return different structures or types.
    """
    return _choose("cond", pred, (false_fun, true_fun), operands)


def switch(index: object, branches: Sequence[Callable[..., object]], *operands: object) -> object:
    """Branch number `index`, applied to the operands; an index outside takes the nearest.

    The meaning is `jax.lax.switch`'s.

    Args:
        index: an integer scalar.
        branches: functions of the operands, whose results have the same structure, shapes and element types.
        operands: pytrees of arrays.

    Raises:
        CompileError: at the user's line, where the branches return different structures or types.
    """
    if not branches:
        raise CompileError("switch needs at least one branch", user_location())
    return _choose("switch", index, tuple(branches), operands)


def _choose(
    what: str, index: object, branches: tuple[Callable[..., object], ...], operands: tuple[object, ...]
) -> object:
    if isinstance(index, bool):
        index = np.asarray(index)
    if current_trace() is None:
        return executed(lambda index, *operands: _choose(what, index, branches, operands), index, *operands)
    number = _index(what, index, len(branches))
    given = Leaves.of("operands", operands)
    traced = [_traced(branch, given) for branch in branches]
    trace = require_trace()
    for one in traced:
        trace.records.extend(one.records)
    _check_trees(what, traced, branches)
    captures = {tracer.value: tracer for one in traced for tracer in one.captures}
    types = _result_types(what, traced)
    graphs = tuple([_with_captures(with_types(one.graph, types), one, captures, given) for one in traced])
    results = emit_op(Case(graphs), number, *given.values, *captures.values())
    for position, tracer in enumerate(results):
        tracer.weak = all(one.out_weak[position] for one in traced)
    return jax.tree_util.tree_unflatten(traced[0].out_tree, results)


def _index(what: str, index: object, count: int) -> Tracer:
    """The number of the branch, an i32."""
    type = leaf_type(index)[0]
    if type.shape or (what == "switch" and not (type.dtype.is_integer or type.dtype.is_bool)):
        expected = "a boolean scalar" if what == "cond" else "an integer scalar"
        raise CompileError(f"{what} chooses by {expected}, got {type}; reduce it first", user_location())
    if what == "cond":
        holds = index if type.dtype.is_bool else np.not_equal(index, 0)  # type: ignore[call-overload]  # a number or a tracer
        return emit_op1(Convert(I32), holds)
    wide = index if type.dtype is I32 or type.dtype.is_bool else np.clip(index, 0, count - 1)  # type: ignore[call-overload]  # as above
    narrow = emit_op1(Convert(I32), wide)
    return np.clip(narrow, np.int32(0), np.int32(count - 1))  # type: ignore[call-overload, no-any-return]  # of a tracer


def _traced(branch: Callable[..., object], given: Leaves) -> TracedFunction:
    names = [f"x{path}" for path in given.paths]
    return trace_function(branch, given.types, given.weak, names, given.tree, name=function_name(branch))


def _check_trees(what: str, traced: Sequence[TracedFunction], branches: Sequence[Function]) -> None:
    first = traced[0].out_tree
    for one, branch in zip(traced, branches, strict=True):
        if one.out_tree != first:
            raise CompileError(
                f"the branches of {what} return different structures: {described(branches[0])} returns "
                f"{structure_text(first)}, {described(branch)} returns {structure_text(one.out_tree)}; "
                "return the same from all, with zeros for what a branch does not have",
                user_location(),
            )


def _result_types(what: str, traced: Sequence[TracedFunction]) -> list[TensorType]:
    """The type of each result; those of Python numbers yield to those of arrays."""
    types = []
    for position, path in enumerate(_paths(traced[0])):
        firm = [one for one in traced if not one.out_weak[position]]
        found = [one.graph.results[position].type for one in firm or traced]
        chosen = found[0]
        if not firm:
            dtype = dtype_of_numpy(np.result_type(*[type.dtype.numpy for type in found]))
            assert dtype is not None, "Python's numbers have a common type"
            chosen = chosen.with_dtype(dtype)
        for one in traced:
            type = one.graph.results[position].type
            if type.shape != chosen.shape or (type != chosen and not one.out_weak[position]):
                raise _differing(what, path, position, (firm or traced)[0], one)
        types.append(chosen)
    return types


def _paths(traced: TracedFunction) -> list[str]:
    numbered = jax.tree_util.tree_unflatten(traced.out_tree, range(len(traced.graph.results)))
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(numbered)[0]]


def _differing(what: str, path: str, position: int, one: TracedFunction, other: TracedFunction) -> CompileError:
    rows = []
    for traced in (one, other):
        value = traced.graph.results[position]
        loc = line_of(value, traced.graph)
        rows.append(f"'{traced.graph.name}' gives {value.type}" + (f" ({loc.describe()})" if loc else ""))
    place = f"output{path}" if path else "outputs"
    return CompileError(
        f"the branches of {what} return different types: for their {place} {rows[0]}, {rows[1]}; convert one of them",
        user_location(),
    )


def _with_captures(graph: Graph, traced: TracedFunction, captures: dict[Value, Tracer], given: Leaves) -> Graph:
    """The graph with a parameter for whatever some branch closes over."""
    count = len(given.values)
    own = dict(zip([tracer.value for tracer in traced.captures], graph.params[count:], strict=True))
    params = [own.get(value) or Value(value.type, value.name) for value in captures]
    return Graph(graph.name, (*graph.params[:count], *params), graph.equations, graph.results)
