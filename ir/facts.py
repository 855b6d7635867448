"""What ops say of themselves, for passes, policies and memory models to read."""

from __future__ import annotations

import enum


class Effect(enum.IntEnum):
    """What applying an op, or a graph, does besides giving results."""

    #: Nothing: it may be left out, merged with its like, or repeated.
    NONE = 0
    #: Something that the user sees: it is applied exactly as often as the program says, in any order.
    UNORDERED = 1
    #: The same, in the program's order.
    ORDERED = 2


class Storage(enum.Enum):
    """Where the results of an op are while the program runs, as far as the op says."""

    #: In the operand's memory: the same value under another name.
    ALIAS = enum.auto()
    #: In the operand's memory: its bytes in another shape.
    BITCAST = enum.auto()
    #: Nowhere: what reads an element computes it.
    FUSED = enum.auto()
    #: Nowhere, if it is read in one place; else in memory, since its code branches and is not wanted twice.
    FUSED_ONCE = enum.auto()
    #: In memory.
    WRITTEN = enum.auto()


class Weight(enum.IntEnum):
    """How much work an element of a result is."""

    #: An instruction or a few, which round in one way only: less than to write the element and to read it again.
    LIGHT = 0
    #: More than that.
    MODERATE = 1
    #: So much that it is not done twice to save memory: a quotient, a root, a transcendental function, a sum.
    HEAVY = 2
