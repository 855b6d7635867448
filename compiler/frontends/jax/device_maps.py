"""Import of `shard_map`: its equations, between borders to what one device has of each array.

So all passes see what devices compute, and what they tell each other, and policies and plans decide on it; along axes
that a `shard_map` leaves out, constraints and types say inside how values lie. Where that has no place in a graph, as a
`shard_map` in another one, or over several meshes, it is one op with JAX's derivatives of the whole equation. The rule
is JAX's linearization of it: one `shard_map` to the values and to what the other one needs, which is linear in the
tangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from rematc.compiler.frontends.jax.block import Block, Region, imports
from rematc.compiler.frontends.jax.fallback import check_effects, transposable
from rematc.compiler.frontends.jax.retracing import linearization_of
from rematc.compiler.frontends.jax.values import type_of
from rematc.ir.builder import Builder
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import DeviceMap, FullToShard, Manual, ShardToFull
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import closed, has_primitive
from rematc.lowering.jax_internals.keys import apply_to_words
from rematc.lowering.jax_internals.mesh_devices import place_over
from rematc.lowering.jax_internals.shardings import axes_of, in_types_of


@dataclass(frozen=True, slots=True)
class MappedEquation:
    """An equation of JAX's that maps a function over devices.

    Attributes:
        eqn: the equation. Equal to itself alone.
        batches: how many batch dimensions are in front.
    """

    eqn: Any
    batches: int = 0

    @property
    def meshes(self) -> tuple[Any, ...]:
        mesh = self.eqn.params["mesh"]
        return (mesh,) if isinstance(mesh, jax.sharding.Mesh) else ()

    def __call__(self, *operands: Any) -> Sequence[Any]:
        def function(*given: Any) -> list[Any]:
            return apply_to_words(self.eqn, list(given))

        applied: Any = in_types_of([atom.aval for atom in self.eqn.invars], function)
        for _ in range(self.batches):
            applied = jax.vmap(applied)
        found: Sequence[Any] = applied(*operands)
        return found

    def batched(self) -> MappedEquation:
        return replace(self, batches=self.batches + 1)


@imports("shard_map", keys=True)
def shard_map(block: Block, eqn: Any) -> Sequence[Value]:
    """The function's equations between `full_to_shard` and `shard_to_full`; else `device_map`."""
    check_effects(block, eqn)
    place = _place_of(block, eqn)
    region = None if place is None else _inside(block, eqn)
    if place is None or region is None:
        return _device_map(block, eqn)
    block.shared.place = place
    values = [*region.captured, *block.operands(eqn)]
    specs = [*[()] * len(region.captured), *eqn.params["in_specs"]]
    pairs = zip(values, specs, strict=True)
    parts = [block.b.emit1(FullToShard.at(place, axes_of(spec, value.type.rank)), value) for value, spec in pairs]
    found = zip(block.b.inline(region.graph, parts), eqn.params["out_specs"], strict=True)
    return [block.b.emit1(ShardToFull.at(place, axes_of(spec, value.type.rank)), value) for value, spec in found]


def _place_of(block: Block, eqn: Any) -> Manual | None:
    """Where the values inside are; None where a graph cannot have them beside whole ones."""
    manual, is_checked = eqn.params["newly_manual_axes"], bool(eqn.params["check_vma"])
    place = place_over(eqn.params["mesh"], manual, is_checked=is_checked)
    here: Any = jax.sharding.get_abstract_mesh()
    other = block.shared.place
    is_other = other is not None and replace(other, is_checked=True) != replace(place, is_checked=True)
    is_nested = bool(here.manual_axes) or has_primitive(eqn.params["jaxpr"], eqn.primitive)
    return None if is_other or is_nested else place


def _inside(block: Block, eqn: Any) -> Region | None:
    """What each device computes; None where a primitive inside has no import by itself.

    It is imported while JAX traces such a function, since rules ask which axes there are.
    """
    params, found = eqn.params, list[Region]()
    # What is imported once more, for a further derivative, may be where XLA spreads what types spread before.
    here: Any = jax.sharding.get_abstract_mesh()

    def traced() -> tuple[()]:
        found.append(block.region(closed(params["jaxpr"]), _label(eqn)))
        return ()

    mapped = jax.shard_map(
        traced,
        mesh=params["mesh"] if here.empty else here,
        in_specs=(),
        out_specs=(),
        axis_names=set(params["newly_manual_axes"]),
        check_vma=params["check_vma"],
    )
    try:
        jax.eval_shape(mapped)
    except CompileError:
        return None
    return found[0]


def _device_map(block: Block, eqn: Any) -> Sequence[Value]:
    """`device_map` in a `custom_jvp`; the op alone where nothing is differentiated."""
    b = Builder("shard_map")
    b.loc = block.location(eqn)
    params = [b.parameter(type_of(atom.aval)) for atom in eqn.invars]
    types = tuple([type_of(variable.aval) for variable in eqn.outvars])
    op = DeviceMap(_label(eqn), types, int(eqn.params["mesh"].size), MappedEquation(eqn))
    body = Region(b.build(*b.emit(op, *params)), ())
    return transposable(block, eqn, body, "shard_map", linearization_of)


def _label(eqn: Any) -> str:
    info = getattr(eqn.params["jaxpr"], "debug_info", None)
    return str(getattr(info, "func_name", "") or "shard_map")
