"""The training step that the command compiles: the value and gradient of the entry under a policy."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rematc.cli.arguments import find_arguments, parse_type, placeholders, random_arrays
from rematc.cli.budgets import budget_of
from rematc.cli.frontend import with_frontend
from rematc.cli.model import Entry, find_entry, load_model, users_code
from rematc.cli.module import read_module
from rematc.cli.options import Options
from rematc.cli.progress import Progress, interruptible
from rematc.compiler.api.transforms.gradients import value_and_grad
from rematc.compiler.driver import ahead
from rematc.compiler.driver.lowered import Compiled, Lowered
from rematc.compiler.driver.pareto import POINTS, POLICIES, candidates, measured, sliced_for
from rematc.compiler.driver.wanted import Wanted, made_in_slices
from rematc.compiler.functions.calls import trace_call
from rematc.compiler.functions.policies import strict_names
from rematc.compiler.reports.differentiation import Differentiation
from rematc.compiler.reports.pareto import Pareto
from rematc.compiler.reports.slices import count_of
from rematc.compiler.tracing.arguments import CallArguments
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import relative
from rematc.ir.printer import print_graph
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import format_seconds
from rematc.lowering.described import is_described
from rematc.lowering.slicing import OFF, Slices, slices_of
from rematc.lowering.target import Target
from rematc.lowering.targeting import target_of, targeting


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The entry function with the arguments it is compiled for, and how to compile it.

    Attributes:
        entry: the function.
        args: its arguments.
        options: what the command line says.
        progress: says what is going on.
    """

    entry: Entry
    args: tuple[object, ...]
    options: Options
    progress: Progress

    @property
    def file(self) -> str:
        """The model file, relative to the working directory where it lies below it."""
        return relative(str(self.entry.module.__file__))

    @property
    def differentiated(self) -> str:
        """The names of the parameters that the gradient is with respect to."""
        try:
            names = list(inspect.signature(self.entry.function).parameters)
        except (TypeError, ValueError):
            names = []
        count = len(self.args)
        positions = [index % count if -count <= index < count else index for index in self.options.argnums]
        return ", ".join(names[index] if index < len(names) else f"argument {index}" for index in positions)

    @property
    def is_run(self) -> bool:
        """Whether the program runs, so that arguments need values; for a device that need not be here it does not."""
        return is_run(self.options)

    @property
    def _target(self) -> Target:
        return target_of(self.args, self.options.target)

    def trace(self) -> Graph:
        """The entry as traced, not differentiated."""
        with self._tracing(f"tracing {self.entry.name}"):
            return ahead.trace(self.entry.function, *self.args)

    def differentiate(self) -> Differentiation:
        """The forward and backward graphs of the entry under the command's policy."""
        function = self._value_and_grad(self.options.policy)
        with self._tracing(f"differentiating {self.entry.name}"):
            traced = trace_call(function, CallArguments.of(function, self.args, {}))
        record = traced.records[-1]  # the outermost differentiation is noted last
        assert isinstance(record, Differentiation), "value_and_grad notes what it differentiates"
        return record

    def lower(self, policy: str, slices: Slices | None = None) -> Lowered:
        """The step under a policy, with the dumps and timings of its passes that were asked for."""
        dump = self._dump(policy) if self.options.print_between_passes else None
        lowered = self._lower(policy, dump, slices=slices)
        if self.options.time_passes:
            sys.stderr.write(plain_text([_timings(policy, lowered)]))
        return lowered

    def lower_baseline(self) -> Lowered:
        """The step without a policy."""
        return self._lower("none", slices=OFF)

    def lower_watched(self, after_each: Callable[[str, Graph], None]) -> Lowered:
        """The step under the command's policy, once more; `after_each` is given each pass's text and graph."""
        return self._lower(self.options.policy, after_each)

    def lower_with_barriers(self, strategy: str) -> Lowered:
        """The step under the command's policy, with another strategy of barriers."""
        return self._lower(self.options.policy, barrier=strategy)

    def _lower(
        self,
        policy: str,
        dump: Callable[[str, Graph], None] | None = None,
        barrier: str | None = None,
        slices: Slices | None = None,
    ) -> Lowered:
        """The step under a policy; with barriers and in slices as the options ask for them, if nothing else is said."""
        function = self._value_and_grad(policy)
        with self._tracing(f"lowering {self.entry.name} with policy {policy}"):
            return ahead.lower_call(
                function,
                self.entry.compiling or ahead.options_of(function),
                self.args,
                {},
                passes=self.options.passes,
                barrier=self.options.barrier if barrier is None else barrier,
                after_each=dump,
                name=self.options.target,
                slices=self._slices if slices is None else slices,
                budget=self._wanted.budget,
            )

    def _value_and_grad(self, policy: str) -> Callable[..., object]:
        if self.options.is_module:
            return self.entry.function
        argnums = self.options.argnums
        positions = argnums[0] if len(argnums) == 1 else argnums
        given = None if policy == "none" else policy
        return value_and_grad(self.entry.function, positions, self.options.has_aux, policy=given)

    def compile(self, lowered: Lowered, what: str = "") -> Compiled:
        """What XLA makes of the step."""
        where = self.options.target
        with self.progress.phase(f"compiling{what}" + (f" for {where}" if where else "")):
            return interruptible(lowered.compile)

    def program(self) -> Lowered:
        """The step as the options ask for it; a budget is what XLA takes."""
        if self.options.budget is not None:
            return self.executable().lowered
        return self._wanted.lower(self.lower(self.options.policy))

    def executable(self) -> Compiled:
        """What XLA makes of the step as the options ask for it."""
        options = self.options
        if options.budget is not None:
            return self._within_budget()
        lowered = self.lower(options.policy)
        if options.plan is None:
            return self.compile(lowered, f" with policy {options.policy}")
        with self.progress.phase(f"compiling with the plan {options.plan.name}"):
            return interruptible(lambda: self._planned(self._wanted, lowered))

    def _within_budget(self) -> Compiled:
        def made(wanted: Wanted, lowered: Lowered) -> Compiled:
            cut = "" if lowered.slices is None else f" in {count_of(lowered.slices)} slices"
            with self.progress.phase(f"planning and compiling for {self.options.budget}{cut}"):
                return interruptible(lambda: self._planned(wanted, lowered))

        return made_in_slices(
            self._slices, lambda slices: (self.lower(self.options.policy, slices), self._wanted), made
        )

    def _planned(self, wanted: Wanted, lowered: Lowered) -> Compiled:
        with strict_names():
            return wanted.compile(lowered)

    def pareto(self) -> Pareto:
        """Memory and time of the step: by plans for many budgets, and under policies."""
        lowered = self.lower_baseline()
        under = {policy: self.lower(policy, slices=OFF) for policy in POLICIES}
        sliced = sliced_for(slices_of(self.options.slices), lambda count: self._lower("none", slices=count))
        with self.progress.phase(f"planning for {POINTS} budgets"):
            found = interruptible(lambda: candidates(lowered, under, POINTS, self.options.plan_seconds, sliced))
        return measured(found, lambda one, name: self.compile(one, f" {name}"))

    def predicted_curve(self) -> Pareto:
        """The same of plans alone, as predicted: nothing is compiled."""
        lowered = self.lower(self.options.policy)
        with self.progress.phase(f"planning for {POINTS} budgets"):
            return measured(interruptible(lambda: candidates(lowered, {}, seconds=self.options.plan_seconds)), None)

    @property
    def _slices(self) -> Slices:
        return self._wanted.slices_for(slices_of(self.options.slices))

    @property
    def _wanted(self) -> Wanted:
        return Wanted.of(budget_of(self.options), self.options.plan, self.options.plan_seconds)

    @contextmanager
    def _tracing(self, what: str) -> Iterator[None]:
        """Run what traces the entry; an error that has no place of its own is about the entry as a whole."""
        try:
            with self.progress.phase(what), users_code(), strict_names(), targeting(self._target):
                yield
        except CompileError as error:
            error.loc = error.loc or self.entry.loc
            raise

    def _dump(self, policy: str) -> Callable[[str, Graph], None]:
        def dump(text: str, graph: Graph) -> None:
            print(f"// policy {policy}, after the pass {text}\n{print_graph(graph)}", file=sys.stderr)

        return dump


