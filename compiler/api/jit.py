"""Running functions: `jit`, and graphs executed as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.driver.ahead import lower_call
from rematc.compiler.driver.lowered import Lowered
from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.calls import emit_op, trace_call
from rematc.compiler.functions.graphs import as_function
from rematc.compiler.functions.policies import by_default, whole_policy
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.options import NO_OPTIONS, CompilerOptions, Options
from rematc.compiler.tracing.trace import current_trace, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Call
from rematc.ir.policy import Policy
from rematc.lowering import caches
from rematc.lowering.dispatch import Dispatcher, LoweredFunction
from rematc.lowering.pipeline import program_of
from rematc.lowering.signature import Function
from rematc.passes.staging.stage import staged_by_all

P = ParamSpec("P")
R = TypeVar("R")


class Jitted(Dispatcher):
    """A compiled function, which can be compiled ahead of time too.

    Attributes:
        options: how it is compiled.
    """

    def __init__(self, function: Function, options: Options, policy: Policy | None = None) -> None:
        self.options = options
        self._ahead = functools.partial(lower_call, function, options, policy=policy, dispatcher=self)
        super().__init__(
            _lowering(function, options, policy),
            **options.keywords(),
            flagged=_Flagged(function, options, policy).find,
            open_trace=current_trace,
            record=_recording(function, options, policy),
            locate=user_location,
        )

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Trace it at these arguments and print its StableHLO: `.compile()` compiles that. As JAX's `jit(f).lower`.

        Arguments may be arrays or `jax.ShapeDtypeStruct`s.
        """
        return self._ahead(args, kwargs)


class _Flagged:
    """A function compiled by the values of flags: one `Dispatcher` for each choice of arguments that are flags."""

    def __init__(self, function: Function, options: Options, policy: Policy | None) -> None:
        self._make = functools.partial(_flagged, function, policy)
        self._options = options
        self._made: dict[Options, Dispatcher] = {}

    def find(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Dispatcher | None:
        """What serves a call; None where no argument is a flag."""
        options = self._options.with_flags(args, kwargs)
        if options.statics == self._options.statics:
            return None
        found = self._made.get(options)
        return self._made.setdefault(options, self._make(options)) if found is None else found


def _flagged(function: Function, policy: Policy | None, options: Options) -> Dispatcher:
    return Dispatcher(_lowering(function, options, policy), **options.keywords(), locate=user_location)


def _lowering(function: Function, options: Options, policy: Policy | None) -> Callable[..., LoweredFunction]:
    @functools.wraps(function, updated=())
    @collection_paused()
    def lower(*args: object, **kwargs: object) -> LoweredFunction:
        call = CallArguments.of(function, args, kwargs, options.statics)
        with by_default(policy):
            traced = trace_call(function, call)
        return LoweredFunction(program_of(traced.graph, traced.constants, traced.choice), traced.out_tree)

    return lower


def _recording(function: Function, options: Options, policy: Policy | None) -> Callable[..., object]:
    """What a call means inside of a trace: its body is printed once, however often it is applied.

    Derivatives that are taken of it follow its policy.
    """

    def record(*args: object, **kwargs: object) -> object:
        call = CallArguments.of(function, args, kwargs, options.statics)
        with by_default(policy), asking(policy) as labelled:
            traced = trace_call(function, call)
        trace = require_trace()
        trace.records.extend(traced.records)
        body = traced.graph if labelled is None else staged_by_all(traced.graph, labelled)
        results = emit_op(Call(body), *call.arrays, *traced.captures)
        for tracer, is_weak in zip(results, traced.out_weak, strict=True):
            tracer.weak = is_weak
        return jax.tree_util.tree_unflatten(traced.out_tree, results)

    return record


def compiled(function: Function, options: Options = NO_OPTIONS) -> Jitted:
    """`function`, compiled once for each shape, element type, structure and static value of its arguments.

    Inside a trace it is recorded as a call.
    """
    return Jitted(function, options)


def jit(
    fun: Callable[P, R],
    *,
    policy: object = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    compiler_options: CompilerOptions | None = None,
) -> Callable[P, R]:
    """`fun`, traced and compiled at its first call for each signature of its arguments.

    What comes back has a method `lower(*args, **kwargs)`, as JAX's has, to compile it ahead of time:
    `jit(f).lower(x).compile()`. Python's booleans and strings are flags: their values are a part of what is compiled.

    Args:
        fun: a function of arrays and pytrees of arrays, or a graph.
        policy: of the derivatives in `fun`, and of those taken of it, that have no policy of their own.
        static_argnums: positions of arguments whose value `fun` may branch on; a new value compiles anew.
        static_argnames: the same by name.
        donate_argnums: positions of arguments whose memory the results may take over; the arrays are gone afterwards.
        donate_argnames: the same by name.
        compiler_options: options of XLA's by name, besides those that make recomputation hold.
    """
    function = as_function(fun)
    options = Options.of(function, static_argnums, static_argnames, donate_argnums, donate_argnames, compiler_options)
    return Jitted(function, options, whole_policy(policy))


def transformed(fun: Function, record: Function, options: Options = NO_OPTIONS) -> Callable[..., Any]:
    """What `record` makes of `fun`, under the name of `fun`: recorded in the open trace, or compiled outside of all.

    It has a method `lower`, as what `jit` returns.
    """
    functools.update_wrapper(record, fun, updated=())
    eager = Jitted(record, options)

    @functools.wraps(fun, updated=())
    def function(*args: object, **kwargs: object) -> object:
        return eager(*args, **kwargs) if current_trace() is None else record(*args, **kwargs)

    found: Any = function
    found.lower, found.options = eager.lower, options
    return function


def run_graph(graph: Graph, operands: Sequence[object], options: Options = NO_OPTIONS) -> list[object]:
    """Compile and run a graph; equal graphs are compiled once. Operands are arrays and numbers, one a parameter.

    The options are those of a function of leaves: the memory of the donated ones may be taken over.
    """
    arrays = [
        operand if hasattr(operand, "dtype") else np.asarray(operand, value.type.dtype.numpy)
        for operand, value in zip(operands, graph.params, strict=True)
    ]
    results: list[object] = _dispatcher_of_graph(graph, options)(*arrays)
    return results


@functools.lru_cache(maxsize=512)
def _dispatcher_of_graph(graph: Graph, options: Options) -> Dispatcher:
    tree = jax.tree_util.tree_structure([0] * len(graph.results))
    return Dispatcher(lambda *leaves: LoweredFunction(program_of(graph, ()), tree), **options.keywords())


caches.table(_dispatcher_of_graph.cache_clear)
