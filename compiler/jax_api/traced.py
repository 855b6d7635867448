"""A JAX function at some arguments: its jaxpr, and how values go in and come out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.tree_util
import numpy as np

from rematc.compiler.frontends.jax.importing import Imported, graph_of_jaxpr
from rematc.compiler.jax_api.arguments import JaxArguments
from rematc.compiler.jax_api.concretizing import naming_arguments
from rematc.compiler.tracing.derivative_order import of_order
from rematc.ir.collecting import users_code
from rematc.ir.core import Graph
from rematc.lowering.jax_export.evaluating import varied_as
from rematc.lowering.jax_internals.jaxprs import captured_as_inputs
from rematc.lowering.jax_internals.keys import is_key, key_words, keys_of_words
from rematc.lowering.jax_internals.shardings import axes_of
from rematc.lowering.jax_internals.types import is_float0, is_weak, weakly_typed
from rematc.passes.planning.shards import Shards

_ARRAYS = inspect.Signature([inspect.Parameter("arrays", inspect.Parameter.VAR_POSITIONAL)])


@dataclass(frozen=True, slots=True, eq=False)
class TracedCall:
    """What JAX traced.

    Attributes:
        jaxpr: a closed jaxpr without constants: its inputs are those of the function, then the captured arrays.
        captured: the arrays, or tracers, that the function closes over.
        in_avals: the abstract values of the inputs that callers pass.
        out_avals: those of the results.
        out_tree: how the results, and what was kept, make up what the function returned.
        kept: leaves of the auxiliary data that are no results, by their place in `out_tree`: JAX leaves them as they
            are, whatever they are.
        name: what reports call the function.
        names: of the inputs that callers pass.
    """

    jaxpr: Any
    captured: tuple[Any, ...]
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    out_tree: jax.tree_util.PyTreeDef
    kept: dict[int, Any]
    name: str
    names: tuple[str, ...]

    @property
    def is_lasting(self) -> bool:
        """Whether it may be used again: what it closes over are arrays, not values of a trace that is open now."""
        return not any(isinstance(value, jax.core.Tracer) for value in self.captured)

    def imported(self, order: int) -> Imported:
        """The jaxpr as a graph, with rules of the user's for so many derivatives. Parameters are all its inputs.

        Raises CompileError at the user's line for what cannot be imported.
        """
        with of_order(order):
            return graph_of_jaxpr(self.jaxpr, self.name, (*self.names, *[None] * len(self.captured)))

    def operands(self, arrays: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
        """What to pass for the parameters of an import: keys as words, numbers as arrays; then its `constants`."""
        given = [words(array, aval) for array, aval in zip(arrays, self.in_avals, strict=True)]
        return [*given, *[words(array, None) for array in (*self.captured, *constants)]]

    def outputs(self, results: Sequence[Any]) -> Any:
        """What the function returns, of the graph's results."""
        given = iter([like(value, aval) for value, aval in zip(results, self.out_avals, strict=True)])
        places = range(self.out_tree.num_leaves)
        leaves = [self.kept[place] if place in self.kept else next(given) for place in places]
        return jax.tree_util.tree_unflatten(self.out_tree, leaves)


def trace_jax(
    function: Callable[..., Any],
    arguments: JaxArguments,
    name: str,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    *,
    has_aux: bool = False,
) -> TracedCall:
    """Have JAX trace a function at the arrays of a call, closing over everything else.

    Args:
        function: the user's function.
        arguments: of the call.
        name: what reports call it.
        wrap: what to make of the function of flat arrays before it is traced.
        has_aux: whether the function returns auxiliary data beside its outputs, as a tuple of both.

    Raises:
        ConcretizedError: where the function reads the value of one of the arrays.
    """
    trees: list[tuple[Any, dict[int, Any]]] = []

    def flat(*arrays: Any) -> list[Any]:
        leaves, tree = jax.tree_util.tree_flatten(arguments.call(function, arrays))
        outputs = _output_count(tree) if has_aux else len(leaves)
        kept = {
            index: leaf
            for index, leaf in enumerate(leaves)
            if index >= outputs and not isinstance(leaf, jax.core.Tracer)
        }
        trees.append((tree, kept))
        return [leaf for index, leaf in enumerate(leaves) if index not in kept]

    flat.__name__ = flat.__qualname__ = name
    # What JAX says of the function has the user's file and line.
    vars(flat).update(__wrapped__=function, __signature__=_ARRAYS)
    with naming_arguments(arguments.names, function), users_code():
        jaxpr = jax.make_jaxpr(flat if wrap is None else wrap(flat))(*arguments.arrays)
    closed, captured = captured_as_inputs(jaxpr)
    count = len(arguments.arrays)
    return TracedCall(
        closed,
        tuple(captured),
        tuple([variable.aval for variable in closed.jaxpr.invars[:count]]),
        tuple(jaxpr.out_avals),
        *trees[-1],
        name,
        arguments.names(function),
    )


