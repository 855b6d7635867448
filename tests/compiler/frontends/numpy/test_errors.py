"""What cannot be traced is an error at the user's line that says a way out."""

# ruff: noqa: PLW0108  # a lambda has a line of its own, which the error names

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
import rematc.numpy as rnp
from rematc.ir.errors import CompileError
from tests.support.tracing import traced

X = np.ones((3, 4))
V = np.ones(3)
NO_NORM: Any = "unit"


def _if(x: Any) -> Any:
    return x if x[0, 0] > 0 else -x


def _assign_outside(x: Any) -> Any:
    y = x * 1

    def step(carry: Any, row: Any) -> Any:
        y[0] = row
        return carry, row

    return rematc.scan(step, 0.0, x), y


def _write_into_a_diagonal(x: Any) -> Any:
    np.diagonal(x)[0] = 1.0
    return x


def _reshape_of_any_order(x: Any) -> Any:
    y = x * 1
    line = y.reshape(-1)
    line *= 2
    return y


def _shuffle(x: Any) -> Any:
    np.random.default_rng(0).shuffle(x)
    return x


def _fill_concrete(x: Any) -> Any:
    out = np.zeros(3)
    out[0] = x[0, 0]
    return out


def _accumulate(x: Any) -> Any:
    total = np.zeros((3, 4))
    total += x
    return total


def _integers_in_place(x: Any) -> Any:
    counts = x.astype(int)
    counts += x
    return counts


def _full(x: Any) -> Any:
    return np.full((2,), x[0, 0])


