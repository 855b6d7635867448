"""`from_jax`: a JAX function as one that rematc traces, differentiates and compiles."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import jax
import jax.tree_util
from jax.sharding import NamedSharding

from rematc.compiler.api.jit import compiled
from rematc.compiler.frontends.jax.importing import Imported, graph_of_jaxpr
from rematc.compiler.frontends.jax.placements import is_spread
from rematc.compiler.frontends.numpy.tracer import NumpyTracer
from rematc.compiler.functions.calls import apply_graph, emit_op1
from rematc.compiler.reports.fallbacks import Fallbacks
from rematc.compiler.tracing.arguments import CallArguments
from rematc.compiler.tracing.options import Options
from rematc.compiler.tracing.trace import current_trace, require_trace
from rematc.compiler.tracing.typed_keys import with_words
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.collecting import users_code
from rematc.ir.errors import CompileError
from rematc.ir.ops.conversion import Convert
from rematc.ir.types import TensorType
from rematc.lowering.jax_internals.locations import equation_location
from rematc.lowering.jax_internals.settings import is_x64_enabled
from rematc.lowering.signature import Function, Owners, function_name

P = ParamSpec("P")
R = TypeVar("R")


def from_jax(
    fun: Callable[P, R], *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = ()
) -> Callable[P, R]:
    """A JAX function as a rematc function: it can be traced, differentiated under a policy, batched and compiled.

        step = rematc.value_and_grad(rematc.from_jax(loss), policy="dots")
        value, grads = step(params, batch)

    The function is traced by JAX once for each signature of its arguments, and its primitives become ops, each at the
    user's line. Called outside of all traces it is compiled and runs.

    On a mesh with axes of type Explicit, as `jax.make_mesh` makes it, types of arguments say how they are spread: those
    of JAX's arrays and `jax.ShapeDtypeStruct`s that are passed on as they are, and what other such functions gave. Of
    what rematc computed of them no type says anything.

    Element types follow JAX: without `jax_enable_x64` in JAX's configuration, and outside of blocks of
    `jax.enable_x64(True)`, 64-bit arguments become 32-bit ones. Strings and Python's booleans are passed to the
    function as they are, and so are static arguments.

    Args:
        fun: a function of arrays and pytrees of arrays, made of JAX's functions.
        static_argnums: positions of arguments whose value `fun` may branch on.
        static_argnames: the same by name.

    Raises:
        CompileError: on the call, for a primitive that cannot be imported, at its line. What JAX raises while it
            traces `fun` goes through.
    """
    if not callable(fun):
        raise CompileError(f"from_jax takes a function, got a {type(fun).__name__}", user_location())
    options = Options.of(fun, static_argnums, static_argnames)

    @functools.wraps(fun, updated=())
    def record(*args: object, **kwargs: object) -> object:
        return _recorded(fun, options.statics, args, kwargs)

    eager = compiled(record, options)

    @functools.wraps(fun, updated=())
    def imported(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, record(*args, **kwargs) if current_trace() is not None else eager(*args, **kwargs))

    found: Any = imported
    found.lower, found.options = eager.lower, options
    return imported


def _recorded(fun: Function, statics: Owners, args: Sequence[object], kwargs: dict[str, object]) -> object:
    """The function's graph, copied into the open trace."""
    call = CallArguments.of(fun, args, kwargs, statics)
    imported, out_tree = imported_call(fun, call)
    trace = require_trace()
    if imported.fallbacks:
        trace.records.append(Fallbacks(function_name(fun), imported.fallbacks, imported.counts))
    if imported.choice is not None:
        trace.records.append(imported.choice)
    given = [
        array if type.dtype is value.type.dtype else emit_op1(Convert(value.type.dtype), array)
        for array, type, value in zip(call.arrays, call.types, imported.graph.params, strict=False)
    ]
    results = apply_graph(imported.graph, (*given, *imported.constants), imported.weak)
    for result, sharding in zip(results, imported.shardings, strict=True):
        result.sharding = sharding
    return jax.tree_util.tree_unflatten(out_tree, results)


def imported_call(fun: Function, call: CallArguments) -> tuple[Imported, jax.tree_util.PyTreeDef]:
    """A JAX function at the arguments of a call, as a graph, and the structure of what it returned.

    The graph's parameters are the arrays of the call, in the element types that JAX gives them, then the constants.
    """
    trees: list[Any] = []

    @functools.wraps(fun, updated=())
    def flat(*arrays: object) -> list[Any]:
        leaves, tree = jax.tree_util.tree_flatten(with_words(call.call(fun, arrays)))
        trees.append(tree)
        return leaves

    with jax.enable_x64(is_x64_enabled()):
        structs = [_struct(*row) for row in zip(call.types, call.weak, call.shardings, strict=True)]
        jaxpr = _jaxpr(flat, structs)
        if any(isinstance(constant, jax.core.Tracer) for constant in jaxpr.consts):
            raise CompileError(
                f"the JAX function '{function_name(fun)}' reads a value from outside that JAX traces around it; pass "
                "it as an argument, or use rematc.jax.value_and_grad, which is made for the inside of JAX's functions",
                user_location(),
            )
        if not any(call.shardings):
            _check_types(jaxpr.jaxpr)
        imported = graph_of_jaxpr(jaxpr, function_name(fun), call.names, places_inputs=True)
    return imported, trees[-1]


def _jaxpr(flat: Function, structs: Sequence[Any]) -> Any:
    """What JAX traces. What it raises goes through, but for what it says of values that are not its own."""
    try:
        with users_code():
            return jax.make_jaxpr(flat)(*structs)
    except TypeError as error:
        if not _met_our_tracer(error):
            raise
        raise CompileError(
            f"the JAX function '{function_name(flat)}' reads a value from outside that rematc traces; "
            "pass it as an argument",
            user_location(),
        ) from None


def _check_types(jaxpr: Any) -> None:
    """Raise CompileError for types that say how values lie over devices, where those of arguments do not."""
    for eqn in jaxpr.eqns:
        if any(is_spread(variable.aval) for variable in eqn.outvars):
            raise CompileError(
                f"JAX's '{eqn.primitive.name}' gives a type that says how its arrays lie over devices (axes of type "
                "Explicit), which from_jax cannot keep: no argument has such a type; pass arrays that lie on the mesh, "
                "or jax.ShapeDtypeStructs with such shardings, as they are, or use rematc.jax.value_and_grad",
                equation_location(eqn),
            )


def _met_our_tracer(error: BaseException) -> bool:
    """Whether JAX was given one of our tracers, or one of our tracers a value that JAX traces."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return NumpyTracer.__name__ in str(error) or any(
        name.startswith("rematc.compiler.frontends.numpy.") for name in frames
    )


def _struct(type: TensorType, is_weak: bool, sharding: NamedSharding | None) -> Any:
    dtype = jax.dtypes.canonicalize_dtype(type.dtype.numpy)
    struct: Any = jax.ShapeDtypeStruct  # JAX leaves it without annotations
    return struct(type.shape, dtype, weak_type=is_weak, sharding=sharding)
