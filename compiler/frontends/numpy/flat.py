"""`x.flat`: the elements of an array in C order, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from rematc.compiler.frontends.numpy.indexing import getitem
from rematc.compiler.frontends.numpy.operands import ArrayLike, as_operand, enter, fail, here, shape_of, value_of, wrap
from rematc.compiler.frontends.numpy.updates import setitem
from rematc.compiler.tracing.trace import Tracer


class Flat:
    """The elements of `x` in C order, whatever order its memory has; reading makes copies, writing writes into `x`."""

    __slots__ = ("_x",)

    def __init__(self, x: Tracer) -> None:
        self._x = x

    def __len__(self) -> int:
        return self._x.size

    def __iter__(self) -> Iterator[Tracer]:
        enter(self._x)
        line = self._line()
        return iter([getitem(line, i) for i in range(self._x.size)])

    def __getitem__(self, index: object) -> Tracer:
        enter(self._x)
        return wrap(getitem(self._line(), index).value)

    def __setitem__(self, index: object, value: ArrayLike) -> None:
        enter(self._x)
        line, given = self._line(), as_operand(value)
        sizes = [size for size in shape_of(given) if size != 1]
        if sizes and sizes != list(getitem(line, index).shape):
            fail(
                f"an array of shape {shape_of(given)} is assigned to other places of x.flat, over which NumPy repeats "
                "it; give one number, or as many as there are places"
            )
        setitem(line, index, wrap(here().reshape(value_of(given), sizes)) if shape_of(given) else given)
        self._x.assign(here().reshape(line.value, self._x.shape))

    def _line(self) -> Tracer:
        return wrap(here().reshape(value_of(self._x), (self._x.size,)))
