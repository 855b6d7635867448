"""What Python and NumPy's arrays do beside arithmetic: it works on a traced array, or is refused at the user's line."""

# ruff: noqa: PLW0108  # a lambda has a line of its own, which the error names

from __future__ import annotations

import decimal
import json
import math
import pickle
import random
import statistics
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import rematc
import rematc.numpy as rnp
from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, traced

A = np.arange(6.0).reshape(2, 3) + 0.3
RNG = np.random.default_rng(0)


def _set(name: str, value: object) -> Callable[[Any], Any]:
    return lambda x: setattr(x, name, value)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: f"{x[0, 0]:.2f}", "is formatted with '.2f'"),
    (lambda x: {x: 1}, "is hashed"),
    (lambda x: hash(x), "is hashed"),
    (lambda x: round(x[0, 0]), r"round\(x, 0\)"),
    (lambda x: round(x, 1), r"np.round\(x, n\)"),
    (lambda x: math.trunc(x[0, 0]), "np.trunc"),
    (lambda x: math.floor(x[0, 0]), "np.floor"),
    (lambda x: math.sqrt(x[0, 0]), "converted to a float"),
    (lambda x: bytes(x), "converted to a bytes"),
    (lambda x: memoryview(x), "memoryview"),
    (lambda x: pickle.dumps(x), "cannot be pickled"),
    (lambda x: json.dumps({"loss": x}), "not JSON serializable"),
    (lambda x: decimal.Decimal(x[0, 0]), "Decimal"),
    (lambda x: statistics.mean(x[0]), "takes none"),
    (lambda x: x[0, 0] in [1.0, 2.0], "Python bool"),
    (lambda x: sorted([x[0, 0], x[0, 1]]), "Python bool"),
    (lambda x: [1, 2] * x[0, 0].astype(int), "a list is repeated"),
    (lambda x: pow(x[0, 0], 2, 3), "x\\*\\*y % z"),
    (lambda x: np.random.normal(x), "asked for its elements"),
    (lambda x: scipy.special.softmax(x), "rematc.numpy.special.softmax"),
    (_set("shape", (3, 2)), r"x.reshape\(shape\)"),
    (_set("dtype", int), r"x.view\(dtype\)"),
    (_set("strides", (8, 8)), "x.strides of a traced array"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_is_refused_at_the_line(case: int) -> None:
    function, phrase = REFUSED[case]
    with pytest.raises(CompileError, match=phrase) as caught:
        traced(function, A)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert caught.value.loc.line in {line for _, _, line in function.__code__.co_lines()}


#: Protocols of memory and of subclasses, which traced arrays do not take part in.
WITHOUT = {
    *("__array_finalize__", "__array_interface__", "__array_struct__", "__array_wrap__", "__class_getitem__"),
    *("__dlpack__", "__dlpack_device__", "__setstate__", "__buffer__"),
    *("_set_dtype", "_set_shape"),
}


def test_every_attribute_of_an_array_works_or_is_refused() -> None:
    def function(x: Any) -> Any:
        for name in sorted(set(dir(np.ndarray)) - WITHOUT):
            try:
                getattr(x, name)
            except CompileError as error:
                assert error.loc is not None, name
                assert error.loc.file == __file__
        assert not hasattr(x, "strides")
        assert not hasattr(x, "__array_interface__")
        return x

    traced(function, A)


def test_what_works() -> None:
    assert_as_numpy(lambda x: (round(x[0, 0], 1), round(x[0, 0], 0), sum(x[0]), math.prod(x[0])), A)
    shown: list[str] = []

    def show(x: Any) -> Any:
        shown.append(f"{x} {x!s}")
        return x

    traced(show, A)
    assert "tracer f64[2,3]" in shown[0]


def test_a_library_between_is_not_the_users_line() -> None:
    library = types.ModuleType("pandas.core")
    exec(compile("def apply(f, x):\n    return f(x)\n", "/lib/pandas/core.py", "exec"), library.__dict__)
    with pytest.raises(CompileError) as caught:
        traced(lambda x: library.apply(np.nonzero, x), A)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


# -- random numbers ----------------------------------------------------------------------------------------------------


def _global(x: Any) -> Any:
    return x + np.random.rand()


def _generator(x: Any) -> Any:
    return x + RNG.normal()


def _python(x: Any) -> Any:
    return x + random.random()


@pytest.mark.parametrize(("function", "source"), [(_global, "np.random"), (_generator, "RNG"), (_python, "random")])
def test_numbers_drawn_while_tracing_are_told(function: Callable[[Any], Any], source: str) -> None:
    with pytest.warns(UserWarning, match=f"draws random numbers from {source} while") as caught:
        rematc.trace(function, A)
    assert [warning.filename for warning in caught] == [__file__]
    assert caught[0].lineno == function.__code__.co_firstlineno


def test_no_numbers_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rematc.trace(lambda x: x + np.random.default_rng(3).normal(size=3), A)


# -- SciPy's functions that are no ufuncs ------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_logsumexp_and_softmax(axis: int | None) -> None:
    x = np.array([[1.0, 2.0, -np.inf], [4.0, 5.0, 800.0]])
    weights = np.array([1.0, 0.0, -2.0])
    special: Any = rnp.special  # type: ignore[attr-defined]  # made when it is imported
    for name in ("logsumexp", "softmax", "log_softmax"):
        assert_as_numpy(lambda x, name=name: getattr(special, name)(x, axis=axis), x)
        np.testing.assert_array_equal(getattr(special, name)(x, axis=axis), getattr(scipy.special, name)(x, axis=axis))
    assert_as_numpy(lambda x: special.logsumexp(x, axis, b=weights, keepdims=True, return_sign=True), A)
    assert_as_numpy(lambda x: special.softmax(x, axis), A.astype(np.float32))
