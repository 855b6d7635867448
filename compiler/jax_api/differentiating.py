"""`rematc.jax.value_and_grad` and its kin: derivatives of JAX functions, by our passes, as JAX functions.

JAX traces the function; its jaxpr is imported, staged under the policy, differentiated and cleaned up; what comes out
is a JAX function again, which is called in place. JAX's own transformations apply to it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.tree_util
from jax.sharding import NamedSharding

from rematc.compiler.api.transforms.gradients import check_not_static, check_scalar_result, require_inexact
from rematc.compiler.driver.budget import budget_argument, with_more_slices
from rematc.compiler.driver.slices import slice_graph, slices_argument
from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.policies import check_whole_names, default_policy, whole_policy
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.concretizing import NumbersRead
from rematc.compiler.jax_api.gradient_call import lasting_call, passed_graph
from rematc.compiler.jax_api.pulling import pulled_back
from rematc.compiler.jax_api.traced import TracedCall, called_on_mesh, like, trace_jax
from rematc.compiler.reports.slices import asked_of
from rematc.compiler.tracing.arguments import argument_positions, chosen, differentiated, lies
from rematc.compiler.tracing.options import CompilerOptions, Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.builder import Builder
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.lowering import caches
from rematc.lowering.choosing import primal_for
from rematc.lowering.jax_internals.platform import on_platform
from rematc.lowering.jax_internals.types import is_float0
from rematc.lowering.planning import Budget
from rematc.lowering.program import PlatformChoice
from rematc.lowering.remembering import Remembered
from rematc.lowering.signature import function_name
from rematc.lowering.slicing import NEEDED, Slices
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target, targeting
from rematc.passes.linearize import vjp as vjp_of_graph


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    policy: object = None,
    budget: Budget | int | str | None = None,
    slices: Slices = NEEDED,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> Callable[..., Any]:
    """A JAX function that returns the value of a JAX function and its gradient, recomputing what the policy says.

        step = rematc.jax.value_and_grad(loss, policy="dots")
        value, grads = jax.jit(step)(params, batch)

    It stands in the place of `jax.value_and_grad`: inside `jax.jit` it is a part of the caller's program; outside it is
    compiled, and remembered by the types of its arguments. What `fun` closes over is taken as it is when `fun` is
    traced, as `jax.jit` does.

    Args:
        fun: a JAX function that returns a scalar, or (scalar, aux) with `has_aux`.
        argnums: the positions to differentiate with respect to; a sequence gives a tuple of gradients.
        has_aux: whether `fun` returns auxiliary data beside the scalar.
        holomorphic: whether `fun` is a holomorphic function of complex arguments.
        allow_int: whether arguments may hold integers, booleans and keys, whose gradients are zeros of JAX's `float0`.
        policy: what of the whole of `fun` may be saved, as in `rematc.value_and_grad`; None recomputes nothing.
        budget: instead of a policy, the temporary memory that value and gradient may take, as in
            `rematc.value_and_grad`: planned by the prediction, with room for its error. JAX's derivatives of the
            gradient are not planned. `rematc.plans` logs what is predicted.
        slices: in how many slices the stage around the largest value runs, as in `rematc.value_and_grad`: a number,
            "auto", "off", or "needed". JAX's derivatives of the gradient run in none. `rematc.plans` logs what is cut.
        static_argnums: positions of arguments that are Python values, which `fun` may branch on.
        static_argnames: the same by name. Flags, strings and other leaves that are no arrays are static anyway.
        donate_argnums: positions of arguments whose memory the results may take over, as in `jax.jit`; where the call
            is a part of another program, that one's `jax.jit` says what is donated.
        donate_argnames: the same by name.
        compiler_options: options of XLA's by name, where the call compiles a program of its own.

    Returns:
        A function of the same arguments that returns `(value, gradient)`, or `((value, aux), gradient)`. Gradients have
        None for leaves that are no arrays.

    Raises:
        CompileError: on the call, at the user's line, for what cannot be imported or differentiated.
    """
    if not callable(fun):
        raise CompileError(f"value_and_grad takes a function, got a {type(fun).__name__}", user_location())
    wanted = _Wanted(
        differentiated(argnums),
        has_aux,
        holomorphic,
        allow_int,
        whole_policy(policy),
        budget_argument(budget, policy),
        slices_argument(slices),
        Options.of(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, compiler_options),
    )
    statics, has_default = wanted.options.statics, policy is None and budget is None
    calls = Remembered[Hashable, _Gradient](is_lasting=operator.attrgetter("is_lasting"))
    caches.remembers(calls)
    read = NumbersRead()

    @functools.wraps(fun, updated=())
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        count, asked = len(args), wanted
        if has_default and (default := default_policy()) is not None:
            asked = replace(wanted, policy=default)

        def found(arguments: JaxArguments) -> _Gradient:
            target = current_target(arguments.arrays)
            lying = tuple(map(lies, arguments.arrays)) if target.devices > 1 else ()
            key = (count, asked.policy, target, arguments.key(), lying)
            return calls.find(key, lambda: _Gradient.of(fun, arguments, count, asked, target))

        def is_differentiated(arguments: JaxArguments, index: int) -> bool:
            return arguments.owners()[index] in argument_positions(fun, wanted.argnums, count)

        given = JaxArguments.of(args, kwargs, statics)
        gradient, arguments = read.traced(given, found, is_differentiated)
        return gradient.apply(arguments)

    return value_and_gradient


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    policy: object = None,
    budget: Budget | int | str | None = None,
    slices: Slices = NEEDED,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> Callable[..., Any]:
    """A JAX function that returns the gradient of a JAX function, or `(gradient, aux)` with `has_aux`.

    Arguments are those of `value_and_grad`.
    """
    both = value_and_grad(
        fun,
        argnums,
        has_aux,
        holomorphic,
        allow_int,
        policy=policy,
        budget=budget,
        slices=slices,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        compiler_options=compiler_options,
    )

    @functools.wraps(fun, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What `value_and_grad` was asked for; see there."""

    argnums: int | tuple[int, ...]
    has_aux: bool
    holomorphic: bool
    allow_int: bool
    policy: Policy | None
    budget: Budget | None
    slices: Slices
    options: Options


