"""On which mesh a program can be cut into what each device computes of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import Border, Manual
from rematc.ir.ops.placement import Placement, placements_of
from rematc.lowering.jax_internals.mesh_devices import place_over
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
    named = [one for one in spread if isinstance(one, jax.sharding.NamedSharding)]
    meshes = {one.mesh for one in named}
    if len(meshes) != 1 or len(named) < len(spread):
        raise _refusal("whose arrays are spread over several devices, nobody knows how, or over several meshes,")
    (mesh,) = meshes
    place = _over(mesh)
    if not _all_over(place, placed):
        raise _refusal("that is spread over several meshes, or maps functions over devices,")
    return place


def _beside(graph: Graph, spread: Sequence[Any]) -> Manual | None:
    """Where the values of one device are that a program has itself, if others can be there, too."""
    try:
        place = place_of(graph)
    except CompileError:
        return None
    if place is None or set(place.manual) != set(place.axes):
        return None
    named = [one for one in spread if isinstance(one, jax.sharding.NamedSharding)]
    is_alike = len(named) == len(spread) and all(_sizes(_over(one.mesh)) == _sizes(place) for one in named)
    others = [op for op in placements_of(graph) if not isinstance(op, Border)]
    return place if is_alike and _all_over(place, others) else None


def _over(mesh: Any) -> Manual:
    return place_over(mesh, mesh.axis_names, is_checked=False)


def _sizes(place: Manual) -> dict[str, int]:
    return dict(zip(place.axes, place.sizes, strict=True))


def _all_over(place: Manual, ops: Sequence[Op]) -> bool:
    """Whether ops that name devices are placements over the axes of a place."""
    return all(isinstance(op, Placement) and op.sizes == _sizes(place) for op in ops)


def _refusal(why: str) -> CompileError:
    return CompileError(f"a program {why} runs in no slices; leave out slices")
