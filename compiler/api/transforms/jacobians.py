"""Whole derivatives: `jacfwd`, `jacrev`, `hessian`.

A Jacobian is the derivative along every unit vector at once: the function is traced and differentiated once, and the
graph of its tangents (or of its cotangents) is batched. What does not depend on the direction is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import jax.tree_util

from rematc.compiler.api.jit import transformed
from rematc.compiler.api.transforms.derivative_graphs import noted_vjp, require_float, run
from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.calls import TracedFunction, apply_graph, emit_op1, trace_call
from rematc.compiler.functions.policies import whole_policy
from rematc.compiler.tracing.arguments import CallArguments, argument_positions, chosen, lies
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.compiler.tracing.trace import Tracer, require_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Slice, Transpose
from rematc.ir.types import I32, TensorType
from rematc.lowering.signature import Function, function_name
from rematc.passes.jvp import jvp as jvp_of_graph
from rematc.passes.vmap import Vmapped
from rematc.passes.vmap import vmap as vmap_of_graph


@dataclass(frozen=True, slots=True)
class _Traced:
    """A function to take the Jacobian of, in the open trace.

    Attributes:
        call: its arguments, those alone that it is differentiated in.
        function: its graph.
        tree: the tree of the outputs that are differentiated; they are the first results.
        types: their types.
    """

    call: CallArguments
    function: TracedFunction
    tree: jax.tree_util.PyTreeDef
    types: tuple[TensorType, ...]

    @property
    def wrt(self) -> list[bool]:
        """For each parameter of the graph, whether it is differentiated in."""
        count = len(self.call.types)
        return [index < count for index in range(len(self.function.graph.params))]

    def aux(self, results: Sequence[object]) -> object:
        """The auxiliary data among the results."""
        return jax.tree_util.tree_unflatten(self.function.out_tree.children()[1], results[len(self.types) :])


def _trace(
    fun: Function,
    check: _Check,
    argnums: int | Sequence[int],
    has_aux: bool,
    args: Sequence[object],
    kwargs: dict[str, object],
) -> _Traced:
    call = CallArguments.of(fun, args, kwargs).only(argument_positions(fun, argnums, len(args)))
    check.inputs(call)
    with differentiated():
        traced = trace_call(fun, call)
    tree = traced.out_tree
    if has_aux:
        children = tree.children()
        if len(children) != 2 or tree.node_data()[0] is not tuple:
            raise CompileError(
                f"with has_aux '{function_name(fun)}' returns (outputs, aux), got {tree}", user_location()
            )
        tree = children[0]
    types = traced.graph.result_types[: tree.num_leaves]
    check.outputs(function_name(fun), types)
    require_trace().records.extend(traced.records)
    return _Traced(call, traced, tree, types)


@dataclass(frozen=True, slots=True)
class _Check:
    """Which inputs and outputs have a Jacobian.

    A complex function of complex arguments has one if it is holomorphic, and then has to be said to be. Else it is
    real linear at best: forwards the inputs are real, backwards the outputs.

    Attributes:
        holomorphic: whether all inputs and outputs are complex.
        complex_inputs: whether inputs may be complex otherwise.
        complex_outputs: whether outputs may be complex otherwise.
    """

    holomorphic: bool
    complex_inputs: bool
    complex_outputs: bool

    def inputs(self, call: CallArguments) -> None:
        """Raise CompileError unless all these arguments fit."""
        what = "the Jacobian with respect to"
        for name, type in zip(call.names, call.types, strict=True):
            if self.holomorphic:
                if not type.dtype.is_complex:
                    raise CompileError(
                        f"{what} {name} with holomorphic=True needs complex values, got {type}; convert it with "
                        "astype(complex), or leave holomorphic out",
                        user_location(),
                    )
            elif type.dtype.is_complex and not self.complex_inputs:
                raise CompileError(
                    f"{what} {name}, forwards, needs real values, got {type}; give holomorphic=True if the function "
                    "is holomorphic, or take real and imaginary part as arguments of their own",
                    user_location(),
                )
            elif not type.dtype.is_inexact:
                require_float((name,), (type,), what)

    def outputs(self, name: str, types: Sequence[TensorType]) -> None:
        """Raise CompileError unless all outputs fit."""
        for type in types:
            if self.holomorphic and not type.dtype.is_complex:
                raise CompileError(
                    f"the Jacobian of '{name}' with holomorphic=True needs complex outputs, got {type}; "
                    "leave holomorphic out, or convert it with astype(complex)",
                    user_location(),
                )
            if type.dtype.is_complex and not (self.holomorphic or self.complex_outputs):
                raise CompileError(
                    f"the Jacobian of '{name}', backwards, needs real outputs, got {type}; give holomorphic=True if "
                    "the function is holomorphic, or return real and imaginary part",
                    user_location(),
                )
            if not type.dtype.is_inexact:
                raise CompileError(
                    f"the Jacobian of '{name}' needs floating-point outputs, got {type}; convert it with "
                    "astype, or return it as auxiliary data with has_aux",
                    user_location(),
                )


def jacfwd(
    fun: Callable[..., object],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., object]:
    """A function that returns the Jacobian of `fun`, by forward differentiation: best for few inputs.

    Args:
        fun: a function of arrays and pytrees; it returns a pytree of arrays, or (outputs, aux) with `has_aux`.
        argnums: the positions to differentiate with respect to.
        has_aux: whether `fun` returns auxiliary data beside the outputs.
        holomorphic: whether `fun` is a holomorphic function of complex arguments, with complex outputs. Without it
            the arguments are real.

    Returns:
        A function of the same arguments that returns, for each output, the tree of the argument (for a sequence of
        argnums a tuple of trees) with arrays of shape [*output, *input]; with `has_aux`, (Jacobian, aux).
    """

    def record(*args: object, **kwargs: object) -> object:
        traced = _trace(fun, _Check(holomorphic, False, True), argnums, has_aux, args, kwargs)
        graph, count = traced.function.graph, len(traced.function.graph.results)
        differentiated = jvp_of_graph(graph, traced.wrt)
        inputs = traced.call.types
        total = sum(type.size for type in inputs)
        is_batched = [index >= len(graph.params) for index in range(len(differentiated.graph.params))]
        batched = vmap_of_graph(differentiated.graph, is_batched, total)
        closure = (*traced.function.captures, *traced.function.constants)
        primals, found = _along_all(batched, count, (*traced.call.arrays, *closure, *_unit_vectors(inputs)), total)
        tangents = [next(found) if is_set else None for is_set in differentiated.has_tangent]
        rows = []
        for tangent, type in zip(tangents, traced.types, strict=False):
            rows.append([_of_tangent(tangent, type, part) for part in _parts(inputs)])
        return _arranged(traced, argnums, rows, primals if has_aux else None)

    return transformed(fun, record)


def jacrev(
    fun: Callable[..., object],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    policy: object = None,
) -> Callable[..., object]:
    """A function that returns the Jacobian of `fun`, by reverse differentiation: best for few outputs.

    Arguments and result are those of `jacfwd`; without `holomorphic` the outputs are real, and arguments may be
    complex. Checkpoints in `fun` hold, and so does a `policy` on the whole of it, as that of `grad`: what they
    recompute is recomputed once for all of the outputs.
    """
    decided = whole_policy(policy)

    def record(*args: object, **kwargs: object) -> object:
        with asking(decided) as labelled:
            traced = _trace(fun, _Check(holomorphic, True, False), argnums, has_aux, args, kwargs)
        graph = traced.function.graph
        of = [index < len(traced.types) for index in range(len(graph.results))]
        lying = [*traced.call.lying, *map(lies, traced.function.captures)]
        vjp = noted_vjp(fun, graph, labelled, traced.wrt, of, lying)
        forward = run(vjp.forward, traced.call.arrays, traced.function)
        results, residuals = forward[: len(graph.results)], forward[len(graph.results) :]
        outputs = [type for type, is_set in zip(traced.types, vjp.has_tangent, strict=False) if is_set]
        total = sum(type.size for type in outputs)
        is_batched = [index >= len(residuals) for index in range(len(vjp.backward.params))]
        batched = vmap_of_graph(vjp.backward, is_batched, total)
        _, outcome = _along_all(batched, 0, (*residuals, *_unit_vectors(outputs)), total)
        cts = [next(outcome) if is_set else None for is_set in vjp.has_ct]
        parts = iter(_parts(outputs))
        rows = []
        for type, is_set in zip(traced.types, vjp.has_tangent, strict=False):
            part = next(parts) if is_set else None
            rows.append([_of_ct(ct, type, of_input, part) for ct, of_input in zip(cts, traced.call.types, strict=True)])
        return _arranged(traced, argnums, rows, results if has_aux else None)

    return transformed(fun, record)


def hessian(
    fun: Callable[..., object],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    policy: object = None,
) -> Callable[..., object]:
    """A function that returns the second derivatives of `fun`: the Jacobian, forwards, of its Jacobian, backwards.

    Arguments are those of `jacrev`; for each output and each pair of inputs the array has the shape
    [*output, *input, *input].
    """
    backwards = jacrev(fun, argnums, has_aux, holomorphic, policy=policy)
    return jacfwd(backwards, argnums, has_aux, holomorphic)


def _arranged(
    traced: _Traced, argnums: int | Sequence[int], rows: Sequence[Sequence[object]], aux_of: Sequence[object] | None
) -> object:
    """For each output the tree of the inputs, in the tree of the outputs."""
    blocks = [chosen(argnums, traced.call.positional(row)) for row in rows]
    jacobian = jax.tree_util.tree_unflatten(traced.tree, blocks)
    return jacobian if aux_of is None else (jacobian, traced.aux(aux_of))


# -- directions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The unit vectors of one array among those of all.

    Attributes:
        type: of the array.
        start: the number of the first of them.
    """

    type: TensorType
    start: int


