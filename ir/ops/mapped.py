"""A function that each device of a mesh computes of its part: `device_map`, which JAX's `shard_map` comes in as.

What devices compute, and what they tell each other, stands in the frontend's own equation: derivatives and batches are
the frontend's, of the whole equation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from rematc.ir.batches import Batch
from rematc.ir.core import Op, VmapContext
from rematc.ir.errors import CompileError
from rematc.ir.host_functions import UNWRITTEN
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Types, Value

_RULE = "does not exist: it stands inside of a custom_jvp, whose rule the frontend wrote"


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
