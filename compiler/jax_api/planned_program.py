"""A JAX function at some arguments, compiled with a plan of all that it does."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from rematc.compiler.driver.budget import at_users_line, first_within, looking_for_slices, with_more_slices
from rematc.compiler.driver.slices import slice_graph
from rematc.compiler.driver.wanted import Wanted
from rematc.compiler.frontends.jax.importing import Imported
from rematc.compiler.functions.policies import check_kept_names
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.concretizing import ConcretizedError
from rematc.compiler.jax_api.traced import TracedCall, called_on_mesh, trace_jax
from rematc.compiler.reports.budget import BudgetReport, log_plan
from rematc.compiler.reports.check import check_executable
from rematc.compiler.reports.fallbacks import Fallbacks, foreign_primitives
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.slices import SlicesReport, asked_of
from rematc.compiler.tracing.options import KEYWORDS, Options
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.lowering.expectation import expected_peak
from rematc.lowering.jax_compiling import compiled
from rematc.lowering.jax_export.evaluating import wide_types
from rematc.lowering.jax_internals.calls import apply_program
from rematc.lowering.pipeline import make_program, run_passes, runs_depth_first
from rematc.lowering.planning import GraphPlanner
from rematc.lowering.program import Program
from rematc.lowering.propagation import shards_of
from rematc.lowering.runtime import Executable, log_compiled
from rematc.lowering.signature import Function, Owners, function_name
from rematc.lowering.slicing import Slices, is_cut
from rematc.lowering.target import Target
from rematc.lowering.targeting import targeting
from rematc.lowering.xla_errors import explain_xla
from rematc.passes.planning.constraints import FREE
from rematc.passes.planning.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class PlannedProgram:
    """A function's program for arguments of some types.

    Attributes:
        jitted: the `jax.jit` of it, which takes the function's own arguments.
        executable: what XLA made of it for the arguments that it was planned at.
        graph: what it executes.
        planned: its plan, and what XLA takes.
        donated: the parameters of the graph in whose memory results may lie.
        fallbacks: what of the function came in without an import rule.
        shardings: JAX's, of the graph's first parameters.
        slices: what of it runs in slices.
    """

    jitted: Any
    executable: Executable
    graph: Graph
    planned: BudgetReport
    donated: tuple[int, ...]
    fallbacks: Fallbacks
    shardings: Sequence[Any]
    slices: SlicesReport | None = None

    def report(self) -> Report:
        """What is kept and what is computed again, and what XLA made of it."""
        target, memory = self.executable.target, self.executable.memory()
        shards = shards_of(self.graph, target, self.shardings)
        predicted = expected_peak(self.graph, target, self.donated, shards)
        figures = Figures(memory.temp_bytes, self.executable.flops(), self.executable.compile_seconds, predicted)
        check = check_executable(self.executable, (), predicted, None, self.planned.plan)
        foreign = foreign_primitives((self.fallbacks,))
        return Report((), target.name, figures, None, check, foreign, self.planned, slices=self.slices)


def trace_call(
    function: Function, chosen: Options, options: dict[str, Any], args: Any, kwargs: Any
) -> tuple[TracedCall, Hashable, tuple[int, ...], tuple[int, ...]]:
    """A function as `jax.jit` with these options traces it at a call's arguments, which may be without elements.

    Beside it, what calls have in common that are traced alike, which leaves of the arguments are arrays, and which of
    the arrays are donated.
    """
    found: list[tuple[TracedCall, Hashable, tuple[int, ...], tuple[int, ...]]] = []

    @functools.wraps(function, updated=())
    def probe(*args: Any, **kwargs: Any) -> tuple[()]:
        arguments = JaxArguments.of(args, kwargs, chosen.statics)
        traced = trace_jax(function, arguments, function_name(function))
        found.append((traced, arguments.key(), arguments.places, arguments.among(chosen.donated)))
        return ()

    given = {name: value for name, value in options.items() if name in _OF_ARGUMENTS}
    try:
        jax.jit(probe, **given).trace(*args, **kwargs)
    except ConcretizedError as error:
        raise error.cause from None  # as jax.jit says it
    return found[-1]


#: The options of `jax.jit` by which it takes arguments.
_OF_ARGUMENTS = ("static_argnums", "static_argnames", "in_shardings")


@collection_paused()
def planned_program(
    function: Function,
    target: Target,
    wanted: Wanted,
    slices: Slices,
    options: dict[str, Any],
    args: Any,
    kwargs: Any,
) -> PlannedProgram:
    """Import a function, plan it, and compile it until XLA takes no more than its budget, or as its plan says.

    Args:
        function: what `jax.jit` would compile.
        target: for what.
        wanted: the budget, or the plan.
        slices: in how many the stages around its largest values run.
        options: those of `jax.jit`.
        args: of a call, arrays or `jax.ShapeDtypeStruct`s.
        kwargs: the same by name.

    Raises:
        CompileError: at the user's line, for what cannot be imported, and where no plan fits.
    """
    chosen = Options.of(function, *[options.get(name) for name in KEYWORDS])
    traced, key, places, donated = trace_call(function, chosen, options, args, kwargs)
    own = replace(target, has_options=True)
    with targeting(own):
        imported = traced.imported(0)
    made = _Compiler(function, traced, key, places, imported, own, chosen.statics, options, args, kwargs)

    def planned_in(slices: Slices) -> tuple[_Made, BudgetReport, SlicesReport | None]:
        given = made.in_bytes(wanted) if is_cut(slices) else wanted
        choice, sliced = slice_graph(lambda _: imported.graph, slices, own, donated, given.budget, made.shardings)
        constraints = FREE if given.budget is None else given.budget.constraints
        planner = _Planner(
            choice.graph,
            own,
            seconds=given.seconds,
            constraints=constraints,
            donated=donated,
            shardings=made.shardings,
            slices=asked_of(sliced),
        )
        planner.leaves = jax.tree_util.tree_leaves((args, kwargs))
        return *_planned(planner, given, made, traced.name), sliced

    with at_users_line():
        (jitted, executable, graph), planned, sliced = with_more_slices(slices, planned_in)
    log_plan(planned)
    fallbacks = Fallbacks(traced.name, imported.fallbacks, imported.counts)
    return PlannedProgram(jitted, executable, graph, planned, donated, fallbacks, made.shardings, sliced)


_Made = tuple[Any, Executable, Graph]


def _planned(planner: GraphPlanner, wanted: Wanted, made: _Compiler, name: str) -> tuple[_Made, BudgetReport]:
    if wanted.budget is None:
        assert wanted.plan is not None, "there is one or the other"
        plan = planner.own(wanted.plan)
        found, measured = made.compiled(planner.passed(plan).graph)
        return found, BudgetReport(plan, plan.budget, measured, 1)
    check_kept_names(wanted.budget.keep, planner.before.graph, name)

    def planned(plan: Plan, _: int) -> tuple[_Made, int]:
        return made.compiled(planner.passed(plan).graph)

    with looking_for_slices(planner):
        return first_within(planner, wanted.budget, made.whole, planned)


class _Planner(GraphPlanner):
    """Plans of a function at some arguments."""

    leaves: Sequence[Any] = ()

    def free(self) -> int:
        """As of any graph; arguments that are on no device yet are going to take some of it."""
        placed = sum(int(leaf.nbytes) for leaf in self.leaves if not isinstance(leaf, jax.Array) and _has_bytes(leaf))
        return max(0, super().free() - placed)


def _has_bytes(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "nbytes")


@dataclass(frozen=True, eq=False)
class _Compiler:
    """Compiles what a function was imported as, in the form of its own calls."""

    function: Function
    traced: TracedCall
    key: Hashable
    places: tuple[int, ...]
    imported: Imported
    target: Target
    statics: Owners
    options: dict[str, Any]
    args: Any
    kwargs: Any

    @functools.cached_property
    def _whole(self) -> int:
        return self.compiled(run_passes(self.imported.graph).graph)[1]

    def whole(self) -> int:
        """The bytes that XLA takes for the function as it stands."""
        return self._whole

    def in_bytes(self, wanted: Wanted) -> Wanted:
        """A budget that is a percentage as bytes: of the function as it stands, not in slices."""
        if wanted.budget is None or wanted.budget.of_whole(0) is wanted.budget:
            return wanted
        return replace(wanted, budget=wanted.budget.of_whole(self.whole()))

    @functools.cached_property
    def shardings(self) -> list[Any]:
        """Of the arrays of a call, with what `in_shardings` says; JAX tells it of a function that does nothing."""
        leaves = jax.tree_util.tree_leaves(self.statics.split(self.args, self.kwargs)[0])
        own = [getattr(leaves[place], "sharding", None) for place in self.places]
        if self.options.get("in_shardings") is None:
            return own

        @functools.wraps(self.function, updated=())
        def nothing(*args: Any, **kwargs: Any) -> tuple[()]:
            return ()

        given = {name: value for name, value in self.options.items() if name in _OF_ARGUMENTS}
        made = jax.jit(nothing, keep_unused=True, **given).lower(*self.args, **self.kwargs).compile()
        found = jax.tree_util.tree_leaves(made.input_shardings)
        return [found[place] for place in self.places]

    def compiled(self, graph: Graph) -> tuple[_Made, int]:
        """The graph, which was through the passes, compiled; and the bytes that XLA takes."""
        program = make_program(graph, (), self.target, self.imported.choice)
        spread = functools.partial(shards_of, graph, self.target, self.shardings)
        is_depth_first = runs_depth_first(graph, self.target, shards=spread)
        program = replace(program, is_depth_first=is_depth_first)
        function = self._calling(program, graph)
        jitted: Any = compiled(function, self.target, is_depth_first=is_depth_first, **self.options)
        lowered = jitted.lower(*self.args, **self.kwargs)
        start = time.perf_counter()
        try:
            found = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            explain_xla(error, program.name, [program])
            raise
        seconds = time.perf_counter() - start
        log_compiled(program, self.target, seconds)
        counts = [len(one.device_set) for one in jax.tree_util.tree_leaves(found.input_shardings)]
        executable = Executable(
            program, replace(self.target, devices=max(counts, default=1)), seconds, lowered, found, ()
        )
        return (jitted, executable, graph), executable.memory().temp_bytes

    def _calling(self, program: Program, graph: Graph) -> Callable[..., Any]:
        """The program as a function of the user's arguments."""
        traced, key, constants, statics = self.traced, self.key, self.imported.constants, self.statics

        def call(*operands: Any) -> list[Any]:
            with wide_types(graph):
                return apply_program(program, operands)

        @functools.wraps(self.function, updated=())
        def function(*args: Any, **kwargs: Any) -> Any:
            arguments = JaxArguments.of(args, kwargs, statics)
            if arguments.key() != key:
                raise OtherTypesError
            operands = traced.operands(arguments.arrays, constants)
            return traced.outputs(called_on_mesh(call, operands, traced.out_avals))

        return function


class OtherTypesError(Exception):
    """Raised while tracing: a program was called with arguments of other types than those that it was made for."""
