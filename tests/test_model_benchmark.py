"""What benchmarks/models.py calls a difference, and what it does with packages that are not there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import models
from benchmarks.losses import PACKAGES, Loss
from benchmarks.models import Row, difference, in_type, measure, names_in, primitives_of, summary
from benchmarks.second import WAYS, products, reverse

FOLDER = Path(models.__file__).parent / "losses"


def test_every_file_of_losses_is_listed() -> None:
    assert sorted(PACKAGES) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_not_installed_is_named_and_not_imported(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    absent = models.missing(package).split(", ")
    assert absent and "benchmarks" not in absent


def test_a_difference_is_over_the_largest_entry_of_its_array() -> None:
    expected, found = [np.array([4.0, 1.0]), np.array([0.5])], [np.array([4.0, 1.5]), np.array([0.5])]
    assert difference(expected, found, 0.0) == 0.125


def test_small_arrays_count_over_a_part_of_the_largest_entry_of_all() -> None:
    expected, found = [np.array([100.0]), np.array([1e-9])], [np.array([100.0]), np.array([3e-9])]
    assert difference(expected, found, 0.0) == pytest.approx(2.0)
    assert difference(expected, found, 1e-2) == pytest.approx(2e-9)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([math.nan, 1.0], [math.nan, 1.0], 0.0),
        ([math.inf, 1.0], [math.inf, 1.0], 0.0),
        ([math.nan, 1.0], [0.0, 1.0], math.inf),
        ([1.0, 1.0], [math.inf, 1.0], math.inf),
        ([1.0 + 1.0j], [1.0 - 1.0j], 2**0.5),
        ([1.0], [[1.0]], math.inf),
    ],
)
def test_what_is_no_number_differs_from_what_is_one(one: list[float], other: list[float], expected: float) -> None:
    assert difference([np.array(one)], [np.array(other)], 0.0) == pytest.approx(expected)


def test_types_must_be_the_same() -> None:
    assert difference([np.ones(2, np.float32)], [np.ones(2, np.float64)], 0.0) == math.inf


def test_primitives_of_inner_functions_are_counted() -> None:
    def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jnp.sin(x), None

    def function(x: jax.Array) -> Any:
        return jax.lax.cond(x > 0, jax.jit(jnp.cos), jnp.cos, jax.lax.scan(body, x, None, 3)[0])

    counts = primitives_of(jax.make_jaxpr(function)(1.0).jaxpr)
    assert (counts["sin"], counts["cos"], counts["scan"], counts["cond"], counts["gt"]) == (1, 2, 1, 1, 1)


def test_the_summary_names_what_is_wrong_and_what_failed() -> None:
    right = Row("right", "", value=0.0, gradients=1e-9, tolerance=1e-6, temporary={"JAX": 100, "none": 50})
    wrong = Row("wrong", "", value=0.0, gradients=1e-3, tolerance=1e-6)
    failed = Row("failed", "", errors={"rematc": "CompileError: no rule"})
    text = summary([right, wrong, failed])
    assert "1 of 3 losses agree" in text
    assert "wrong: wrong: value 0.0e+00, gradients 1.0e-03" in text
    assert "failed: failed: rematc: CompileError: no rule" in text
    assert "temporary, none: geometric mean 0.500" in text


def test_a_loss_that_fails_in_jax_is_no_failure_of_ours() -> None:
    def refuse(x: Any) -> Any:
        raise ArithmeticError("the solver diverged")

    def loss(x: jax.Array) -> Any:
        like: Any = jax.typeof(x[0])
        return jnp.sum(jnp.sin(x)) + jax.pure_callback(refuse, like, jax.lax.stop_gradient(x))

    row = measure(Loss("refused", "", lambda: (loss, (jnp.ones(4),))), ["nothing"], 0, False)
    assert list(row.errors) == ["JAX"]
    assert "the solver diverged" in row.errors["JAX"]


def test_the_names_of_losses_are_read_off_their_files() -> None:
    names = [name for package in PACKAGES for name in names_in(package)]
    assert len(names) == len(set(names)) > len(PACKAGES)
    assert names_in("distrax") == ["distrax-real-nvp", "distrax-spline", "distrax-hmm"]


def test_complex_arrays_are_as_wide_as_real_ones() -> None:
    tree: dict[str, Any] = {"real": np.ones(2, np.float32), "complex": np.ones(2, np.complex64), "index": np.arange(2)}
    wide = in_type(np.float64, tree)
    assert [wide[name].dtype for name in tree] == [np.float64, np.complex128, tree["index"].dtype]


def cubic(x: jax.Array, scale: jax.Array) -> Any:
    return scale * jnp.sum(x**3)


def test_second_derivatives_are_compared_and_those_that_are_wrong_are_named() -> None:
    loss = Loss("cubic", "", lambda: (cubic, (jnp.arange(3.0), jnp.float32(2.0))))
    row = measure(loss, [], 0, False, ways=1)
    assert not row.errors
    ((way, found),) = row.second.items()
    assert found <= row.second_tolerance
    row.second[way] = 0.5
    assert f"wrong: cubic: value 0.0e+00, gradients 0.0e+00, {way} 5.0e-01" in summary([row])


def test_a_way_that_jax_refuses_is_not_compared() -> None:
    @jax.custom_vjp
    def double(x: jax.Array) -> jax.Array:
        return 2.0 * x

    def backward(_: None, cotangent: jax.Array) -> tuple[jax.Array]:
        return (jax.lax.while_loop(lambda ct: jnp.any(ct < 0), lambda ct: -ct, 2.0 * cotangent),)

    double.defvjp(lambda x: (2.0 * x, None), backward)
    in_reverse = [way for way in WAYS if way.in_jax is reverse]
    assert in_reverse
    assert not list(products(lambda x: jnp.sum(jnp.sin(double(x))), (jnp.ones(2),), in_reverse))
