"""`rematc.numpy.vectorize`: np.vectorize that can be traced. A function of elements is batched, not looped over."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from rematc.compiler.api.transforms.batching import vmap
from rematc.compiler.frontends.numpy.operands import as_operand, enter, fail, is_traced, shape_of

# The arrays here are tracers, which NumPy's types do not know.
Traced = Any

_LIST = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_SIGNATURE = re.compile(rf"^\s*({_LIST}(?:\s*,\s*{_LIST})*)?\s*->\s*{_LIST}(?:\s*,\s*{_LIST})*\s*$")


class vectorize:  # noqa: N801  # NumPy's name
    """A function of elements as a function of arrays, which broadcast: as np.vectorize.

    On concrete arrays it is np.vectorize itself. On traced ones the function is traced once, for one element, and
    batched as `rematc.vmap` does; so it must not ask for the element's value (`if x > 0`).

    Args:
        pyfunc: the function of elements, or of the cores that `signature` names.
        otypes: the dtypes of the results, as letters or a list; by default what the function returns.
        doc: the docstring of the result.
        excluded: positions and names of arguments that are passed on as they are.
        cache: as NumPy's, on concrete arrays.
        signature: the dimensions of one element of each argument and result, for example "(n),(n)->()".
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: str | Iterable[Any] | None = None,
        doc: str | None = None,
        excluded: Collection[int | str] | None = None,
        cache: bool = False,
        signature: str | None = None,
    ) -> None:
        self.pyfunc = pyfunc
        self._types = None if otypes is None else [np.dtype(kind) for kind in otypes]
        self._excluded = frozenset(excluded or ())
        self._cores = None if signature is None else _cores_of(signature)
        chosen = None if otypes is None else [kind.char for kind in self._types or ()]
        self._concrete: Any = np.vectorize(pyfunc, chosen, doc, set(self._excluded), cache, signature)
        functools.update_wrapper(self, pyfunc, updated=())
        if doc is not None:
            self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not any(is_traced(x) for x in (*args, *kwargs.values())):
            return self._concrete(*args, **kwargs)
        enter(*args, *kwargs.values())
        named = [place for place in (*range(len(args)), *kwargs) if place not in self._excluded]
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs)
        arrays: list[Traced] = [as_operand(given[place]) for place in named]
        ranks = self._core_ranks(len(arrays))

        def of_elements(*elements: Traced) -> Any:
            whole = {**given, **dict(zip(named, elements, strict=True))}
            return self.pyfunc(*[whole[i] for i in range(len(args))], **{name: whole[name] for name in kwargs})

        results = _over_batch(of_elements, arrays, ranks)
        if self._types is None:
            return results
        if not isinstance(results, tuple):
            return results.astype(self._types[0])
        return tuple([x.astype(kind) for x, kind in zip(results, self._types, strict=True)])

    def _core_ranks(self, count: int) -> list[int]:
        if self._cores is None:
            return [0] * count
        if len(self._cores) != count:
            fail(f"rematc.numpy.vectorize: a signature of {len(self._cores)} arguments, called with {count}")
        return self._cores


def _cores_of(signature: str) -> list[int]:
    """How many dimensions an element of each argument has."""
    if not _SIGNATURE.match(signature):
        raise ValueError(
            f"not a valid signature of a function of cores: {signature!r}, expected one like '(n),(n)->()'"
        )
    arguments = re.findall(_LIST, signature.split("->", maxsplit=1)[0])
    return [len(re.findall(r"\w+", names)) for names in arguments]


def _over_batch(function: Callable[..., Any], arrays: list[Traced], ranks: list[int]) -> Any:
    """The function over the dimensions before the cores, which broadcast."""
    for array, rank in zip(arrays, ranks, strict=True):
        if len(shape_of(array)) < rank:
            fail(f"rematc.numpy.vectorize: an argument of shape {shape_of(array)} has no core of {rank} dimensions")
    loops = [shape_of(array)[: len(shape_of(array)) - rank] for array, rank in zip(arrays, ranks, strict=True)]
    outer = np.broadcast_shapes(*loops)
    count = int(np.prod(outer))
    if not count:
        fail(f"rematc.numpy.vectorize over no elements: the arguments broadcast to {outer}")
    rows, axes = [], []
    for array, loop in zip(arrays, loops, strict=True):
        # What is the same for all elements is not repeated.
        is_shared = int(np.prod(loop)) == 1 and count > 1
        core = shape_of(array)[len(loop) :]
        whole = array if is_shared else np.broadcast_to(array, outer + core)
        rows.append(np.reshape(whole, core if is_shared else (count, *core)))
        axes.append(None if is_shared else 0)
    if all(axis is None for axis in axes):
        return function(*rows)
    results: Any = vmap(function, tuple(axes))(*rows)
    if isinstance(results, tuple):
        return tuple([np.reshape(x, outer + x.shape[1:]) for x in results])
    return np.reshape(results, outer + results.shape[1:])
