"""Import of `shard_map`: one op, with JAX's derivatives of the whole equation.

The rule is JAX's linearization of it: one `shard_map` to the values and to what the other one needs, which is linear in
the tangents. So what the backward pass needs crosses in parts, each on its device, and policies decide about it.
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
from rematc.ir.ops.mapped import DeviceMap
from rematc.ir.values import Value
from rematc.lowering.jax_internals.keys import apply_to_words
from rematc.lowering.jax_internals.shardings import in_types_of


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
    """`device_map` in a `custom_jvp`; the op alone where nothing is differentiated."""
    b = Builder("shard_map")
    b.loc = block.location(eqn)
    params = [b.parameter(type_of(atom.aval)) for atom in eqn.invars]
    types = tuple([type_of(variable.aval) for variable in eqn.outvars])
    op = DeviceMap(_label(eqn), types, int(eqn.params["mesh"].size), MappedEquation(eqn))
    body = Region(b.build(*b.emit(op, *params)), ())
    check_effects(block, eqn)
    return transposable(block, eqn, body, "shard_map", linearization_of)


def _label(eqn: Any) -> str:
    info = getattr(eqn.params["jaxpr"], "debug_info", None)
    return str(getattr(info, "func_name", "") or "shard_map")