def _parts(types: Sequence[TensorType]) -> list[_Part]:
    starts = accumulate([type.size for type in types], initial=0)
    return [_Part(type, start) for type, start in zip(types, starts, strict=False)]


def _unit_vectors(types: Sequence[TensorType]) -> list[Tracer]:
    """For each array its part of all unit vectors: [directions, *shape]."""
    total = sum(type.size for type in types)
    trace = require_trace()
    b = trace.enter_line()
    found = []
    for part in _parts(types):
        counted = TensorType(I32, (total, part.type.size))
        place = b.add(b.iota(counted, 1), b.full(counted, part.start))
        unit = b.convert(b.compare(b.iota(counted, 0), place, "EQ"), part.type.dtype)
        found.append(trace.tracer(b.reshape(unit, (total, *part.type.shape))))
    return found


def _along_all(
    batched: Vmapped, count: int, operands: Sequence[object], total: int
) -> tuple[list[Tracer], Iterator[Tracer]]:
    """The results of a batched graph: the first `count` as they are, then those along each of `total` directions."""
    results = apply_graph(batched.graph, operands, (False,) * len(batched.is_batched))
    spread = []
    for result, is_batched in zip(results[count:], batched.is_batched[count:], strict=True):
        rank = result.ndim
        # A derivative that is zero whatever the direction comes out once for all of them.
        op = BroadcastInDim((total, *result.shape), tuple(range(1, rank + 1)))
        spread.append(result if is_batched else emit_op1(op, result))
    return results[:count], iter(spread)


def _rows(x: Tracer, part: _Part) -> Tracer:
    """The derivatives along one array's unit vectors."""
    shape = x.shape
    rest = (0,) * (len(shape) - 1)
    start, limit = (part.start, *rest), (part.start + part.type.size, *shape[1:])
    return emit_op1(Slice(start, limit, (1,) * len(shape)), x)


def _of_tangent(tangent: Tracer | None, output: TensorType, part: _Part) -> object:
    """One block of the Jacobian, [*output, *input], from tangents [directions, *output]."""
    shape = (*output.shape, *part.type.shape)
    if tangent is None:
        return require_trace().zeros(output.with_shape(shape))
    last = emit_op1(Transpose((*range(1, tangent.ndim), 0)), _rows(tangent, part))
    return emit_op1(Reshape(shape), last)


def _of_ct(ct: Tracer | None, output: TensorType, of_input: TensorType, part: _Part | None) -> object:
    """One block of the Jacobian, [*output, *input], from cotangents [directions, *input]."""
    shape = (*output.shape, *of_input.shape)
    if ct is None or part is None:
        return require_trace().zeros(of_input.with_shape(shape))
    return emit_op1(Reshape(shape), _rows(ct, part))
