"""`grad` and `value_and_grad`.

Inside a trace a derivative traces its function to a graph, transforms the graph and copies the result into the open
trace. Outside all traces it is compiled as a whole and cached by shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax.tree_util
import numpy as np
from jax.sharding import NamedSharding

from rematc.compiler.api.jit import Jitted, transformed
from rematc.compiler.api.transforms.derivative_graphs import (
    StagedVjp,
    note,
    planned_vjp,
    require_float,
    run,
    staged_vjp,
)
from rematc.compiler.driver.budget import budget_argument
from rematc.compiler.driver.lowered import Lowered
from rematc.compiler.driver.slices import slices_argument, slices_of_program
from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.calls import TracedFunction, apply_graph, trace_call
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.functions.policies import default_policy, whole_policy
from rematc.compiler.tracing import derivative_order as order
from rematc.compiler.tracing.arguments import CallArguments, argument_positions, chosen, differentiated, lies
from rematc.compiler.tracing.options import CompilerOptions, Options
from rematc.compiler.tracing.trace import Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import collection_paused
from rematc.ir.errors import CompileError
from rematc.ir.types import TensorType
from rematc.lowering.planning import Budget
from rematc.lowering.signature import Function, function_name
from rematc.lowering.slicing import NEEDED, Slices, is_cut


class ValueAndGrad:
    """What `value_and_grad` returns: a function of the same arguments.

    Attributes:
        function: the function differentiated.
        has_aux: whether the function returns auxiliary data beside the value.
        policy: the policy on the whole function, if any.
        budget: the temporary memory that value and gradient may take, if it is planned.
        slices: in how many slices their largest stage runs.
        options: how it is compiled outside of all traces.
        without_budget: the same, not planned.
    """

    def __init__(
        self,
        function: Function,
        argnums: int | Sequence[int],
        has_aux: bool,
        holomorphic: bool,
        policy: object,
        budget: object,
        options: Options,
        slices: object = NEEDED,
    ) -> None:
        self.function = function
        self.budget = budget_argument(budget, policy)
        self.slices = slices_argument(slices)
        self.policy = whole_policy(policy)
        self.options = options
        self.without_budget: ValueAndGrad | None = None
        if budget is not None:
            self.without_budget = ValueAndGrad(function, argnums, has_aux, holomorphic, "none", None, options, slices)
        self._has_default = policy is None and budget is None
        self._argnums = differentiated(argnums)
        self.has_aux = has_aux
        self._holomorphic = holomorphic
        functools.update_wrapper(self, function, updated=())

        @functools.wraps(function, updated=())
        def record(*args: object, **kwargs: object) -> object:
            return self._record(*args, **kwargs)

        self._jitted = Jitted(record, options)

    def in_slices(self, slices: Slices) -> ValueAndGrad:
        """The same in so many slices."""
        policy, budget = (None, self.budget) if self.budget is not None else (self.policy, None)
        found = ValueAndGrad(
            self.function, self._argnums, self.has_aux, self._holomorphic, policy, budget, self.options, slices
        )
        found._has_default = self._has_default
        return found

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
        check_scalar_result(name, traced.out_tree, graph.result_types, self.has_aux, self._holomorphic)
        count = len(call.arrays)
        wrt = [index < count for index in range(len(graph.params))]
        of = [index == 0 for index in range(len(graph.results))]
        trace = require_trace()
        trace.records.extend(traced.records)
        lying = [*call.lying, *map(lies, traced.captures)]
        staged = functools.cache(functools.partial(staged_vjp, self.function, graph, policy, wrt, of, lying))
        vjp = staged(slices_of_program()).pulled

        found = self._applied(staged, call.arrays, traced, lying)
        results = [_as_weak(one, weak) for one, weak in zip(found, traced.out_weak, strict=False)]
        given = iter(found[len(results) :])
        gradients = [
            _as_weak(next(given) if is_set else trace.zeros(type), weak)
            for is_set, type, weak in zip(vjp.has_ct, call.types, call.weak, strict=True)
        ]
        return jax.tree_util.tree_unflatten(traced.out_tree, results), chosen(self._argnums, call.positional(gradients))

    def _applied(
        self,
        staged: Callable[[int], StagedVjp],
        arrays: Sequence[object],
        traced: TracedFunction,
        lying: Sequence[NamedSharding | None],
    ) -> Sequence[object]:
        """The function's results, and its cotangents for one of 1, recorded in the open trace."""
        results, vjp = traced.graph.results, staged(slices_of_program()).pulled
        cts = [np.ones((), results[0].type.dtype.numpy)] if any(vjp.has_tangent) else []
        # A derivative of what is planned would be planned by nobody, and not have the user's rules.
        if (self.budget is not None or is_cut(self.slices)) and order.derivative_order() == 0:
            planned = planned_vjp(self.function, staged, self.budget, self.slices, lying)
            operands = (*arrays, *traced.captures, *traced.constants, *cts)
            return apply_graph(planned, operands, (False,) * len(planned.results))
        note(self.function, staged(slices_of_program()))
        forward = run(vjp.forward, arrays, traced)
        residuals = forward[len(results) :]
        require_trace().enter_line()
        backward = apply_graph(vjp.backward, (*residuals, *cts), (False,) * len(vjp.backward.results))
        return [*forward[: len(results)], *backward]


def _as_weak(value: object, weak: bool) -> object:
    """A tracer whose type yields to those it meets, as that of the Python number that it is, or the gradient of."""
    return value.owner.tracer(value.value, weak=True) if weak and isinstance(value, Tracer) else value


def check_not_static(function: Function, positions: Sequence[int], options: Options) -> None:
    """Raise CompileError for an argument that is static, and to be differentiated with respect to."""
    both = sorted(options.statics.positions.intersection(positions))
    if both:
        raise CompileError(
            f"argument {both[0]} of '{function_name(function)}' is in argnums and in static_argnums; what is static "
            "has no gradient: leave it out of one of them",
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
    budget: Budget | int | str | None = None,
    slices: Slices = NEEDED,
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
        budget: instead of a policy, the temporary memory that value and gradient may take: bytes, "2GiB", or "50%" of
            what is predicted for them without one. What is recomputed is planned for it by the prediction alone, with
            room for its error; `rematc.compile` plans by what XLA takes. A `rematc.Budget` says besides what is
            never computed again. See `docs/planning.md`.
        slices: in how many slices the stage around the largest value runs, forward and backward in one loop: a number,
            "auto" for as few as it takes that a slice is no more than all else that is in memory at the peak, with a
            budget for as many as the fastest plan has; "off"; or, by default, "needed", with a budget where no plan
            fits without. Of a language model that is the head. Sums are associated differently, and nothing else. See
            `docs/slices.md`.
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
    return ValueAndGrad(function, argnums, has_aux, holomorphic, policy, budget, options, slices)


def grad(
    fun: Callable[..., object],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    policy: object = None,
    budget: Budget | int | str | None = None,
    slices: Slices = NEEDED,
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
    return _gradient(ValueAndGrad(function, argnums, has_aux, holomorphic, policy, budget, options, slices))


def _gradient(both: ValueAndGrad) -> Callable[..., object]:
    def record(*args: object, **kwargs: object) -> object:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if both.has_aux else gradient  # type: ignore[index]  # checked: (value, aux)

    found: Any = transformed(both.function, record, both.options)
    found.slices = both.slices
    found.in_slices = lambda slices: _gradient(both.in_slices(slices))
    if both.without_budget is not None:
        found.budget, found.without_budget = both.budget, _gradient(both.without_budget)
    return cast(Callable[..., object], found)
