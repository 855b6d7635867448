"""Collectives over the devices of a mesh: what stands inside of `shard_map`, where types are those of one device.

Types do not say along which axes of the mesh a value may differ from device to device; the ops do. `device_vary` is
where a value that is the same on all devices meets those that are not, and a sum is over values that differ. So both
are each other's transposes (`shard_map` with its checks). Without the checks nobody knows what differs: there the
transpose of a sum is a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, JvpContext, Op, TransposeContext, VmapContext
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import NOT_LINEAR, NUMBERS, ORDERED, check_arity, check_kind
from rematc.ir.ops.structural import Identity
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, everywhere
from rematc.ir.types import Kind, TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value


class DeviceCollective(Op):
    """Family base of ops that devices compute together.

    Attributes:
        over: the names of the mesh's axes.
        sizes: how many devices there are along each.
    """

    __slots__ = ()
    weight = Weight.HEAVY
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind)
    over: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(self.over)

    @property
    def count(self) -> int:
        """How many devices compute together."""
        return math.prod(self.sizes)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        check_kind(self, operands[0], self.kinds)
        return (operands[0],)

    def sent(self, given: int) -> int:
        """Bytes that each device sends, in a ring, for an operand of so many: all but its own part, once."""
        return given * (self.count - 1) // self.count

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        if b.axis is not None and b.axis in self.over:
            raise CompileError(
                f"'{self.name}' is over the devices along '{b.axis}', which here is the name of a batch dimension"
            )
        return self.beside(b, batch)

    def beside(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        """The op on a batch, whose dimension is the first."""
        return batch_alike(self, b, batch)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise CompileError(f"'{self.name}' has a value only inside shard_map, over the axes {', '.join(self.over)}")


class PlacewiseCollective(DeviceCollective):
    """Family base of those that combine at each place alone what devices have there."""

    __slots__ = ()

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return everywhere(operands, results)


class LinearCollective(DeviceCollective):
    """Family base of those that are linear."""

    __slots__ = ()

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(self.adjoint(), cts[0]),)

    def adjoint(self) -> Op:
        """The op on cotangents."""
        raise NotImplementedError


@register
@dataclass(frozen=True, slots=True)
class DeviceSum(PlacewiseCollective, LinearCollective):
    """The sum over devices; each gets it.

    Attributes:
        is_checked: whether the operand is known to differ from device to device, as with the checks of `shard_map`.
    """

    name = "device_sum"
    over: tuple[str, ...]
    sizes: tuple[int, ...]
    is_checked: bool = True
    kinds = NUMBERS

    def sent(self, given: int) -> int:
        """Parts of the sum go round, then the sum."""
        return 2 * DeviceCollective.sent(self, given)

    def adjoint(self) -> Op:
        return DeviceVary(self.over, self.sizes) if self.is_checked else self


@register
@dataclass(frozen=True, slots=True)
class DeviceVary(Identity):
    """The operand, which is the same on all devices along some axes, as a value that may differ.

    Attributes:
        over: the names of the mesh's axes.
        sizes: how many devices there are along each.
    """

    name = "device_vary"
    #: No alias: to a derivative the two are not alike, as cotangents of the result are added up over devices.
    storage = Storage.BITCAST
    over: tuple[str, ...]
    sizes: tuple[int, ...]

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(DeviceSum(self.over, self.sizes), cts[0]),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)


@register
@dataclass(frozen=True, slots=True)
class DeviceGather(LinearCollective):
    """The operands of all devices; each gets all.

    Attributes:
        dimension: along which dimension they come.
        is_tiled: whether they are joined along one that there is, instead of stacked along a new one.
    """

    name = "device_gather"
    over: tuple[str, ...]
    sizes: tuple[int, ...]
    dimension: int = 0
    is_tiled: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        (x,) = DeviceCollective.infer(self, operands)
        if not 0 <= self.dimension < x.rank + (not self.is_tiled):
            raise TypeMismatchError(f"'{self.name}' of {x} has no dimension {self.dimension}")
        before, after = x.shape[: self.dimension], x.shape[self.dimension :]
        if self.is_tiled:
            return (x.with_shape((*before, after[0] * self.count, *after[1:])),)
        return (x.with_shape((*before, self.count, *after)),)

    def sent(self, given: int) -> int:
        """The operands of all others go by."""
        return given * (self.count - 1)

    def adjoint(self) -> Op:
        return DeviceScatter(self.over, self.sizes, self.dimension, self.is_tiled)

    def beside(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(replace(self, dimension=self.dimension + 1), *batch.all_batched(b))


@register
@dataclass(frozen=True, slots=True)
class DeviceScatter(LinearCollective):
    """The sum over devices, cut along one dimension; each gets its part.

    Attributes:
        dimension: which one.
        is_tiled: whether a part keeps the dimension; else there is one index for each device, and no dimension left.
    """

    name = "device_scatter"
    over: tuple[str, ...]
    sizes: tuple[int, ...]
    dimension: int = 0
    is_tiled: bool = False
    kinds = NUMBERS

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        (x,) = DeviceCollective.infer(self, operands)
        if not 0 <= self.dimension < x.rank:
            raise TypeMismatchError(f"'{self.name}' of {x} has no dimension {self.dimension}")
        size = x.shape[self.dimension]
        if size % self.count or not (self.is_tiled or size == self.count):
            raise TypeMismatchError(f"'{self.name}' cannot cut dimension {self.dimension} of {x} for {self.count}")
        kept = (size // self.count,) if self.is_tiled else ()
        return (x.with_shape((*x.shape[: self.dimension], *kept, *x.shape[self.dimension + 1 :])),)

    def adjoint(self) -> Op:
        return DeviceGather(self.over, self.sizes, self.dimension, self.is_tiled)

    def beside(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(replace(self, dimension=self.dimension + 1), *batch.all_batched(b))


@register
@dataclass(frozen=True, slots=True)
class DeviceExchange(LinearCollective):
    """Parts of the operands, one for each device; each joins what it gets (all to all).

    Attributes:
        cut: along which dimension operands are cut.
        joined: along which dimension the parts are joined.
    """

    name = "device_exchange"
    over: tuple[str, ...]
    sizes: tuple[int, ...]
    cut: int
    joined: int

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        (x,) = DeviceCollective.infer(self, operands)
        if not (0 <= self.cut < x.rank and 0 <= self.joined < x.rank) or x.shape[self.cut] % self.count:
            raise TypeMismatchError(
                f"'{self.name}' cannot cut {x} for {self.count} along {self.cut} and join it along {self.joined}"
            )
        shape = list(x.shape)
        shape[self.cut] //= self.count
        shape[self.joined] *= self.count
        return (x.with_shape(tuple(shape)),)

    def adjoint(self) -> Op:
        return replace(self, cut=self.joined, joined=self.cut)

    def beside(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(replace(self, cut=self.cut + 1, joined=self.joined + 1), *batch.all_batched(b))


@register
@dataclass(frozen=True, slots=True)
class DevicePermute(LinearCollective):
    """The operand of another device; zeros for devices to which none sends.

    Attributes:
        pairs: (from, to), by the devices' numbers along the axes.
    """

    name = "device_permute"
    over: tuple[str, ...]
    sizes: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]

    def sent(self, given: int) -> int:
        return given

    def adjoint(self) -> Op:
        return replace(self, pairs=tuple([(target, source) for source, target in self.pairs]))


@register
@dataclass(frozen=True, slots=True)
class DeviceExtremum(PlacewiseCollective):
    """The maximum, or the minimum, over devices; each gets it. It has no derivative, as in JAX.

    Attributes:
        is_max: which of both.
    """

    name = "device_extremum"
    over: tuple[str, ...]
    sizes: tuple[int, ...]
    is_max: bool
    no_jvp: ClassVar[str] = (
        "does not exist, as in JAX: the extremum over devices in shard_map; hide its operand with stop_gradient"
    )
    no_transpose: ClassVar[str] = NOT_LINEAR
    kinds = ORDERED

    def sent(self, given: int) -> int:
        return 2 * DeviceCollective.sent(self, given)
