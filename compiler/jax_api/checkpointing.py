"""`rematc.jax.checkpoint`: in the place of `jax.checkpoint`, with our partial evaluation behind it.

The function itself is JAX's, traced by `jax.checkpoint`. What happens when JAX differentiates it is ours: its jaxpr is
imported, linearized under the policy, and forward and linear graph go back to JAX. So JAX takes it through both modes
of differentiation, batches and loops as it does any function, and saves the residuals that our policies choose.

What is more than a function of arrays (it has effects, uses references of others', maps over devices) stays with
`jax.checkpoint` altogether, under the same policy.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar, cast

import jax
from jax import checkpoint as jax_checkpoint  # by name: users may put ours in its place
from jax.extend.core import jaxpr_as_fun

from rematc.compiler.frontends.jax.activity import is_inexact
from rematc.compiler.frontends.jax.policies import OwnRegion
from rematc.compiler.functions.policies import check_names, policy_argument
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.beyond_arrays import (
    as_jax_policy,
    has_other_arguments,
    has_rules_over_devices,
    why_beyond_arrays,
)
from rematc.compiler.jax_api.concretizing import ConcretizedError
from rematc.compiler.jax_api.traced import TracedCall, like, trace_jax, words
from rematc.compiler.reports.residuals import log_residuals
from rematc.compiler.tracing.derivative_order import derivative_order
from rematc.compiler.tracing.options import Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.policy import Policy
from rematc.lowering import caches
from rematc.lowering.jax_export.evaluating import differentiable_call, tangents_of
from rematc.lowering.jax_export.exporting import apply_graph
from rematc.lowering.jax_export.regions import knows_jax_alone
from rematc.lowering.jax_internals.batches import Batch, called
from rematc.lowering.jax_internals.checkpoints import is_first_region
from rematc.lowering.jax_internals.platform import on_platform
from rematc.lowering.jax_internals.settings import without_remat3
from rematc.lowering.program import PlatformChoice
from rematc.lowering.remembering import Remembered
from rematc.lowering.signature import function_name
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from rematc.passes.fold_transposes import fold_transposes
from rematc.passes.linearize import linearize
from rematc.passes.policies import nothing_saveable
from rematc.passes.staging.stage import staged_by_all
from rematc.passes.staging.whole import without_region
from rematc.passes.vmap import Vmapped, vmap

P = ParamSpec("P")
R = TypeVar("R")

#: Rules of the user's are imported for so many derivatives of a checkpoint.
_ORDER = 1


def checkpoint(
    fun: Callable[P, R],
    *,
    policy: object = None,
    prevent_cse: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    segments: bool | None = None,
) -> Callable[P, R]:
    """`fun`, whose intermediate values are computed again when JAX differentiates it; a drop-in for `jax.checkpoint`.

        layer = rematc.jax.checkpoint(layer, policy="dots")
        grads = jax.jit(jax.grad(loss))(params, batch)       # loss calls layer

    Args:
        fun: a JAX function of pytrees.
        policy: what may be saved: a policy of `rematc.policies`, its name, a function of (op, operand types, name), or
            one of JAX's, from `jax.checkpoint_policies` or a function of (primitive, *abstract values, **parameters).
            None saves the arguments alone.
        prevent_cse: whether XLA must not merge the recomputation with the forward evaluation; or a tuple that says it
            for each positional argument, as in `jax.checkpoint`. By default the compiler decides, as in
            `rematc.checkpoint`.
        static_argnums: positions of arguments whose value `fun` may branch on; they may be passed by keyword, too, and
            need not be hashable.
        static_argnames: the same by name.
        segments: whether to cut `fun` into segments, as `value_and_grad` does: for a function that is most of the
            model. What crosses from one segment to another is saved then, whatever the policy. None is for a loss that
            JAX differentiates: where `fun` gives scalars, is called by the function that `jax.grad` or `jax.vjp` is
            differentiating, and not from a loop or `jax.jit` inside of that, and no checkpoint was before it there.

    A function with effects, with references that it does not make itself, or with a `shard_map` inside is
    differentiated by `jax.checkpoint`, under the same policy.

    Raises:
        CompileError: for wrong arguments; where JAX differentiates the function, at the user's line, for what cannot
            be imported; for `segments` of a function that only `jax.checkpoint` takes.
    """
    if not callable(fun):
        raise CompileError(f"checkpoint takes a function, got a {type(fun).__name__}", user_location())
    statics = Options.of(fun, static_argnums, static_argnames).statics
    decided = None if policy is None else policy_argument(policy)
    calls = Remembered[Hashable, "_Region | _RegionOfJax"](is_lasting=operator.attrgetter("is_lasting"))
    caches.remembers(calls)

    @functools.wraps(fun, updated=())
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = JaxArguments.of(args, kwargs, statics)
        cut = segments if segments is not None or is_first_region() else False
        region = calls.find(
            (cut, arguments.key()),
            lambda: _Region.of(fun, arguments, decided, _barriers(prevent_cse, args, kwargs, arguments), cut),
        )
        return cast(R, region.apply(arguments.arrays))

    return checkpointed


def _barriers(
    prevent_cse: object, args: Sequence[Any], kwargs: dict[str, Any], arguments: JaxArguments
) -> bool | tuple[bool, ...] | None:
    """`prevent_cse` for each array."""
    if prevent_cse is None or isinstance(prevent_cse, bool):
        return prevent_cse
    if not isinstance(prevent_cse, (tuple, list)) or len(prevent_cse) != len(args):
        raise CompileError(
            f"prevent_cse is a bool, or a tuple with an entry for each of the {len(args)} positional arguments; "
            f"got {prevent_cse!r}",
            user_location(),
        )
    static = {key for key, _ in arguments.statics}
    spread: list[Any] = []
    for position, (flag, argument) in enumerate(zip(prevent_cse, args, strict=True)):
        if position in static:
            continue
        try:
            spread.append(jax.tree.map(lambda one, part: jax.tree.map(lambda _, one=one: one, part), flag, argument))
        except ValueError as error:
            raise CompileError(
                f"prevent_cse[{position}] is not a prefix of the argument's tree: {error}", user_location()
            ) from error
    keywords = {name: value for name, value in kwargs.items() if name not in static}
    flags = [*jax.tree.leaves(spread), *jax.tree.leaves(jax.tree.map(lambda _: True, keywords))]
    return tuple([bool(flags[index]) for index in arguments.places])


@dataclass(frozen=True, slots=True, eq=False)
class _Region:
    """A checkpointed function at arguments of some types.

    Attributes:
        traced: what JAX traced: a function that calls `jax.checkpoint`.
        call: JAX's function of the arrays and what is captured, which knows its derivative.
    """

    traced: TracedCall
    call: Callable[..., Sequence[Any]]

    @property
    def is_lasting(self) -> bool:
        return self.traced.is_lasting

    @staticmethod
    def of(
        fun: Callable[..., Any],
        arguments: JaxArguments,
        policy: Policy | None,
        prevent_cse: bool | tuple[bool, ...] | None,
        segments: bool | None,
    ) -> _Region | _RegionOfJax:
        if has_other_arguments(arguments.arrays):
            reason = "it has arguments that are no arrays"
            return _RegionOfJax.of(fun, arguments, policy, prevent_cse, segments, reason)

        own = OwnRegion(policy, prevent_cse, bool(segments))

        def wrap(flat: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arrays: Any) -> Any:
                # JAX's newer checkpoint does not keep prevent_cse.
                with without_remat3():
                    return jax_checkpoint(flat, policy=own, prevent_cse=_of_jax(prevent_cse))(*arrays)

            return wrapped

        try:
            traced = trace_jax(fun, arguments, function_name(fun), wrap)
        except ConcretizedError as error:
            raise error.cause from None  # as jax.checkpoint
        reason = why_beyond_arrays(traced.jaxpr)
        if reason or (has_rules_over_devices(traced.jaxpr) and not segments):
            return _RegionOfJax.of(fun, arguments, policy, prevent_cse, segments, reason, traced.is_lasting)
        if segments is None:
            is_pinned = all(prevent_cse) if isinstance(prevent_cse, tuple) else prevent_cse is not False
            segments = is_pinned and _gives_scalars(traced.out_avals)
        return _Region(traced, _with_derivative(traced, segments))

    def apply(self, arrays: Sequence[Any]) -> Any:
        with called():
            given = zip(self.call(*arrays, *self.traced.captured), self.traced.out_avals, strict=True)
        # Results that depend on nothing may come as the literals of a jaxpr, which tracers do not index.
        results = [value if isinstance(value, jax.Array) else like(value, aval) for value, aval in given]
        return jax.tree_util.tree_unflatten(self.traced.out_tree, results)


@dataclass(frozen=True, slots=True, eq=False)
class _RegionOfJax:
    """A checkpointed function that JAX itself differentiates.

    Attributes:
        call: of the arrays.
        is_lasting: whether it may be called again, at other arrays.
    """

    call: Callable[..., Any]
    is_lasting: bool

    @staticmethod
    def of(
        fun: Callable[..., Any],
        arguments: JaxArguments,
        policy: Policy | None,
        prevent_cse: bool | tuple[bool, ...] | None,
        segments: bool | None,
        reason: str,
        is_lasting: bool = False,
    ) -> _RegionOfJax:
        if segments:
            raise CompileError(f"checkpoint cannot cut '{function_name(fun)}' into segments: {reason}", user_location())

        # What is remembered holds no arrays of one call.
        rest = arguments.without_arrays()

        @functools.wraps(fun, updated=())
        def flat(*arrays: Any) -> Any:
            return rest.call(fun, arrays)

        chosen = None if policy is None else as_jax_policy(policy)
        return _RegionOfJax(jax_checkpoint(flat, policy=chosen, prevent_cse=_of_jax(prevent_cse)), is_lasting)

    def apply(self, arrays: Sequence[Any]) -> Any:
        return self.call(*arrays)


def _gives_scalars(avals: Sequence[Any]) -> bool:
    """Whether all results that have derivatives are single numbers, as that of a loss is."""
    inexact = [aval for aval in avals if is_inexact(aval)]
    return bool(inexact) and all(aval.shape == () for aval in inexact)


def _with_derivative(traced: TracedCall, segments: bool) -> Callable[..., Sequence[Any]]:
    # By the number of derivatives for which the graph has the user's rules, and what it is for.
    imported: dict[tuple[int, Target], tuple[Graph, tuple[Any, ...], PlatformChoice | None]] = {}

    def applied(operands: Sequence[Any]) -> tuple[Graph, list[Any]]:
        """The graph, and what to pass for its parameters."""
        region, constants, choice = graph()
        return region, on_platform(choice, traced.name, [words(value, None) for value in (*operands, *constants)])

    def graph() -> tuple[Graph, tuple[Any, ...], PlatformChoice | None]:
        order = max(_ORDER, derivative_order())
        key = (order, current_target())
        if key not in imported:
            found = traced.imported(order)
            check_names(_region_of(found.graph)[1].policy, found.graph, traced.name)
            graph = _in_segments(found.graph) if segments else found.graph
            imported[key] = (graph, found.constants, found.choice)
        return imported[key]

    def forward(present: tuple[bool, ...], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        region, given = applied(primals)
        wrt = (*present, *(False,) * (len(given) - len(primals)))
        results, outgoing = _linearized(region, given, wrt, tangents, traced.name)
        return [like(value, aval) for value, aval in zip(results, traced.out_avals, strict=True)], outgoing

    def of_graph(*operands: Any) -> tuple[Any, ...]:
        results = apply_graph(*applied(operands))
        return tuple([like(value, aval) for value, aval in zip(results, traced.out_avals, strict=True)])

    # JAX's functions with derivative rules hold no references.
    body = of_graph if traced.jaxpr.effects else jaxpr_as_fun(traced.jaxpr)
    return differentiable_call(lambda *operands: tuple(body(*operands)), forward)


def _linearized(
    graph: Graph, operands: Sequence[Any], wrt: Sequence[bool], tangents: Sequence[Any], name: str
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The results of a graph and their tangents, linearized under its policies; of a batch as they say for all of it.

    Args:
        graph: what is differentiated.
        operands: of the graph.
        wrt: which of them have tangents.
        tangents: those.
        name: of the user's function.
    """
    batch = None if _is_of_elements(graph) else Batch.of([*operands, *tangents])
    if batch is not None:
        incoming = iter(tangents)
        own = [next(incoming) if is_set else None for is_set in wrt]
        is_batched = [batch.has(x) or (t is not None and batch.has(t)) for x, t in zip(operands, own, strict=True)]
        batched = _vmapped(graph, is_batched, batch.size)
        if batched is not None:
            with batch.outside():
                whole = [batch.whole(x, flag) for x, flag in zip(operands, is_batched, strict=True)]
                moved = [batch.whole(t, flag) for t, flag in zip(own, is_batched, strict=True) if t is not None]
                found = _linearized(batched.graph, whole, wrt, moved, name)
            flags = batched.is_batched
            results = [batch.element(x, flag) for x, flag in zip(found[0], flags, strict=True)]
            outgoing = [None if t is None else batch.element(t, flag) for t, flag in zip(found[1], flags, strict=True)]
            return results, outgoing
    parts = linearize(graph, tuple(wrt))
    log_residuals(name, parts.residuals, parts.forward)
    results = apply_graph(parts.forward, operands)
    count = len(graph.results)
    return results[:count], tangents_of(parts, results[count:], tangents)


