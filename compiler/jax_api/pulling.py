"""The vjp of a JAX function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.tree_util
import numpy as np
from jax.sharding import NamedSharding

from rematc.compiler.frontends.jax.policies import asking
from rematc.compiler.functions.policies import check_whole_names
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.concretizing import NumbersRead
from rematc.compiler.jax_api.traced import (
    called_where,
    explicit_mesh,
    like,
    sharding_in,
    shardings_followed,
    trace_jax,
    words,
)
from rematc.compiler.tracing.options import Options
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.lowering.jax_compiling import compiled, is_outermost
from rematc.lowering.jax_export.exporting import apply_graph
from rematc.lowering.jax_internals.platform import on_platform
from rematc.lowering.jax_internals.types import is_float0
from rematc.lowering.pipeline import passed_for_jax
from rematc.lowering.signature import function_name
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target, targeting
from rematc.passes.linearize import vjp
from rematc.passes.staging.stage import staged

Run = Callable[[Sequence[Any]], Sequence[Any]]

#: Rules of the user's are imported for so many derivatives: the backward function may be differentiated.
_ORDER = 2


def pulled_back(
    fun: Callable[..., Any], primals: Sequence[Any], has_aux: bool, policy: Policy | None, options: Options
) -> tuple[Any, ...]:
    """What `rematc.jax.vjp` returns."""
    given = JaxArguments.of(primals, {}, options.statics)
    traced, arguments = NumbersRead().traced(
        given,
        lambda arguments: trace_jax(fun, arguments, function_name(fun), has_aux=has_aux),
        lambda arguments, index: not isinstance(arguments.arrays[index], int),
    )
    target = current_target(arguments.arrays)
    with asking(policy) as labelled, targeting(target):
        imported = traced.imported(_ORDER)
    graph = imported.graph
    check_whole_names(labelled, graph, traced.name)
    count = len(arguments.arrays)
    wrt = [value.type.dtype.is_inexact and index < count for index, value in enumerate(graph.params)]
    tree, of = traced.out_tree, [True] * len(graph.results)
    if has_aux:
        tree, outputs = _outputs_tree(traced.out_tree, traced.name)
        of = [index < outputs for index in range(len(graph.results))]
    of = [is_set and value.type.dtype.is_inexact for is_set, value in zip(of, graph.results, strict=True)]
    pulled = vjp(graph if labelled is None else staged(graph, labelled, wrt, of), wrt, of)
    leaves = arguments.among(options.donated)
    operands = on_platform(imported.choice, traced.name, traced.operands(arguments.arrays, imported.constants))
    forward_graph, mesh = passed_for_jax(pulled.forward, target), explicit_mesh(operands)
    run = functools.partial(_run, forward_graph, donated=leaves, options=options, target=target)

    def on_mesh(run: Run, operands: Sequence[Any], shardings: Callable[[], Sequence[NamedSharding]]) -> Sequence[Any]:
        """Where types say how arrays lie, XLA chooses that inside; results lie so."""
        return run(operands) if mesh is None else called_where(lambda *given: run(given), operands, shardings())

    def of_results() -> list[NamedSharding]:
        crossing = shardings_followed(mesh, forward_graph, operands)[len(traced.out_avals) :]
        return [*[sharding_in(mesh, aval) for aval in traced.out_avals], *crossing]

    found = on_mesh(run, operands, of_results)
    residuals = found[len(graph.results) :]
    backward_graph = passed_for_jax(pulled.backward, target)

    def backward(cts: Any) -> tuple[Any, ...]:
        leaves, structure = jax.tree_util.tree_flatten(cts)
        if structure != tree:
            raise CompileError(f"the cotangents have the structure {structure}, expected {tree}", user_location())
        present = [
            words(leaf, aval)
            for leaf, aval, is_set in zip(leaves, traced.out_avals, pulled.has_tangent, strict=False)
            if is_set
        ]
        run = functools.partial(_run, backward_graph, donated=(), options=options, target=target)
        alike = [aval for aval, is_set in zip(traced.in_avals, wrt, strict=False) if is_set]
        alike = [aval for aval, is_set in zip(alike, pulled.has_ct, strict=True) if is_set]
        operands = (*residuals, *present)
        given = iter(on_mesh(run, operands, lambda: [sharding_in(mesh, aval) for aval in alike]))
        has_ct = iter(pulled.has_ct)
        outgoing = [
            like(next(given), aval) if is_set and next(has_ct) else _zero(aval)
            for is_set, aval in zip(wrt, traced.in_avals, strict=False)
        ]
        return arguments.positional(outgoing, [_zero_of_fixed(leaf) for leaf in arguments.others])

    output = traced.outputs(found[: len(graph.results)])
    return (output[0], backward, output[1]) if has_aux else (output, backward)


def _run(
    graph: Graph, operands: Sequence[Any], donated: Sequence[int], options: Options, target: Target
) -> Sequence[Any]:
    """Apply a graph: as a program of its own where one is asked for and nothing is traced."""
    if not is_outermost() or not (donated or options.compiler_options):
        with targeting(target):
            return apply_graph(graph, operands)
    given = dict(options.compiler_options)
    program = compiled(
        lambda *arrays: tuple(apply_graph(graph, arrays)), target, donate_argnums=donated, compiler_options=given
    )
    found: Sequence[Any] = program(*operands)
    return found


def _outputs_tree(tree: jax.tree_util.PyTreeDef, name: str) -> tuple[jax.tree_util.PyTreeDef, int]:
    children = tree.children()
    if len(children) != 2 or tree.node_data()[0] is not tuple:
        raise CompileError(f"with has_aux '{name}' returns (outputs, aux), got {tree}", user_location())
    return children[0], children[0].num_leaves


def _zero(aval: Any) -> Any:
    """The zero cotangent of an argument."""
    if is_float0(aval.dtype) or not jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact):
        return like(None, aval.to_tangent_aval())
    return like(jax.numpy.zeros(aval.shape, aval.dtype), aval)


def _zero_of_fixed(leaf: Any) -> Any:
    """The zero cotangent of a leaf that is not traced: of flags and integers JAX gives one, of others none."""
    return np.zeros((), jax.dtypes.float0) if isinstance(leaf, int) else None
