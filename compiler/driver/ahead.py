"""Ahead of time: `trace`, `lower` and `compile` of a function at example arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from rematc.compiler.driver.budget import at_users_line
from rematc.compiler.driver.lowered import Compiled, ExampleCall, Lowered
from rematc.compiler.driver.pareto import POINTS, POLICIES, candidates, measured, sliced_for
from rematc.compiler.driver.slices import planning_for, slice_graph, slices_argument
from rematc.compiler.driver.wanted import Wanted, made_in_slices
from rematc.compiler.functions.calls import trace_call
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.functions.policies import by_default, whole_policy
from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.pareto import Pareto
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.compiler.tracing.options import KEYWORDS, NO_OPTIONS, Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.policy import Policy
from rematc.lowering.dispatch import Dispatcher, LoweredFunction
from rematc.lowering.pipeline import default_pipeline, make_program, run_passes
from rematc.lowering.planning import Budget
from rematc.lowering.signature import Function, function_name
from rematc.lowering.slicing import NEEDED, OFF, Slices, is_cut
from rematc.lowering.targeting import current_target, target_of, targeting
from rematc.passes.manager import Watch, watching
from rematc.passes.planning.plan import Plan


def trace(fun: Function | Graph, /, *args: object, **kwargs: object) -> Graph:
    """The graph of `fun` at these arguments, as traced.

    Arguments may be arrays or `jax.ShapeDtypeStruct`s. Closed-over arrays are the graph's last parameters. Functions
    with custom rules have the rules of one derivative.
    """
    function = as_function(fun)
    call = CallArguments.of(function, args, kwargs, options_of(function).statics)
    with differentiated(), targeting(current_target(call.arrays)):
        return trace_call(function, call).graph


T = TypeVar("T")


@collection_paused()
def lower_call(
    fun: Function,
    options: Options,
    args: Sequence[object],
    kwargs: dict[str, object],
    *,
    policy: Policy | None = None,
    passes: str | None = None,
    barrier: str = "auto",
    after_each: Callable[[str, Graph], None] | None = None,
    name: str | None = None,
    dispatcher: Dispatcher | None = None,
    slices: Slices = OFF,
    budget: Budget | None = None,
) -> Lowered:
    """Trace a function at these arguments, run the passes, print StableHLO: `lower`, with the options apart.

    `barrier` is the strategy of the default passes, `name` that of the target, `budget` what the program is going to be
    planned for. `dispatcher` compiles the function when it is called, with the same options.
    """
    call = CallArguments.of(fun, args, kwargs, options.statics)
    target = target_of(call.arrays, name)
    # To check each step of a derivative takes a fifth of the time that all takes; the program is checked in any case.
    watch = Watch(verify=after_each is not None, after_each=after_each)
    with planning_for(budget, slices):
        with by_default(policy), targeting(target), watching(watch):
            traced = trace_call(fun, call)
        choice, sliced = slice_graph(lambda _: traced.graph, slices, target, shardings=call.lying)
    if sliced is not None:
        traced = dataclasses.replace(traced, graph=choice.graph, records=(*traced.records, sliced))
    pipeline, at = (default_pipeline(barrier), target) if passes is None else (passes, None)
    passed = run_passes(traced.graph, pipeline, after_each, at)
    program = make_program(passed.graph, traced.constants, target, traced.choice)
    example = ExampleCall(lambda: dispatcher or _dispatcher(fun, options), tuple(args), kwargs)
    planned = next((record for record in traced.records if isinstance(record, BudgetReport)), None)
    timings = (*watch.records, *passed.records)
    return Lowered(traced, passed.graph, program, target, timings, options, call, example, planned)


def _dispatcher(fun: Function, options: Options) -> Dispatcher:
    """Of a function that is compiled ahead of time alone."""

    @functools.wraps(fun, updated=())
    def lower(*args: object, **kwargs: object) -> LoweredFunction:
        raise InternalError(f"'{function_name(fun)}' is called, and was lowered for one call that compiles it")

    return Dispatcher(lower, **options.keywords())


@runtime_checkable
class LowersItself(Protocol):
    """What `jit`, `grad` and the like return."""

    options: Options

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """As `rematc.lower` of the function, with its own options."""


@runtime_checkable
class HasBudget(Protocol):
    """What `value_and_grad` and `grad` return with a budget. As a whole program it is planned by what XLA takes."""

    budget: Budget | None
    without_budget: Any


@runtime_checkable
class CanBeSliced(Protocol):
    """What `value_and_grad` and `grad` return."""

    slices: Slices

    def in_slices(self, slices: Slices) -> Any:
        """The same in so many slices."""


def options_of(fun: object) -> Options:
    """The options that `jit`, `grad` or the like were given for a function."""
    found = getattr(fun, "options", None)
    return found if isinstance(found, Options) else NO_OPTIONS


#: The keywords of `lower` and `compile` that are theirs, and not the function's.
_OPTIONS = (*KEYWORDS, "policy", "target", "passes", "after_each", "budget", "plan", "plan_seconds", "slices")


def lower(fun: Function | Graph, /, *args: object, **kwargs: Any) -> Lowered:
    """Trace `fun` at these arguments, run the passes, print StableHLO.

    A keyword that is one of the options below is an option. Where `fun` takes an argument of that name too, and was not
    given it by position, it is an error: `rematc.jit(fun, policy=...).lower(*args, **kwargs)` keeps them apart, and all
    keywords are `fun`'s.

    Args:
        fun: a function, what `value_and_grad`, `grad`, `jit` and the like return, or a graph.
        args: example arguments: arrays, or `jax.ShapeDtypeStruct`s.
        kwargs: example keyword arguments, and options: `policy`, `static_argnums`, `static_argnames`,
            `donate_argnums`, `donate_argnames`, `compiler_options` as in `jit`; `target`, what it is for, by default
            where its arguments lie, or jax runs: a platform (cpu, cuda, tpu), or a device that need not be here
            (`rematc.targets`: "h100", "v5e:4x4"), for which XLA compiles what is not run; `passes`, a pipeline instead
            of the default one, as text; `after_each`, called with a pass's text and its graph after each pass;
            `budget`, the temporary memory that it may need, as predicted: bytes, "2GiB", "50%" of what it needs without
            recomputation, or "device", what the device has free once arguments and results are there; or a
            `rematc.Budget`, which says besides what is never computed again; `plan_seconds`, after which no plan is
            improved any more; `plan`, a `rematc.Plan` that was made for this
            program, or the name of its file, instead of a budget; `slices`, in how many slices the stage around its
            largest value runs, as in `value_and_grad`.

    Raises:
        CompileError: at the user's line, for what cannot be traced, differentiated or lowered, for a budget that no
            plan was found for, and for a plan of another program.
    """
    with at_users_line():
        return _planned(fun, args, kwargs, Wanted.lower)


def _planned(
    fun: Function | Graph, args: tuple[object, ...], kwargs: dict[str, Any], make: Callable[[Wanted, Lowered], T]
) -> T:
    """What is made of a function that is lowered without a plan, in as many slices as are asked for, or needed."""
    own = fun.slices if isinstance(fun, CanBeSliced) else NEEDED
    asked = slices_argument(kwargs.get("slices", NEEDED)) if own == NEEDED else own
    plan = kwargs.get("plan")
    first = Wanted.of(None, plan).slices_for(asked) if isinstance(plan, Plan | str | os.PathLike) else asked

    def lower_in(slices: Slices) -> tuple[Lowered, Wanted]:
        function, given = (fun, dict(kwargs)) if slices == asked else _cut(fun, kwargs, slices)
        return _lower(function, args, given)

    return made_in_slices(first, lower_in, make)


def _lower(fun: Function | Graph, args: tuple[object, ...], kwargs: dict[str, Any]) -> tuple[Lowered, Wanted]:
    """A function lowered without a plan, and the plan that it is to have."""
    function: Any = as_function(fun)
    given = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs and not _is_labels(name, kwargs[name])}
    _refuse_ambiguous(function, len(args), given)
    rest = {name: given.pop(name) for name in ("passes", "after_each") if name in given}
    policy, name = whole_policy(given.pop("policy", None)), given.pop("target", None)
    budget, plan = given.pop("budget", None), given.pop("plan", None)
    slices = slices_argument(given.pop("slices", NEEDED))
    if isinstance(function, HasBudget) and function.budget is not None:
        if budget is not None:
            name = function_name(function.without_budget)
            raise CompileError(f"'{name}' has a budget of its own; leave out one of them", user_location())
        # A plan that was made for the budget stands in its place.
        function, budget = function.without_budget, function.budget if plan is None else None
    _refuse_second(slices, function)
    with at_users_line():
        wanted = Wanted.of(budget, plan, given.pop("plan_seconds", None))
    if wanted.is_planned and "passes" in rest:
        raise CompileError(
            "a budget, and a plan, have passes of their own; leave out passes, or write 'plan{budget=BYTES}' or "
            "'plan{file=NAME}' among them"
        )
    if not is_cut(slices) and not (given or rest or policy or name) and isinstance(function, LowersItself):
        with planning_for(wanted.budget):
            return function.lower(*args, **kwargs), wanted
    options = options_of(function).merged(Options.of(function, **given)) if given else options_of(function)
    lowered = lower_call(
        function, options, args, kwargs, policy=policy, name=name, slices=slices, budget=wanted.budget, **rest
    )
    return lowered, wanted


def _is_labels(name: str, value: object) -> bool:
    """Whether a keyword is an argument of the function's for what it is: losses have arrays called `target`."""
    return name == "target" and not (value is None or isinstance(value, str))


