"""Whole programs that the lowering writes come back: loops, branches, calls, barriers, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.interpreter import evaluate
from rematc.ir.values import Array
from rematc.ir.verifier import verify
from rematc.passes.linearize import vjp
from tests.support.samples import in_double

X = np.linspace(-1, 1, 12, dtype=np.float64).reshape(4, 3)
W = np.linspace(-0.5, 0.5, 9, dtype=np.float64).reshape(3, 3)


def looped(w: Any, x: Any) -> Any:
    found: Any = rematc.scan(lambda carry, row: (np.tanh(carry @ w + row), carry), np.zeros(3), x)
    last, rows = found
    return np.sum(last * last) + np.sum(rows[1:])


def branched(w: Any, x: Any) -> Any:
    y: Any = rematc.cond(x[0, 0] > 0, lambda z: np.sin(z @ w), lambda z: np.cos(z @ w), x)
    z: Any = rematc.switch(2, [np.exp, np.sin, np.tanh], y)
    return np.sum(z)


def halved(w: Any, x: Any) -> Any:
    """The loop ends when the norm is small; only its result is differentiated."""
    small: Any = rematc.while_loop(lambda y: np.sum(y * y) > 0.1, lambda y: y * 0.5, x)
    return small @ w


def checkpointed(w: Any, x: Any) -> Any:
    layer = rematc.checkpoint(lambda z: np.tanh(z @ w))
    return np.sum(layer(layer(layer(x))))


def sorted_and_summed(w: Any, x: Any) -> Any:
    return np.sum(np.sort(x @ w, axis=0) * np.arange(12.0).reshape(4, 3)) + np.sum(np.cumsum(x @ w, axis=1)[:, 1])


STEPS: dict[str, tuple[Callable[..., Any], Sequence[Array]]] = {
    "scan": (rematc.value_and_grad(looped), (W, X)),
    "branches": (rematc.value_and_grad(branched), (W, X)),
    "while": (halved, (W, X)),
    "checkpoints": (rematc.value_and_grad(checkpointed), (W, X)),
    "checkpointed scan": (rematc.value_and_grad(rematc.checkpoint(looped)), (W, X)),
    "sorts": (rematc.value_and_grad(sorted_and_summed), (W, X)),
}


@pytest.mark.parametrize("name", STEPS)
def test_programs_come_back_with_the_same_meaning(name: str) -> None:
    function, args = STEPS[name]
    lowered = rematc.lower(function, *args)
    imported = rematc.from_stablehlo(lowered.stablehlo())
    verify(imported)
    assert imported.param_types == lowered.graph.param_types
    for found, wanted in zip(evaluate(imported, args), evaluate(lowered.graph, args), strict=True):
        np.testing.assert_allclose(in_double(found), in_double(wanted), rtol=1e-12, atol=1e-14)  # sums in two orders


def test_what_comes_back_is_differentiated_again() -> None:
    """The derivative of an imported loss is that of the function which was lowered."""
    imported = rematc.from_stablehlo(rematc.lower(looped, W, X).stablehlo())
    pulled = vjp(imported, [True, False])
    _, *residuals = evaluate(pulled.forward, [W, X])
    (found,) = evaluate(pulled.backward, [*residuals, np.ones(())])
    expected: Any = rematc.grad(looped)(W, X)
    np.testing.assert_allclose(in_double(found), expected, rtol=1e-10)
