"""Numbers for values of a module: the same number, the same value.

A number's definition is what it was interned by: opcode, shape, operands' numbers, and what else tells instructions
apart. Definitions are looked into for indices that count steps of loops, and for rows of what loops have stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.lowering.hlo.module import Shape

#: A value's number, or those of a tuple's parts.
Number = int | tuple["Number", ...]

_HANDS_ON = ("copy", "bitcast", "convert", "reshape", "bitcast-convert")


@dataclass(frozen=True, slots=True)
class Counter:
    """An entry of a loop's state that counts steps.

    Attributes:
        start: its value in the first step.
        step: what each step adds.
        trips: how many steps there are.
    """

    start: int
    step: int
    trips: int


@dataclass(frozen=True, slots=True)
class Index:
    """An integer that depends on counters of loops alone.

    Attributes:
        offset: its least value.
        sweeps: for each counter how far a step takes it, and how many steps there are. The direction is left out: a
            loop that goes backwards visits what another one visited forwards.
    """

    offset: int
    sweeps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Linear:
    """A constant, and multiples of how many steps loops have made, by the number of the loop's counter."""

    constant: int
    steps: dict[int, int]

    def plus(self, other: _Linear, factor: int) -> _Linear:
        steps = dict(self.steps)
        for counter, stride in other.steps.items():
            steps[counter] = steps.get(counter, 0) + factor * stride
        return _Linear(self.constant + factor * other.constant, steps)


@dataclass(frozen=True, slots=True)
class Stack:
    """What a loop has put together of one value of each step.

    Attributes:
        row: the value's number in the loop.
        shape: its shape, with a leading one.
        index: the place of a step's row.
    """

    row: int
    shape: Shape
    index: Index


class Numbers:
    """The table of numbers."""

    def __init__(self) -> None:
        self.counters: dict[int, Counter] = {}
        self.stacks: dict[int, Stack] = {}
        self._table: dict[object, int] = {}
        self._definitions: dict[int, tuple[object, ...]] = {}
        self._next = 0

    def fresh(self) -> int:
        """A number that nothing else has."""
        self._next += 1
        return self._next

    def interned(self, key: tuple[object, ...]) -> int:
        """The number of what this key defines."""
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = self.fresh()
            self._definitions[found] = key
        return found

    # Keys are (opcode, shape, operands, literal, attributes, bodies of what is called), as far as an opcode has them.

    def parts(self, number: Number) -> tuple[str, Shape, tuple[Number, ...]] | None:
        """Opcode, shape and operands of the instruction that a number stands for."""
        key = self._definitions.get(number) if isinstance(number, int) else None
        match key:
            case (str() as opcode, str() as shape, tuple() as operands, *_):
                return opcode, Shape.of(shape), operands
        return None

    def constant(self, number: Number) -> int | None:
        """The integer that a number stands for, if it is known."""
        found = self._linear(number, 0)
        return None if found is None or found.steps else found.constant

    def index(self, number: Number) -> Index | None:
        """A number as an index; None where it depends on something else than counters."""
        found = self._linear(number, 0)
        if found is None:
            return None
        offset, sweeps = found.constant, []
        for counter, stride in found.steps.items():
            trips = self.counters[counter].trips
            offset += min(stride * (trips - 1), 0)
            sweeps.append((abs(stride), trips))
        return Index(offset, tuple(sorted(sweep for sweep in sweeps if sweep[0] and sweep[1] > 1)))

    def _linear(self, number: Number, depth: int) -> _Linear | None:
        if not isinstance(number, int) or depth > 16:
            return None
        if counter := self.counters.get(number):
            return _Linear(counter.start, {number: counter.step})
        match self._definitions.get(number):
            case ("constant", _, _, str() as literal, *_):
                return _Linear(int(literal), {}) if literal.lstrip("-").isdigit() else None
            case ("add" | "subtract" as opcode, _, (int() as left, int() as right), *_):
                one, other = self._linear(left, depth + 1), self._linear(right, depth + 1)
                if one is None or other is None:
                    return None
                return one.plus(other, 1 if opcode == "add" else -1)
            case ("multiply", _, (int() as left, int() as right), *_):
                one, other = self._linear(left, depth + 1), self._linear(right, depth + 1)
                if one is None or other is None or (one.steps and other.steps):
                    return None
                scaled, factor = (one, other.constant) if one.steps else (other, one.constant)
                return _Linear(0, {}).plus(scaled, factor)
            case ("select", _, (int() as predicate, _, int() as right), *_) if self._is_never_negative(
                predicate, depth
            ):
                return self._linear(right, depth + 1)  # an index that would count from the end if it were negative
            case (str() as opcode, _, (int() as operand,), *_) if opcode in _HANDS_ON:
                return self._linear(operand, depth + 1)
        return None

    def _is_never_negative(self, predicate: Number, depth: int) -> bool:
        """Whether a predicate is `x < 0` of an index that is never negative."""
        match self._definitions.get(predicate) if isinstance(predicate, int) else None:
            case ("compare", _, (int() as left, int() as right), _, str() as attributes, *_) if (
                "direction=LT" in attributes
            ):
                index = self.index(left) if depth < 8 else None
                return self.constant(right) == 0 and index is not None and index.offset >= 0
        return False

    # -- moves of data that hand a value on ----------------------------------------------------------------------------

    def reshaped(self, operand: Number, shape: Shape) -> Number:
        """A value in another shape: two in a row are one, and one that leads back is none."""
        found = self.parts(operand)
        if found is not None and found[0] == "reshape":
            operand = found[2][0]
            found = self.parts(operand)
        if found is not None and found[1] == shape:
            return operand
        return self.interned(("reshape", str(shape), (operand,)))

    def stacked(self, update: Number, before: Number) -> int | None:
        """The number of what a loop stacks whose step makes `update` of the stack `before`; None for another update."""
        found = self.parts(update)
        if found is None or found[0] != "dynamic-update-slice" or found[2][0] != before:
            return None
        _, shape, (_, row, first, *rest) = found
        index = self.index(first)
        inner = self.parts(row)
        if index is None or inner is None or inner[1].sizes != (1, *shape.sizes[1:]) or not isinstance(row, int):
            return None
        if any(self.constant(one) != 0 for one in rest):
            return None
        number = self.interned(("stack", str(shape), (row,), index))
        self.stacks[number] = Stack(row, inner[1], index)
        return number

    def row(self, stack: Number, indices: Sequence[Number], shape: Shape) -> int | None:
        """The row of a step that a slice of a stack at these indices is; None where it is none."""
        found = self.stacks.get(stack) if isinstance(stack, int) else None
        if found is None or shape != found.shape or not indices:
            return None
        if self.index(indices[0]) != found.index or any(self.constant(one) != 0 for one in indices[1:]):
            return None
        return found.row
