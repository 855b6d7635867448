"""Import of what says where arrays lie: constraints on shardings and layouts, `device_put`, types with shardings.

Each becomes a `placement`, which keeps JAX's own primitive: what goes back into JAX is that primitive again. One by a
`NamedSharding` has Shardy's text, too, for programs of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.jax.placing import Bound, Constrained, OfType, meshes_named, open_spec
from rematc.ir.ops.placement import OPEN, Placement
from rematc.ir.values import Value
from rematc.lowering.jax_internals.keys import is_key
from rematc.lowering.jax_internals.shardings import (
    abstract_mesh,
    has_explicit_sharding,
    is_unspecified,
)
from rematc.lowering.writer import braced

_partition: Any = jax.sharding.PartitionSpec  # which JAX leaves without annotations

#: How shardings spell the device's own memory.
_OWN_MEMORY = (None, "device")


def constrained(block: Block, shardings: Sequence[Any], values: Sequence[Value]) -> list[Value]:
    """Arguments or results of a call, those placed of which it says a sharding."""
    return [
        value if is_unspecified(sharding) else _constrained(block, sharding, value)
        for sharding, value in zip(shardings, values, strict=True)
    ]


def _constrained(block: Block, sharding: Any, value: Value) -> Value:
    op = Placement("a sharding of jax.jit", *_text(sharding, value.type.rank), Constrained(sharding))
    return block.b.emit1(op, value)


@imports("sharding_constraint", "layout_constraint", "relayout", keys=True)
def constraint(block: Block, eqn: Any) -> Sequence[Value]:
    """`placement`, of the primitive itself."""
    sharding = eqn.params.get("sharding")
    (x,) = block.operands(eqn)
    _check_no_keys(block, eqn)
    is_plain = sharding is not None and eqn.params["layout"] is None
    mesh, dimensions = _text(sharding, x.type.rank) if is_plain else ("", ())
    source = Bound(eqn.primitive, _sorted(eqn.params), eqn.invars[0].aval, meshes_named(sharding))
    return block.b.emit(Placement(eqn.primitive.name, mesh, dimensions, source), x)


@imports("reshard", keys=True)
def reshard(block: Block, eqn: Any) -> Sequence[Value]:
    """`placement` by the type of the result; the words of keys are spread along no dimension of their own."""
    (x,) = block.operands(eqn)
    return block.b.emit(placement_by_type(eqn.outvars[0].aval.sharding, x.type.rank, "reshard"), x)


@imports("device_put", keys=True)
def device_put(block: Block, eqn: Any) -> Sequence[Value]:
    """A `placement` for each operand that is to go anywhere."""
    params = eqn.params
    results = []
    rows = zip(
        eqn.invars, block.operands(eqn), params["devices"], params["srcs"], params["copy_semantics"], strict=True
    )
    for atom, x, device, source, copy in rows:
        if not _is_move(atom.aval, device, source):
            results.append(x)  # a copy, which is no part of a program
            continue
        _check_no_keys(block, eqn)
        own = (("copy_semantics", (copy,)), ("devices", (device,)), ("srcs", (source,)))
        mesh, dimensions = _open_text(device, x.type.rank)
        bound = Bound(eqn.primitive, own, atom.aval, meshes_named(device))
        results.append(block.b.emit1(Placement("device_put", mesh, dimensions, bound), x))
    return results


def _is_move(aval: Any, device: Any, source: Any) -> bool:
    """Whether a `device_put` of such an operand does anything in a program.

    To JAX one to a device does not, nor does a transpose, which goes to no device it would name: only memories count
    there. A sharding says which devices the program is for.
    """
    if device is None or isinstance(device, jax.Device):
        return _is_other_memory(source)
    return device is not jax.memory.Space.Device or aval.memory_space is not device


def _is_other_memory(where: Any) -> bool:
    """Whether it names another memory than the device's own."""
    if isinstance(where, jax.sharding.Sharding):
        return where.memory_kind not in _OWN_MEMORY
    return isinstance(where, jax.memory.Space) and where is not jax.memory.Space.Device


def _open_text(device: Any, rank: int) -> tuple[str, tuple[str, ...]]:
    """What `device_put` says in a program, as `_text`: on which devices it runs. JAX leaves all to XLA but memories."""
    mesh, dimensions = _text(device, rank)
    return mesh, (OPEN,) * len(dimensions)


def _check_no_keys(block: Block, eqn: Any) -> None:
    if any(is_key(atom.aval.dtype) for atom in eqn.invars):
        block.fail(eqn, "of typed keys cannot be kept; place their words (jax.random.key_data)")


