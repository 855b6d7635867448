"""Ahead of time: from a function and example arguments to text, to an executable, to a report."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.tree_util

from rematc.compiler.functions.calls import TracedFunction, trace_call
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.functions.policies import by_default, whole_policy
from rematc.compiler.reports.check import Check, check_executable
from rematc.compiler.reports.derivative import DerivativeReport, report_derivatives
from rematc.compiler.reports.fallbacks import foreign_primitives
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.residuals import SavedResidual
from rematc.compiler.reports.saving import SAVES, Saving
from rematc.compiler.tracing.arguments import CallArguments, Function, Statics, function_name, is_array_like
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.compiler.tracing.options import NO_OPTIONS, CompilerOptions, Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.ir.printer import print_graph
from rematc.lowering.artifact import Artifact, load_artifact, save_artifact
from rematc.lowering.pipeline import make_program, run_passes, runs_depth_first
from rematc.lowering.program import Program
from rematc.lowering.runtime import Executable, Memory, compile_program
from rematc.lowering.xla_cpu.prediction import Prediction, predict
from rematc.passes.manager import PassRecord


@dataclass(frozen=True)
class Lowered:
    """A function traced, differentiated and printed for one set of argument types; nothing is compiled yet.

    Attributes:
        traced: the function's graph as traced, with every derivative in it.
        graph: the graph after the passes.
        program: its StableHLO, with closed-over arrays.
        timings: what each pass did and how long it took.
        options: how it is to be compiled.
    """

    traced: TracedFunction
    graph: Graph
    program: Program
    timings: tuple[PassRecord, ...]
    options: Options
    _call: CallArguments

    def __repr__(self) -> str:
        leaves, equations = len(self.program.leaf_types), len(self.graph.equations)
        return f"Lowered({self.program.name!r}, {leaves} leaves, {equations} equations)"

    @property
    def records(self) -> tuple[object, ...]:
        """The differentiations in the function (`reports.differentiation.Differentiation`), innermost first."""
        return self.traced.records

    @functools.cached_property
    def derivatives(self) -> tuple[DerivativeReport, ...]:
        """What each differentiation saves and recomputes."""
        return report_derivatives(self.records)

    def fixed(self) -> dict[str, object]:
        """What it was lowered for by value, under its name: static arguments and flags."""
        return dict(self._call.fixed())

    def predicted_peak(self) -> int:
        """The temporary memory in bytes that the program is expected to need; `Compiled.memory()` says what it does."""
        return self._prediction.peak

    @functools.cached_property
    def _prediction(self) -> Prediction:
        return predict(self.graph)

    def ir(self) -> str:
        """The graph after the passes, as IR text."""
        return print_graph(self.graph)

    def stablehlo(self, platform: str | None = None) -> str:
        """The StableHLO module.

        It differs from platform to platform where it decomposes matrices, and for convolutions in loops, branches and
        functions.
        """
        return self.program_for(platform).text

    def program_for(self, platform: str | None = None) -> Program:
        """Its StableHLO for a platform; by default for the one that it was lowered for.

        Raises CompileError where it decomposes matrices and the platform has no kernel for it.
        """
        if platform is None or self.program.module.platform in (None, platform):
            return self.program
        return make_program(self.graph, self.traced.constants, platform)

    def compile(self, platform: str | None = None, compiler_options: CompilerOptions | None = None) -> Compiled:
        """Hand the module to XLA; `platform` is cpu, cuda or tpu, by default what jax would take.

        `compiler_options` are options of XLA's by name, besides those that the function has already.

        Where arguments that it was lowered for are spread over several devices, so is the program, and XLA's figures
        are those of one device.

        Raises CompileError where the platform is not there or XLA refuses.
        """
        program = self.program_for(platform)
        is_depth_first = runs_depth_first(self.graph, platform, lambda: self._prediction)
        program = dataclasses.replace(program, is_depth_first=is_depth_first)
        leaves = self._call.donated(self.options.donated)
        options = {**dict(self.options.compiler_options), **(compiler_options or {})}
        artifact = Artifact(
            program,
            self._call.array_tree(),
            self.traced.out_tree,
            leaves,
            tuple(sorted(options.items())),
            tuple(sorted(self.options.statics.positions)),
            tuple(sorted(self.options.statics.names)),
        )
        shardings = [getattr(array, "sharding", None) for array in self._call.arrays]
        executable = compile_program(
            program, platform=platform, compiler_options=options, donated=leaves, shardings=shardings
        )
        return Compiled(artifact, executable, self)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """Arguments of a call that were found to fit.

    Attributes:
        tree: the structure of (positional arguments, keyword arguments).
        arrays: which of its leaves are arrays.
        others: which are not, and what they are.
    """

    tree: jax.tree_util.PyTreeDef
    arrays: tuple[int, ...]
    others: tuple[tuple[int, object], ...]

    def arrays_of(self, leaves: Sequence[object], tree: jax.tree_util.PyTreeDef) -> Sequence[object] | None:
        """The arrays of arguments of the same structure; None where it is another one. Types are not looked at."""
        if tree != self.tree:
            return None
        if not self.others:
            return leaves
        if not all(_is_same(leaves[index], value) for index, value in self.others):
            return None
        return [leaves[index] for index in self.arrays]


@dataclass(frozen=True)
class CompiledFunction:
    """A function that XLA has compiled: call it with arguments of the structure and types it was compiled for.

    Attributes:
        artifact: its program, and the structure of its arguments and results.
        executable: what XLA made of the program.
    """

    artifact: Artifact
    executable: Executable
    #: What the last call was given. The check of the arguments, which names them, is not made again for the same.
    _accepted: list[_Accepted] = field(default_factory=list, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        program = self.artifact.program
        return f"{type(self).__name__}({program.name!r}, {len(program.leaf_types)} leaves, {self.executable.platform})"

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run it. Raises CompileError where the arguments differ from those it was compiled for."""
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        arrays = self._accepted[0].arrays_of(leaves, tree) if self._accepted else None
        if arrays is None:
            arrays = self._checked(args, kwargs)
            self._remember(leaves, tree, arrays)
            results = self.executable(*arrays)
        else:
            try:
                results = self.executable(*arrays)
            except (CompileError, TypeError):
                self._checked(args, kwargs)  # which argument it is
                raise
        return jax.tree_util.tree_unflatten(self.artifact.out_tree, results)

    def _checked(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """The arrays of a call. Raises CompileError, with its name, for one of another type."""
        artifact, program = self.artifact, self.artifact.program
        call = CallArguments.of(
            None, args, kwargs, Statics(frozenset(artifact.static_positions), frozenset(artifact.static_names))
        )
        if call.array_tree() != self.artifact.in_tree:
            raise CompileError(
                f"'{program.name}' was compiled for arguments of the structure {self.artifact.in_tree}, "
                f"got {call.array_tree()}",
                user_location(),
            )
        for name, found, expected in zip(call.names, call.types, program.leaf_types, strict=True):
            if found != expected:
                message = f"'{program.name}' was compiled for {expected} as {name}, got {found}"
                raise CompileError(message, user_location())
        self._check_fixed(call)
        return call.arrays

    def _check_fixed(self, call: CallArguments) -> None:
        """What a file does not hold cannot be compared."""

    def _remember(self, leaves: Sequence[object], tree: jax.tree_util.PyTreeDef, arrays: Sequence[object]) -> None:
        """Take the next arguments of this structure as they come: where arrays are leaves, and not words of keys."""
        places = [index for index, leaf in enumerate(leaves) if is_array_like(leaf)]
        if len(places) == len(arrays) and all(leaves[place] is one for place, one in zip(places, arrays, strict=True)):
            others = sorted(set(range(len(leaves))).difference(places))
            self._accepted[:] = [_Accepted(tree, tuple(places), tuple([(index, leaves[index]) for index in others]))]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its program, which is compiled again for the same platform where it is read: as `save` and `load`.

        Raises CompileError for a program that calls Python functions, or is spread over several devices.
        """
        if self.executable.devices > 1:
            raise CompileError(
                f"'{self.artifact.program.name}' is compiled for {self.executable.devices} devices, and not pickled; "
                "compile it where it is to run",
                user_location(),
            )
        return _compiled_artifact, (self.artifact, self.executable.platform)

    def __copy__(self) -> CompiledFunction:
        return self  # it never changes

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledFunction:
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write its StableHLO and constants to a file that `rematc.load` reads, with other versions of jaxlib too.

        Raises CompileError where the file cannot be written, or for arguments or results in other containers than
        tuples, lists, dicts and None.
        """
        save_artifact(self.artifact, path)

    def stablehlo(self) -> str:
        """The StableHLO module."""
        return self.artifact.program.text

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

    def figures(self) -> Figures:
        """Memory, work and compile time together."""
        return Figures(self.memory().temp_bytes, self.flops(), self.executable.compile_seconds)


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
            if name in expected and not _is_same(expected[name], found):
                raise CompileError(
                    f"'{self.artifact.program.name}' was compiled for {expected[name]!r} as {name}, got {found!r}; "
                    "flags and static arguments are a part of what is compiled",
                    user_location(),
                )

    def saved_residuals(self) -> list[SavedResidual]:
        """What every derivative in the function saves."""
        return [row for one in self.lowered.derivatives for row in (*one.residuals, *one.arguments)]

    def check(self, baseline: CompiledFunction | None = None) -> Check:
        """Whether XLA kept what was planned: recomputed products found in the module that it runs, and memory.

        Beside `baseline`, the same function compiled without a policy, it says what memory the policy saves, too: what
        is kept may save nothing.
        """
        saving = None if baseline is None else self._saving(baseline)
        return check_executable(self.executable, self.lowered.records, self._predicted_bytes, saving)

    def _saving(self, baseline: CompiledFunction) -> Saving | None:
        """What recomputation saves; None where there is none. Of a function from a file, residuals are not known."""
        if not any(one.recompute.equations for one in self.lowered.derivatives):
            return None
        given_up = _saved_bytes(baseline) - _saved_bytes(self) if isinstance(baseline, Compiled) else None
        temp, without = self.memory().temp_bytes, baseline.memory().temp_bytes
        saving = Saving(temp, without, None if given_up is None else max(given_up, 0))
        return saving if saving.verdict == SAVES else dataclasses.replace(saving, way_out=_WAY_OUT)

    def figures(self) -> Figures:
        """Memory, work and compile time together, and the memory that the plan predicts."""
        return dataclasses.replace(super().figures(), predicted_bytes=self._predicted_bytes)

    @property
    def _predicted_bytes(self) -> int | None:
        """Of a program on several devices nothing is predicted: XLA decides what each of them holds."""
        return self.lowered.predicted_peak() if self.executable.devices == 1 else None

    def report(self, baseline: CompiledFunction | None = None) -> Report:
        """What was planned and what XLA made of it, beside the same for `baseline` if it is given."""
        beside = None if baseline is None else baseline.figures()
        return Report(
            self.lowered.derivatives,
            self.executable.platform,
            self.figures(),
            beside,
            self.check(baseline),
            foreign_primitives(self.lowered.records),
        )


_WAY_OUT = "measure other policies, or barriers that hold in any order of XLA's: the strategy 'call' (--barrier call)"


def _saved_bytes(compiled: Compiled) -> int:
    return sum(one.saved_bytes for one in compiled.lowered.derivatives)


def _is_same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def trace(fun: Function | Graph, /, *args: object, **kwargs: object) -> Graph:
    """The graph of `fun` at these arguments, as traced.

    Arguments may be arrays or `jax.ShapeDtypeStruct`s. Closed-over arrays are the graph's last parameters. Functions
    with custom rules have the rules of one derivative.
    """
    function = as_function(fun)
    with differentiated():
        return trace_call(function, CallArguments.of(function, args, kwargs, options_of(function).statics)).graph


@collection_paused()
def lower_call(
    fun: Function,
    options: Options,
    args: Sequence[object],
    kwargs: dict[str, object],
    *,
    policy: Policy | None = None,
    passes: str | None = None,
    after_each: Callable[[str, Graph], None] | None = None,
    platform: str | None = None,
) -> Lowered:
    """Trace a function at these arguments, run the passes, print StableHLO: `lower`, with the options apart."""
    call = CallArguments.of(fun, args, kwargs, options.statics)
    with by_default(policy):
        traced = trace_call(fun, call)
    passed = run_passes(traced.graph, passes, after_each)
    program = make_program(passed.graph, traced.constants, platform)
    return Lowered(traced, passed.graph, program, passed.records, options, call)


def options_of(fun: object) -> Options:
    """The options that `jit`, `grad` or the like were given for a function."""
    found = getattr(fun, "options", None)
    return found if isinstance(found, Options) else NO_OPTIONS


#: The keywords of `lower` and `compile` that are theirs, and not the function's.
_OPTIONS = (
    *("policy", "static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "compiler_options"),
    *("platform", "passes", "after_each"),
)


def lower(fun: Function | Graph, /, *args: object, **kwargs: Any) -> Lowered:
    """Trace `fun` at these arguments, run the passes, print StableHLO.

    A keyword that is one of the options below is an option. Where `fun` takes an argument of that name too, it is an
    error: `rematc.jit(fun, policy=...).lower(*args, **kwargs)` keeps them apart, and all keywords are `fun`'s.

    Args:
        fun: a function, what `value_and_grad`, `grad`, `jit` and the like return, or a graph.
        args: example arguments: arrays, or `jax.ShapeDtypeStruct`s.
        kwargs: example keyword arguments, and options: `policy`, `static_argnums`, `static_argnames`,
            `donate_argnums`, `donate_argnames`, `compiler_options` as in `jit`; `platform`, where it is to run, by
            default where jax does; `passes`, a pipeline instead of the default one, as text; `after_each`, called with
            a pass's text and its graph after each pass.

    Raises:
        CompileError: at the user's line, for what cannot be traced, differentiated or lowered.
    """
    function = as_function(fun)
    given = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
    _refuse_ambiguous(function, given)
    rest = {name: given.pop(name) for name in ("passes", "after_each", "platform") if name in given}
    policy = whole_policy(given.pop("policy", None))
    options = options_of(function).merged(Options.of(function, **given)) if given else options_of(function)
    return lower_call(function, options, args, kwargs, policy=policy, **rest)


def _refuse_ambiguous(function: Function, given: dict[str, Any]) -> None:
    """Raise CompileError for options that may be arguments of the function."""
    if not given:
        return
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    for name in given:
        if name in parameters or takes_any:
            raise CompileError(
                f"'{name}' is an option of rematc.compile and rematc.lower, and '{function_name(function)}' takes an "
                f"argument of that name too; write rematc.jit({function_name(function)}, ...).lower(...).compile(...): "
                "options stand in jit and compile, and all that lower is given are arguments",
                user_location(),
            )


def compile(fun: Function | Graph, /, *args: object, **kwargs: Any) -> Compiled:
    """Lower `fun` at these arguments and compile it: `lower(fun, ...).compile(platform)`.

    Arguments and options are those of `lower`. `rematc.jit(fun, ...).lower(*args, **kwargs).compile(platform)` is the
    same, where every keyword of `lower` is an argument of `fun`.
    """
    lowered = lower(fun, *args, **kwargs)
    return lowered.compile(kwargs.get("platform"))


def load(path: str | os.PathLike[str], platform: str | None = None) -> CompiledFunction:
    """Read what `CompiledFunction.save` wrote, and compile it for a platform (by default what jax would take).

    Raises CompileError for a file that is not there, damaged, or written by a newer version.
    """
    return _compiled_artifact(load_artifact(path), platform)


def _compiled_artifact(artifact: Artifact, platform: str | None) -> CompiledFunction:
    executable = compile_program(
        artifact.program,
        platform=platform,
        compiler_options=dict(artifact.compiler_options),
        donated=artifact.donated,
    )
    return CompiledFunction(artifact, executable)