def _timings(policy: str, lowered: Lowered) -> Table:
    rows = tuple(
        (record.text, str(record.equations_before), str(record.equations_after), format_seconds(record.seconds))
        for record in lowered.timings
    )
    return Table("", (f"policy {policy}: pass", "equations", "after", "time"), (False, True, True, True), rows)


def is_run(options: Options) -> bool:
    """Whether the options have the program run."""
    is_elsewhere = options.target is not None and is_described(options.target)
    return not is_elsewhere and (options.run or options.profile is not None or bool(options.compare))


def load_step(options: Options, progress: Progress) -> TrainingStep:
    """Load the model, find its entry and arguments. Raises CompileError, and whatever the model raises."""
    if options.is_module:
        with progress.phase(f"reading {options.model}"):
            entry, params = read_module(options.model, options.entry or "main")
            return TrainingStep(entry, placeholders(params), options, progress)
    types = [parse_type(text) for text in options.args]
    with progress.phase(f"loading {options.model}"):
        entry = find_entry(load_model(options.model), options.entry)
        args = find_arguments(entry, types, random_arrays if is_run(options) else placeholders)
        entry = with_frontend(entry, args, options.frontend)
    if is_run(options):
        _check_values(entry, args)
    return TrainingStep(entry, args, options, progress)


def _check_values(entry: Entry, args: tuple[object, ...]) -> None:
    call = CallArguments.of(entry.function, args, {})
    for name, array in zip(call.names, call.arrays, strict=True):
        if not isinstance(array, (bool, int, float, complex)) and not hasattr(array, "__array__"):
            raise CompileError(
                f"{name} is a {type(array).__name__} without values, and the program is to run; "
                "return arrays from example_args(), or leave out --run, --profile and --compare"
            )
