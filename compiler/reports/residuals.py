"""What crosses from the forward to the backward graph, in the user's terms."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rematc.compiler.tracing import trace
from rematc.ir.core import Graph
from rematc.ir.locations import Location, relative
from rematc.ir.ops.structural import Name
from rematc.ir.policy import CROSSING, Policy
from rematc.ir.types import TensorType
from rematc.ir.units import format_bytes
from rematc.passes.crossing import Crossings
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.saving import Residual


@dataclass(frozen=True, slots=True)
class SavedResidual:
    """One residual, as reports show it.

    Attributes:
        type: element type and shape.
        provenance: where it comes from: `output of dot_general from model.py:41 (attention)`, and of how many steps
            where it is stacked in a loop.
        is_argument: whether it is an argument of the function, which costs no copy.
        label: its `checkpoint_name`, if any.
        loc: the user's line that computes it; None for an argument.
        crosses: whether it is saved only because it crosses from one segment of a policy's schedule, or one step of a
            loop, to the next: not the policy asks for it, but the next segment begins with it.
        part: of what is spread over devices, what one of them holds.
    """

    type: TensorType
    provenance: str
    is_argument: bool
    label: str | None
    loc: Location | None
    crosses: bool = False
    part: TensorType | None = None

    @property
    def bytes(self) -> int:
        """Size in bytes, on each device; an argument counts too, though it is no copy."""
        return (self.part or self.type).bytes

    @property
    def on_host(self) -> bool:
        """Whether it waits in the host's memory, and takes none of the device's."""
        return self.type.on_host

    def __str__(self) -> str:
        reason = ", crosses between segments or is in the last one" if self.crosses else ""
        return f"{self.type} {self.provenance}{reason}"


def describe_residual(
    residual: Residual, forward: Graph, crossings: Crossings, shards: Shards = WHOLE
) -> SavedResidual:
    """A residual of `forward` in the user's terms."""
    value = residual.value
    part = shards.type(value) if any(shards.axes(value)) else None
    if residual.param is not None:
        match forward.params[residual.param].name:
            case None:
                provenance = "from a value of the function around it"
            case trace.CONSTANT:
                provenance = "from a constant"
            case name:
                provenance = f"from the argument {name}"
        return SavedResidual(value.type, provenance, True, None, None, part=part)
    source, label = residual.source, residual.label
    assert source is not None, "a residual is a parameter or the result of an equation"
    if label == CROSSING or source.op == Name(CROSSING):
        label, source = None, crossings.computed(value).eqn or source
    place = describe_place(source.loc)
    what = f"named '{label}'" if label else f"output of {source.op.name}"
    steps = f", {residual.steps} steps" if residual.steps > 1 else ""
    crosses = crossings.crosses(value)
    return SavedResidual(value.type, f"{what}{place}{steps}", False, label, source.loc, crosses, part)


def describe_residuals(
    residuals: Sequence[Residual], forward: Graph, policy: Policy | None = None, shards: Shards = WHOLE
) -> list[SavedResidual]:
    """All residuals, in the order in which they cross: arguments first.

    `policy` is that on the whole function, `shards` how its values are spread over devices.
    """
    crossings = Crossings(forward, policy)
    return [describe_residual(residual, forward, crossings, shards) for residual in residuals]


def describe_place(loc: Location | None) -> str:
    """` from model.py:41 (attention)`, or "" for None; the file is relative to the working directory if it is below."""
    if loc is None:
        return ""
    return f" from {Location(relative(loc.file), loc.line, loc.column, loc.function).describe()}"


def size_of(rows: Sequence[SavedResidual]) -> str:
    """What values take together on the device, and beside it what is on the host."""
    device, host = [sum(row.bytes for row in rows if row.on_host is is_set) for is_set in (False, True)]
    where = on_each_device(any(row.part for row in rows))
    return format_bytes(device) + (f" and {format_bytes(host)} in the host's memory" if host else "") + where


def on_each_device(is_spread: bool) -> str:
    """What stands behind a size of what is spread over devices."""
    return " on each device" if is_spread else ""


def log_residuals(name: str, residuals: Sequence[Residual], forward: Graph, policy: Policy | None = None) -> None:
    """Log what a differentiated function saves, if somebody listens to `rematc.residuals` at level INFO."""
    logger = logging.getLogger("rematc.residuals")
    if not logger.isEnabledFor(logging.INFO):
        return
    lines = [f"'{name}' saves for its backward pass:"]
    lines += [f"  {row}" for row in describe_residuals(residuals, forward, policy)]
    logger.info("\n".join(lines))
