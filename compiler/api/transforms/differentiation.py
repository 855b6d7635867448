"""Derivatives as functions: `grad`, `value_and_grad`, `vjp`, `jvp`, `linearize`; and `stop_gradient`, which has none.

Inside a trace a derivative traces its function to a graph, transforms the graph and copies the result into the open
trace. Outside all traces `grad` and `value_and_grad` are compiled as a whole and cached by shape; `vjp`, `jvp` and
`linearize` trace, and run the graphs that come out.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import SupportsIndex, TypeVar, cast

import jax.tree_util
import numpy as np

from rematc.compiler.api.jit import Jitted, run_graph, transformed
from rematc.compiler.driver.lowered import Lowered
from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.calls import TracedFunction, apply_graph, emit_op1, trace_call
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.functions.policies import check_whole_names, default_policy, whole_policy
from rematc.compiler.reports.differentiation import Differentiation
from rematc.compiler.reports.residuals import log_residuals
from rematc.compiler.tracing import derivative_order as order
from rematc.compiler.tracing.arguments import CallArguments, argument_positions, chosen
from rematc.compiler.tracing.options import CompilerOptions, Options
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import StopGradient
from rematc.ir.policy import Policy
from rematc.ir.types import TensorType
from rematc.lowering.signature import Function, function_name
from rematc.passes import linearize as linearization
from rematc.passes.jvp import jvp as jvp_of_graph
from rematc.passes.staging.stage import staged

T = TypeVar("T")


def run(
    graph: Graph,
    operands: Sequence[object],
    traced: TracedFunction,
    donated: tuple[int, ...] = (),
    compiler_options: tuple[tuple[str, str | bool | int], ...] = (),
) -> list[object]:
    """Apply a graph of `traced` to the operands and what it closes over: recorded in the open trace, or executed.

    Executed, it may take over the memory of the operands that are donated.
    """
    closure = (*traced.captures, *traced.constants)
    if current_trace() is None:
        return run_graph(graph, (*operands, *closure), donated, compiler_options)
    return list(apply_graph(graph, (*operands, *closure), (False,) * len(graph.results)))


def require_float(names: Sequence[str], types: Sequence[TensorType], what: str) -> None:
    """Raise CompileError unless all these arguments are real floating-point arrays."""
    for name, type in zip(names, types, strict=True):
        if not type.dtype.is_float:
            raise CompileError(
                f"{what} {name} needs floating-point values, got {type}; leave it out of argnums, "
                "or convert it with astype",
                user_location(),
            )


def require_inexact(names: Sequence[str], types: Sequence[TensorType], holomorphic: bool) -> None:
    """Raise CompileError unless all these arguments have derivatives: floats or complex numbers, or these alone."""
    for name, type in zip(names, types, strict=True):
        if holomorphic and not type.dtype.is_complex:
            raise CompileError(
                f"the gradient with respect to {name} with holomorphic=True needs complex values, got {type}; "
                "convert it with astype(complex), or leave holomorphic out",
                user_location(),
            )
        if not type.dtype.is_inexact:
            require_float((name,), (type,), "the gradient with respect to")


def noted_vjp(
    function: Function, graph: Graph, policy: Policy | None, wrt: Sequence[bool], of: Sequence[bool]
) -> linearization.Vjp:
    """The vjp of a function's graph under a policy on the whole of it, noted on the open trace for reports."""
    check_whole_names(policy, graph, function_name(function))
    primal = graph if policy is None else staged(graph, policy)
    pulled = linearization.vjp(primal, wrt, of)
    require_trace().records.append(Differentiation(function_name(function), policy, primal, pulled))
    log_residuals(function_name(function), pulled.residuals, pulled.forward)
    return pulled


# -- grad and value_and_grad ---------------------------------------------------------------------------------------


