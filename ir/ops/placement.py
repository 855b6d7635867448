"""Where a value lies, over devices, in memories and in its layout: `placement`.

JAX's `with_sharding_constraint`, `reshard`, `device_put` and `with_layout_constraint` come in as it, and Shardy's
`sdy.sharding_constraint`. What a value is does not depend on it, what a program takes does: it is never left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Graph
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.host_functions import UNWRITTEN
from rematc.ir.ops.mapped import Border, DeviceMap, ManualComputation
from rematc.ir.ops.structural import Identity
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing
from rematc.ir.traversal import all_equations
from rematc.ir.types import TensorType
from rematc.ir.values import Derivatives, Operands, Primals, Tangents, Types, Value

#: What says of a dimension that it may be spread as the compiler likes.
OPEN = "{?}"
_AXIS = re.compile(r'"([^"]+)"(?:=(\d+))?')


class Placing(Protocol):
    """How the frontend that a placement comes from applies it. Two are equal if they place alike."""

    @property
    def meshes(self) -> tuple[Any, ...]:
        """The frontend's meshes of devices that it names."""
        ...

    def __call__(self, x: Any) -> Any:
        """Place a value of the frontend's."""
        ...

    def batched(self) -> Placing:
        """The same for each element of a batch, along a new first dimension."""
        ...

    def adjoint(self) -> Placing:
        """How cotangents are placed."""
        ...


@register
@dataclass(frozen=True, slots=True)
class Placement(Identity):
    """The operand, placed as somebody said. Tangents are placed alike, and so is what is computed again.

    Attributes:
        what: who said it, as errors call it: sharding_constraint, device_put.
        mesh: the devices, as Shardy spells them: `<["x"=2, "y"=2]>`; empty for what StableHLO has no text for.
        dimensions: over which of the mesh's axes each dimension is spread, as Shardy spells it: `{"x"}`, `{}`, `{?}`.
        source: how the frontend places a value; None for what was read from text.
    """

    name = "placement"
    storage = Storage.FUSED
    weight = Weight.HEAVY
    what: str
    mesh: str = ""
    dimensions: tuple[str, ...] = ()
    source: Placing | None = field(default=None, metadata=UNWRITTEN)

    @property
    def devices(self) -> int:
        """How many devices the mesh has."""
        return math.prod(self.sizes.values())

    @property
    def sizes(self) -> dict[str, int]:
        """How many devices there are along each axis of the mesh."""
        return {name: int(size) for name, size in _AXIS.findall(self.mesh)}

    @property
    def spread(self) -> tuple[tuple[str, ...] | None, ...]:
        """For each dimension the axes along which it is spread; None where that is left to the compiler.

        None at all where StableHLO has no text for it.
        """
        rows = [tuple([name for name, _ in _AXIS.findall(dimension)]) for dimension in self.dimensions]
        return tuple([row if row or "?" not in text else None for row, text in zip(rows, self.dimensions, strict=True)])

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        (type,) = Identity.infer(self, operands)
        if self.mesh and len(self.dimensions) != type.rank:
            raise TypeMismatchError(
                f"'{self.name}' ({self.what}) spreads {len(self.dimensions)} dimensions, its operand is {type}"
            )
        return (type,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        if cts[0] is None:
            return (None,)
        op = self if self.source is None else replace(self, source=self.source.adjoint())
        return (b.emit1(op, cts[0]),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        dimensions = (OPEN, *self.dimensions) if self.mesh else ()
        source = None if self.source is None else self.source.batched()
        return b.emit(replace(self, dimensions=dimensions, source=source), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        """None: where a whole array lies says nothing of its parts."""
        return ()


_NAMING_DEVICES = (Placement, DeviceMap, Border, ManualComputation)


def placements_of(graph: Graph) -> Iterator[Placement | DeviceMap | Border | ManualComputation]:
    """The placements of a graph, those in regions included, and what else names devices."""
    if any(issubclass(cls, _NAMING_DEVICES) for cls in graph.op_types):
        yield from (eqn.op for eqn in all_equations(graph) if isinstance(eqn.op, _NAMING_DEVICES))


def has_placements(graph: Graph) -> bool:
    """Whether there are any."""
    return next(placements_of(graph), None) is not None


def meshes_of(graph: Graph) -> tuple[Any, ...]:
    """The frontend's meshes of devices that they name, each once."""
    sources = [op.source for op in placements_of(graph) if op.source is not None]
    return tuple(dict.fromkeys(mesh for source in sources for mesh in source.meshes))
