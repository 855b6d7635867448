"""A function traced and printed, and what XLA makes of it: text, executable, report."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
from jax.sharding import Sharding

from rematc.compiler.driver.compiled import CompiledFunction, is_same
from rematc.compiler.driver.inspection import CompiledInspection
from rematc.compiler.functions.calls import TracedFunction
from rematc.compiler.reports.budget import BudgetReport
from rematc.compiler.reports.check import Check, check_executable
from rematc.compiler.reports.derivative import DerivativeReport, report_derivatives
from rematc.compiler.reports.fallbacks import foreign_primitives
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.residuals import SavedResidual
from rematc.compiler.reports.saving import SAVES, Saving
from rematc.compiler.reports.slices import SlicesReport
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.options import CompilerOptions, Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.printer import print_graph
from rematc.lowering.artifact import Artifact
from rematc.lowering.dispatch import Dispatcher, LoweredFunction
from rematc.lowering.expectation import expected_peak
from rematc.lowering.pipeline import make_program, runs_depth_first
from rematc.lowering.program import Program
from rematc.lowering.propagation import shards_of
from rematc.lowering.runtime import Executable, compile_function, compile_program
from rematc.lowering.target import Target
from rematc.lowering.targeting import target_of
from rematc.lowering.xla_cpu.prediction import Prediction, predict
from rematc.passes.manager import PassRecord
from rematc.passes.planning.device import device_of
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.shards import Shards


@dataclass(frozen=True, slots=True)
class ExampleCall:
    """The call that a function was lowered for.

    Attributes:
        dispatcher: gives what compiles calls of the function: its own, where it is compiled when it is called, too.
        args: the arguments as they were given.
        kwargs: those by name.
    """

    dispatcher: Callable[[], Dispatcher]
    args: tuple[object, ...]
    kwargs: dict[str, object]

    @property
    def tree(self) -> jax.tree_util.PyTreeDef:
        """The structure of the arguments."""
        return jax.tree_util.tree_structure((self.args, self.kwargs))


@dataclass(frozen=True)
class Lowered:
    """A function traced, differentiated and printed for one set of argument types; nothing is compiled yet.

    Attributes:
        traced: the function's graph as traced, with every derivative in it.
        graph: the graph after the passes.
        program: its StableHLO, with closed-over arrays.
        target: what it is for.
        timings: what each pass did and how long it took.
        options: how it is to be compiled.
        budget: its plan, where it was lowered for a budget of memory, or that of a derivative in it.
    """

    traced: TracedFunction
    graph: Graph
    program: Program
    target: Target
    timings: tuple[PassRecord, ...]
    options: Options
    _call: CallArguments
    _example: ExampleCall
    budget: BudgetReport | None = None

    def __repr__(self) -> str:
        leaves, equations = len(self.program.leaf_types), len(self.graph.equations)
        return f"Lowered({self.program.name!r}, {leaves} leaves, {equations} equations)"

    @property
    def plan(self) -> Plan | None:
        """What of it is kept and what is computed again, where all of it was planned for a budget."""
        return None if self.budget is None or self.budget.function else self.budget.plan

    @property
    def records(self) -> tuple[object, ...]:
        """The differentiations in the function (`reports.differentiation.Differentiation`), innermost first."""
        return self.traced.records

    @property
    def slices(self) -> SlicesReport | None:
        """What of it runs in slices."""
        return next((record for record in self.records if isinstance(record, SlicesReport)), None)

    @functools.cached_property
    def derivatives(self) -> tuple[DerivativeReport, ...]:
        """What each differentiation saves and recomputes."""
        return report_derivatives(self.records, is_planned=self.plan is not None)

    def fixed(self) -> dict[str, object]:
        """What it was lowered for by value, under its name: static arguments and flags."""
        return dict(self._call.fixed())

    @property
    def donated(self) -> tuple[int, ...]:
        """The parameters whose memory the results may take over."""
        return self._call.among(self.options.donated)

    def bytes_to_place(self) -> int:
        """Bytes of the arguments that are no arrays on a device yet."""
        arrays = self._call.arrays
        types = self.program.param_types[: len(arrays)]
        return sum(type.bytes for type, array in zip(types, arrays, strict=True) if not isinstance(array, jax.Array))

    def predicted_peak(self) -> int:
        """The temporary memory in bytes that the program is expected to need; `Compiled.memory()` says what it does.

        Of a program on several devices it is that of one of them.
        """
        return self._expected_peak

    @functools.cached_property
    def _expected_peak(self) -> int:
        is_known = self.target.platform == "cpu"
        return self._prediction.peak if is_known else expected_peak(self.graph, self.target, self.donated, self.shards)

    @functools.cached_property
    def _prediction(self) -> Prediction:
        return predict(self.graph, self.target, self.donated, self.shards)

    @functools.cached_property
    def shards(self) -> Shards:
        """How the values of the graph are spread over devices, as XLA spreads them."""
        return shards_of(self.graph, self.target, self.shardings)

    def ir(self) -> str:
        """The graph after the passes, as IR text."""
        return print_graph(self.graph)

    def stablehlo(self, target: str | None = None) -> str:
        """The StableHLO module.

        It differs from platform to platform where it decomposes matrices, and for convolutions in loops, branches and
        functions.
        """
        return self.program_for(target).text

    def program_for(self, target: str | None = None) -> Program:
        """Its StableHLO for a target; by default for the one that it was lowered for.

        Raises CompileError where it decomposes matrices and the platform has no kernel for it.
        """
        return self._for(self._target(target))

    def _target(self, name: str | None) -> Target:
        return self.target if name is None else target_of(self._call.arrays, name)

    def _for(self, target: Target) -> Program:
        if self.program.choice is not None:
            self.program.choice.check(self.program.name, [target.platform])
        if self.program.platform in (None, target.platform):
            return self.program
        return make_program(self.graph, self.traced.constants, target)

    def compile(self, target: str | None = None, compiler_options: CompilerOptions | None = None) -> Compiled:
        """Hand the module to XLA; `target` is as in `lower`, by default what it was lowered for.

        `compiler_options` are options of XLA's by name, besides those that the function has already.

        Where arguments that it was lowered for are spread over several devices, so is the program, and XLA's figures
        are those of one device.

        What `rematc.jit(f).lower(...)` gives, and `lower` of `grad` and the like, is compiled once for this and for
        calls of the function with such arguments, whichever comes first.

        Raises CompileError where the target's platform is not there or XLA refuses.
        """
        chosen = self._target(target)
        program = self._for(chosen)
        is_depth_first = runs_depth_first(self.graph, chosen, lambda: self._prediction, lambda: self.shards)
        program = dataclasses.replace(program, is_depth_first=is_depth_first)
        leaves = self.donated
        options = {**dict(self.options.compiler_options), **(compiler_options or {})}
        artifact = Artifact(
            program,
            self._call.array_tree(),
            self.traced.out_tree,
            leaves,
            tuple(sorted(options.items())),
            tuple(sorted(self.options.statics.positions)),
            tuple(sorted(self.options.statics.names)),
            "" if chosen.is_here else device_of(chosen.platform, chosen.device_kind).name,
        )
        shardings = self.shardings
        # Calls of the function have no budget that all of it is planned for.
        is_as_called = chosen.is_here and not (compiler_options or self.plan)
        is_as_called = is_as_called and chosen == target_of(self._call.arrays)
        executable = self._compiled_for_calls(artifact, shardings) if is_as_called else None
        if executable is None:
            executable = compile_program(program, chosen, compiler_options=options, donated=leaves, shardings=shardings)
        return Compiled(artifact, executable, self)

    @property
    def shardings(self) -> list[Sharding | None]:
        """Of the arguments' arrays: where they lie, as far as they say it."""
        return [getattr(array, "sharding", None) for array in self._call.arrays]

    def _compiled_for_calls(self, artifact: Artifact, shardings: Sequence[Sharding | None]) -> Executable | None:
        """What a call of the function runs; None where that is not this program with these arguments alone."""
        example, module = self._example, artifact.program.module
        if example.tree != artifact.in_tree or self._call.fixed() or module.meshes or module.uses_host_memory:
            return None
        if any(one is not None and len(one.device_set) > 1 for one in shardings):
            return None
        function = LoweredFunction(artifact.program, artifact.out_tree)
        return compile_function(
            example.dispatcher(), self.target, function, artifact.in_tree, example.args, example.kwargs
        )


