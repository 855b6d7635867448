"""`rematc.jax.jit` with a budget: a whole JAX function, differentiated by whoever it may be, compiled with a plan.

What XLA compiles is planned at the first call for arguments of some types. `jax.jit` of the planned program is called
from then on, so that arguments, donated ones, shardings and results are JAX's own business. Where all calls have
arguments of the same types, a call costs no more than one of `jax.jit`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax

from rematc.compiler.driver.budget import at_users_line, plan_part, with_more_slices
from rematc.compiler.driver.slices import slice_graph
from rematc.compiler.driver.wanted import Wanted
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.concretizing import ConcretizedError
from rematc.compiler.jax_api.gradient_call import differentiable_graph
from rematc.compiler.jax_api.planned_program import OtherTypesError, PlannedProgram, planned_program
from rematc.compiler.jax_api.traced import TracedCall, called_on_mesh, trace_jax
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.slices import asked_of
from rematc.compiler.tracing.options import Options, with_static
from rematc.ir.core import Graph
from rematc.lowering import caches
from rematc.lowering.jax_compiling import is_outermost
from rematc.lowering.jax_internals.platform import on_platform
from rematc.lowering.jax_internals.settings import is_trace_open, trace_context
from rematc.lowering.pipeline import passed_for_jax
from rematc.lowering.planning import GraphPlanner
from rematc.lowering.remembering import Remembered
from rematc.lowering.signature import Function, Signature, function_name
from rematc.lowering.slicing import Slices
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target, is_target_open, target_of, targeting

#: Whether a function with a budget of its own is part of one, whose plan it is under.
_is_planned_around: ContextVar[bool] = ContextVar("planned_around", default=False)


@contextmanager
def _planning() -> Iterator[None]:
    token = _is_planned_around.set(True)
    try:
        yield
    finally:
        _is_planned_around.reset(token)


class PlannedFunction:
    """A function compiled by itself with a plan, or as a part of another program.

    Any number of threads may call it.
    """

    def __init__(self, function: Function, wanted: Wanted, slices: Slices, options: dict[str, Any]) -> None:
        self._function, self._wanted, self._slices, self._options = function, wanted, slices, options
        chosen = Options.of(function, options.get("static_argnums"), options.get("static_argnames"))
        self._statics = chosen.statics
        self._signature = Signature.of(function, options.get("static_argnums"), options.get("static_argnames"))
        inside = {name: value for name, value in options.items() if name != "compiler_options"}
        self._plain: Callable[..., Any] = jax.jit(function, **inside)
        self._part: Callable[..., Any] = jax.jit(self._as_part(), **inside)
        self._programs = Remembered[Hashable, PlannedProgram]()
        self._parts = Remembered[Hashable, _Part](is_lasting=lambda part: part.traced.is_lasting)
        self._lock = threading.Lock()
        self.clear()
        caches.remembers(self)
        caches.remembers(self._programs)
        caches.remembers(self._parts)

    def clear(self) -> None:
        """Forget what was compiled."""
        with self._lock:
            self._count = 0
            #: What serves all calls, where there was never more than one program.
            self._entry: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._entry is not None and is_outermost():
            try:
                return self._entry(*args, **kwargs)
            except OtherTypesError:
                self._entry = None
        if not is_outermost():
            is_plain = _is_planned_around.get() or not is_trace_open()
            return (self._plain if is_plain else self._part)(*args, **kwargs)
        return self.program(args, kwargs, current_target((args, kwargs))).jitted(*args, **kwargs)

    def program(self, args: Any, kwargs: Any, target: Target) -> PlannedProgram:
        """What serves a call. Raises CompileError where it cannot be imported, or no plan fits."""
        key = (target, self._key(args, kwargs))

        def make() -> PlannedProgram:
            with _planning():
                made = planned_program(self._function, target, self._wanted, self._slices, self._options, args, kwargs)
            with self._lock:
                self._count += 1
                self._entry = made.jitted if self._count == 1 and target.is_here and not is_target_open() else None
            return made

        return self._programs.find(key, make)

    def _key(self, args: Any, kwargs: Any) -> Hashable:
        others, static = self._signature.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(others)
        return tree, static, tuple([_described(leaf) for leaf in leaves]), trace_context()

    def ahead(self, args: Any, kwargs: Any) -> Any:
        """What lowers a call ahead of time: for the devices that its arguments lie on, here or not."""
        if not is_outermost():
            return self._plain if _is_planned_around.get() else self._part
        return self.program(args, kwargs, target_of((args, kwargs))).jitted

    def report(self, args: Any, kwargs: Any) -> Report:
        """What is planned for a call, and what XLA makes of it."""
        return self.program(args, kwargs, target_of((args, kwargs))).report()

    def with_static(self, positions: tuple[int, ...], names: tuple[str, ...]) -> PlannedFunction:
        """The same, with these arguments static, too."""
        options = with_static(self._function, self._options, positions, names)
        return PlannedFunction(self._function, self._wanted, self._slices, options)

    def _as_part(self) -> Callable[..., Any]:
        """The function as a part of what JAX traces, planned by the prediction."""

        @functools.wraps(self._function, updated=())
        def part(*args: Any, **kwargs: Any) -> Any:
            arguments = JaxArguments.of(args, kwargs, self._statics)
            target = current_target(arguments.arrays)
            key = (target, arguments.key())
            found = self._parts.find(
                key, lambda: _Part.of(self._function, arguments, self._wanted, self._slices, target)
            )
            return found.apply(arguments)

        return part


def _described(leaf: Any) -> Hashable:
    """What of an array, or of anything else, `jax.jit` compiles for."""
    try:
        return jax.typeof(leaf), getattr(leaf, "sharding", None)
    except TypeError:
        return type(leaf).__name__  # which jax.jit refuses


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A function at arguments of some types as a part of another program, planned by what is predicted.

    Attributes:
        traced: what JAX traced.
        call: JAX's function of the graph's operands, which JAX differentiates as the graph without a plan.
        operands: the user's arrays as the graph's operands.
    """

    traced: TracedCall
    call: Callable[..., Sequence[Any]]
    operands: Callable[[Sequence[Any]], Sequence[Any]]

    @staticmethod
    def of(function: Function, arguments: JaxArguments, wanted: Wanted, slices: Slices, target: Target) -> _Part:
        name = function_name(function)
        try:
            with _planning():
                traced = trace_jax(function, arguments, name)
        except ConcretizedError as error:
            raise error.cause from None  # as jax.jit says it

        def graph(order: int) -> Graph:
            with targeting(target):
                return traced.imported(order).graph

        with targeting(target):
            imported = traced.imported(0)
        passed = functools.cache(lambda: _passed(imported.graph, wanted, slices, name, target))
        call = differentiable_graph(graph, target, passed)

        def operands(arrays: Sequence[Any]) -> Sequence[Any]:
            given = traced.operands(arrays, imported.constants)
            return on_platform(imported.choice, name, given)

        return _Part(traced, call, operands)

    def apply(self, arguments: JaxArguments) -> Any:
        results = called_on_mesh(self.call, self.operands(arguments.arrays), self.traced.out_avals)
        return self.traced.outputs(results)


def _passed(graph: Graph, wanted: Wanted, slices: Slices, name: str, target: Target) -> Graph:
    """A graph after the passes, in slices and with a plan. Raises CompileError where none is predicted to fit."""
    strategy = target.barrier_strategy

    def planned(slices: Slices) -> Graph:
        choice, sliced = slice_graph(lambda _: graph, slices, target, budget=wanted.budget)
        if wanted.budget is not None:
            budget = wanted.budget if sliced is None else wanted.budget.of_whole(sliced.whole)
            constraints, asked = budget.constraints, asked_of(sliced)
            planner = GraphPlanner(choice.graph, target, strategy, wanted.seconds, constraints, slices=asked)
            return planner.applied(plan_part(planner, budget, name).plan)
        assert wanted.plan is not None, "there is one or the other"
        planner = GraphPlanner(choice.graph, target, strategy)
        return planner.applied(planner.own(wanted.plan))

    with at_users_line():
        return passed_for_jax(with_more_slices(slices, planned), target)