def _output_count(tree: jax.tree_util.PyTreeDef) -> int:
    """How many leaves the outputs have, before the auxiliary data."""
    children = tree.children()
    has_aux = len(children) == 2 and tree.node_data()[0] is tuple
    count: int = (children[0] if has_aux else tree).num_leaves
    return count


def words(array: Any, aval: Any) -> Any:
    """An array as our graphs take it: typed keys as their words, `float0` as truth values, numbers as arrays."""
    dtype = getattr(array, "dtype", None)
    if dtype is not None and is_key(dtype):
        return key_words(array)
    if dtype is not None and is_float0(dtype):
        return np.zeros(array.shape, np.bool_)
    if aval is None:
        return array
    if dtype is None or dtype != aval.dtype:
        return jax.numpy.asarray(array, aval.dtype)
    return array


def like(value: Any, aval: Any) -> Any:
    """A graph's result as JAX has it: typed keys, `float0`, weak types, differing from device to device."""
    if is_key(aval.dtype):
        return varied_as(keys_of_words(value, aval.dtype), aval)
    if is_float0(aval.dtype):
        return np.zeros(aval.shape, jax.dtypes.float0)
    if is_weak(aval):
        return varied_as(weakly_typed(value), aval)
    return varied_as(value if isinstance(value, jax.Array) else jax.numpy.asarray(value), aval)


def explicit_mesh(values: Sequence[Any]) -> Any:
    """The mesh of values whose types say how they are sharded over it (axes of type Explicit); None where none do."""
    for value in values:
        aval = jax.typeof(value)
        if isinstance(aval, jax.core.ShapedArray) and any(entry is not None for entry in aval.sharding.spec):
            return aval.sharding.mesh
    return None


def called_on_mesh(call: Callable[..., Sequence[Any]], operands: Sequence[Any], avals: Sequence[Any]) -> Sequence[Any]:
    """What a function of arrays gives, values of these types. Where shardings are part of types, XLA chooses those
    inside, and results have those that their types say.
    """
    mesh = explicit_mesh(operands)
    return call(*operands) if mesh is None else called_where(call, operands, [sharding_in(mesh, one) for one in avals])


def called_where(
    call: Callable[..., Sequence[Any]], operands: Sequence[Any], shardings: Sequence[jax.sharding.NamedSharding]
) -> Sequence[Any]:
    """The same on a mesh, with these shardings of the results."""
    placed: Any = jax.sharding.auto_axes(lambda *given: tuple(call(*given)), out_sharding=tuple(shardings))
    results: Sequence[Any] = placed(*operands)
    return results


def sharding_in(mesh: Any, aval: Any) -> jax.sharding.NamedSharding:
    """The sharding of a type; of typed keys, whose words are results, none."""
    partition: Any = jax.sharding.PartitionSpec
    is_plain = aval.shape and not is_key(aval.dtype) and not is_float0(aval.dtype)
    return jax.sharding.NamedSharding(mesh, aval.sharding.spec if is_plain else partition())


def shardings_followed(mesh: Any, graph: Graph, operands: Sequence[Any]) -> list[jax.sharding.NamedSharding]:
    """How results of a graph lie whose types nobody knows: each as what it is computed from, first of all operands."""
    known = {
        param: axes_of(jax.typeof(operand).sharding.spec, param.type.rank)
        for param, operand in zip(graph.params, operands, strict=True)
        if len(param.type.shape) == np.ndim(operand)
    }
    shards = Shards(dict(mesh.shape), known)
    shards.follow(graph)
    partition: Any = jax.sharding.PartitionSpec
    found = []
    for value in graph.results:
        rows = zip(shards.axes(value), value.type.shape, strict=True)
        sizes = [(row, math.prod([mesh.shape[axis] for axis in row]), size) for row, size in rows]
        spec = partition(*[row if row and size % count == 0 else None for row, count, size in sizes])
        found.append(jax.sharding.NamedSharding(mesh, spec))
    return found
