"""What each device of a mesh computes of its part, which JAX's `shard_map` says.

    %0: f32[2,16] = full_to_shard %x {spec=[["d"],[]], ...}     one device's rows of f32[8,16], from here on by itself
    %1: f32[2,16] = tanh %0
    %2: f32[8,16] = shard_to_full %1 {spec=[["d"],[]], ...}     the array that all rows together are

Between the two, values are those of one device: a graph has them beside whole ones, so that passes differentiate, plan
and merge across the borders. What lies between is gathered in a `manual_computation`, as Shardy calls it, only where a
program is written. A `device_map` is the frontend's own equation in the place of all that: derivatives and batches are
the frontend's. (OpenXLA Shardy, "Manual computation"; XLA's `SPMDFullToShardShape` and `SPMDShardToFullShape`.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from rematc.ir.batches import Batch
from rematc.ir.core import Graph, JvpContext, Op, TransposeContext, VmapContext
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.host_functions import UNWRITTEN
from rematc.ir.ops.devices import DeviceSum
from rematc.ir.ops.elementwise import check_arity
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value

#: For each dimension of an array the axes of the mesh along which it is cut.
Spec = tuple[tuple[str, ...], ...]

_RULE = "does not exist: it stands inside of a custom_jvp, whose rule the frontend wrote"
_WRITTEN = "does not exist: it is made where a program is written"


class Mapping(Protocol):
    """How the frontend that a `device_map` comes from applies it. Two are equal if they do the same."""

    @property
    def meshes(self) -> tuple[Any, ...]:
        """The frontend's meshes of devices that it names."""
        ...

    def __call__(self, *operands: Any) -> Sequence[Any]:
        """Apply it to values of the frontend's."""
        ...

    def batched(self) -> Mapping:
        """The same for each element of a batch, along a new first dimension of all operands and results."""
        ...


class Devices(Protocol):
    """A frontend's mesh of devices. Two are equal if they are the same devices in the same places."""

    @property
    def meshes(self) -> tuple[Any, ...]:
        """The frontend's mesh, if it names devices."""
        ...

    def __call__(self, function: Any, manual: Sequence[str], operands: Sequence[Spec], results: Sequence[Spec]) -> Any:
        """A function of whole arrays of the frontend's that applies `function` to what each device has of them."""
        ...


@dataclass(frozen=True, slots=True)
class Manual:
    """Where values are those of one device.

    Attributes:
        axes: the names of the mesh's axes.
        sizes: how many devices there are along each.
        manual: the axes along which devices compute by themselves; along the others XLA spreads values.
        is_checked: whether it is known which values differ from device to device, as with the checks of `shard_map`.
        source: the frontend's mesh; None for what was read from text.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    manual: tuple[str, ...]
    is_checked: bool
    source: Devices | None

    def size(self, axes: Sequence[str]) -> int:
        """How many devices there are along some axes."""
        return math.prod([self.sizes[self.axes.index(axis)] for axis in axes])


class Border(Op):
    """Family base of what leads from whole arrays to what one device has of them, and back.

    Attributes:
        spec: for each dimension the axes along which it is cut.
        axes_of_mesh: the names of the mesh's axes.
        sizes: how many devices there are along each.
        manual: the axes along which devices compute by themselves.
        is_checked: whether it is known which values differ from device to device.
        source: the frontend's mesh; None for what was read from text.
    """

    __slots__ = ()
    storage = Storage.BITCAST
    weight = Weight.LIGHT
    spec: Spec
    axes_of_mesh: tuple[str, ...]
    sizes: tuple[int, ...]
    manual: tuple[str, ...]
    is_checked: bool
    source: Devices | None

    @property
    def where(self) -> Manual:
        """Where the values of one device are."""
        return Manual(self.axes_of_mesh, self.sizes, self.manual, self.is_checked, self.source)

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The axes along which devices compute by themselves and nothing is cut: each has all of it."""
        return tuple([axis for axis in self.manual if not any(axis in row for row in self.spec)])

    def counts(self, x: TensorType) -> list[int]:
        """Into how many parts each dimension of an operand is cut. Raises TypeMismatchError if it has others."""
        if len(self.spec) != x.rank:
            raise TypeMismatchError(f"'{self.name}' cuts {len(self.spec)} dimensions, its operand is {x}")
        return [self.where.size(row) for row in self.spec]

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise CompileError(f"'{self.name}' has a value only on the devices of its mesh")

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return b.emit(replace(self, spec=((), *self.spec)), *batch.all_batched(b))  # type: ignore[type-var]  # a dataclass


