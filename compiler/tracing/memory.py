"""Which traced arrays share memory in NumPy: arrays, their views, and what may be a view or a copy.

Nothing of it is recorded in the graph until somebody writes into one of the arrays. Then the whole array gets a new
value, and the others find, when they are read next, that theirs is old.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.values import Value


class Step(Protocol):
    """A view of an array: how its elements are found in the array, and put back."""

    def read(self, whole: Value) -> Value:
        """The view's elements."""

    def write(self, whole: Value, part: Value) -> Value:
        """The array with `part` for the view's elements. Raises CompileError where NumPy's view cannot be written."""


class Memory:
    """The memory of one array.

    Attributes:
        owner: the trace of the array.
        value: the array's value, after all that has been written.
        version: how often it has been written.
        written: where an array was written that may be this one: it is not known whether this one has changed.
    """

    __slots__ = ("_perhaps_same", "owner", "value", "version", "written")

    def __init__(self, owner: object, value: Value) -> None:
        self.owner = owner
        self.value = value
        self.version = 0
        self.written: Location | None = None
        self._perhaps_same: list[Memory] = []

    def may_be(self, other: Memory) -> None:
        """Note that NumPy may have one memory for both: what is written into one is then unknown in the other."""
        self._perhaps_same.append(other)
        other._perhaps_same.append(self)

    def put(self, value: Value) -> None:
        """Write: the array's new value."""
        self.value = value
        self.version += 1
        if self._perhaps_same:
            self._unsettle(user_location())

    def _unsettle(self, loc: Location | None) -> None:
        reached, waiting = {id(self)}, list(self._perhaps_same)
        while waiting:
            memory = waiting.pop()
            if id(memory) not in reached:
                reached.add(id(memory))
                memory.version += 1
                memory.written = loc or Location("<unknown>", 1, 0)
                waiting.extend(memory._perhaps_same)


class Place:
    """Where an array lies: in a memory, as a view of a view of its whole.

    Attributes:
        memory: what it lies in.
        parent: of which array it is a view; None for the whole.
        step: the view.
        version: that of the memory when the array's value was read.
        is_dense: whether it is known that the elements lie one after the other in C order.
    """

    __slots__ = ("is_dense", "memory", "parent", "step", "version")

    def __init__(
        self, memory: Memory, parent: Place | None = None, step: Step | None = None, is_dense: bool = False
    ) -> None:
        self.memory = memory
        self.parent = parent
        self.step = step
        self.version = memory.version
        self.is_dense = is_dense

    def read(self) -> Value:
        """The value as it is now, recorded in the innermost open trace."""
        memory = self.memory
        if memory.written is not None:
            reader = user_location()
            raise CompileError(
                "this array is written in place, and it is not known whether another array changes with it that is "
                f"read afterwards{f' at {reader.describe()}' if reader else ''}: NumPy makes one from the other as a "
                "view or as a copy, by the order of the arguments in memory (np.reshape, np.ravel); write into a "
                "copy (x.copy()), or take the view of one, which is in C order: y = x.copy(); y.reshape(...)",
                memory.written,
            )
        value = memory.value
        for step in self._steps():
            value = step.read(value)
        return value

    def write(self, part: Value) -> None:
        """Put new elements into the whole array."""
        wholes, steps = [self.memory.value], self._steps()
        for step in steps[:-1]:
            wholes.append(step.read(wholes[-1]))
        for whole, step in zip(reversed(wholes), reversed(steps), strict=False):
            part = step.write(whole, part)
        self.memory.put(part)
        self.version = self.memory.version

    def _steps(self) -> list[Step]:
        return list(self._upwards())[::-1]

    def _upwards(self) -> Iterator[Step]:
        place: Place | None = self
        while place is not None and place.step is not None:
            yield place.step
            place = place.parent