CASES: list[tuple[Callable[[Any], Any], list[str]]] = [
    (_if, ["Python bool", "np.where", "static_argnums"]),
    (lambda x: x and 1, ["Python bool"]),
    (lambda x: range(x.sum().astype(int)), ["needs an integer", "static_argnums"]),
    (lambda x: [1, 2][x.argmax()], ["needs an integer", "index an array"]),
    (lambda x: float(x.sum()), ["converted to a float", "astype"]),
    (lambda x: int(x.sum()), ["converted to a int"]),
    (lambda x: x.sum().item(), ["Python number"]),
    (lambda x: x.tolist(), ["list"]),
    (lambda x: np.asarray(x), ["np.asarray", "rematc.numpy.asarray", "np.stack"]),
    (lambda x: np.array([x[0], x[1]]), ["np.stack"]),
    (_assign_outside, ["from outside the function", "x.copy()"]),
    (_write_into_a_diagonal, ["np.diagonal", "view that NumPy does not write into", "x.copy()"]),
    (_reshape_of_any_order, ["not known whether", "np.reshape", "read afterwards", "x.copy()"]),
    (_shuffle, ["np.random.shuffle", "rematc.random.permutation"]),
    (lambda x: np.broadcast_to(x, (2, 3, 4)).fill(0), ["np.broadcast_to", "does not write into"]),
    (lambda x: x.sum().fill(0), ["scalars cannot be assigned"]),
    (lambda x: x.fill(1j), ["complex", "y.real"]),
    (_fill_concrete, ["assigned into a NumPy array", "np.stack"]),
    (_full, ["np.full", "rematc.numpy.asarray, full"]),
    (lambda x: 1.0 in x, ["np.any(x == item)"]),
    (lambda x: len(x.sum()), ["no length"]),
    (lambda x: list(x.sum()), ["iterated"]),
    # functions and ufuncs
    (lambda x: np.sort(x, order="name"), ["np.sort", "order=", "leave order out"]),
    (lambda x: np.quantile(x, x[0, 0]), ["np.quantile", "known while tracing"]),
    (lambda x: np.percentile(x, 101), ["np.percentile", "between 0 and 100"]),
    (lambda x: np.quantile(x, 0.5, method="closest_observation"), ["np.quantile", "linear", "closest_observation"]),
    (lambda x: np.digitize(x, x[0]), ["np.digitize", "np.searchsorted"]),
    (lambda x: rnp.unique(x), ["rematc.numpy.unique", "size=n"]),
    (lambda x: rnp.nonzero(x), ["rematc.numpy.nonzero", "size=n"]),
    (lambda x: np.fft.rfft(x * 1j), ["np.fft.rfft", "real numbers", "np.fft.fft"]),
    (lambda x: np.fft.fft(x, norm=NO_NORM), ["backward, ortho, forward", "unit"]),
    (lambda x: np.fft.fft(x, 0), ["at least one element"]),
    (lambda x: np.fft.fftn(x, (2, 2, 2)), ["axis"]),
    (lambda x: np.unique(x), ["np.unique", "depends on data", "rematc.numpy.unique(..., size=n"]),
    (lambda x: np.nonzero(x), ["np.nonzero", "depends on data", "rematc.numpy.nonzero(..., size=n"]),
    (lambda x: x.nonzero(), ["depends on data", "rematc.numpy.nonzero(x, size=n"]),
    (lambda x: np.where(x > 0), ["depends on data", "np.where(condition, x, y)"]),
    (lambda x: np.copyto(np.ones(3), x), ["np.copyto", "not traced"]),
    (lambda x: np.frompyfunc(abs, 1, 1)(x), ["ufunc", "supported()"]),
    (lambda x: np.add.at(np.zeros(3), [0], x[0, 0]), ["np.add.at", "at_add"]),
    (lambda x: np.add.reduceat(x, [0, 1]), ["np.add.reduceat"]),
    (lambda x: np.arctan2.reduce(x), ["np.arctan2.reduce"]),
    (lambda x: np.add(x, 1, out=np.zeros((3, 4))), ["out=", "not traced", "x = np.add(...)"]),
    (_accumulate, ["writes into an array", "x = np.add(...)"]),
    (_integers_in_place, ["np.add gives f64[3,4]", "i64[3,4]", "use the result"]),
    (lambda x: x.put([0], 1), ["x.put", "x.flat[index]"]),
    (lambda x: np.add(x, 1, where=x > 0), ["where=", "undefined", "out=np.zeros_like(x)", "np.where"]),
    (lambda x: np.add(x, 1, out=np.zeros_like(x), where=x), ["where=", "mask of booleans"]),
    (lambda x: np.add(x, 1, out=x[0]), ["f64[3,4]", "does not fit into f64[4]"]),
    (lambda x: np.multiply(x, 1j, out=x), ["c128[3,4]", "f64[3,4]", "does not write"]),
    (lambda x: np.add(x, np.ones((2, 3, 4)), out=x), ["f64[2,3,4]", "does not fit"]),
    (lambda x: rematc.checkpoint(lambda y: np.add(y, 1, out=x))(x), ["outside the function"]),
    (lambda x: np.sum(x, out=np.zeros(())), ["np.sum", "out="]),
    (lambda x: x.sum(out=np.zeros(())), ["np.sum", "out="]),
    (lambda x: x.sum(weights=3), ["np.sum", "weights=", "leave weights out"]),
    (lambda x: np.add(x, x, dtype=np.int32), ["np.add", "float64", "int32"]),
    (lambda x: rnp.repeat(x, x[0].astype(int)), ["total_repeat_length=n"]),
    (lambda x: rnp.compress(x > 0, x), ["rematc.numpy.compress", "size=n"]),
    (lambda x: rnp.setdiff1d(x, [1.0]), ["rematc.numpy.setdiff1d", "size=n"]),
    (lambda x: rnp.unique(x, axis=0, size=3), ["axis=", "leave it out"]),
    (lambda x: rnp.at_set(x, x > 0, np.ones(7)), ["(7,)", "depends on data", "np.where"]),
    (lambda x: np.emath.sqrt(x), ["dtype that depends on data", "astype(complex)"]),
    (lambda x: np.fill_diagonal(x, 0), ["np.fill_diagonal", "rematc.numpy.fill_diagonal"]),
    (lambda x: np.vectorize(abs)(x), ["np.vectorize", "rematc.numpy"]),
    (lambda x: np.require(x), ["np.require", "rematc.numpy"]),
    (lambda x: np.polynomial.polynomial.polyval(2.0, x), ["np.polynomial.polynomial.polyval", "rematc.numpy"]),
    (lambda x: np.mean(x, 0, None, np.zeros(4)), ["np.mean", "out="]),
    (lambda x: np.sum(x, axis=x[0, 0].astype(int)), ["axis of np.sum", "static_argnums"]),
    # shapes and dtypes
    (lambda x: x + V, ["np.add", "(3, 4)", "(3,)", "do not broadcast"]),
    (lambda x: x @ x, ["np.matmul", "(3, 4)", "must be equal"]),
    (lambda x: np.dot(x, V), ["np.dot", "(3,)"]),
    (lambda x: x.reshape(5, 2), ["12 elements", "(5, 2)"]),
    (lambda x: x.reshape(-1, 5), ["(-1, 5)"]),
    (lambda x: x.sum(axis=2), ["axis 2", "np.sum", "2 dimensions"]),
    (lambda x: x.sum(axis=(0, -2)), ["dimension twice"]),
    (lambda x: np.concatenate([x, x[:, :2]]), ["np.concatenate", "(3, 2)"]),
    (lambda x: np.stack([x, x[0]]), ["np.stack", "one shape"]),
    (lambda x: np.split(x, 2), ["np.split", "array_split"]),
    (lambda x: np.squeeze(x, 0), ["size 3"]),
    (lambda x: x & 1, ["np.bitwise_and", "float64", "astype"]),
    (lambda x: x.astype(int) ** -1, ["negative power", "astype(float)"]),
    (lambda x: x.astype(np.int8) + 1000, ["1000", "int8"]),
    (lambda x: x.astype(np.longdouble), ["cannot be compiled"]),
    (lambda x: x + np.array(["a"]), ["np.add"]),
    (lambda x: x + np.ones(4, object), ["object"]),
    (lambda x: np.quantile(x * 1j, 0.5), ["np.quantile", "real numbers", "c128[3,4]"]),
    (lambda x: np.max(x[:0]), ["no elements", "initial"]),
    (lambda x: np.einsum("ij,jk", x, x), ["'j'", "4", "3"]),
    (lambda x: np.einsum("ijk->i", x), ["names 3 dimensions", "(3, 4)"]),
    (lambda x: np.einsum("ij->k", x), ["'k'"]),
    (lambda x: np.pad(x, 1, mode=NO_NORM), ["np.pad", "unit", "reflect"]),
    (lambda x: np.pad(x, 1, mode="edge", end_values=1), ["np.pad", "end_values", "leave it out"]),
    (lambda x: np.pad(x, 1, lambda vector, pads, axis, options: None), ["np.pad", "a function that writes"]),
    (lambda x: np.reshape(x, (4, 3), order=NO_NORM), ["orders C, F and A", "'unit'"]),
    # indices
    (lambda x: x[3], ["index 3", "dimension 0", "size 3"]),
    (lambda x: x[0, 0, 0], ["3 dimensions", "array of 2"]),
    (lambda x: x[x > 0], ["traced boolean mask", "np.where"]),
    (lambda x: x[x], ["traced f64", "astype(int)"]),
    (lambda x: x[1.5], ["float", "integers"]),
    (lambda x: x[: x[0, 0].astype(int)], ["bound of the slice", "np.arange"]),
    (lambda x: x[..., ...], ["ellipsis"]),
    (lambda x: x[np.array([True, False])], ["boolean index", "(2,)"]),
    (lambda x: x[[0, 9]], ["index 9"]),
    (lambda x: x[[0, 1], [0, 1, 2]], ["(2,)", "(3,)", "broadcast"]),
    (lambda x: np.repeat(x, x[0].astype(int)), ["depends on data"]),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_is_refused_at_the_line_with_a_way_out(case: int) -> None:
    function, phrases = CASES[case]
    with pytest.raises(CompileError) as caught:
        traced(function, X)
    for phrase in phrases:
        assert phrase in caught.value.message
    first = function.__code__.co_firstlineno
    lines = [line for _, _, line in function.__code__.co_lines() if line]
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert first <= caught.value.loc.line <= max(lines)
    assert "\n" not in caught.value.message


def test_the_message_prints_as_file_line_column() -> None:
    with pytest.raises(CompileError) as caught:
        traced(lambda x: 1 + np.unique(x), X)
    line = sys._getframe().f_lineno - 1
    assert str(caught.value).startswith(f"{__file__}:{line}:30: error: np.unique")


def test_a_subclass_of_ndarray_that_does_not_want_ufuncs_is_left_alone() -> None:
    class Own:
        __array_ufunc__ = None

        def __radd__(self, other: Any) -> str:
            return "mine"

    results = []

    def function(x: Any) -> Any:
        results.append(x + Own())
        return x

    traced(function, X)
    assert results == ["mine"]
    with pytest.raises(TypeError):
        traced(lambda x: x + object(), X)