@register
@dataclass(frozen=True, slots=True)
class FullToShard(Border):
    """What one device has of a whole array: the operand, cut. Linear."""

    name = "full_to_shard"
    spec: Spec
    axes_of_mesh: tuple[str, ...]
    sizes: tuple[int, ...]
    manual: tuple[str, ...]
    is_checked: bool = True
    source: Devices | None = field(default=None, metadata=UNWRITTEN)

    @classmethod
    def at(cls, where: Manual, spec: Spec) -> FullToShard:
        """The one for a place and a spec."""
        return cls(spec, where.axes, where.sizes, where.manual, where.is_checked, where.source)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        counts = self.counts(x)
        if any(size % count for size, count in zip(x.shape, counts, strict=True)):
            raise TypeMismatchError(f"'{self.name}' cannot cut {x} into {counts} parts")
        return (x.with_shape(tuple([size // count for size, count in zip(x.shape, counts, strict=True)])),)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        """The cotangents of all devices; where nobody knows whether they differ, those of what each has added up."""
        (ct,) = cts
        if ct is None:
            return (None,)
        if not self.is_checked and self.unnamed:
            ct = b.emit1(DeviceSum(self.unnamed, _sizes(self, self.unnamed), False), ct)
        return (b.emit1(ShardToFull.at(self.where, self.spec), ct),)


@register
@dataclass(frozen=True, slots=True)
class ShardToFull(Border):
    """The whole array that what all devices have is, put together. Linear.

    Along axes that it is not cut by, all devices have the same.
    """

    name = "shard_to_full"
    spec: Spec
    axes_of_mesh: tuple[str, ...]
    sizes: tuple[int, ...]
    manual: tuple[str, ...]
    is_checked: bool = True
    source: Devices | None = field(default=None, metadata=UNWRITTEN)

    @classmethod
    def at(cls, where: Manual, spec: Spec) -> ShardToFull:
        """The one for a place and a spec."""
        return cls(spec, where.axes, where.sizes, where.manual, where.is_checked, where.source)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        return (x.with_shape(tuple([size * count for size, count in zip(x.shape, self.counts(x), strict=True)])),)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        """What each device has of the cotangent; of what all have alike its share, where nobody knows that it is."""
        (ct,) = cts
        if ct is None:
            return (None,)
        ct = b.emit1(FullToShard.at(self.where, self.spec), ct)
        if not self.is_checked and self.unnamed:
            ct = b.divide(ct, b.full(ct.type, self.where.size(self.unnamed)))
        return (ct,)


def _sizes(op: Border, axes: Sequence[str]) -> tuple[int, ...]:
    return tuple([op.where.size((axis,)) for axis in axes])


@register
@dataclass(frozen=True, slots=True)
class ManualComputation(Op):
    """What each device computes of its parts of the operands: what lies between borders, where a program is written.

    Attributes:
        body: of one device's parts.
        operands: how each operand is cut.
        results: how each result is put together.
        axes_of_mesh: the names of the mesh's axes.
        sizes: how many devices there are along each.
        manual: the axes along which devices compute by themselves.
        source: the frontend's mesh; None for what was read from text.
    """

    name = "manual_computation"
    body: Graph
    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]
    axes_of_mesh: tuple[str, ...]
    sizes: tuple[int, ...]
    manual: tuple[str, ...]
    source: Devices | None = field(default=None, metadata=UNWRITTEN)
    no_jvp: ClassVar[str] = _WRITTEN
    no_transpose: ClassVar[str] = _WRITTEN
    no_vmap: ClassVar[str] = _WRITTEN

    @property
    def devices(self) -> int:
        """How many devices the mesh has."""
        return math.prod(self.sizes)

    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)

    @property
    def axes(self) -> frozenset[str]:
        return self.body.axes - frozenset(self.manual)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        place = Manual(self.axes_of_mesh, self.sizes, self.manual, False, self.source)
        pairs = zip(operands, self.operands, strict=True)
        found = tuple([FullToShard.at(place, spec).infer((type,))[0] for type, spec in pairs])
        if found != self.body.param_types:
            raise TypeMismatchError(f"'{self.name}' gives its body {found}, which takes {self.body.param_types}")
        pairs = zip(self.body.result_types, self.results, strict=True)
        return tuple([ShardToFull.at(place, spec).infer((type,))[0] for type, spec in pairs])

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise CompileError(f"'{self.name}' has a value only on the devices of its mesh")


@register
@dataclass(frozen=True, slots=True)
class DeviceMap(Op):
    """What the devices of a mesh compute, each of its part of the operands, put together.

    Attributes:
        label: what the frontend calls the function.
        types: of the results, whole.
        devices: how many devices the mesh has.
        source: how the frontend applies it; None for what was read from text.
    """

    name = "device_map"
    is_opaque = True
    label: str
    types: tuple[TensorType, ...]
    devices: int
    source: Mapping | None = field(default=None, metadata=UNWRITTEN)
    no_jvp: ClassVar[str] = _RULE
    no_transpose: ClassVar[str] = _RULE

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        return self.types

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise CompileError(f"'{self.name}' of '{self.label}' has a value only on the devices of its mesh")

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        types = tuple([type.with_shape((batch.size, *type.shape)) for type in self.types])
        source = None if self.source is None else self.source.batched()
        return b.emit(replace(self, types=types, source=source), *batch.all_batched(b))
