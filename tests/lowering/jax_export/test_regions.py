"""Loops, branches, checkpoints and custom derivatives as JAX functions, against our own derivatives of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import rematc
from rematc.compiler.tracing.derivative_order import of_order
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.types import F32, I32, TensorType
from rematc.lowering.jax_export.exporting import jax_function

#: Any: what is called with tracers for arrays.
traced: Any = rematc
X = np.linspace(0.2, 1.4, 6).reshape(2, 3).astype(np.float32)
Function = Callable[..., Any]


@traced.custom_jvp  # type: ignore[untyped-decorator]  # Any, as said
def doubled_slope(x: Any) -> Any:
    return np.sin(x)


@doubled_slope.defjvp  # type: ignore[untyped-decorator]  # Any, as said
def _doubled(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return np.sin(x), 2 * np.cos(x) * t


@traced.custom_vjp  # type: ignore[untyped-decorator]  # Any, as said
def tripled_slope(x: Any) -> Any:
    return np.sin(x)


tripled_slope.defvjp(lambda x: (np.sin(x), np.cos(x)), lambda cosine, ct: (3 * cosine * ct,))


def loop(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        return np.sin(carry) * row, carry

    last, every = traced.scan(step, x[0], x)
    return np.sum(last) + np.sum(every * every)


def bounded(x: Any) -> Any:
    state = traced.while_loop(lambda s: np.sum(s[1]) < 40, lambda s: (s[0] + 1, s[1] * 1.5), (np.int32(0), x))
    return np.sum(np.sin(state[1]))


def chosen(x: Any) -> Any:
    return np.sum(traced.switch((x[0, 0] > 0).astype(np.int32), [np.cos, np.sin], x))


def checkpointed(x: Any) -> Any:
    return np.sum(traced.checkpoint(lambda y: np.sin(np.sin(y) * y), policy="names=a")(x))


def nested(x: Any) -> Any:
    @traced.checkpoint  # type: ignore[untyped-decorator]  # as above
    def outer(y: Any) -> Any:
        return traced.checkpoint(lambda z: np.sin(np.exp(z)))(y) * y

    return np.sum(outer(x))


def called(x: Any) -> Any:
    function = traced.jit(lambda y: np.sin(y) * y)
    return np.sum(function(function(x)))


FUNCTIONS = {
    "scan": loop,
    "while": bounded,
    "case": chosen,
    "checkpoint": checkpointed,
    "nested checkpoints": nested,
    "call": called,
    "custom_jvp": lambda x: np.sum(doubled_slope(x) * x),
    "custom_vjp": lambda x: np.sum(tripled_slope(x) * x),
}


def exported(function: Function) -> Function:
    """The function's graph as a JAX function; custom rules are traced where a derivative is taken."""
    with of_order(2):
        graph: Graph = traced.trace(function, X)
    return lambda x: jax_function(graph)(x)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_derivative_are_ours(name: str) -> None:
    function = FUNCTIONS[name]
    taken = exported(function)
    np.testing.assert_allclose(jax.jit(taken)(X), traced.jit(function)(X), rtol=1e-6)
    if name == "while":  # which has no backward derivative
        _, slope = jax.jit(lambda x: jax.jvp(taken, (x,), (x,)))(X)
        np.testing.assert_allclose(slope, traced.jvp(function, (X,), (X,))[1], rtol=1e-5)
        return
    np.testing.assert_allclose(jax.jit(jax.grad(taken))(X), traced.grad(function)(X), rtol=1e-5)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"while"}))
def test_jax_batches_and_differentiates_again(name: str) -> None:
    function = FUNCTIONS[name]
    taken = exported(function)
    batch = np.stack([X, X + 0.1])
    found = jax.jit(jax.vmap(jax.grad(taken)))(batch)
    np.testing.assert_allclose(found, np.stack([traced.grad(function)(x) for x in batch]), rtol=1e-5)
    twice = jax.jit(jax.grad(lambda x: jax.numpy.sum(jax.grad(taken)(x) ** 2)))(X)
    np.testing.assert_allclose(twice, traced.grad(lambda x: np.sum(traced.grad(function)(x) ** 2))(X), rtol=1e-4)


def test_an_index_outside_takes_the_last_branch() -> None:
    def branch(factor: int) -> Graph:
        b = Builder("branch")
        x = b.parameter(TensorType(F32, X.shape))
        return b.build(b.scale(x, factor))

    b = Builder("case")
    index, x = b.parameter(TensorType(I32, ())), b.parameter(TensorType(F32, X.shape))
    graph = b.build(*b.emit(Case((branch(1), branch(2), branch(3))), index, x))
    for number in (-5, 0, 1, 2, 7):
        (found,) = jax_function(graph)(np.int32(number), X)
        np.testing.assert_allclose(found, X * (number + 1 if 0 <= number < 3 else 3), rtol=1e-6)


def test_what_a_checkpoint_saves_is_what_its_policy_says() -> None:
    """JAX's forward part of the gradient has the residuals of our partial evaluation: the sine by its name alone."""

    def function(x: Any) -> Any:
        return np.sum(np.sin(traced.checkpoint_name(np.exp(x), "kept")))

    taken = exported(traced.checkpoint(function, policy="names=kept"))
    backward = str(jax.make_jaxpr(jax.vjp(taken, X)[1])(np.float32(1)))
    assert backward.count(" cos ") == 1
    assert backward.count(" exp ") == 0
    taken = exported(traced.checkpoint(function))
    assert str(jax.make_jaxpr(jax.vjp(taken, X)[1])(np.float32(1))).count(" exp ") == 1


def test_functions_that_are_not_inlined_stay_functions_in_xla() -> None:
    graph = rematc.lower(
        rematc.grad(traced.checkpoint(lambda x: np.sum(np.sin(np.sin(x))))), X, passes="barriers{strategy=call}"
    )
    compiled = jax.jit(jax_function(graph.graph)).lower(X).compile()
    (line,) = [line for line in (compiled.as_text() or "").splitlines() if " call(" in line and "to_apply" in line]
    assert 'inlineable="false"' in line


def test_programs_print_once_under_a_derivative(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        traced.debug.print("at {}", x[0, 0])
        return np.sum(np.sin(x))

    taken = exported(traced.checkpoint(function))
    np.asarray(jax.jit(jax.grad(taken))(X))
    jax.effects_barrier()  # type: ignore[no-untyped-call]  # JAX leaves it without annotations
    assert capsys.readouterr().out.count("at 0.2") == 1


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the order is XLA:CPU's")
def test_convolutions_have_the_order_of_dimensions_that_the_cpu_is_fast_with_in_functions() -> None:
    """Channels stand in front in the function that is imported."""
    image, kernel = np.ones((1, 1, 8, 8), np.float32), np.full((1, 1, 3, 3), 1 / 9, np.float32)

    def blurred(x: Any, k: Any) -> Any:
        return jax.lax.conv(x, k, (1, 1), "SAME")

    lowered = rematc.lower(rematc.from_jax(blurred), image, kernel)
    assert "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]" in lowered.stablehlo()
    taken = jax.jit(jax_function(lowered.graph))
    assert "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" in taken.lower(image, kernel).as_text()
    np.testing.assert_allclose(taken(image, kernel)[0][0, 0, 1:-1, 1:-1], 1, rtol=1e-6)