class ValueAndGrad:
    """What `value_and_grad` returns: a function of the same arguments.

    Attributes:
        function: the function differentiated.
        policy: the policy on the whole function, if any.
        options: how it is compiled outside of all traces.
    """

    def __init__(
        self,
        function: Function,
        argnums: int | Sequence[int],
        has_aux: bool,
        holomorphic: bool,
        policy: object,
        options: Options,
    ) -> None:
        self.function = function
        self.policy = whole_policy(policy)
        self.options = options
        self._has_default = policy is None
        self._argnums = operator.index(argnums) if isinstance(argnums, SupportsIndex) else tuple(argnums)
        self._has_aux = has_aux
        self._holomorphic = holomorphic
        functools.update_wrapper(self, function, updated=())

        @functools.wraps(function, updated=())
        def record(*args: object, **kwargs: object) -> object:
            return self._record(*args, **kwargs)

        self._jitted = Jitted(record, options)

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Trace and differentiate it at these arguments; `.compile()` compiles it. As JAX's `jit(f).lower`."""
        return self._jitted.lower(*args, **kwargs)

    def __call__(self, *args: object, **kwargs: object) -> tuple[object, object]:
        if current_trace() is None:
            return cast("tuple[object, object]", self._jitted(*args, **kwargs))
        return self._record(*args, **kwargs)

    @collection_paused()
    def _record(self, *args: object, **kwargs: object) -> tuple[object, object]:
        """(value or (value, aux), gradients), recorded in the open trace."""
        positions = argument_positions(self.function, self._argnums, len(args))
        call = CallArguments.of(self.function, args, kwargs, self.options.statics).only(positions)
        check_not_static(self.function, positions, self.options)
        require_inexact(call.names, call.types, self._holomorphic)
        wanted = default_policy() if self._has_default else self.policy
        with order.differentiated(), asking(wanted) as policy:
            traced = trace_call(self.function, call)
        graph, name = traced.graph, function_name(self.function)
        check_scalar_result(name, traced.out_tree, graph.result_types, self._has_aux, self._holomorphic)
        count = len(call.arrays)
        wrt = [index < count for index in range(len(graph.params))]
        of = [index == 0 for index in range(len(graph.results))]
        trace = require_trace()
        trace.records.extend(traced.records)
        vjp = noted_vjp(self.function, graph, policy, wrt, of)

        forward = run(vjp.forward, call.arrays, traced)
        results, residuals = forward[: len(graph.results)], forward[len(graph.results) :]
        trace.enter_line()
        cts = [np.ones((), graph.results[0].type.dtype.numpy)] if any(vjp.has_tangent) else []
        given = iter(apply_graph(vjp.backward, (*residuals, *cts), (False,) * len(vjp.backward.results)))
        gradients = [
            next(given) if is_set else np.zeros(type.shape, type.dtype.numpy)
            for is_set, type in zip(vjp.has_ct, call.types, strict=True)
        ]
        return jax.tree_util.tree_unflatten(traced.out_tree, results), chosen(self._argnums, call.positional(gradients))


def check_not_static(function: Function, positions: Sequence[int], options: Options) -> None:
    """Raise CompileError for an argument that is static, and to be differentiated with respect to."""
    both = sorted(options.statics.positions.intersection(positions))
    if both:
        raise CompileError(
            f"argument {both[0]} of '{function_name(function)}' is in argnums and in static_argnums; what is static "
            "has no gradient: leave it out of one of them",
            user_location(),
        )


def check_scalar_result(
    name: str, tree: jax.tree_util.PyTreeDef, types: Sequence[TensorType], has_aux: bool, holomorphic: bool
) -> None:
    """Raise CompileError unless a function returns a scalar that has a gradient, or (scalar, aux) with `has_aux`.

    Args:
        name: the function's.
        tree: of what it returns.
        types: of its leaves.
        has_aux: as in `value_and_grad`.
        holomorphic: as in `value_and_grad`.
    """
    if has_aux:
        children = tree.children()
        if len(children) != 2 or tree.node_data()[0] is not tuple:
            raise CompileError(f"with has_aux '{name}' returns (value, aux), got {tree}", user_location())
        tree = children[0]
    if tree.num_leaves != 1 or not jax.tree_util.treedef_is_leaf(tree):
        raise CompileError(
            f"'{name}' returns {tree}, expected one scalar; return the loss alone, or (loss, aux) with has_aux",
            user_location(),
        )
    type = types[0]
    if type.shape == () and type.dtype.is_complex and not holomorphic:
        raise CompileError(
            f"'{name}' returns {type}, expected one real scalar; take its real part or its magnitude, or pass "
            "holomorphic=True if the function is holomorphic",
            user_location(),
        )
    is_fit = type.dtype.is_complex if holomorphic else type.dtype.is_float
    if type.shape != () or not is_fit:
        number = "complex scalar (holomorphic=True)" if holomorphic else "floating-point scalar"
        raise CompileError(
            f"'{name}' returns {type}, expected one {number}; sum or average it first, "
            "or use vjp for a function of several results",
            user_location(),
        )


