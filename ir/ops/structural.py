"""Ops that compute nothing: literals, names, identities with a meaning for differentiation or for XLA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import check_arity
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing, along_leading, everywhere
from rematc.ir.types import TensorType, dtype_of_numpy
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value

NO_OPERANDS = "does not exist: the op has no operands"


@register
@dataclass(frozen=True, slots=True)
class Constant(Op):
    """A literal array, row-major bytes.

    Attributes:
        type: type of the array.
        data: its elements in row-major order, little endian, as NumPy stores `type.dtype.numpy`.
    """

    name = "constant"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    type: TensorType
    data: bytes
    no_jvp = NO_OPERANDS
    no_transpose = NO_OPERANDS
    no_vmap = NO_OPERANDS

    @staticmethod
    def of(array: Array) -> Constant:
        """The constant that holds `array`. Raises TypeMismatchError where StableHLO has no such element type."""
        dtype = dtype_of_numpy(array.dtype)
        if dtype is None:
            raise TypeMismatchError(f"arrays of NumPy dtype {array.dtype} cannot be compiled")
        return Constant(TensorType(dtype, array.shape), array.tobytes())

    @property
    def array(self) -> Array:
        return np.frombuffer(self.data, self.type.dtype.numpy).reshape(self.type.shape)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 0)
        return (self.type,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (self.array,)


@register
@dataclass(frozen=True, slots=True)
class Iota(Op):
    """0, 1, 2, ... along one dimension of an array of `type`."""

    name = "iota"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    type: TensorType
    dimension: int
    no_jvp = NO_OPERANDS
    no_transpose = NO_OPERANDS
    no_vmap = NO_OPERANDS

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 0)
        if not 0 <= self.dimension < self.type.rank:
            raise TypeMismatchError(f"'iota' along dimension {self.dimension} of {self.type}")
        return (self.type,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        shape = [1] * self.type.rank
        shape[self.dimension] = -1
        steps = np.arange(self.type.shape[self.dimension]).astype(self.type.dtype.numpy).reshape(shape)
        return (np.broadcast_to(steps, self.type.shape).copy(),)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(self.type.rank, operands, results)

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        (cut,) = part.slicing.results
        type = self.type.with_shape(part.cut(self.type.shape, cut))
        if cut != self.dimension:
            return b.emit(Iota(type, self.dimension))
        counted = b.iota(type.with_dtype(part.index.type.dtype), self.dimension)  # narrow numbers may be rounded
        first = b.multiply(part.index, b.full(part.index.type, type.shape[self.dimension]))
        return (b.convert(b.add(counted, b.broadcast_in_dim(first, type.shape, ())), type.dtype),)


class Identity(Op):
    """Family base: one operand, the result is the operand."""

    __slots__ = ()
    storage = Storage.ALIAS
    weight = Weight.LIGHT
    is_identity = True

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        return (operands[0],)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (operands[0],)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (tangents[0],)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return everywhere(operands, results)


@register
@dataclass(frozen=True, slots=True)
class Name(Identity):
    """The operand under a name that policies see (`checkpoint_name`). The tangent goes through unnamed."""

    name = "name"
    label: str

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        """Where a rule of the user's names a tangent; the cotangent goes through unnamed."""
        return (cts[0],)


@register
@dataclass(frozen=True, slots=True)
class StopGradient(Identity):
    """The operand; its tangent is a symbolic zero."""

    name = "stop_gradient"
    no_transpose = "does not exist: the op has no tangent"

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None,)


@register
@dataclass(frozen=True, slots=True)
class OptimizationBarrier(Op):
    """The operands, all of them computed before any result is used; XLA merges and moves nothing across.

    Attributes:
        is_plannable: whether a plan for a budget may leave it out where it only keeps recomputation apart, as in a
            module that another frontend wrote.
    """

    name = "optimization_barrier"
    is_plannable: bool = False
    is_identity = True
    is_mergeable = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        return tuple(operands)

    def overwrites(self, result: int) -> int | None:
        return result

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(operands)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return _through_barrier(b, tangents)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return _through_barrier(b, cts)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(self, *batch.operands)


def _through_barrier(b: Emitter, values: Tangents) -> Derivatives:
    present = [value for value in values if value is not None]
    passed = iter(b.emit(OptimizationBarrier(), *present))
    return tuple([None if value is None else next(passed) for value in values])


@register
@dataclass(frozen=True, slots=True)
class ToMemory(Identity):
    """The operand, copied to the host's memory or back to the device's (offloaded residuals)."""

    name = "to_memory"
    storage = Storage.WRITTEN
    weight = Weight.HEAVY
    on_host: bool

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        return (TensorType(operands[0].dtype, operands[0].shape, self.on_host),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(ToMemory(not self.on_host), cts[0]),)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        """None: what is moved to the host is not cut."""
        return ()
