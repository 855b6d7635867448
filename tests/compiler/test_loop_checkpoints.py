"""Checkpoints and policies in loops, around loops, and of loops: what is saved, recomputed and kept apart."""

from __future__ import annotations

from typing import Any

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
