"""What a rematerialization policy answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Save:
    """The value may be a residual."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """The value is computed again in the backward graph."""


@dataclass(frozen=True, slots=True)
class Offload:
    """The value may be a residual, kept in another memory until the backward graph needs it.

    Attributes:
        src: memory it is computed in, "device".
        dst: memory it waits in, "pinned_host".
    """

    src: str = "device"
    dst: str = "pinned_host"


Decision = Save | Recompute | Offload
SAVE = Save()
RECOMPUTE = Recompute()