def _is_of_elements(graph: Graph) -> bool:
    """Whether a graph has what JAX has to batch: names of dimensions, effects, rules that it alone has."""
    return bool(graph.axes or graph.effect or knows_jax_alone(graph))


def _vmapped(graph: Graph, is_batched: Sequence[bool], size: int) -> Vmapped | None:
    """A graph for all elements of a batch; None where an op has no rule for it, and JAX's may have."""
    try:
        return vmap(graph, is_batched, size)
    except CompileError:
        return None


def _of_jax(prevent_cse: bool | tuple[bool, ...] | None) -> bool | tuple[bool, ...]:
    """What JAX is told: its default is our None, to import."""
    return True if prevent_cse is None else prevent_cse


def _region_of(graph: Graph) -> tuple[int, Checkpoint]:
    """The region that the import of a function in `jax.checkpoint` is, and where."""
    ((index, op),) = [(index, eqn.op) for index, eqn in enumerate(graph.equations) if isinstance(eqn.op, Checkpoint)]
    return index, op


def _in_segments(graph: Graph) -> Graph:
    """The graph with its checkpoint region, all of it, cut into segments under the region's policy and barriers."""
    index, op = _region_of(graph)
    whole = fold_transposes(without_region(graph, index))
    cut = staged_by_all(whole, op.policy or nothing_saveable)
    if not isinstance(op.prevent_cse, bool):
        return cut
    equations = [
        replace(eqn, op=replace(eqn.op, prevent_cse=op.prevent_cse)) if isinstance(eqn.op, Checkpoint) else eqn
        for eqn in cut.equations
    ]
    return Graph(cut.name, cut.params, tuple(equations), cut.results)
