"""What a step of a random graph draws with: a source of choices, the values so far, how to pick and combine them.

A `Row` says which ops a step draws. Rows stand in tests/support/graph_rows/<family>.py; a new op is one row there:

    def _cholesky(d: Drawing) -> tuple[Value, ...]:
        x = d.pick(lambda type: type.dtype.is_float and type.rank == 2 and type.shape[0] == type.shape[1])
        return () if x is None else d.emit(Cholesky(), x)

    ROWS = (Row((Cholesky,), _cholesky),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops.structural import Constant
from rematc.ir.types import DType, TensorType
from rematc.ir.values import Array, Value

Fits = Callable[[TensorType], bool]
T = TypeVar("T")
SHAPES = ((), (1,), (2,), (3,), (2, 3), (3, 2), (3, 3), (1, 3), (2, 1, 3), (0, 2))
MAX_ELEMENTS = 64


class Source(Protocol):
    """Where choices come from."""

    def integer(self, low: int, high: int) -> int: ...
    def one_of(self, choices: Sequence[T]) -> T: ...
    def shuffled(self, items: Sequence[T]) -> list[T]: ...


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Choices of hypothesis, which makes them simpler where a test fails."""

    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, choices: Sequence[T]) -> T:
        return self.draw(st.sampled_from(choices))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.draw(st.permutations(items))


@dataclass(frozen=True, slots=True)
class Seeded:
    """Independent choices, many times faster."""

    random: Random

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def one_of(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.random.sample(items, len(items))


@dataclass(slots=True)
class Drawing:
    """A graph that is being drawn.

    Attributes:
        source: where choices come from.
        b: the builder.
        pool: the values so far; there is at least one.
        dtypes: element types that parameters, constants and conversions have.
        depth: how deep regions may still nest.
    """

    source: Source
    b: Builder
    pool: list[Value]
    dtypes: Sequence[DType]
    depth: int = 0

    # -- numbers and choices -------------------------------------------------------------------------------------------

    def integer(self, low: int, high: int) -> int:
        return self.source.integer(low, high)

    def flip(self) -> bool:
        return self.source.integer(0, 1) == 1

    def one_of(self, choices: Sequence[T]) -> T:
        return self.source.one_of(choices)

    def some(self, choices: Sequence[T], least: int, most: int) -> list[T]:
        """`least` to `most` of the choices, with repetitions."""
        return [self.source.one_of(choices) for _ in range(self.source.integer(least, most))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.source.shuffled(items)

    def dimensions(self, x: Value) -> tuple[int, ...]:
        """Some dimensions of a value, none or all among them."""
        drawn = self.shuffled(range(x.type.rank))
        return tuple(sorted(drawn[: self.integer(0, x.type.rank)]))

    # -- values --------------------------------------------------------------------------------------------------------

    def value(self) -> Value:
        """A value, often a recent one."""
        return self.one_of(self.pool[-4:] if self.flip() else self.pool)

    def pick(self, fits: Fits) -> Value | None:
        """A value whose type fits, often a recent one; None where there is none."""
        found = [value for value in self.pool if fits(value.type)]
        if not found:
            return None
        return self.one_of(found[-4:] if self.flip() else found)

    def like(self, x: Value) -> Value:
        """A value of the same type, perhaps `x` itself."""
        found = self.pick(lambda type: type == x.type)
        return x if found is None else found

    def scalar(self, number: complex, dtype: DType) -> Value:
        """A constant."""
        with np.errstate(all="ignore"):
            array: Array = np.asarray(number).astype(dtype.numpy)
        return self.b.emit1(Constant.of(array))

    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        """The results of an op, or none where they would be large."""
        if any(type.size > MAX_ELEMENTS for type in op.infer([value.type for value in operands])):
            return ()
        return self.b.emit(op, *operands)


Step = Callable[[Drawing], tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """A step, which emits equations over values that are there, or nothing where none fit.

    Attributes:
        ops: what it may draw, besides helpers.
        step: emits, and returns the new values.
        weight: how often it is drawn beside others.
    """

    ops: tuple[type[Op], ...]
    step: Step
    weight: int = 1


def is_numeric(type: TensorType) -> bool:
    """Whether elements are numbers in an array that has some."""
    return not type.dtype.is_bool and type.size > 0


def has_rank(type: TensorType) -> bool:
    return type.rank > 0


def is_matrix(type: TensorType) -> bool:
    return type.rank == 2 and type.size > 0