def _sorted(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def _text(sharding: Any, rank: int) -> tuple[str, tuple[str, ...]]:
    """A sharding in Shardy's words: (mesh, dimensions). Empty where it has more to it than these can say."""
    if not isinstance(sharding, jax.sharding.NamedSharding) or sharding.mesh.empty:
        return "", ()
    spec, mesh = sharding.spec, abstract_mesh(sharding)
    if spec.unreduced or spec.reduced or sharding.memory_kind not in _OWN_MEMORY:
        return "", ()
    axes = ", ".join([f'"{name}"={size}' for name, size in mesh.shape.items()])
    entries = (*spec, *(None,) * (rank - len(spec)))
    return f"<[{axes}]>", tuple(map(_dimension, entries))


def _dimension(entry: Any) -> str:
    if entry is _partition.UNCONSTRAINED:
        return OPEN
    return braced(() if entry is None else entry if isinstance(entry, tuple) else (entry,))


# -- types that say where values lie ----------------------------------------------------------------------------------

#: What errors call a placement that no primitive asks for.
OF_TYPE = "the type's sharding"


def placement_by_type(sharding: Any, rank: int, what: str = OF_TYPE) -> Placement:
    """What places an array of so many dimensions where its type says, with this sharding of JAX's in it."""
    spec = _partition(*sharding.spec, *(None,) * (rank - len(sharding.spec)))
    mesh, dimensions = _text(jax.sharding.NamedSharding(sharding.mesh, open_spec(sharding.mesh, spec)), rank)
    return Placement(what, mesh, dimensions, OfType(sharding.mesh, spec))


def inputs_by_types(block: Block, variables: Sequence[Any], values: Sequence[Value]) -> list[Value]:
    """The inputs of a program where their types say, if one is spread; else themselves."""
    if not any(is_spread(variable.aval) for variable in variables):
        return list(values)
    return [_by_type(block, *row, OF_TYPE) for row in zip(variables, values, strict=True)]


def _by_type(block: Block, variable: Any, value: Value, what: str) -> Value:
    aval = variable.aval
    is_placed = has_explicit_sharding(aval) and aval.ndim > 0 and not is_key(aval.dtype)
    return block.b.emit1(placement_by_type(aval.sharding, value.type.rank, what), value) if is_placed else value


def where_types_say(
    block: Block, eqn: Any, results: Sequence[Value], says: Callable[[Any], bool] = has_explicit_sharding
) -> list[Value]:
    """An equation's results where their types say, on a mesh with axes of type Explicit; themselves for other types."""
    asked = any(is_asked_for(eqn.params.get(name)) for name in ("sharding", "out_sharding"))
    what = eqn.primitive.name if asked or _sums_over_devices(eqn) else OF_TYPE
    pairs = zip(eqn.outvars, results, strict=True)
    return [_by_type(block, variable, value, what) if says(variable.aval) else value for variable, value in pairs]


def where_types_spread(block: Block, eqn: Any, results: Sequence[Value]) -> list[Value]:
    """The same for types that spread a dimension alone."""
    return where_types_say(block, eqn, results, is_spread)


def _sums_over_devices(eqn: Any) -> bool:
    """Whether a product sums along a dimension that is spread: where its result lies does not follow from that."""
    if eqn.primitive.name != "dot_general":
        return False
    (contracted, _), avals = eqn.params["dimension_numbers"], [atom.aval for atom in eqn.invars]
    pairs = zip(avals, contracted, strict=True)
    return any(is_spread(aval) and aval.sharding.spec[place] is not None for aval, own in pairs for place in own)


def is_asked_for(sharding: Any) -> bool:
    """Whether a parameter of an equation spreads its result."""
    return isinstance(sharding, jax.sharding.NamedSharding) and spreads(sharding)


def typed_placement(jaxpr: Any) -> Callable[[Block, Any, Sequence[Value]], list[Value]] | None:
    """How values of a jaxpr are placed by their types; None where no type says it.

    Where inputs are spread, all types on the mesh say it. Else, as where the types of arguments are not known, those do
    that spread something.
    """
    inputs = [variable.aval for variable in (*jaxpr.invars, *jaxpr.constvars)]
    outputs = [variable.aval for eqn in jaxpr.eqns for variable in eqn.outvars]
    if not any(map(has_explicit_sharding, (*inputs, *outputs))):
        return None
    return where_types_say if any(map(is_spread, inputs)) else where_types_spread


def is_spread(aval: Any) -> bool:
    """Whether a type spreads a dimension over a mesh with axes of type Explicit."""
    return has_explicit_sharding(aval) and spreads(aval.sharding)


def spreads(sharding: Any) -> bool:
    """Whether a sharding spreads a dimension."""
    return any(entry is not None for entry in sharding.spec)
