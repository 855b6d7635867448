"""The registry: ops by their names."""

from __future__ import annotations

from typing import TypeVar

from rematc.ir.core import Op

OPS: dict[str, type[Op]] = {}
_O = TypeVar("_O", bound=type[Op])


def register(op: _O) -> _O:
    """Class decorator: enter the op in the registry under its name."""
    if op.name in OPS:
        raise ValueError(f"two ops are named '{op.name}'")
    OPS[op.name] = op
    return op