@dataclass(frozen=True, slots=True, eq=False)
class _Gradient:
    """A function's value and gradient at arguments of some types.

    Attributes:
        traced: what JAX traced.
        wanted: what is asked for.
        differentiated: for each array, whether there is a gradient.
        zero: for each array, whether its gradient is zeros of `float0`.
        call: JAX's function of the graph's operands to results and gradients.
        constants: arrays for its last operands.
        choice: what of it is another function on other platforms.
    """

    traced: TracedCall
    wanted: _Wanted
    differentiated: tuple[bool, ...]
    zero: tuple[bool, ...]
    call: Callable[..., Sequence[Any]]
    constants: tuple[Any, ...]
    choice: PlatformChoice | None

    @property
    def is_lasting(self) -> bool:
        return self.traced.is_lasting

    @staticmethod
    def of(fun: Callable[..., Any], arguments: JaxArguments, count: int, wanted: _Wanted, target: Target) -> _Gradient:
        positions = argument_positions(fun, wanted.argnums, count)
        check_not_static(fun, positions, wanted.options)
        asked = [owner in positions for owner in arguments.owners()]
        tangents = [jax.typeof(array).to_tangent_aval().dtype for array in arguments.arrays]
        varies = [not (wanted.allow_int and is_float0(dtype)) for dtype in tangents]
        differentiated = tuple([is_set and may for is_set, may in zip(asked, varies, strict=True)])
        zero = tuple([is_set and not may for is_set, may in zip(asked, varies, strict=True)])
        traced = trace_jax(fun, arguments, function_name(fun), has_aux=wanted.has_aux)
        lying = tuple(map(lies, arguments.arrays))
        made = _Graphs(traced, differentiated, wanted, target, lying)
        leaves = arguments.among(wanted.options.donated)
        derive = functools.partial(made.value_and_gradients, 0)

        def planned(slices: Slices, target: Target) -> Graph:
            choice, sliced = slice_graph(derive, slices, target, leaves, wanted.budget, lying)
            budget = wanted.budget if wanted.budget is None or sliced is None else wanted.budget.of_whole(sliced.whole)
            return passed_graph(choice.graph, budget, asked_of(sliced), lying, target)

        def passed(target: Target) -> Graph:
            return with_more_slices(wanted.slices, lambda slices: planned(slices, target))

        options = dict(wanted.options.compiler_options)
        run = lasting_call(made.value_and_gradients, passed, derive(1).name, target, leaves, options, lying)
        return _Gradient(traced, wanted, differentiated, zero, run, made.constants, made.choice)

    def _called(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Values and gradients. Where shardings are part of types, XLA chooses those inside; gradients have those of
        their arguments.
        """
        traced = self.traced
        operands = on_platform(self.choice, traced.name, traced.operands(arrays, self.constants))
        alike = [array for array, is_set in zip(arrays, self.differentiated, strict=True) if is_set]
        return called_on_mesh(self.call, operands, (*traced.out_avals, *map(jax.typeof, alike)))

    def apply(self, arguments: JaxArguments) -> Any:
        traced = self.traced
        results = self._called(arguments.arrays)
        count = len(traced.out_avals)
        given = iter(results[count:])
        gradients: list[Any] = []
        for array, is_set, is_zero in zip(arguments.arrays, self.differentiated, self.zero, strict=True):
            if is_set:
                gradients.append(like(next(given), jax.typeof(array)))
            else:
                gradients.append(like(None, jax.typeof(array).to_tangent_aval()) if is_zero else None)
        found = chosen(self.wanted.argnums, arguments.positional(gradients))
        return traced.outputs(results[:count]), found


@dataclass(slots=True)
class _Graphs:
    """The graphs of a function's value and gradient, with custom rules for more or fewer further derivatives.

    Attributes:
        traced: what JAX traced.
        differentiated: for each array, whether there is a gradient.
        wanted: what is asked for.
        target: what it is imported for.
        lying: for each array, how it lies on several devices; None where nobody knows.
        constants: the large arrays that became the last parameters.
        choice: what of it is another function on other platforms.
    """

    traced: TracedCall
    differentiated: tuple[bool, ...]
    wanted: _Wanted
    target: Target
    lying: tuple[NamedSharding | None, ...]
    constants: tuple[Any, ...] = ()
    choice: PlatformChoice | None = None
    _made: dict[tuple[int, int], Graph] = field(default_factory=dict)

    def value_and_gradients(self, further: int, slices: int = 1) -> Graph:
        """Parameters to results and the gradients; it may be differentiated `further` times.

        Its segments are chosen for so many slices of its largest value.
        """
        found = self._made.get((further, slices))
        if found is None:
            with collection_paused():
                found = self._made[further, slices] = self._differentiated(further, slices)
        return found

    def _differentiated(self, further: int, slices: int) -> Graph:
        with asking(self.wanted.policy) as policy, targeting(self.target):
            imported = self.traced.imported(1 + further)
        self.constants, self.choice = imported.constants, imported.choice
        graph, wanted = imported.graph, self.wanted
        pairs = zip(self.traced.names, graph.params, self.differentiated, strict=False)
        chosen = [(name, value.type) for name, value, is_set in pairs if is_set]
        require_inexact([name for name, _ in chosen], [type for _, type in chosen], wanted.holomorphic)
        traced = self.traced
        check_scalar_result(traced.name, traced.out_tree, graph.result_types, wanted.has_aux, wanted.holomorphic)
        check_whole_names(policy, graph, traced.name)
        wrt = (*self.differentiated, *(False,) * (len(graph.params) - len(self.differentiated)))
        is_value = [index == 0 for index in range(len(graph.results))]
        primal, _ = primal_for(graph, policy, wrt, is_value, self.target, slices, self.lying)
        pulled = vjp_of_graph(primal, wrt, is_value)
        b = Builder(graph.name)
        params = [b.parameter(value.type, value.name) for value in graph.params]
        results = b.inline(pulled.forward, params)
        count = len(graph.results)
        cts = [b.full(graph.results[0].type, 1)] if any(pulled.has_tangent) else []
        given = iter(b.inline(pulled.backward, (*results[count:], *cts)))
        gradients = [
            next(given) if is_set else b.zeros(type) for is_set, (_, type) in zip(pulled.has_ct, chosen, strict=True)
        ]
        return b.build(*results[:count], *gradients)


# -- vjp --------------------------------------------------------------------------------------------------------------


def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    policy: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> tuple[Any, ...]:
    """The value of a JAX function at `primals`, and a function from cotangents of its outputs to those of the primals.

    It stands in the place of `jax.vjp`. The backward function recomputes what the policy says, and works on tracers.

    Args:
        fun: a JAX function of pytrees; with `has_aux` it returns (outputs, aux).
        primals: its positional arguments.
        has_aux: whether it returns auxiliary data beside its outputs.
        policy: what of the whole of `fun` may be saved; None recomputes nothing.
        static_argnums: positions of primals that are Python values, which `fun` may branch on.
        static_argnames: the same by name. Flags are static anyway.
        donate_argnums: positions of primals whose memory the forward pass may take over.
        donate_argnames: the same by name.
        compiler_options: options of XLA's by name, where the call compiles programs of its own.

    Returns:
        (outputs, backward), or (outputs, backward, aux). `backward` takes cotangents like the outputs, and gives a
        tuple with one for each primal; those of integers are zeros of type `float0`.
    """
    options = Options.of(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, compiler_options)
    return pulled_back(fun, primals, has_aux, default_policy() if policy is None else whole_policy(policy), options)
