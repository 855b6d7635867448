"""rematc.numpy: NumPy on arrays, the same functions traced, and what NumPy cannot dispatch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import rematc.numpy as rnp
from tests.support.tracing import assert_as_numpy, run


def test_functions_compute_at_once_on_arrays_and_trace_on_tracers() -> None:
    x = np.array([1.0, 2.0])
    assert rnp.sin is np.sin
    np.testing.assert_array_equal(rnp.linalg.norm(x), np.linalg.norm(x))
    assert_as_numpy(lambda a: rnp.exp(a) / rnp.sum(rnp.exp(a)), x)
    assert rnp.float32 is np.float32
    assert rnp.pi == np.pi


def test_asarray_and_full_take_traced_values() -> None:
    def function(x: Any) -> Any:
        return rnp.asarray([x[0], 2.0, [x[1]][0]]), rnp.asarray(x, np.float32), rnp.full((2, 2), x[1])

    first, second, third = run(function, np.array([5.0, 7.0]))
    np.testing.assert_array_equal(first, [5, 2, 7])
    assert second.dtype == np.float32
    np.testing.assert_array_equal(third, [[7, 7], [7, 7]])
    np.testing.assert_array_equal(rnp.full((2,), 3), [3, 3])
    assert rnp.asarray([1, 2]).dtype == np.int64


def test_supported_lists_what_can_be_traced() -> None:
    names = rnp.supported()
    assert {"np.sin", "np.einsum", "np.linalg.norm", "scipy.special.erf", "np.where"} <= set(names)
    assert list(names) == sorted(names)
    assert "np.unique" not in names


def test_every_name_is_there() -> None:
    assert all(hasattr(rnp, name) for name in rnp.__all__)


def test_updates_of_concrete_arrays_leave_them_alone() -> None:
    x = np.zeros(3)
    np.testing.assert_array_equal(rnp.at_set(x, 1, 5.0), [0, 5, 0])
    np.testing.assert_array_equal(rnp.at_add(x, [0, 0], 1.0), [2, 0, 0])
    np.testing.assert_array_equal(x, [0, 0, 0])


def test_lists_of_tracers_are_arrays_to_every_function() -> None:
    def function(x: Any) -> Any:
        return rnp.mean([x[0], x[1] * 2]), rnp.sum([[x[0], 1.0], [2.0, x[1]]], axis=0), rnp.append([x[0]], x[1])

    mean, total, both = run(function, np.array([5.0, 7.0]))
    assert mean == 9.5
    np.testing.assert_array_equal(total, [7, 8])
    np.testing.assert_array_equal(both, [5, 7])


def test_concatenators_take_traced_parts() -> None:
    def function(x: Any) -> Any:
        return rnp.r_[x, 1.0, 0:3], rnp.c_[x, x * 2, [1.0, 2.0]]

    row, columns = run(function, np.array([5.0, 7.0]))
    np.testing.assert_array_equal(row, [5, 7, 1, 0, 1, 2])
    np.testing.assert_array_equal(columns, [[5, 10, 1], [7, 14, 2]])
    np.testing.assert_array_equal(rnp.r_[1, 2:4], [1, 2, 3])


def test_arrays_keep_numpy_s_options() -> None:
    assert run(lambda x: rnp.array(x, ndmin=2), np.ones(3)).shape == (1, 3)
    assert rnp.array([1], ndmin=3, dtype=float).shape == (1, 1, 1)
    x = np.ones(2)
    assert rnp.asarray(x) is x


def test_the_array_api_namespace_of_a_traced_array_is_rematc_numpy() -> None:
    def function(x: Any) -> Any:
        xp = x.__array_namespace__(api_version="2024.12")
        assert x.device == "cpu" and x.to_device("cpu") is x
        return xp.asarray([x[0], 1.0]), xp.permute_dims(xp.stack([x, x]), (1, 0)), xp.special.erf(x)

    made, stacked, _ = run(function, np.array([5.0, 7.0]))
    np.testing.assert_array_equal(made, [5, 1])
    assert stacked.shape == (2, 2)


SCIPY_MODEL = """
import numpy as np, scipy.optimize, scipy.special
import rematc
x = np.linspace(0.1, 0.9, 4)
for f in (scipy.special.softmax, scipy.optimize.rosen, scipy.special.erf, scipy.special.entr):
    np.testing.assert_allclose(rematc.jit(f)(x), f(x), rtol=1e-12, atol=1e-12)
"""


def test_functions_of_scipy_that_support_the_array_api_trace() -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    subprocess.run([sys.executable, "-c", SCIPY_MODEL], env=environment, check=True, timeout=120)
