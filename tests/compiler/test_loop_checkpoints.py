"""Checkpoints and policies in loops, around loops, and of loops: what is saved, recomputed and kept apart."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rematc

X = np.linspace(0.1, 0.7, 4)


# -- barriers ------------------------------------------------------------------------------------------------------


def barriers(checkpointing: dict[str, Any], **options: Any) -> int:
    """How many barriers the gradient of a loop of eight checkpointed steps has."""

    def loss(x: Any, w: Any) -> Any:
        step = rematc.checkpoint(lambda c, _: (np.sin(np.sin(c * w)), None), **checkpointing)
        return rematc.scan(step, x, None, 8, **options)[0].sum()  # type: ignore[attr-defined]  # an array

    return rematc.lower(rematc.value_and_grad(loss, (0, 1)), X, X).stablehlo().count("optimization_barrier")


@pytest.mark.parametrize("options", [{}, {"unroll": 4}, {"levels": (2, 4)}, {"snapshots": 2}], ids=str)
def test_steps_need_no_barrier_unless_it_is_asked_for(options: dict[str, Any]) -> None:
    """Between the forward loop and the backward one XLA merges nothing, so the compiler puts none there."""
    steps_at_once = options.get("unroll", 1)
    assert barriers({}, **options) == 0
    assert barriers({"prevent_cse": True}, **options) == steps_at_once
    assert barriers({"prevent_cse": (True, False)}, **options) == steps_at_once
    assert barriers({"prevent_cse": False}, **options) == 0


@pytest.mark.parametrize("unroll", [True, 8, 5])
def test_steps_that_stand_one_after_another_need_their_barriers(unroll: int | bool) -> None:
    """There is no loop around them: XLA could merge the recomputation with the forward steps beside it."""
    assert barriers({}, unroll=unroll) == 8
    assert barriers({"prevent_cse": False}, unroll=unroll) == 0


def test_a_loop_of_one_step_needs_its_barrier() -> None:
    def loss(x: Any) -> Any:
        step = rematc.checkpoint(lambda c, _: (np.sin(np.sin(c)), None))
        return rematc.scan(step, x, None, 1)[0].sum()  # type: ignore[attr-defined]  # an array

    assert rematc.lower(rematc.grad(loss), X).stablehlo().count("optimization_barrier") == 1


def test_a_branch_needs_no_barrier_unless_it_is_asked_for() -> None:
    def barriers_of(**options: Any) -> int:
        def loss(x: Any) -> Any:
            inner = rematc.checkpoint(lambda x: np.sin(np.sin(x)).sum(), **options)
            return rematc.cond(x.sum() > 0, inner, lambda x: x.sum(), x)

        return rematc.lower(rematc.grad(loss), X).stablehlo().count("optimization_barrier")

    assert barriers_of() == 0
    assert barriers_of(prevent_cse=True) == 1


# -- memory --------------------------------------------------------------------------------------------------------


def temporary(function: Any, *arguments: Any) -> int:
    return rematc.compile(function, *arguments).memory().temp_bytes


@pytest.mark.parametrize("blocks", [4, 12])
def test_blocks_of_checkpointed_loops_need_the_memory_of_one(blocks: int) -> None:
    """The shape of jax#27748: loops of checkpointed steps in checkpoints, one block after another.

    While a block is taken backwards its carries are kept, and of the other blocks their first. XLA would make the
    stacks of all blocks at once if these began as constants: 12 blocks would need 1,200 carries.
    """
    steps, state = 100, np.ones((128, 64), np.float32)

    def loss(rate: Any, x: Any) -> Any:
        @rematc.checkpoint
        def step(c: Any, _: Any) -> Any:
            turned = np.sin(rate * c)
            return c + turned + np.cos(rate * turned), None

        for _ in range(blocks):
            x = rematc.checkpoint(lambda c: rematc.scan(step, c, None, steps)[0])(x)
        return x.sum()

    carries = temporary(rematc.value_and_grad(loss, (0, 1)), np.float32(0.8), state) / state.nbytes
    assert steps + blocks <= carries <= 1.1 * (steps + blocks)


def test_the_stack_of_one_loop_is_gone_before_that_of_the_next_but_one() -> None:
    """Layers over time, forwards alone: each needs the stack that it reads and the stack that it writes."""
    layers, xs = 8, np.ones((200, 8, 64), np.float32)

    def outputs(w: Any, xs: Any) -> Any:
        for _ in range(layers):
            xs = rematc.scan(lambda c, x: (np.tanh(c @ w + x),) * 2, xs[0], xs)[1]
        return xs[-1]

    assert temporary(outputs, np.ones((64, 64), np.float32), xs) < 2.5 * xs.nbytes


DTYPES = ["bool", "int8", "uint32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("stacked", DTYPES)
@pytest.mark.parametrize("carried", ["bool", "int32", "float64", "complex64"])
def test_what_a_stack_begins_with_is_never_seen(carried: str, stacked: str) -> None:
    """The first carry is of another element type, infinite where that is possible."""
    dtype = ml_dtypes.bfloat16 if stacked == "bfloat16" else stacked
    first = np.full(3, np.inf if carried in ("float64", "complex64") else 1).astype(carried)

    def loop(first: Any, xs: Any) -> Any:
        return rematc.scan(lambda c, x: (c, x.astype(dtype)), first, xs)[1]

    xs = np.array([[0, 1], [1, 0], [1, 1]])
    np.testing.assert_array_equal(np.asarray(rematc.jit(loop)(first, xs)), xs.astype(dtype))
