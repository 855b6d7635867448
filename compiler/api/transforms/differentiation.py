"""Derivatives as functions: `vjp`, `jvp`, `linearize`; and `stop_gradient`, which has none.

They trace their function to a graph and transform it. Inside a trace the results are copied into that one; outside of
all traces the graphs that come out are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import jax.tree_util
import numpy as np

from rematc.compiler.api.jit import run_graph
from rematc.compiler.api.transforms.derivative_graphs import run
from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.calls import apply_graph, emit_op1, trace_call
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.functions.policies import check_whole_names, default_policy, whole_policy
from rematc.compiler.reports.differentiation import Differentiation
from rematc.compiler.reports.residuals import log_residuals
from rematc.compiler.tracing import derivative_order as order
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.options import CompilerOptions, Options
from rematc.compiler.tracing.trace import Tracer, current_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import StopGradient
from rematc.ir.types import TensorType
from rematc.lowering.signature import Function, function_name
from rematc.passes import linearize as linearization
from rematc.passes.jvp import jvp as jvp_of_graph
from rematc.passes.staging.stage import staged

T = TypeVar("T")


def jvp(fun: Function, primals: Sequence[object], tangents: Sequence[object]) -> tuple[object, object]:
    """The value of `fun` at `primals`, and its derivative there along `tangents`.

    Args:
        fun: a function of arrays and pytrees.
        primals: its positional arguments.
        tangents: one for each primal, of the same structure, shapes and element types; for integers and booleans
            whatever is given is ignored.

    Returns:
        (outputs, tangents of the outputs), of one structure. Integer outputs have zeros.
    """
    fun = as_function(fun)
    call = CallArguments.of(fun, primals, {})
    with order.differentiated():
        traced = trace_call(fun, call)
    given = _given_tangents(call, tangents)
    if trace := current_trace():
        trace.records.extend(traced.records)
    differentiated = jvp_of_graph(traced.graph, traced.wrt)
    closure = (*traced.captures, *traced.constants)
    outcome = _run_plain(differentiated.graph, (*call.arrays, *closure, *given))
    count = len(traced.graph.results)
    out_tangents = iter(outcome[count:])
    filled = [
        next(out_tangents) if is_set else _zeros(value.type)
        for is_set, value in zip(differentiated.has_tangent, traced.graph.results, strict=True)
    ]
    return _unflatten(traced.out_tree, outcome[:count]), _unflatten(traced.out_tree, filled)


def _given_tangents(call: CallArguments, tangents: Sequence[object]) -> list[object]:
    """The tangents of floating-point primals, checked against their types."""
    leaves = call.matching("tangents", tangents, {})
    pairs = [pair for pair in zip(leaves, call.types, strict=True) if pair[1].dtype.is_inexact]
    return [_checked(leaf, type, "tangent") for leaf, type in pairs]


def _run_plain(graph: Graph, operands: Sequence[object]) -> list[object]:
    if current_trace() is None:
        return run_graph(graph, operands)
    return list(apply_graph(graph, operands, (False,) * len(graph.results)))


def linearize(fun: Function, *primals: object) -> tuple[object, Callable[..., object]]:
    """The value of `fun` at `primals`, and its linear approximation there: a function of tangents.

    What does not depend on the tangents is computed once, now.
    """
    fun = as_function(fun)
    call = CallArguments.of(fun, primals, {})
    with order.differentiated():
        traced = trace_call(fun, call)
    linearized = linearization.linearize(traced.graph, traced.wrt)
    if trace := current_trace():
        trace.records.extend(traced.records)
    outcome = run(linearized.forward, call.arrays, traced)
    count = len(traced.graph.results)
    results, residuals = outcome[:count], outcome[count:]

    def linear(*tangents: object) -> object:
        given = _given_tangents(call, tangents)
        outgoing = iter(_run_plain(linearized.linear, (*residuals, *given)))
        filled = [
            next(outgoing) if is_set else _zeros(value.type)
            for is_set, value in zip(linearized.has_tangent, traced.graph.results, strict=True)
        ]
        return _unflatten(traced.out_tree, filled)

    return _unflatten(traced.out_tree, results), linear


def vjp(
    fun: Callable[..., object],
    *primals: object,
    has_aux: bool = False,
    policy: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> tuple[object, ...]:
    """The value of `fun` at `primals`, and a function from cotangents of the outputs to cotangents of the primals.

    With `has_aux`, `fun` returns (outputs, aux) and the result is (outputs, vjp function, aux). The other options are
    those of `value_and_grad`; what is donated, the forward pass may take over. Static primals have None for cotangents.
    """
    fun = as_function(fun)
    options = Options.of(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, compiler_options)
    call = CallArguments.of(fun, primals, {}, options.statics)
    with order.differentiated(), asking(default_policy() if policy is None else whole_policy(policy)) as labelled:
        traced = trace_call(fun, call)
    check_whole_names(labelled, traced.graph, function_name(fun))
    out_tree, out_count = traced.out_tree, len(traced.graph.results)
    if has_aux:
        children = out_tree.children()
        if len(children) != 2 or out_tree.node_data()[0] is not tuple:
            raise CompileError(f"with has_aux the function returns (outputs, aux), got {out_tree}", user_location())
        out_tree, out_count = children[0], children[0].num_leaves
    wrt = traced.wrt
    of = [index < out_count for index in range(len(traced.graph.results))]
    graph = traced.graph if labelled is None else staged(traced.graph, labelled, wrt, of)
    pulled = linearization.vjp(graph, wrt, of)
    log_residuals(function_name(fun), pulled.residuals, pulled.forward)
    if trace := current_trace():
        trace.records.extend(traced.records)
        trace.records.append(Differentiation(function_name(fun), labelled, graph, pulled))
    outcome = run(pulled.forward, call.arrays, traced, options.of_leaves(call.among(options.donated)))
    results, residuals = outcome[: len(graph.results)], outcome[len(graph.results) :]
    out_types = [value.type for value in graph.results[:out_count]]

    def pull_back(cts: object) -> tuple[object, ...]:
        leaves = _flatten_like(out_tree, cts, out_types, "cotangents")
        given = [leaf for leaf, is_set in zip(leaves, pulled.has_tangent, strict=False) if is_set]
        outgoing = iter(_run_plain(pulled.backward, (*residuals, *given)))
        has_ct = iter(pulled.has_ct)
        filled = [
            next(outgoing) if is_set and next(has_ct) else _zeros(type)
            for is_set, type in zip(wrt, call.types, strict=False)
        ]
        return call.positional(filled)

    outputs = _unflatten(out_tree, results[:out_count])
    if has_aux:
        return outputs, pull_back, _unflatten(traced.out_tree.children()[1], results[out_count:])
    return outputs, pull_back


def _unflatten(tree: jax.tree_util.PyTreeDef, leaves: Sequence[object]) -> object:
    return jax.tree_util.tree_unflatten(tree, leaves)


def _flatten_like(tree: jax.tree_util.PyTreeDef, given: object, types: Sequence[TensorType], what: str) -> list[object]:
    """Leaves of `given`, checked against the tree and types that they must have."""
    leaves, found = jax.tree_util.tree_flatten(given)
    if found != tree:
        raise CompileError(f"the {what} have the structure {found}, expected {tree}", user_location())
    return [_checked(leaf, type, what[:-1]) for leaf, type in zip(leaves, types, strict=True)]


def _checked(leaf: object, type: TensorType, what: str) -> object:
    """Python numbers take the type they stand for; arrays must have it."""
    shape = tuple(leaf.shape) if hasattr(leaf, "shape") else np.asarray(leaf).shape
    if shape != type.shape:
        raise CompileError(f"a {what} has shape {list(shape)}, expected {type}", user_location())
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return np.asarray(leaf, type.dtype.numpy)
    found = np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    if found != type.dtype.numpy:
        raise CompileError(f"a {what} is {found}, expected {type}", user_location())
    return leaf


def _zeros(type: TensorType) -> object:
    trace = current_trace()
    return np.zeros(type.shape, type.dtype.numpy) if trace is None else trace.zeros(type)


def stop_gradient(x: T) -> T:
    """`x`, a constant to derivatives: its tangent is zero. The meaning is `jax.lax.stop_gradient`'s.

    Args:
        x: an array or a pytree of arrays.

    What is computed only for a derivative that is zero anyway is not computed then: a softmax that subtracts
    `stop_gradient(maximum)` has the same gradient as one that subtracts the maximum, for less memory.
    """
    if current_trace() is None:
        return x
    return cast(T, jax.tree_util.tree_map(_stopped, x))


def _stopped(leaf: object) -> object:
    if not isinstance(leaf, Tracer) or not leaf.value.type.dtype.is_inexact:
        return leaf
    stopped = emit_op1(StopGradient(), leaf)
    stopped.weak = leaf.weak
    return stopped
