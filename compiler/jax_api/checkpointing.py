"""`rematc.jax.checkpoint`: in the place of `jax.checkpoint`, with our partial evaluation behind it.

The function itself is JAX's, traced by `jax.checkpoint`. What happens when JAX differentiates it is ours: its jaxpr,
batched if it is by then, is imported, linearized under the policy, and forward and linear graph go back to JAX. So JAX
takes it through both modes of differentiation, batches and loops as it does any function, and saves the residuals that
our policies choose.

What is more than a function of arrays (it has effects, uses references of others', maps over devices) stays with
`jax.checkpoint` altogether, under the same policy.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

import jax
from jax import checkpoint as jax_checkpoint  # by name: users may put ours in its place

from rematc.compiler.frontends.jax.activity import is_inexact
from rematc.compiler.frontends.jax.policies import OwnRegion
from rematc.compiler.functions.policies import policy_argument
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.beyond_arrays import (
    as_jax_policy,
    has_other_arguments,
    has_rules_over_devices,
    why_beyond_arrays,
)
from rematc.compiler.jax_api.concretizing import ConcretizedError
from rematc.compiler.jax_api.regions import Region
from rematc.compiler.jax_api.traced import TracedCall, like, trace_jax
from rematc.compiler.tracing.options import Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.lowering import caches
from rematc.lowering.jax_internals.checkpoints import is_first_region
from rematc.lowering.jax_internals.settings import without_remat3
from rematc.lowering.remembering import Remembered
from rematc.lowering.signature import function_name

P = ParamSpec("P")
R = TypeVar("R")


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
        region: what it is in JAX's traces.
    """

    traced: TracedCall
    region: Region

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
        return _Region(traced, Region(traced.jaxpr, traced.name, traced.names, segments, policy))

    def apply(self, arrays: Sequence[Any]) -> Any:
        operands = (*arrays, *self.traced.captured)
        given = zip(self.region.apply(operands), self.traced.out_avals, strict=True)
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


def _of_jax(prevent_cse: bool | tuple[bool, ...] | None) -> bool | tuple[bool, ...]:
    """What JAX is told: its default is our None, to import."""
    return True if prevent_cse is None else prevent_cse
