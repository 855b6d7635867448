"""`checkpoint` and `checkpoint_name`: what the user writes to say what is recomputed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar, cast

import jax.tree_util

from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.calls import emit_op, emit_op1, trace_call
from rematc.compiler.functions.policies import check_names, policy_argument
from rematc.compiler.tracing.arguments import CallArguments, leaf_type
from rematc.compiler.tracing.options import Options
from rematc.compiler.tracing.trace import Tracer, current_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import Name
from rematc.lowering.signature import function_name

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: object = None,
    policy: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, R]:
    """`fun`, whose intermediate values are recomputed in the backward pass instead of saved.

    Args:
        fun: a function of arrays and pytrees of arrays.
        prevent_cse: whether XLA must be kept from merging the recomputation with the forward evaluation: a bool, or
            a tuple with one pytree prefix of bools per positional argument. By default the compiler decides: it must
            be kept from it, except in the bodies of loops, where there is nothing to merge.
        policy: what may be saved all the same: a policy of `rematc.policies`, its text (`"dots"`), or a function
            `(op, operand_types, name) -> bool`. By default nothing but the arguments.
        static_argnums: positions of arguments that `fun` may branch on; they also hold when given by keyword.
        static_argnames: the same by name.

    Raises:
        CompileError: on the call, where an argument cannot be traced or `prevent_cse` does not fit the arguments.

    Reference: Griewank & Walther, "Revolve", ACM TOMS 2000; Chen et al., "Training Deep Nets with Sublinear Memory
    Cost", 2016. The names and their meaning are `jax.checkpoint`'s.
    """
    decided = policy_argument(policy)
    statics = Options.of(fun, static_argnums, static_argnames).statics

    @functools.wraps(fun, updated=())
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        trace = current_trace()
        if trace is None:
            return fun(*args, **kwargs)
        call = CallArguments.of(fun, args, kwargs, statics)
        with asking(decided) as labelled:
            traced = trace_call(fun, call)
        check_names(labelled, traced.graph, function_name(fun))
        trace.records.extend(traced.records)
        flags = _flags(prevent_cse, args, kwargs, call, len(traced.captures))
        op = Checkpoint(traced.graph, labelled, flags)
        results = emit_op(op, *call.arrays, *traced.captures)
        for tracer, is_weak in zip(results, traced.out_weak, strict=True):
            tracer.weak = is_weak
        return cast(R, jax.tree_util.tree_unflatten(traced.out_tree, results))

    return checkpointed


remat = checkpoint


def _flags(
    prevent_cse: object, args: Sequence[object], kwargs: dict[str, object], call: CallArguments, captures: int
) -> bool | tuple[bool, ...] | None:
    """`prevent_cse` for each operand; what the function closes over is not pinned when arguments are told apart."""
    if prevent_cse is None or isinstance(prevent_cse, bool):
        return prevent_cse
    if not isinstance(prevent_cse, tuple) or len(prevent_cse) != len(args):
        raise CompileError(
            f"prevent_cse is a bool, or a tuple with an entry for each of the {len(args)} positional arguments; "
            f"got {prevent_cse!r}",
            user_location(),
        )
    spread: list[object] = []
    for position, (prefix, argument) in enumerate(zip(prevent_cse, args, strict=True)):
        try:
            spread.append(jax.tree_util.tree_map(_repeated, prefix, argument))
        except ValueError as error:
            raise CompileError(
                f"prevent_cse[{position}] is not a prefix of the argument's tree: {error}", user_location()
            ) from error
    pinned = call.matching("prevent_cse", spread, jax.tree_util.tree_map(lambda _: True, kwargs))
    flags = (*[bool(flag) for flag in pinned], *(False,) * captures)
    # Saved values and cotangents are pinned as soon as any argument is.
    return flags if any(flags) else False


def _repeated(flag: object, part: object) -> object:
    return jax.tree_util.tree_map(lambda _: flag, part)


def checkpoint_name(x: T, name: str) -> T:
    """`x` under a name that policies see; nothing else changes.

    Args:
        x: an array or a pytree of arrays; every leaf gets the name.
        name: what `save_only_these_names` and its kin refer to.
    """
    if not isinstance(name, str):
        raise CompileError(f"checkpoint_name takes a string for the name, got {name!r}", user_location())
    if current_trace() is None:
        return x
    return cast(T, jax.tree_util.tree_map(functools.partial(_named, name), x))


def _named(name: str, leaf: object) -> Tracer:
    named = emit_op1(Name(name), leaf)
    named.weak = leaf_type(leaf)[1]
    return named
