"""Views: arrays on the elements of another array, as NumPy makes them.

What is written into a view is written into the array, and what is written into the array shows in its views. Where
NumPy's arrays lie in memory decides whether some functions make a view or a copy; where that is not known, the array
and the result can both be read until one of them is written, and then only that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.compiler.frontends.numpy.operands import ArrayLike, fail, here, wrap
from rematc.compiler.tracing.memory import Memory, Place, Step
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.values import Value


def view_of(a: ArrayLike, value: Value, step: Step, *, is_dense: bool = False) -> Tracer:
    """The view of `a` that a step makes, now of this value: `a` itself where they are the same.

    Args:
        a: an array; of what has no memory, a scalar or no tracer, the result is an array of its own.
        value: what the step reads.
        step: the view.
        is_dense: whether the view is known to be in C order without gaps.
    """
    place = _place(a)
    if place is None or not isinstance(a, Tracer):
        return array_of(value)
    if value is a.value and not isinstance(step, ReadOnly):
        return a
    view = wrap(value)
    view.place = Place(place.memory, place, step, is_dense)
    return view


def perhaps_view_of(a: ArrayLike, value: Value, *, is_dense: bool = False) -> Tracer:
    """What NumPy makes as a view or as a copy of `a`, as the array's memory happens to be ordered."""
    place, made = _place(a), array_of(value, is_dense=is_dense)
    if place is not None and made.place is not None:
        place.memory.may_be(made.place.memory)
    return made


def itself(a: ArrayLike, value: Value) -> Tracer:
    """`a` as NumPy returns it: no copy; `value` is the value of `a`."""
    return a if isinstance(a, Tracer) and _place(a) is not None else array_of(value)


def array_or_scalar_of(a: ArrayLike, value: Value) -> Tracer:
    """A new array of the elements of `a`, or a scalar if that is one."""
    return array_of(value, is_dense=False) if isinstance(a, Tracer) and a.place and not a.shape else wrap(value)


def array_of(value: Value, *, is_dense: bool = True) -> Tracer:
    """A new array of its own, not a scalar, in C order."""
    made = wrap(value)
    made.place = Place(Memory(made.owner, value), is_dense=is_dense)
    return made


def is_dense(a: ArrayLike) -> bool:
    """Whether the elements are known to lie one after the other in C order."""
    if not isinstance(a, Tracer):
        return False
    return a.place.is_dense if a.place is not None else _has_one_order(a.shape)


def _has_one_order(shape: Sequence[int]) -> bool:
    """Whether an array of its own has one order in memory, whatever it was made of."""
    return sum([size != 1 for size in shape]) <= 1


def _place(a: ArrayLike) -> Place | None:
    if not isinstance(a, Tracer) or a.weak:
        return None
    if a.place is None and a.shape:
        a.place = Place(Memory(a.owner, a.value), is_dense=_has_one_order(a.shape))
    return a.place


# -- the views -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permuted:
    """The dimensions in another order."""

    order: tuple[int, ...]

    def read(self, whole: Value) -> Value:
        return here().transpose(whole, self.order)

    def write(self, whole: Value, part: Value) -> Value:
        return here().transpose(part, sorted(range(len(self.order)), key=self.order.__getitem__))


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The elements in C order in another shape."""

    shape: tuple[int, ...]

    def read(self, whole: Value) -> Value:
        return here().reshape(whole, self.shape)

    def write(self, whole: Value, part: Value) -> Value:
        return here().reshape(part, whole.type.shape)


@dataclass(frozen=True, slots=True)
class ReshapedBackwards:
    """The elements in Fortran order in another shape."""

    shape: tuple[int, ...]

    def read(self, whole: Value) -> Value:
        return fortran_reshape(whole, self.shape)

    def write(self, whole: Value, part: Value) -> Value:
        return fortran_reshape(part, whole.type.shape)


@dataclass(frozen=True, slots=True)
class Reversed:
    """Dimensions read backwards."""

    axes: tuple[int, ...]

    def read(self, whole: Value) -> Value:
        return here().reverse(whole, self.axes)

    def write(self, whole: Value, part: Value) -> Value:
        return here().reverse(part, self.axes)


@dataclass(frozen=True, slots=True)
class RealPart:
    """The real parts of complex numbers."""

    def read(self, whole: Value) -> Value:
        return here().real(whole)

    def write(self, whole: Value, part: Value) -> Value:
        return here().from_parts(part, here().imag(whole))


@dataclass(frozen=True, slots=True)
class ImaginaryPart:
    """The imaginary parts of complex numbers."""

    def read(self, whole: Value) -> Value:
        return here().imag(whole)

    def write(self, whole: Value, part: Value) -> Value:
        return here().from_parts(here().real(whole), part)


@dataclass(frozen=True, slots=True)
class Bits:
    """The bits as numbers of another type."""

    function: Callable[[Value], Value]

    def read(self, whole: Value) -> Value:
        return self.function(whole)

    def write(self, whole: Value, part: Value) -> Value:
        return here().emit1(BitcastConvert(whole.type.dtype), part)


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """A view that NumPy does not write into.

    Attributes:
        name: the function that makes it.
        function: its elements.
    """

    name: str
    function: Callable[[Value], Value]

    def read(self, whole: Value) -> Value:
        return self.function(whole)

    def write(self, whole: Value, part: Value) -> Value:
        fail(f"what {self.name} returns is a view that NumPy does not write into; make a copy first: x = x.copy()")


def fortran_reshape(x: Value, shape: Sequence[int]) -> Value:
    """The first dimension runs fastest: C order of everything reversed."""
    b, sizes = here(), tuple(shape)
    turned = b.reshape(b.transpose(x, range(x.type.rank)[::-1]), sizes[::-1])
    return b.transpose(turned, range(len(sizes))[::-1])


def only_splits(shape: Sequence[int], into: Sequence[int]) -> bool:
    """Whether a reshape cuts dimensions apart and joins none: it is a view in whatever order the memory is."""
    sizes = iter([size for size in into if size != 1])
    for size in shape:
        count = 1
        while count < size:
            count *= next(sizes, math.inf)  # type: ignore[assignment]  # more than any size
        if count != size:
            return False
    return True
