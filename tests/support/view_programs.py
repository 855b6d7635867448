"""Random programs of views and writes in place: what is checked of them is that a traced one does as NumPy does.

A program is a list of steps, each a function that takes the list of the arrays made so far and may append to it. It is
drawn while it runs on NumPy's arrays, so that every step is one that NumPy accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rematc.numpy as rnp

Arrays = list[Any]
Step = Callable[[Arrays], None]
SHAPES = [(6,), (2, 3), (3, 4), (2, 1, 3), (2, 3, 2)]


def start() -> Arrays:
    """The arguments of every program: one of each shape."""
    return [np.arange(float(np.prod(shape))).reshape(shape) + 10 * i for i, shape in enumerate(SHAPES)]


def program(seed: int, length: int = 8) -> list[Step]:
    """The steps of a program."""
    rng = np.random.default_rng(seed)
    arrays = start()
    steps: list[Step] = []
    while len(steps) < length:
        draw = (_view, _view, _computed, _written, _written)[rng.integers(5)]
        step = draw(rng, arrays)
        if step is not None:
            step(arrays)
            steps.append(step)
    return steps


def replay(steps: list[Step], arguments: Arrays) -> Arrays:
    """What the arrays of a program are at its end. Those of the arguments are its own."""
    arrays = [x * 1 for x in arguments]
    for step in steps:
        step(arrays)
    return arrays


def _appending(place: int, function: Callable[[Any], Any]) -> Step:
    return lambda arrays: arrays.append(function(arrays[place]))


def _index(rng: Any, shape: tuple[int, ...]) -> Any:
    items: list[Any] = []
    for size in shape:
        choice = rng.integers(6)
        start = int(rng.integers(size))
        items.append(
            slice(None)
            if choice < 2
            else (slice(start, None), slice(None, start + 1), slice(None, None, 2), slice(None, None, -1))[choice - 2]
        )
        if rng.integers(5) == 0:
            items[-1] = start - (size if rng.integers(2) else 0)
    if rng.integers(4) == 0:
        items.insert(int(rng.integers(len(items) + 1)), None)
    keep = int(rng.integers(1, len(items) + 1))
    return tuple(items) if rng.integers(2) else (*items[:keep], ...)


def _factors(rng: Any, size: int) -> tuple[int, ...]:
    options = {(size,), (1, size), (size, 1), *[(d, size // d) for d in (2, 3, 4) if size % d == 0]}
    options |= {(d, size // d // 2, 2) for d in (2, 3) if size % (2 * d) == 0}
    return sorted(options)[int(rng.integers(len(options)))]


def _view(rng: Any, arrays: Arrays) -> Step | None:
    place = int(rng.integers(len(arrays)))
    x = arrays[place]
    if x.ndim == 0 or x.size == 0:
        return None
    axis, other = (int(d) for d in rng.integers(x.ndim, size=2))
    index, shape, order = _index(rng, x.shape), _factors(rng, x.size), "CCCF"[rng.integers(4)]
    functions: list[Callable[[Any], Any]] = [
        lambda y: y[index],
        lambda y: y[index],
        lambda y: y.T,
        lambda y: np.swapaxes(y, axis, other),
        lambda y: np.moveaxis(y, axis, other),
        lambda y: y.reshape(shape, order=order),
        lambda y: y.reshape(shape),
        lambda y: y.ravel(),
        lambda y: y.flatten(),
        lambda y: np.flip(y, axis),
        lambda y: np.expand_dims(y, axis),
        np.squeeze,
        np.atleast_2d,
        lambda y: np.split(y, [1], axis)[1],
        lambda y: list(y)[-1],
        rnp.asarray,
        lambda y: np.broadcast_to(y, (2, *y.shape)),
        lambda y: y.copy(),
        rnp.ascontiguousarray,
        lambda y: y.astype(float, copy=False),
        lambda y: y.real,
    ]
    if x.ndim > 1:
        functions.append(np.diagonal)
    return _appending(place, functions[rng.integers(len(functions))])


def _computed(rng: Any, arrays: Arrays) -> Step:
    place = int(rng.integers(len(arrays)))
    same = [i for i, x in enumerate(arrays) if x.shape == arrays[place].shape]
    other, kind = same[rng.integers(len(same))], int(rng.integers(3))
    if kind == 0:
        return lambda arrays: arrays.append(arrays[place] + arrays[other])
    return _appending(place, (lambda y: y * 2.0, lambda y: np.cumsum(y, axis=0) if y.ndim else y + 1)[kind - 1])


def _written(rng: Any, arrays: Arrays) -> Step | None:
    place = int(rng.integers(len(arrays)))
    x = arrays[place]
    if not isinstance(x, np.ndarray) or not x.flags.writeable or x.size == 0 or x.ndim == 0:
        return None
    index, number = _index(rng, x.shape), float(rng.integers(1, 9))
    rows = [int(i) for i in rng.permutation(len(x))[: rng.integers(1, len(x) + 1)]]
    same = [i for i, y in enumerate(arrays) if y.shape == x.shape]
    other = same[rng.integers(len(same))]

    def each_row(arrays: Arrays) -> None:
        for row in arrays[place]:
            row *= number  # noqa: PLW2901  # in place

    def in_place(arrays: Arrays) -> None:
        arrays[place] += number

    def with_operator(arrays: Arrays) -> None:
        arrays[place][index] *= number

    def assigned(arrays: Arrays) -> None:
        arrays[place][index] = number

    def from_another(arrays: Arrays) -> None:
        arrays[place][...] = arrays[other]

    def at_rows(arrays: Arrays) -> None:
        arrays[place][rows] -= number

    def under_a_mask(arrays: Arrays) -> None:
        arrays[place][arrays[place] > number] = -number

    def into(arrays: Arrays) -> None:
        np.subtract(arrays[place], arrays[other], out=arrays[place])

    choices = [in_place, with_operator, assigned, from_another, at_rows, under_a_mask, into]
    return [*choices, each_row][int(rng.integers(len(choices) + (x.ndim > 1)))]
