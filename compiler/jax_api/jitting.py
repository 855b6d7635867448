"""`rematc.jax.jit`: `jax.jit`, with what makes recomputation hold."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax

from rematc.compiler.driver.budget import at_users_line
from rematc.compiler.driver.wanted import Wanted
from rematc.compiler.functions.policies import by_default, whole_policy
from rematc.compiler.jax_api.planned_jit import PlannedFunction
from rematc.compiler.reports.report import Report
from rematc.compiler.tracing.options import with_static
from rematc.compiler.tracing.user_location import user_location, warn_user
from rematc.ir.errors import CompileError
from rematc.lowering.jax_compiling import compiled, is_outermost
from rematc.lowering.planning import Budget
from rematc.lowering.signature import function_name
from rematc.lowering.slicing import NEEDED, Slices, is_cut, slices_of
from rematc.lowering.targeting import current_target, target_of
from rematc.passes.planning.plan import Plan

_NOT_TAKEN = (
    "the policy {policy} of rematc.jax.jit changes nothing: '{name}' takes no derivative by rematc.jax that has no "
    "policy of its own; take it by rematc.jax.value_and_grad, or say how much memory the whole of '{name}' may take "
    "(budget=...)"
)


def jit(
    fun: Callable[..., Any],
    *,
    policy: object = None,
    budget: Budget | int | str | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    plan_seconds: float | None = None,
    slices: Slices = NEEDED,
    **options: Any,
) -> Callable[..., Any]:
    """`jax.jit`, with what makes recomputation hold where XLA would undo it; with a budget, of all that `fun` does.

        train_step = rematc.jax.jit(train_step, budget="12GiB", donate_argnums=0)    # in the place of jax.jit

    With a `budget`, `fun` is a whole training step, or any other function: differentiated by JAX, by `rematc.jax`, by
    a library, or not at all. At the first call for arguments of some types it is planned as `rematc.compile` plans it:
    up to three plans are compiled, until XLA takes no more temporary memory than the budget. From then on a call is one
    of `jax.jit`. Arguments of other types, static arguments of other values and other settings of JAX are planned by
    themselves; arrays of the same types on other devices run the plan of the first ones. `lower` and `trace` give what
    those of `jax.jit` give, of the planned program, and `report(*args, **kwargs)` a `rematc.Report`.

    As a part of what JAX traces (`jax.jit`, `jax.vmap`, `jax.lax.scan`) the function is planned by the prediction
    alone, with room for its error; JAX's derivatives of it are those of the function without a plan; and in a
    function that has a budget itself, it is under the plan of that one.

    Without a budget it need not be used: without it functions that XLA does not inline keep the recomputation of
    `rematc.jax.value_and_grad` and `rematc.jax.checkpoint` in its place on CPUs before jaxlib 0.12. That of
    `jax.checkpoint` is undone there by XLA unless the program is compiled like this. Everywhere else it is `jax.jit`,
    but that arguments which are Python's booleans are flags, on which `fun` may branch, as without `jit`.

    Args:
        fun: a JAX function.
        policy: of the derivatives of `rematc.jax` in `fun` that have no policy of their own. Those of `jax` have none;
            where there is nothing else, a warning says so.
        budget: the temporary memory that `fun` may take: bytes, "2GiB", "50%" of what XLA takes without a plan,
            "device", what the device has free, or a `rematc.Budget`.
        plan: a `rematc.Plan` that was made for `fun`, or the name of its file, instead of a budget.
        plan_seconds: after which no plan is improved any more.
        slices: in how many slices the stages around the largest values run, as in `rematc.jax.value_and_grad`; without
            a budget the program takes no more than without slices.
        options: arguments of `jax.jit`; `compiler_options` are merged with ours. Inside of another `jax.jit` there can
            be no options.

    Raises:
        CompileError: for what is no budget and no plan. On the call, at the user's line, with a budget, for what cannot
            be imported, and where no plan fits.
    """
    decided = whole_policy(policy)
    with at_users_line():
        slices = slices_of(slices)
        no_more = "100%" if is_cut(slices) and plan is None else None
        wanted = Wanted.of(no_more if budget is None else budget, plan, plan_seconds)
        slices = wanted.slices_for(slices)

    @functools.wraps(fun, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        with by_default(decided) as default:
            results = fun(*args, **kwargs)
        if decided is not None and not default.is_taken:
            warn_user(_NOT_TAKEN.format(policy=decided.spec, name=function_name(fun)))
        return results

    function = fun if decided is None else traced
    plain = PlannedFunction(function, wanted, slices, options) if wanted.is_planned else _Compiled(function, options)
    flagged: dict[Any, _Compiled | PlannedFunction] = {}

    @functools.wraps(fun, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):  # faster than any
            if value is True or value is False:
                return with_flags(args, kwargs)(*args, **kwargs)
        return plain(*args, **kwargs)

    def with_flags(args: Any, kwargs: Any) -> _Compiled | PlannedFunction:
        positions = tuple([index for index, value in enumerate(args) if isinstance(value, bool)])
        names = tuple([name for name, value in kwargs.items() if isinstance(value, bool)])
        if not positions and not names:
            return plain
        found = flagged.get((positions, names))
        if found is None:
            found = flagged.setdefault((positions, names), plain.with_static(positions, names))
        return found

    def lower(*args: Any, **kwargs: Any) -> Any:
        return with_flags(args, kwargs).ahead(args, kwargs).lower(*args, **kwargs)

    def trace(*args: Any, **kwargs: Any) -> Any:
        return with_flags(args, kwargs).ahead(args, kwargs).trace(*args, **kwargs)

    def report(*args: Any, **kwargs: Any) -> Report:
        found = with_flags(args, kwargs)
        if isinstance(found, PlannedFunction):
            return found.report(args, kwargs)
        raise CompileError(f"'{function_name(fun)}' has no plan to report; give jit a budget", user_location())

    call.lower, call.trace = lower, trace  # type: ignore[attr-defined]  # as the functions that jax.jit returns have
    call.report = report  # type: ignore[attr-defined]
    return call


class _Compiled:
    """A function compiled by itself, or as a part of another program."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        self._by_platform: dict[str, Callable[..., Any]] = {}
        inside = {name: value for name, value in options.items() if name != "compiler_options"}
        self._inside: Callable[..., Any] = jax.jit(function, **inside)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.outermost(args, kwargs) if is_outermost() else self._inside)(*args, **kwargs)

    def outermost(self, args: Any, kwargs: Any) -> Any:
        """What serves a call that compiles a program of its own: what `jax.jit` returns."""
        target = current_target((args, kwargs))
        found = self._by_platform.get(target.platform)
        if found is None:
            made = compiled(self._function, target, **self._options)
            found = self._by_platform.setdefault(target.platform, made)
        return found

    def ahead(self, args: Any, kwargs: Any) -> Any:
        """What lowers a call ahead of time: for the devices that its arguments lie on, here or not."""
        target = target_of((args, kwargs))
        return self.outermost(args, kwargs) if target.is_here else compiled(self._function, target, **self._options)

    def with_static(self, positions: tuple[int, ...], names: tuple[str, ...]) -> _Compiled:
        """The same, with these arguments static, too."""
        return _Compiled(self._function, with_static(self._function, self._options, positions, names))
