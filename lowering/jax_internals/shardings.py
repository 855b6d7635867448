"""Meshes, shardings, and the axes of `shard_map` that types name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src.named_sharding import UnspecifiedValue

T = TypeVar("T")


def on_meshes(meshes: tuple[Any, ...]) -> dict[str, Any]:
    """Parameters by which JAX finds the devices of an equation that it cannot look into: a jaxpr that names them."""
    return {"placed": _placed_on(meshes)} if meshes else {}


@functools.lru_cache(maxsize=64)
def _placed_on(meshes: tuple[Any, ...]) -> Any:
    def place() -> list[Any]:
        scalar = np.zeros((), np.float32)
        constrain: Any = jax.lax.with_sharding_constraint  # which JAX leaves without annotations
        return [constrain(scalar, replicated(mesh)) for mesh in meshes]

    return jax.make_jaxpr(place)()


def replicated(mesh: Any) -> jax.sharding.NamedSharding:
    """The sharding of arrays that lie whole on each device of a mesh."""
    partition: Any = jax.sharding.PartitionSpec
    return jax.sharding.NamedSharding(mesh, partition())


def axes_of(partition: Any, rank: int) -> tuple[tuple[str, ...], ...]:
    """For each of so many dimensions the axes along which a `PartitionSpec` spreads it."""
    rows = [() if row is None else (row,) if isinstance(row, str) else tuple(row) for row in partition]
    return (*rows, *[()] * (rank - len(rows)))


def is_without_sharding(sharding: Any) -> bool:
    """Whether a parameter for a result's sharding says nothing."""
    if sharding is None or isinstance(sharding, UnspecifiedValue):
        return True
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return False
    return sharding.mesh.empty or not (abstract_mesh(sharding).explicit_axes or any(sharding.spec))


def is_unspecified(sharding: Any) -> bool:
    """Whether a call of `jax.jit` leaves a sharding to the compiler."""
    return isinstance(sharding, UnspecifiedValue)


def has_explicit_sharding(aval: Any) -> bool:
    """Whether a type says how its arrays lie over devices: it is on a mesh with axes of type Explicit."""
    if not isinstance(aval, jax.core.ShapedArray):
        return False
    mesh = aval.sharding.mesh
    return not mesh.empty and bool(mesh.explicit_axes)


def explicit_sharding(aval: Any) -> jax.sharding.NamedSharding | None:
    """The sharding that a type says (axes of type Explicit); None where it says none."""
    return aval.sharding if has_explicit_sharding(aval) else None


def sharding_of_type(value: object) -> jax.sharding.NamedSharding | None:
    """The same of the type of one of JAX's arrays, or of what stands for one; None for other objects."""
    is_typed = isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) and hasattr(value.dtype, "itemsize")
    return explicit_sharding(jax.typeof(value)) if is_typed else None


def abstract_mesh(sharding: Any) -> Any:
    """The mesh of a `NamedSharding`, without its devices."""
    return sharding.mesh.abstract_mesh


def with_auto_axes(mesh: Any) -> Any:
    """A mesh, of devices or abstract, over whose axes XLA spreads values as it likes, where types said it before."""
    if isinstance(mesh, jax.sharding.Mesh):
        types = with_auto_axes(mesh.abstract_mesh).axis_types
        return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=types)
    return mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, jax.sharding.AxisType.Auto))


def on_mesh(mesh: Any) -> AbstractContextManager[Any]:
    """Where values lie on an abstract mesh, or on none, whichever is set around."""
    none: Any = jax.sharding.AbstractMesh
    context: Any = jax.sharding.use_abstract_mesh
    found: AbstractContextManager[Any] = context(none((), ()) if mesh is None else mesh)
    return found


def in_types_of(avals: Sequence[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of these types where XLA may spread all values as it likes: inside of it types say again how
    they lie (axes of type Explicit), as these do.
    """
    axes = {name for aval in avals if has_explicit_sharding(aval) for name in aval.sharding.mesh.explicit_axes}
    here: Any = jax.sharding.get_abstract_mesh()
    missing = tuple(sorted(axes - set(here.explicit_axes)))
    if here.empty or not missing:
        return function
    partition: Any = jax.sharding.PartitionSpec
    specs = tuple([aval.sharding.spec if has_explicit_sharding(aval) else partition() for aval in avals])
    found: Callable[..., Any] = jax.sharding.explicit_axes(function, axes=missing, in_sharding=specs)
    return found


def on_devices(sizes: Mapping[str, int], traced: Callable[[], T], *, is_checked: bool) -> T:
    """What a function gives where JAX traces what each device computes: inside of a `shard_map` over these axes.

    Args:
        sizes: how many devices there are along each axis.
        traced: the function.
        is_checked: whether types say there which values differ from device to device.
    """
    abstract: Any = jax.sharding.AbstractMesh
    mesh, found = abstract(tuple(sizes.values()), tuple(sizes)), list[T]()

    def body() -> tuple[()]:
        found.append(traced())
        return ()

    with jax.sharding.use_abstract_mesh(mesh):
        jax.eval_shape(jax.shard_map(body, mesh=mesh, in_specs=(), out_specs=(), check_vma=is_checked))
    return found[0]


def varying_axes_of(aval: Any) -> frozenset[str]:
    """The axes of `shard_map`, with its checks on, along which a value may differ from device to device."""
    if not isinstance(aval, jax.core.ShapedArray):
        return frozenset()
    manual: Any = aval.mat
    return frozenset(manual.varying)


def with_varying_axes(aval: Any, like: Any) -> Any:
    """An abstract value on the devices of another one, which differs from device to device as that does."""
    partition: Any = jax.sharding.PartitionSpec
    spec = partition(*(None,) * aval.ndim)
    return like.update(shape=aval.shape, dtype=aval.dtype, weak_type=False, sharding=like.sharding.update(spec=spec))


def is_manual(names: Sequence[str]) -> bool:
    """Whether axes are those of a mesh, inside of a `shard_map` over them, and not names of batch dimensions."""
    return set(names) <= set(jax.sharding.get_abstract_mesh().manual_axes)


def axis_sizes(names: Sequence[str]) -> tuple[int, ...]:
    """How many elements, or devices, there are along axes where JAX is tracing."""
    return tuple([int(jax.lax.axis_size(name)) for name in names])
