"""Ahead of time: from a function and example arguments to text, to an executable, to a report."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.tree_util

from rematc.compiler.arguments import CallArguments, Function
from rematc.compiler.programs import collection_paused, make_program, run_passes
from rematc.compiler.report import DerivativeReport, Figures, Report, report_derivatives
from rematc.compiler.residuals import SavedResidual
from rematc.compiler.tracing import TracedFunction, trace_call
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.printer import print_graph
from rematc.lowering.program import Program
from rematc.lowering.runtime import Executable, Memory, barrier_options, compile_program
from rematc.passes.manager import PassRecord


@dataclass(frozen=True)
class Lowered:
    """A function traced, differentiated and printed for one set of argument types; nothing is compiled yet.

    Attributes:
        traced: the function's graph as traced, with every derivative in it.
        graph: the graph after the passes.
        program: its StableHLO, with closed-over arrays.
        timings: what each pass did and how long it took.
    """

    traced: TracedFunction
    graph: Graph
    program: Program
    timings: tuple[PassRecord, ...]
    _call: CallArguments

    @property
    def records(self) -> tuple[object, ...]:
        """The differentiations in the function (`rematc.compiler.differentiation.Differentiation`), innermost first."""
        return self.traced.records

    @functools.cached_property
    def derivatives(self) -> tuple[DerivativeReport, ...]:
        """What each differentiation saves and recomputes."""
        return report_derivatives(self.records)

    def ir(self) -> str:
        """The graph after the passes, as IR text."""
        return print_graph(self.graph)

    def stablehlo(self) -> str:
        """The StableHLO module."""
        return self.program.text

    def compile(self, platform: str | None = None) -> Compiled:
        """Hand the module to XLA; `platform` is cpu, cuda or tpu, by default what jax would take.

        Raises CompileError where the platform is not there or XLA refuses.
        """
        options = barrier_options(platform or jax.default_backend())
        return Compiled(self, compile_program(self.program, platform=platform, compiler_options=options))


@dataclass(frozen=True)
class Compiled:
    """A compiled function: call it with arguments of the types it was compiled for."""

    lowered: Lowered
    executable: Executable

    def __call__(self, *args: object, **kwargs: object) -> object:
        leaves = self._leaves(args, kwargs)
        results = self.executable(*leaves)
        return jax.tree_util.tree_unflatten(self.lowered.traced.out_tree, results)

    def _leaves(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        expected = self.lowered._call
        call = CallArguments.of(lambda *_, **__: None, args, kwargs)
        if call.types != expected.types:
            found = ", ".join(map(str, call.types))
            wanted = ", ".join(map(str, expected.types))
            raise CompileError(f"'{self.lowered.program.name}' was compiled for ({wanted}), got ({found})")
        return call.arrays

    def stablehlo(self) -> str:
        """The StableHLO module."""
        return self.lowered.stablehlo()

    def hlo(self) -> str:
        """XLA's module before its passes."""
        return self.executable.hlo()

    def hlo_optimized(self) -> str:
        """XLA's module as it runs."""
        return self.executable.hlo_optimized()

    def memory(self) -> Memory:
        """Memory in bytes, as XLA reports it."""
        return self.executable.memory()

    def flops(self) -> float:
        """Floating-point operations as XLA counts them: the body of a loop once."""
        return self.executable.flops()

    def saved_residuals(self) -> list[SavedResidual]:
        """What every derivative in the function saves."""
        return [row for one in self.lowered.derivatives for row in (*one.residuals, *one.arguments)]

    def figures(self) -> Figures:
        """Memory, work and compile time together."""
        return Figures(self.memory().temp_bytes, self.flops(), self.executable.compile_seconds)

    def report(self, baseline: Compiled | None = None) -> Report:
        """What was planned and what XLA made of it, beside the same for `baseline` if it is given."""
        beside = None if baseline is None else baseline.figures()
        return Report(self.lowered.derivatives, self.executable.platform, self.figures(), beside)


def trace(fun: Function, *args: object, **kwargs: object) -> Graph:
    """The graph of `fun` at these arguments, as traced.

    Arguments may be arrays or `jax.ShapeDtypeStruct`s. Closed-over arrays are the graph's last parameters.
    """
    return trace_call(fun, CallArguments.of(fun, args, kwargs)).graph


@collection_paused()
def lower(
    fun: Function,
    *args: object,
    passes: str | None = None,
    after_each: Callable[[str, Graph], None] | None = None,
    **kwargs: object,
) -> Lowered:
    """Trace `fun` at these arguments, run the passes, print StableHLO.

    Args:
        fun: a function, or what `value_and_grad`, `grad` and the like return.
        args: example arguments: arrays, or `jax.ShapeDtypeStruct`s.
        passes: a pipeline instead of the default one, as text.
        after_each: called with a pass's text and its graph after each pass.
        kwargs: example keyword arguments.

    Raises:
        CompileError: at the user's line, for what cannot be traced, differentiated or lowered.
    """
    call = CallArguments.of(fun, args, kwargs)
    traced = trace_call(fun, call)
    passed = run_passes(traced.graph, passes, after_each)
    return Lowered(traced, passed.graph, make_program(passed.graph, traced.constants), passed.records, call)


def compile(fun: Function, *args: object, platform: str | None = None, **kwargs: object) -> Compiled:
    """Lower `fun` at these arguments and compile it: `lower(fun, ...).compile(platform)`."""
    return lower(fun, *args, **kwargs).compile(platform)  # type: ignore[arg-type]  # passes and after_each go through
