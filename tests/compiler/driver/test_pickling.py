"""Compiled functions are pickled as their program, and compiled again where they are read."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import rematc

X = np.linspace(-1, 1, 6, dtype=np.float32)


class Params(NamedTuple):
    """A container that a file cannot name, and pickle can."""

    w: Any
    b: Any


def loss(params: Params, x: Any) -> Any:
    return np.sum(np.tanh(x * params.w + params.b))


PARAMS = Params(np.float32(2), np.float32(1))


def test_a_pickled_function_returns_what_it_did() -> None:
    compiled: Any = rematc.compile(rematc.value_and_grad(loss, policy="nothing"), PARAMS, X)
    again: Any = pickle.loads(pickle.dumps(compiled))
    assert issubclass(type(again), rematc.CompiledFunction)
    value, gradient = again(PARAMS, X)
    assert isinstance(gradient, Params)
    np.testing.assert_array_equal((value, *gradient), (compiled(PARAMS, X)[0], *compiled(PARAMS, X)[1]))
    third = pickle.loads(pickle.dumps(again))
    assert third.stablehlo() == again.stablehlo()
    assert copy.deepcopy(compiled) is compiled and copy.copy(again) is again


def test_in_another_process() -> None:
    compiled: Any = rematc.compile(loss, PARAMS, X)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(compiled, (PARAMS, X))
    np.testing.assert_array_equal(found, compiled(PARAMS, X))


def test_one_that_calls_python_is_refused() -> None:
    def printing(x: Any) -> Any:
        rematc.debug.print("{}", x)
        return x

    with pytest.raises(rematc.CompileError, match=r"'printing' calls Python functions .* to save or pickle it"):
        pickle.dumps(rematc.compile(printing, X))
