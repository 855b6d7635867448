"""On which mesh a program can be cut into what each device computes of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import Border, Manual
from rematc.ir.ops.placement import Placement, placements_of
from rematc.lowering.jax_internals.mesh_devices import MeshDevices
from rematc.lowering.propagation import devices_of
from rematc.lowering.target import Target
from rematc.passes.manual_computations import has_borders, place_of


def place_of_parts(graph: Graph, target: Target, shardings: Sequence[Any]) -> Manual | None:
    """The mesh over all axes of which devices compute their parts of a graph's values by themselves.

    None for a program of one device, and for one that says of itself what each device computes, as in `shard_map`, over
    another mesh or over some of its axes: what it says so is cut.

    Args:
        graph: the program.
        target: what it is for.
        shardings: JAX's, of its first parameters; None, or none at all, for what nobody knows.

    Raises CompileError where nobody knows how arrays are spread, and for several meshes.
    """
    spread = [one for one in shardings if one is not None and devices_of(one) > 1]
    placed = list(placements_of(graph))
    if not (spread or placed or target.devices > 1):
        return None
    if has_borders(graph):
        return _beside(graph, spread)
    meshes = {one.mesh for one in spread if _is_named(one)}
    if len(meshes) != 1 or not all(map(_is_named, spread)):
        raise _refusal("whose arrays are spread over several devices, nobody knows how, or over several meshes,")
    (mesh,) = meshes
    sizes = {str(axis): int(size) for axis, size in mesh.shape.items()}
    axes = tuple(sizes)
    if not all(isinstance(op, Placement) and op.sizes == sizes for op in placed):
        raise _refusal("that is spread over several meshes, or maps functions over devices,")
    return Manual(axes, tuple(sizes.values()), axes, False, MeshDevices(mesh))


def _beside(graph: Graph, spread: Sequence[Any]) -> Manual | None:
    """Where the values of one device are that a program has itself, if others can be there, too."""
    try:
        place = place_of(graph)
    except CompileError:
        return None
    if place is None or set(place.manual) != set(place.axes):
        return None
    sizes = dict(zip(place.axes, place.sizes, strict=True))
    ops = [op for op in placements_of(graph) if not isinstance(op, Border)]
    is_alike = all(isinstance(op, Placement) and op.sizes == sizes for op in ops)
    meshes = [{str(axis): int(size) for axis, size in one.mesh.shape.items()} for one in spread if _is_named(one)]
    return place if is_alike and len(meshes) == len(spread) and all(mesh == sizes for mesh in meshes) else None


def _is_named(sharding: Any) -> bool:
    return isinstance(sharding, jax.sharding.NamedSharding)


def _refusal(why: str) -> CompileError:
    return CompileError(f"a program {why} runs in no slices; leave out slices")
