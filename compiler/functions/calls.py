"""From a function to a graph, and graphs applied to tracers: what the API and its transformations call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.tree_util
import numpy as np
from jax.sharding import NamedSharding

from rematc.compiler.frontends.numpy.tracer import NumpyTracer
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.random_states import watched
from rematc.compiler.tracing.trace import Trace, Tracer, current_trace, require_trace
from rematc.compiler.tracing.user_location import raised_at, user_location
from rematc.ir.collecting import collection_paused, users_code
from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.bodies import Inside
from rematc.ir.ops.conversion import Convert
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value
from rematc.lowering.program import PlatformChoice
from rematc.lowering.signature import Function, function_name


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A function as a graph.

    Attributes:
        graph: parameters are the flat arguments, then one for each capture, then one for each constant; results are
            the flat outputs.
        out_tree: how the flat outputs make up what the function returned.
        out_weak: one per result: whether it is a Python scalar's value (NEP 50).
        captures: the enclosing traces' tracers to pass for the parameters after the arguments.
        constants: the arrays to pass for the last parameters; read-only copies. Empty except for a root trace.
        records: what was noted on the trace while it was open.
    """

    graph: Graph
    out_tree: jax.tree_util.PyTreeDef
    out_weak: tuple[bool, ...]
    captures: tuple[Tracer, ...]
    constants: tuple[Array, ...]
    records: tuple[object, ...]

    @property
    def choice(self) -> PlatformChoice | None:
        """What of it was imported for one platform, and is another function elsewhere."""
        return next((record for record in self.records if isinstance(record, PlatformChoice)), None)

    @property
    def wrt(self) -> list[bool]:
        """For each parameter, whether it is an argument that has derivatives; what the function closes over is none."""
        arguments = len(self.graph.params) - len(self.captures) - len(self.constants)
        return [index < arguments and type.dtype.is_inexact for index, type in enumerate(self.graph.param_types)]


def trace_function(
    function: Callable[..., object],
    in_types: Sequence[TensorType],
    weak: Sequence[bool],
    names: Sequence[str | None],
    in_tree: jax.tree_util.PyTreeDef,
    *,
    name: str,
    shardings: Sequence[NamedSharding | None] = (),
    lying: Sequence[NamedSharding | None] = (),
) -> TracedFunction:
    """Run `function` on tracers and return what it did as a graph.

    Args:
        function: called as `function(*in_tree.unflatten(tracers))`.
        in_types: types of the flat arguments.
        weak: for each flat argument, whether it is a Python scalar (NEP 50).
        names: for each flat argument, the name of its parameter.
        in_tree: the tree of the tuple of positional arguments.
        name: name of the graph, and of the function in errors.
        shardings: for each flat argument, what JAX's type of it says; none says anything by default.
        lying: for each flat argument, how it lies on devices, likewise.

    Raises:
        CompileError: at the user's line, for what cannot be traced.
    """
    trace = Trace(name, current_trace(), NumpyTracer)
    arguments = [trace.parameter(*row) for row in zip(in_types, weak, names, strict=True)]
    for argument, sharding, lies in itertools.zip_longest(arguments, shardings, lying):
        argument.sharding, argument.lies = sharding, lies
    with trace:
        output = _called(function, in_tree.unflatten(arguments))
        leaves, out_tree = jax.tree_util.tree_flatten_with_path(output)
        results = [_lift_output(trace, path, leaf) for path, leaf in leaves]
    builder = trace.builder
    builder.params.extend(trace.hidden_parameters())
    return TracedFunction(
        graph=builder.build(*[value for value, _ in results]),
        out_tree=out_tree,
        out_weak=tuple([is_weak for _, is_weak in results]),
        captures=trace.captures,
        constants=trace.constants,
        records=tuple(trace.records),
    )


def _called(function: Callable[..., object], arguments: Sequence[object]) -> object:
    try:
        with users_code():
            return function(*arguments)
    except (TypeError, ValueError) as error:
        # NumPy wraps what a tracer raises when it is asked for its elements.
        if isinstance(error.__cause__, CompileError):
            raise error.__cause__ from None
        if _is_given_a_tracer(error):
            raise CompileError(
                f"a traced array is given to what takes none: {error} (its elements are known only when the program is "
                "compiled; return the array and use the result, or write it with functions of NumPy)",
                raised_at(error),
            ) from error
        raise


def _is_given_a_tracer(error: Exception) -> bool:
    """Whether something that knows no tracers was given one: json, memoryview, Decimal. Operators raise their own."""
    text = str(error)
    is_foreign = isinstance(error, TypeError) and not isinstance(error, CompileError)
    return is_foreign and NumpyTracer.__name__ in text and not text.startswith("unsupported operand")


def trace_call(function: Function, call: CallArguments) -> TracedFunction:
    """Trace `function` on the arrays of `call`, closing over everything else."""
    if current_trace() is None:
        with watched(function):
            return _traced(function, call)
    return _traced(function, call)


def _traced(function: Function, call: CallArguments) -> TracedFunction:
    return trace_function(
        lambda *arrays: call.call(function, arrays),
        call.types,
        call.weak,
        call.names,
        jax.tree_util.tree_structure(call.arrays),
        name=function_name(function),
        shardings=call.shardings,
        lying=call.lying,
    )


def _lift_output(trace: Trace, path: tuple[object, ...], leaf: object) -> tuple[Value, bool]:
    if isinstance(leaf, Tracer):
        return trace.lift(leaf), leaf.weak
    if isinstance(leaf, (np.ndarray, np.generic)) or hasattr(leaf, "__array__"):
        return trace.lift(leaf), False
    if isinstance(leaf, (bool, int, float, complex)):
        return trace.lift(leaf), True
    place = f"output{jax.tree_util.keystr(path)}" if path else "the output"
    raise CompileError(
        f"{place} of '{trace.name}' is a {type(leaf).__name__}, expected an array or a number; "
        "return only arrays, in tuples, lists, dicts or registered pytrees",
        user_location(),
    )


@collection_paused()
def apply_graph(graph: Graph, operands: Sequence[object], weak_out: Sequence[bool]) -> list[Tracer]:
    """Copy the equations of `graph` into the innermost open trace; the tracers of its results.

    Args:
        graph: what to apply.
        operands: what `Trace.lift` takes, one per parameter.
        weak_out: for each result, whether its type yields to the arrays it meets (NEP 50).
    """
    trace = require_trace()
    trace.enter_line()
    results = trace.builder.inline(graph, [trace.lift(operand) for operand in operands])
    return [trace.tracer(value, weak) for value, weak in zip(results, weak_out, strict=True)]


def with_types(graph: Graph, types: Sequence[TensorType]) -> Graph:
    """The graph with its results converted to these element types."""
    if graph.result_types == tuple(types):
        return graph
    inside = Inside.of(graph)
    results = [
        value if value.type == type else inside.emit(Convert(type.dtype), value)[0]
        for value, type in zip(graph.results, types, strict=True)
    ]
    return inside.build(results)


def emit_op(op: Op, *operands: object) -> tuple[Tracer, ...]:
    """Apply `op` to what `Trace.lift` takes, in the innermost open trace, at the user's line."""
    return require_trace().emit(op, *operands)


def emit_op1(op: Op, *operands: object) -> Tracer:
    """As `emit_op`, for an op of one result."""
    return require_trace().emit(op, *operands)[0]
