"""Attributes of MLIR operations as Python's values."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np

#: How near to the true value an operation's result must be.
ACCURACY = "result_accuracy"
#: Its modes that rules read, by operation, besides the default one.
_ACCURACIES = {"stablehlo.exponential": ("HIGHEST",)}
#: Attributes that any operation may have, and that place its results.
PLACING = ("sdy.sharding", "mhlo.sharding")
_CHOICE = re.compile(r"<(?:\w+ )?(\w+)>$")


class Attributes:
    """The attributes of one operation, by name.

    MLIR's bindings give an attribute for each name; what is left out has StableHLO's default, which is passed here.
    """

    def __init__(self, operation: Any) -> None:
        self._found = operation.attributes

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def raw(self, name: str) -> Any:
        """The attribute itself."""
        return self._found[name]

    def integer(self, name: str, default: int | None = None) -> int:
        if default is not None and name not in self._found:
            return default
        return int(self._found[name].value)

    def number(self, name: str) -> float:
        return float(self._found[name].value)

    def boolean(self, name: str, default: bool = False) -> bool:
        return bool(self._found[name].value) if name in self._found else default

    def text(self, name: str) -> str:
        return str(self._found[name].value)

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A dense array of integers, or an elements attribute of them."""
        if name not in self._found:
            return default
        attribute = self._found[name]
        if type(attribute).__name__.startswith("Dense") and hasattr(attribute, "is_splat"):
            return tuple([int(item) for item in np.array(attribute).reshape(-1)])
        return tuple([int(item) for item in attribute])

    def booleans(self, name: str, default: tuple[bool, ...]) -> tuple[bool, ...]:
        if name not in self._found:
            return default
        attribute = self._found[name]
        if hasattr(attribute, "is_splat"):
            return tuple([bool(item) for item in np.array(attribute).reshape(-1)])
        return tuple([bool(item) for item in attribute])

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """Padding before and after, for each of `count` dimensions; zeros where there is none."""
        if name not in self._found:
            return ((0, 0),) * count
        rows = np.array(self._found[name]).reshape(count, 2)
        return tuple([(int(low), int(high)) for low, high in rows])

    def choice(self, name: str, default: str = "") -> str:
        """The word of an enumeration: LT of `#stablehlo<comparison_direction LT>`."""
        if name not in self._found:
            return default
        return word(self._found[name])

    def choices(self, name: str) -> tuple[str, ...]:
        """The words of a list of them."""
        return tuple([word(item) for item in self._found[name]]) if name in self._found else ()

    def symbol(self, name: str) -> str:
        return str(self._found[name].value)


def word(attribute: Any) -> str:
    """The word of an enumeration's attribute."""
    found = _CHOICE.search(str(attribute))
    return found[1] if found else str(attribute)


def unread(operation: Any, read: Collection[str]) -> str | None:
    """An attribute, as `name = value`, of which no rule has heard: what it asks for would be lost. None without one.

    These are names with a dialect's prefix, which any operation may have, but for those that its rule has `read`, and
    an accuracy that is not the default one.
    """
    found, known = operation.attributes, {*PLACING, *read}
    for name in found:
        if name == ACCURACY:
            is_asked = not any(mode in str(found[name]) for mode in ("DEFAULT", *_ACCURACIES.get(operation.name, ())))
        else:
            is_asked = "." in name and name not in known
        if is_asked:
            return f"{name} = {found[name]}"
    return None
