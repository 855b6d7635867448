"""The collector rests while graphs are made, and never while the user's code runs, in whichever thread."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.debug
import rematc.jax
from rematc.ir.collecting import collection_paused, users_code
from rematc.passes.dce import DeadCode

X = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector is on before a test, and after it."""
    assert gc.isenabled()
    yield
    assert gc.isenabled()


def test_it_rests_in_ours_but_not_in_the_users_blocks() -> None:
    seen = []
    with collection_paused():
        seen.append(gc.isenabled())
        with users_code():
            seen.append(gc.isenabled())
            with collection_paused(), collection_paused():
                seen.append(gc.isenabled())
            seen.append(gc.isenabled())
        seen.append(gc.isenabled())
    assert seen == [False, True, False, True, False]


def test_an_error_leaves_no_trace() -> None:
    with pytest.raises(ValueError, match="theirs"), collection_paused(), users_code():
        raise ValueError("theirs")
    assert gc.isenabled()


def test_what_the_user_sets_stays() -> None:
    try:
        with collection_paused():
            with users_code():
                gc.disable()
            with users_code():
                assert not gc.isenabled()
        assert not gc.isenabled()
        with collection_paused(), users_code():
            gc.enable()
        assert gc.isenabled()
    finally:
        gc.enable()


def test_it_is_one_for_all_threads() -> None:
    with ThreadPoolExecutor(1) as pool:

        def entered(block: Any) -> Any:
            pool.submit(block.__enter__).result(5)
            return block

        def left(block: Any) -> None:
            pool.submit(block.__exit__, None, None, None).result(5)

        theirs = entered(collection_paused())
        with collection_paused():
            left(theirs)
            assert not gc.isenabled()  # this thread is not done
            theirs = entered(users_code())
            assert gc.isenabled()  # that one runs the user's code
            left(theirs)
            assert not gc.isenabled()
        theirs = entered(collection_paused())
        with users_code():
            assert gc.isenabled()
        assert not gc.isenabled()
        left(theirs)


def loss(note: Callable[[], Any]) -> Callable[..., Any]:
    """A NumPy function that makes a note where it is traced, in its own body and in a region."""

    def layer(x: Any) -> Any:
        note()
        return np.sin(x) * x

    def run(x: Any) -> Any:
        note()
        return np.sum(rematc.checkpoint(layer)(x))

    return run


def jax_loss(note: Callable[[], Any]) -> Callable[..., Any]:
    """A JAX function, with rules of its own, that makes a note where it, or a rule, is traced."""

    @jax.custom_jvp
    def double(x: Any) -> Any:
        note()
        return x + x

    @double.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        note()
        return double(primals[0]), tangents[0] + tangents[0]

    return lambda x: jnp.sum(jnp.sin(double(x)))


def calling(note: Callable[[], Any]) -> Callable[..., Any]:
    """A function that makes a note where it runs."""

    def run(x: Any) -> Any:
        rematc.debug.callback(lambda _: note(), x)
        return x

    return run


CALLS: dict[str, Callable[[Callable[[], Any]], object]] = {
    "jit": lambda note: rematc.jit(loss(note))(X),
    "value_and_grad": lambda note: rematc.value_and_grad(loss(note), policy="nothing")(X),
    "grad of grad": lambda note: (
        rematc.lower(rematc.vmap(rematc.grad(rematc.grad(np.sin))), X) and rematc.lower(rematc.hessian(loss(note)), X)
    ),
    "vjp": lambda note: rematc.vjp(loss(note), X),
    "lower": lambda note: rematc.lower(rematc.grad(loss(note)), X, after_each=lambda text, graph: note()),
    "a policy": lambda note: rematc.lower(rematc.grad(loss(note), policy=lambda *asked: bool(note())), X),
    "from_jax": lambda note: rematc.lower(rematc.grad(rematc.from_jax(jax_loss(note))), X),
    "rematc.jax": lambda note: jax.make_jaxpr(jax.jacfwd(rematc.jax.grad(jax_loss(note))))(X),
    "a callback": lambda note: rematc.jit(calling(note))(X),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_users_code_runs_with_the_collector_on(call: str) -> None:
    notes: list[bool] = []

    def note() -> bool:
        notes.append(gc.isenabled())
        return True

    with collection_paused():  # as where a call is made while we differentiate
        CALLS[call](note)
    assert notes
    assert all(notes)


def test_passes_run_with_the_collector_off(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = DeadCode.run, []

    def noting(self: DeadCode, graph: Any) -> Any:
        seen.append(gc.isenabled())
        return run(self, graph)

    monkeypatch.setattr(DeadCode, "run", noting)
    rematc.lower(rematc.grad(loss(lambda: None)), X)
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("policy", ["nothing", None])
def test_there_is_little_to_collect(policy: str | None) -> None:
    """Programs that are compared hold no graphs beyond their time: what has none of the collector must free itself."""

    def collected(layers: int) -> int:
        def loss(weights: Any, x: Any) -> Any:
            for w in weights:
                x = x + np.tanh(np.tanh(x @ w) * 2 + 1) @ w
            return np.sum(x * x)

        gc.collect()
        gc.disable()
        try:
            rematc.lower(rematc.value_and_grad(loss, policy=policy), [np.eye(3, dtype=np.float32)] * layers, X)
            return gc.collect()
        finally:
            gc.enable()

    collected(2)
    assert collected(22) - collected(2) < 20 * 20