@dataclass(frozen=True, repr=False)
class Compiled(CompiledFunction):
    """A function compiled here and now, with what is known of its making.

    Attributes:
        lowered: the graphs that it comes from.
    """

    lowered: Lowered

    def _check_fixed(self, call: CallArguments) -> None:
        expected = self.lowered.fixed()
        for name, found in call.fixed():
            if name in expected and not is_same(expected[name], found):
                raise CompileError(
                    f"'{self.artifact.program.name}' was compiled for {expected[name]!r} as {name}, got {found!r}; "
                    "flags and static arguments are a part of what is compiled",
                    user_location(),
                )

    @property
    def plan(self) -> Plan | None:
        """What of it is kept and what is computed again, where it was planned for a budget."""
        return self.lowered.plan

    def saved_residuals(self) -> list[SavedResidual]:
        """What every derivative in the function saves."""
        return [row for one in self.lowered.derivatives for row in (*one.residuals, *one.arguments)]

    def check(self, baseline: CompiledFunction | None = None) -> Check:
        """Whether XLA kept what was planned: recomputed products found in the module that it runs, and memory.

        Beside `baseline`, the same function compiled without a policy, it says what memory the policy saves, too: what
        is kept may save nothing.
        """
        saving = None if baseline is None else self._saving(baseline)
        budget = self.lowered.budget
        plan = None if budget is None else budget.plan
        return check_executable(self.executable, self.lowered.records, self.lowered.predicted_peak(), saving, plan)

    def _saving(self, baseline: CompiledFunction) -> Saving | None:
        """What recomputation saves; None where there is none. Of a function from a file, residuals are not known."""
        temp, without = self.memory().temp_bytes, baseline.memory().temp_bytes
        if self.lowered.budget is not None:
            return Saving(temp, without, what="plan") if self.lowered.budget.plan.recomputes else None
        if not any(one.recompute.equations for one in self.lowered.derivatives):
            return None
        given_up = _saved_bytes(baseline) - _saved_bytes(self) if isinstance(baseline, Compiled) else None
        saving = Saving(temp, without, None if given_up is None else max(given_up, 0))
        way_out = _WAY_OUT_ON_CPU if self.executable.target.platform == "cpu" else _WAY_OUT
        return saving if saving.verdict == SAVES else dataclasses.replace(saving, way_out=way_out)

    def figures(self) -> Figures:
        """Memory, work and compile time together, and the memory that the plan predicts."""
        return dataclasses.replace(super().figures(), predicted_bytes=self.lowered.predicted_peak())

    def report(self, baseline: CompiledFunction | None = None) -> Report:
        """What was planned and what XLA made of it, beside the same for `baseline` if it is given."""
        beside = None if baseline is None else baseline.figures()
        return Report(
            self.lowered.derivatives,
            self.executable.target.name,
            self.figures(),
            beside,
            self.check(baseline),
            foreign_primitives(self.lowered.records),
            self.lowered.budget,
            self._inspection,
            self.lowered.slices,
        )

    @functools.cached_property
    def _inspection(self) -> CompiledInspection:
        lowered, budget = self.lowered, self.lowered.budget
        plan = None if budget is None else budget.plan
        return CompiledInspection(lowered.graph, self.executable, lowered.records, plan, lambda: lowered.shards)


_WAY_OUT = "measure other policies"
_WAY_OUT_ON_CPU = f"{_WAY_OUT}, or barriers that hold in any order of XLA's: the strategy 'call' (--barrier call)"


def _saved_bytes(compiled: Compiled) -> int:
    return sum(one.saved_bytes for one in compiled.lowered.derivatives)
