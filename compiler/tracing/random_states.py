"""Random numbers that NumPy or Python draw while a function is traced: they become constants of the program.

NumPy's generators do not say when they are used, so that their states are compared before and after: the global one's,
Python's, and those of generators that the function closes over or finds among its globals.
"""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

import numpy as np

_Generator = np.random.Generator | np.random.RandomState


@contextmanager
def watched(function: Callable[..., object]) -> Iterator[None]:
    """Warn, at the definition of `function`, if random numbers are drawn while it is traced."""
    plain = inspect.unwrap(function)
    generators = dict(_generators(plain))
    before = _states(generators)
    yield
    after = _states(generators)
    used = [name for name, state in before.items() if after[name] != state]
    code: CodeType | None = getattr(plain, "__code__", None)
    if not used or code is None:
        return
    warnings.warn_explicit(
        f"'{code.co_name}' draws random numbers from {', '.join(used)} while it is traced: they are constants of the "
        "compiled program, the same in every call; draw them from rematc.random with a key that is an argument, or "
        "pass them as arguments",
        UserWarning,
        code.co_filename,
        code.co_firstlineno,
        registry=plain.__globals__.setdefault("__warningregistry__", {}),
    )


def _generators(function: object) -> Iterator[tuple[str, _Generator]]:
    """NumPy's generators that a function, or one inside it, closes over or reads as a global."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    names, waiting = set(code.co_names), list(code.co_consts)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, CodeType):
            names.update(inner.co_names)
            waiting.extend(inner.co_consts)
    scope = function.__globals__  # type: ignore[attr-defined]  # what has code has globals
    for name in sorted(names):
        if isinstance(scope.get(name), _Generator):
            yield name, scope[name]
    cells = function.__closure__ or ()  # type: ignore[attr-defined]  # as above
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if isinstance(found, _Generator):
            yield name, found


def _states(generators: dict[str, _Generator]) -> dict[str, object]:
    states = {name: _state(generator) for name, generator in generators.items()}
    return {"np.random": _hashed(np.random.get_state(legacy=False)), "random": hash(random.getstate()), **states}


def _state(generator: _Generator) -> object:
    return _hashed(
        generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state()
    )


def _hashed(state: object) -> object:
    """A state as something that can be compared: arrays as their bytes."""
    if isinstance(state, dict):
        return tuple([(key, _hashed(value)) for key, value in state.items()])
    if isinstance(state, tuple):
        return tuple([_hashed(item) for item in state])
    return state.tobytes() if isinstance(state, np.ndarray) else state