def _refuse_ambiguous(function: Function, count: int, given: dict[str, Any]) -> None:
    """Raise CompileError for options that may be arguments of the function, which has so many positional ones."""
    if not given:
        return
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    names = set(list(parameters)[count:])  # those before are given
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    for name in given:
        if name in names or takes_any:
            raise CompileError(
                f"'{name}' is an option of rematc.compile and rematc.lower, and '{function_name(function)}' takes an "
                f"argument of that name too; write rematc.jit({function_name(function)}, ...).lower(...).compile(...): "
                "options stand in jit and compile, and all that lower is given are arguments",
                user_location(),
            )


def compile(fun: Function | Graph, /, *args: object, **kwargs: Any) -> Compiled:
    """Lower `fun` at these arguments and compile it: `lower(fun, ...).compile(target)`.

    Arguments and options are those of `lower`; a `budget` is what XLA may take, for which up to three plans are
    compiled, and "50%" is of what it takes without one. A `plan` is compiled as it is.
    `rematc.jit(fun, ...).lower(*args, **kwargs).compile(target)` is the same without a plan, where every keyword of
    `lower` is an argument of `fun`.
    """
    with at_users_line():
        return _planned(fun, args, kwargs, Wanted.compile)


def pareto(
    fun: Function | Graph,
    /,
    *args: object,
    points: int = POINTS,
    policies: Sequence[str] = POLICIES,
    measure: bool = True,
    plan_seconds: float | None = None,
    **kwargs: Any,
) -> Pareto:
    """What `fun` at these arguments takes in memory and in time: as it stands, by plans, and under policies.

    Args:
        fun: as in `lower`.
        args: example arguments, as in `lower`.
        points: how many budgets are planned for, evenly from the smallest predicted peak to that without recomputation.
        policies: names of policies for the derivatives in `fun` that have none of their own. One that changes nothing
            is left out.
        measure: whether each point is compiled, for the memory that XLA takes; else it is predicted. Time is predicted.
        plan_seconds: after how many no plan is improved any more.
        kwargs: as in `lower`, without `budget`, `plan`, `passes` and `policy`. With `slices` there are the same in so
            many slices beside, with "auto" in 4, 16 and 64, as far as that saves something.

    Raises CompileError as `lower` does, and for less than two points.
    """
    for name in ("budget", "plan", "passes", "policy"):
        if name in kwargs:
            raise CompileError(f"a curve is of plans and policies of its own; leave out {name}")

    slices = slices_argument(kwargs.pop("slices", NEEDED))
    _refuse_second(slices, fun)

    def lower_under(**policy: str) -> Lowered:
        return _lower(fun, args, {**kwargs, **policy})[0]

    def cut_in(count: Slices) -> Lowered:
        function, given = _cut(fun, kwargs, count)
        return _lower(function, args, given)[0]

    lowered = lower_under()
    under = {policy: lower_under(policy=policy) for policy in policies} if lowered.records else {}
    with at_users_line():
        found = candidates(lowered, under, points, plan_seconds, sliced_for(slices, cut_in))
        return measured(found, (lambda one, _: one.compile()) if measure else None)


def _refuse_second(slices: Slices, fun: Function | Graph) -> None:
    if is_cut(slices) and isinstance(fun, CanBeSliced) and is_cut(fun.slices):
        raise CompileError(f"'{function_name(fun)}' has slices of its own; leave out one of them", user_location())


def _cut(fun: Function | Graph, kwargs: dict[str, Any], slices: Slices) -> tuple[Function | Graph, dict[str, Any]]:
    """A function and its keywords, in so many slices."""
    if isinstance(fun, CanBeSliced):
        return fun.in_slices(slices), {name: value for name, value in kwargs.items() if name != "slices"}
    return fun, {**kwargs, "slices": slices}
