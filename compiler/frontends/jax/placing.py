"""JAX's ways to place a value, as a `placement` has them: by a primitive, by a type, as a call of `jax.jit` says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax

from rematc.lowering.jax_internals.jaxprs import bind
from rematc.lowering.jax_internals.shardings import in_types_of, with_auto_axes

# JAX leaves these without annotations.
_partition: Any = jax.sharding.PartitionSpec
_constrain: Any = jax.lax.with_sharding_constraint
_reshard: Any = jax.reshard


@dataclass(frozen=True, slots=True)
class Bound:
    """A primitive of one operand that places it, with its parameters.

    Attributes:
        primitive: JAX's.
        params: its parameters, by name in the names' order.
        aval: the abstract value of its operand in the user's program.
        meshes: of devices that the parameters name.
        batches: how many batch dimensions are in front.
        is_adjoint: whether it is the primitive's transpose.
    """

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    aval: Any
    meshes: tuple[Any, ...] = ()
    batches: int = 0
    is_adjoint: bool = False

    def __call__(self, x: Any) -> Any:
        function = in_types_of([self.aval], self._transposed if self.is_adjoint else self._bound)
        for _ in range(self.batches):
            function = jax.vmap(function)
        return function(x)

    def _bound(self, x: Any) -> Any:
        return bind(self.primitive, [x], dict(self.params))[0]

    def _transposed(self, ct: Any) -> Any:
        # As the cotangent is: inside of a `shard_map` of ours no type says from which device to which values differ.
        aval = jax.typeof(ct).update(weak_type=False, memory_space=self.aval.memory_space)
        transposed: Any = jax.linear_transpose(self._bound, aval)
        (found,) = transposed(ct)
        return found

    def batched(self) -> Bound:
        return replace(self, batches=self.batches + 1)

    def adjoint(self) -> Bound:
        return replace(self, is_adjoint=not self.is_adjoint)


@dataclass(frozen=True, slots=True)
class OfType:
    """The sharding that a type says (axes of type Explicit), where types say it and where XLA chooses.

    Attributes:
        mesh: JAX's abstract mesh, as in the type.
        spec: how each dimension is spread over it.
        batches: how many batch dimensions are in front.
    """

    mesh: Any
    spec: Any
    batches: int = 0

    @property
    def meshes(self) -> tuple[Any, ...]:
        return ()

    def __call__(self, x: Any) -> Any:
        function = self._placed
        for _ in range(self.batches):
            function = jax.vmap(function)
        return function(x)

    def _placed(self, x: Any) -> Any:
        mesh = jax.typeof(x).sharding.mesh
        if mesh.explicit_axes:
            return _reshard(x, jax.sharding.NamedSharding(mesh, self.spec))
        mesh = mesh if not mesh.empty else with_auto_axes(self.mesh)
        return _constrain(x, jax.sharding.NamedSharding(mesh, open_spec(self.mesh, self.spec)))

    def batched(self) -> OfType:
        return replace(self, batches=self.batches + 1)

    def adjoint(self) -> OfType:
        return self


@dataclass(frozen=True, slots=True)
class Constrained:
    """A sharding that a call of `jax.jit` gives to an argument or result.

    Attributes:
        sharding: JAX's.
        batches: how many batch dimensions are in front.
    """

    sharding: Any
    batches: int = 0

    @property
    def meshes(self) -> tuple[Any, ...]:
        return meshes_named(self.sharding)

    def __call__(self, x: Any) -> Any:
        function: Any = lambda one: _constrain(one, self.sharding)  # noqa: E731
        for _ in range(self.batches):
            function = jax.vmap(function)
        return function(x)

    def batched(self) -> Constrained:
        return replace(self, batches=self.batches + 1)

    def adjoint(self) -> Constrained:
        return self


def meshes_named(sharding: Any) -> tuple[Any, ...]:
    """The meshes of devices that a sharding names: not those that have none."""
    mesh = sharding.mesh if isinstance(sharding, jax.sharding.NamedSharding) else None
    return (mesh,) if isinstance(mesh, jax.sharding.Mesh) else ()


def open_spec(mesh: Any, spec: Any) -> Any:
    """How types spread dimensions; those open of which they say nothing, if there are axes that types never name."""
    return (
        _partition(*[_partition.UNCONSTRAINED if entry is None else entry for entry in spec])
        if mesh.auto_axes
        else spec
    )