def value_and_grad(
    fun: Callable[..., object],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    policy: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> Callable[..., tuple[object, object]]:
    """A function that returns the value of `fun` and its gradient.

    Args:
        fun: a function that returns a scalar, or (scalar, aux) with `has_aux`.
        argnums: the positions to differentiate with respect to; a sequence gives a tuple of gradients.
        has_aux: whether `fun` returns auxiliary data beside the scalar.
        holomorphic: whether `fun` is a holomorphic function of complex arguments, and returns a complex scalar. Without
            it the scalar is real, and the gradient with respect to x + iy is the derivative by x minus i times that
            by y, as in JAX: its conjugate is the direction of steepest ascent.
        policy: a rematerialization policy on the whole of `fun`, as in `checkpoint`; None is that of the `jit` around,
            or no checkpoint, and "none" is no checkpoint.
        static_argnums: positions of arguments whose value `fun` may branch on, as in `jit`.
        static_argnames: the same by name.
        donate_argnums: positions of arguments whose memory the results may take over, as in `jit`.
        donate_argnames: the same by name.
        compiler_options: options of XLA's by name.

    Returns:
        A function of the same arguments that returns `(value, gradient)`, or `((value, aux), gradient)`. Called
        outside all traces it is compiled, and cached by shapes; `.lower(*args)` compiles it ahead of time.
    """
    function = as_function(fun)
    options = Options.of(function, static_argnums, static_argnames, donate_argnums, donate_argnames, compiler_options)
    return ValueAndGrad(function, argnums, has_aux, holomorphic, policy, options)


def grad(
    fun: Callable[..., object],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    policy: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> Callable[..., object]:
    """A function that returns the gradient of `fun`, or `(gradient, aux)` with `has_aux`.

    Arguments are those of `value_and_grad`.
    """
    function = as_function(fun)
    options = Options.of(function, static_argnums, static_argnames, donate_argnums, donate_argnames, compiler_options)
    both = ValueAndGrad(function, argnums, has_aux, holomorphic, policy, options)

    def record(*args: object, **kwargs: object) -> object:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient  # type: ignore[index]  # checked: (value, aux)

    return transformed(function, record, options)


# -- jvp, linearize, vjp --------------------------------------------------------------------------------------------


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
    return np.zeros(type.shape, type.dtype.numpy)


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
    graph = traced.graph if labelled is None else staged(traced.graph, labelled)
    out_tree, out_count = traced.out_tree, len(graph.results)
    if has_aux:
        children = out_tree.children()
        if len(children) != 2 or out_tree.node_data()[0] is not tuple:
            raise CompileError(f"with has_aux the function returns (outputs, aux), got {out_tree}", user_location())
        out_tree, out_count = children[0], children[0].num_leaves
    wrt = traced.wrt
    of = [index < out_count for index in range(len(graph.results))]
    pulled = linearization.vjp(graph, wrt, of)
    log_residuals(function_name(fun), pulled.residuals, pulled.forward)
    if trace := current_trace():
        trace.records.extend(traced.records)
        trace.records.append(Differentiation(function_name(fun), labelled, graph, pulled))
    outcome = run(pulled.forward, call.arrays, traced, call.among(options.donated), options.compiler_options)
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


# -- no derivative ----------------------------------------------------------------------------------------------------


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
