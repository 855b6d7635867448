"""The options of compiling: the same on `jit`, `grad`, `value_and_grad`, `vjp`, `compile`, in rematc and rematc.jax."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax

OPTIONS = {"policy", "static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "compiler_options"}
MODULES: list[Any] = [rematc, rematc.jax]
X = np.linspace(0, 1, 4, dtype=np.float32)
UNKNOWN: Any = {"xla_no_such_option": True}


def loss(w: Any, x: Any, n: Any = 2, train: Any = True) -> Any:
    for _ in range(n):
        w = w * x
    return (w * w).sum() if train else w.sum()


@pytest.mark.parametrize("module", MODULES, ids=["rematc", "rematc.jax"])
@pytest.mark.parametrize("name", ["jit", "grad", "value_and_grad", "vjp"])
def test_every_entry_takes_the_same_options(module: Any, name: str) -> None:
    parameters = inspect.signature(getattr(module, name)).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    assert takes_any or parameters.keys() >= OPTIONS


@pytest.mark.parametrize("module", MODULES, ids=["rematc", "rematc.jax"])
def test_static_arguments_and_flags(module: Any) -> None:
    for by in ({"static_argnums": 2}, {"static_argnames": "n"}):
        jitted, gradient = module.jit(loss, **by), module.grad(loss, **by)
        for n, train in ((1, True), (3, True), (3, False)):
            expected = jax.value_and_grad(loss)(jnp.asarray(X), X, n, train)
            np.testing.assert_allclose(jitted(X, X, n, train), expected[0], rtol=1e-5)
            np.testing.assert_allclose(gradient(X, X, n, train=train), expected[1], rtol=1e-5)
            pulled = module.vjp(loss, X, X, n, train, **by)
            np.testing.assert_allclose(pulled[1](np.float32(1))[0], expected[1], rtol=1e-5)


def test_what_is_static_has_no_gradient() -> None:
    for module in MODULES:
        with pytest.raises(rematc.CompileError, match="argument 0 of 'loss' is in argnums and in static_argnums"):
            module.grad(loss, static_argnums=0)(3.0, X)


def test_flags_mean_the_same_in_a_trace_and_outside() -> None:
    def choose(x: Any, flag: Any) -> Any:
        return x if flag else -x

    function = rematc.jit(choose)
    assert [float(function(2.0, flag)) for flag in (True, False, True)] == [2.0, -2.0, 2.0]
    assert float(rematc.jit(lambda x: function(x, False))(2.0)) == -2.0
    assert float(rematc.jit(lambda x, mode: x if mode == "a" else -x)(2.0, "b")) == -2.0
    kept = rematc.jit(lambda x, mask: np.where(mask, x, -x))
    assert float(kept(2.0, np.bool_(False))) == -2.0, "a truth value of NumPy's is an array"
    assert float(kept(2.0, True)) == 2.0


# -- donation ---------------------------------------------------------------------------------------------------------

DONATING: dict[str, Callable[[Any, Any], Any]] = {
    "jit": lambda module, x: module.jit(lambda x: x + 1, donate_argnums=0)(x),
    "jit by name": lambda module, x: module.jit(lambda x: x + 1, donate_argnames="x")(x=x),
    "grad": lambda module, x: module.grad(lambda x: (x * x * x).sum(), donate_argnums=0)(x),
    "value_and_grad": lambda module, x: module.value_and_grad(lambda x: (x * x).sum(), donate_argnums=0)(x),
    "vjp": lambda module, x: module.vjp(lambda x: x * x * x, x, donate_argnums=0),
}


@pytest.mark.parametrize("module", MODULES, ids=["rematc", "rematc.jax"])
@pytest.mark.parametrize("entry", DONATING)
def test_what_is_donated_is_gone(module: Any, entry: str) -> None:
    x, kept = jnp.arange(4.0), jnp.arange(4.0)
    DONATING[entry](module, x)
    assert x.is_deleted()
    assert not kept.is_deleted()


def test_a_program_compiled_ahead_takes_over_what_is_donated() -> None:
    def added(x: Any, y: Any) -> Any:
        return x + y

    lowered: Any = rematc.jit(added, donate_argnums=0)
    for compiled in (lowered.lower(X, X).compile(), rematc.compile(lowered, X, X)):
        assert compiled.memory().alias_bytes == X.nbytes
        x, y = jnp.asarray(X), jnp.array(X)
        compiled(x, y)
        assert x.is_deleted() and not y.is_deleted()
    assert rematc.compile(lambda x: x + 1, X, donate_argnames="x").memory().alias_bytes == X.nbytes


# -- XLA's options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES, ids=["rematc", "rematc.jax"])
def test_compiler_options_reach_xla(module: Any) -> None:
    """An option that XLA does not know shows it."""
    entries: list[Callable[[], Any]] = [
        lambda: module.jit(lambda x: x + 1, compiler_options=UNKNOWN)(X),
        lambda: module.grad(lambda x: x.sum(), compiler_options=UNKNOWN)(X),
        lambda: module.vjp(lambda x: x * x, X, compiler_options=UNKNOWN),
    ]
    for entry in entries:
        with pytest.raises(Exception, match="xla_no_such_option"):
            entry()


# -- ahead of time ----------------------------------------------------------------------------------------------------


def test_what_derivatives_return_can_be_lowered_as_in_jax() -> None:
    for function in (rematc.value_and_grad(loss), rematc.grad(loss, static_argnames="n"), rematc.jit(loss)):
        aot: Any = function
        compiled = aot.lower(X, X, train=True).compile()
        found, expected = compiled(X, X, train=True), function(X, X, train=True)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_compiled_function_is_not_called_with_other_flags() -> None:
    """It ran the program of the flag that it was compiled for, silently."""
    compiled = rematc.compile(rematc.value_and_grad(loss, static_argnums=2), X, X, 1, True)
    compiled(X, X, 1, True)
    for arguments in ((X, X, 1, False), (X, X, 2, True)):
        for _ in range(2):
            with pytest.raises(rematc.CompileError, match=r"was compiled for .* as args"):
                compiled(*arguments)


def weighted(x: Any, policy: Any, target: Any = 1.0) -> Any:
    return (x * policy * target).sum()


def test_keywords_of_the_users_function_are_the_users() -> None:
    lowered: Any = rematc.jit(weighted)
    assert float(lowered.lower(X, policy=X, target=X).compile()(X, policy=X, target=X)) > 0
    for name in ("policy", "target"):
        with pytest.raises(rematc.CompileError, match=f"'{name}' is an option of rematc.compile and rematc.lower, and"):
            rematc.compile(weighted, X, **{name: "cpu"})
    # What is given by position cannot be meant, and an array is no target.
    assert rematc.compile(weighted, X, X, X, target="cpu", policy="dots").executable.target.platform == "cpu"
    assert rematc.lower(lambda x, target: x + target, X, target=X).program.leaf_types[1].shape == X.shape
    assert rematc.compile(lambda x: x + 1, X, target="cpu").executable.target.platform == "cpu"


def test_a_policy_of_jit_is_that_of_derivatives_without_one() -> None:
    def layers(w: Any, x: Any) -> Any:
        return np.sum(np.sin(np.sin(x @ w) @ w))

    w, x = np.eye(4, dtype=np.float32), np.ones((3, 4), np.float32)

    def saved(function: Any, **options: Any) -> list[str]:
        rows = rematc.compile(function, w, x, **options).saved_residuals()
        return sorted(str(row.type) for row in rows if not row.is_argument)

    plain, own = rematc.value_and_grad(layers), rematc.value_and_grad(layers, policy="none")
    expected = saved(rematc.value_and_grad(layers, policy="dots"))
    assert saved(plain) != expected
    assert saved(rematc.jit(plain, policy="dots")) == saved(plain, policy="dots") == expected
    assert saved(rematc.value_and_grad(rematc.jit(layers, policy="dots"))) == expected
    assert saved(rematc.jit(own, policy="dots")) == saved(plain), "its own policy is none"


def test_a_policy_of_jit_in_jax() -> None:
    def layers(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(jnp.sin(x @ w) @ w))

    w, x = jnp.eye(4), jnp.ones((3, 4))

    def products(function: Any) -> int:
        return str(function.trace(w, x).jaxpr).count("dot_general[")

    gradient = rematc.jax.grad(layers)
    nothing = products(rematc.jax.jit(rematc.jax.grad(layers, policy="nothing")))
    assert products(rematc.jax.jit(gradient, policy="nothing")) == nothing
    assert products(rematc.jax.jit(gradient)) < nothing


# -- graphs -----------------------------------------------------------------------------------------------------------


def test_graphs_stand_in_the_place_of_functions() -> None:
    def cube(x: Any) -> Any:
        return np.sum(x * x * x)

    traced = rematc.trace(cube, X)
    graphs: list[Any] = [
        traced,
        rematc.from_stablehlo(rematc.lower(cube, X).stablehlo()),
        rematc.parse(rematc.ir.print(traced)),
    ]
    entries: Any = rematc
    for graph in graphs:
        assert float(entries.jit(graph)(X)) == pytest.approx(float(cube(X)))
        np.testing.assert_allclose(entries.grad(graph)(X), 3 * X * X, rtol=1e-6)
        np.testing.assert_allclose(entries.value_and_grad(graph, policy="nothing")(X)[1], 3 * X * X, rtol=1e-6)
        np.testing.assert_allclose(entries.vjp(graph, X)[1](np.float32(1))[0], 3 * X * X, rtol=1e-6)
        assert float(entries.compile(graph, X)(X)) == pytest.approx(float(cube(X)))
        assert "multiply" in rematc.lower(graph, X).stablehlo()
    with pytest.raises(rematc.CompileError, match=r"the graph 'cube' takes f32\[4\] as x, got f32\[2\]"):
        rematc.jit(traced)(X[:2])  # type: ignore[arg-type]  # a graph


def test_prevent_cse_has_one_default() -> None:
    for module in MODULES:
        assert inspect.signature(module.checkpoint).parameters["prevent_cse"].default is None


def test_caches_can_be_cleared() -> None:
    traced = 0

    def function(x: Any) -> Any:
        nonlocal traced
        traced += 1
        return (x * x).sum()

    for module in MODULES:
        traced = 0
        jitted, gradient = module.jit(function), module.grad(function)
        counts = []
        for _ in range(2):
            for _ in range(2):
                jitted(X), gradient(X)
            counts.append(traced)
            rematc.clear_caches()
        assert counts == [2, 4]


def test_a_positional_only_argument_is_static_and_leaves_a_keyword_of_its_name_alone() -> None:
    def scaled(n: int, /, **arrays: Any) -> Any:
        return arrays["n"] * range(n)[-1]

    np.testing.assert_array_equal(rematc.jit(scaled, static_argnums=0)(3, n=X), 2 * X)
