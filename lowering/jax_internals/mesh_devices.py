"""The devices of a mesh of JAX's, and functions of what each of them has of an array."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from rematc.ir.ops.mapped import Manual, Spec
from rematc.lowering.jax_internals.shardings import with_auto_axes


@dataclass(frozen=True, slots=True)
class MeshDevices:
    """The devices of a mesh of JAX's.

    Attributes:
        mesh: JAX's.
    """

    mesh: Any

    @property
    def meshes(self) -> tuple[Any, ...]:
        return (self.mesh,) if isinstance(self.mesh, jax.sharding.Mesh) else ()

    def __call__(self, function: Any, manual: Sequence[str], operands: Sequence[Spec], results: Sequence[Spec]) -> Any:
        # Where types said how values lie, XLA may spread them as it likes now; where they still say it, those that come
        # in have to lie as they are cut.
        here: Any = jax.sharding.get_abstract_mesh()
        specs = tuple(map(_partition_of, operands))
        mapped: Any = jax.shard_map(
            function,
            mesh=with_auto_axes(self.mesh) if here.empty else here,
            in_specs=specs,
            out_specs=tuple(map(_partition_of, results)),
            axis_names=set(manual),
            check_vma=False,
        )
        if set(manual) != set(self.mesh.axis_names):
            # Outside of a trace JAX 0.10 refuses results that XLA spreads along the other axes.
            mapped = jax.jit(mapped, inline=True)
        if not set(manual) & set(here.explicit_axes):
            return mapped
        return lambda *values: mapped(*[_reshard(value, spec) for value, spec in zip(values, specs, strict=True)])


def place_over(mesh: Any, manual: Collection[str], *, is_checked: bool) -> Manual:
    """Where values are those of one device, along some of the axes of a mesh of JAX's."""
    axes = tuple(map(str, mesh.axis_names))
    sizes = tuple([int(mesh.shape[axis]) for axis in axes])
    return Manual(axes, sizes, tuple([axis for axis in axes if axis in manual]), is_checked, MeshDevices(mesh))


_reshard: Any = jax.reshard  # which JAX leaves without annotations, as those below


def _partition_of(spec: Spec) -> Any:
    partition: Any = jax.sharding.PartitionSpec  # which JAX leaves without annotations
    return partition(*[row or None for row in spec])
