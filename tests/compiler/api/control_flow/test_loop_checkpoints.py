"""Checkpoints and policies in loops, around loops, and of loops: what is saved, recomputed and kept apart."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rematc
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph
from rematc.ir.ops.scan.op import Scan

X = np.linspace(0.1, 0.7, 4)


# -- barriers ------------------------------------------------------------------------------------------------------


def barriers(checkpointing: dict[str, Any], **options: Any) -> int:
    """How many barriers the gradient of a loop of eight checkpointed steps has."""

    def loss(x: Any, w: Any) -> Any:
        step = rematc.checkpoint(lambda c, _: (np.sin(np.sin(c * w)), None), **checkpointing)
        return rematc.scan(step, x, None, 8, **options)[0].sum()  # type: ignore[attr-defined]  # an array

    return rematc.lower(rematc.value_and_grad(loss, (0, 1)), X, X).stablehlo().count("stablehlo.optimization_barrier")


@pytest.mark.parametrize("options", [{}, {"unroll": 4}, {"levels": (2, 4)}, {"snapshots": 2}], ids=str)
def test_steps_need_no_barrier_unless_it_is_asked_for(options: dict[str, Any]) -> None:
    """Between the forward loop and the backward one XLA merges nothing, so the compiler puts none there.

    With some, the zeros that several loops begin with stand behind one more.
    """
    steps_at_once = options.get("unroll", 1)
    assert barriers({}, **options) == 0
    assert barriers({"prevent_cse": True}, **options) == steps_at_once + 1
    assert barriers({"prevent_cse": (True, False)}, **options) == steps_at_once + 1
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

    assert rematc.lower(rematc.grad(loss), X).stablehlo().count("stablehlo.optimization_barrier") == 1


def test_a_branch_needs_no_barrier_unless_it_is_asked_for() -> None:
    def barriers_of(**options: Any) -> int:
        def loss(x: Any) -> Any:
            inner = rematc.checkpoint(lambda x: np.sin(np.sin(x)).sum(), **options)
            return rematc.cond(x.sum() > 0, inner, lambda x: x.sum(), x)

        return rematc.lower(rematc.grad(loss), X).stablehlo().count("stablehlo.optimization_barrier")

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


# -- what is saved -------------------------------------------------------------------------------------------------

STEPS, INNER = 6, 3
W, XS = np.linspace(0.2, 0.9, 4), np.linspace(-1, 1, STEPS * 4).reshape(STEPS, 4)
POLICIES = [None, "nothing", "dots", "everything"]


def saved(loss: Any, *args: Any, policy: Any = None) -> list[tuple[tuple[int, ...], str]]:
    """Shape and op of each residual that is no argument."""
    (record,) = rematc.lower(rematc.value_and_grad(loss, policy=policy), *args).records
    assert isinstance(record, Differentiation)
    rows = [row for row in record.vjp.residuals if row.param is None]
    return [(row.value.type.shape, row.source.op.name) for row in rows if row.source is not None]


def nested(step: Any) -> Any:
    """A loop of three steps in each of six."""

    def loss(w: Any, x: Any) -> Any:
        def outer(c: Any, s: Any) -> Any:
            return rematc.scan(lambda d, u: (step(w, s, d) * u, None), c, XS[:INNER])[0], None

        return rematc.scan(outer, x, XS)[0].sum()  # type: ignore[attr-defined]  # an array

    return loss


@pytest.mark.parametrize("policy", POLICIES)
def test_what_no_loop_changes_is_stacked_by_none(policy: Any) -> None:
    """exp(w) and its sine follow from what both loops are given: they cross as they are, if they are saved at all."""
    rows = saved(nested(lambda w, s, d: d * np.sin(np.exp(w))), W, X, policy=policy)
    assert all(shape == (4,) for shape, name in rows if name in ("exponential", "sine", "cosine"))
    if policy in (None, "everything"):
        assert "exponential" in [name for _, name in rows]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_inner_loop_does_not_change_is_stacked_by_the_outer_alone(policy: Any) -> None:
    rows = saved(nested(lambda w, s, d: d * np.exp(w * s)), W, X, policy=policy)
    assert all(shape == (STEPS, 4) for shape, name in rows if name == "exponential")
    assert (policy in (None, "everything")) == ("exponential" in [name for _, name in rows])


def test_products_of_what_does_not_change_are_saved_once() -> None:
    square = np.diag(W)
    rows = saved(nested(lambda w, s, d: np.sin((w @ w) @ d)), square, X, policy="dots")
    products = [shape for shape, name in rows if name == "dot_general"]
    assert sorted(products) == [(4, 4), (STEPS, INNER, 4)]


def test_constants_and_masks_are_never_saved() -> None:
    def loss(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            mask = np.tri(4) @ np.arange(4.0) > 2
            return np.where(mask, np.sin(c), c * np.float64(3)), None

        return rematc.scan(step, x, None, STEPS)[0].sum()  # type: ignore[attr-defined]  # an array

    for policy in POLICIES:
        assert {name for _, name in saved(loss, X, policy=policy)} <= {"cosine"}


def test_a_stack_that_is_also_a_result_is_kept_once() -> None:
    """The carries of all steps are results: what the backward pass reads of them is no second stack."""

    def loss(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            h = np.exp(c)
            return h, h

        return (rematc.scan(step, x, None, STEPS)[1] ** 2).sum()  # type: ignore[operator]  # an array

    (record,) = rematc.lower(rematc.value_and_grad(loss), X).records
    assert isinstance(record, Differentiation)
    stacks = {row.value for row in record.vjp.residuals if row.value.type.shape == (STEPS, 4)}
    loop = next(eqn for eqn in record.vjp.forward.equations if isinstance(eqn.op, Scan))
    assert len([value for value in loop.results if value in stacks]) <= 1
    assert len(loop.results) == 2


@pytest.mark.parametrize(("policy", "names"), [("names=k", {"k"}), ("names=h", {"h"}), ("names=k,h", {"k", "h"})])
@pytest.mark.parametrize("is_on_step", [True, False])
def test_names_in_a_step_are_saved_by_name(policy: str, names: set[str], is_on_step: bool) -> None:
    """`k` is the same in all steps and crosses as it is; `h` is stacked."""

    def loss(w: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            k = rematc.checkpoint_name(np.exp(w), "k")
            return rematc.checkpoint_name(np.sin(c * k), "h") * k, None

        wrapped = rematc.checkpoint(step, policy=policy) if is_on_step else step
        return rematc.scan(wrapped, x, None, STEPS)[0].sum()  # type: ignore[attr-defined]  # an array

    (record,) = rematc.lower(rematc.value_and_grad(loss, policy=None if is_on_step else policy), W, X).records
    assert isinstance(record, Differentiation)
    labelled = {row.label: row.value.type.shape for row in record.vjp.residuals if row.label}
    assert labelled == {name: {"k": (4,), "h": (STEPS, 4)}[name] for name in names}


# -- what is not used goes -----------------------------------------------------------------------------------------


def loops_of(graph: Graph) -> list[Scan]:
    found = []
    for eqn in graph.equations:
        if isinstance(eqn.op, Scan):
            found.append(eqn.op)
        for region in eqn.op.regions():
            found.extend(loops_of(region))
    return found


def test_carries_and_results_that_nothing_uses_go_through_loops_in_loops() -> None:
    """Of four carries in two loops one reaches the result; the others and all stacks go, with what computes them."""

    def function(x: Any) -> Any:
        def inner(carry: Any, s: Any) -> Any:
            a, b, c, d = carry
            return (np.sin(a), np.cos(b) * a, c + d, d * s), (np.exp(a), b)

        def outer(carry: Any, s: Any) -> Any:
            carry, ys = rematc.scan(inner, carry, XS[:INNER])
            return carry, (ys, s)

        carry, _ = rematc.scan(outer, (x, x, x, x), XS)
        return carry[0]  # type: ignore[index]  # four arrays

    outer, inner = loops_of(rematc.lower(function, X).graph)
    assert [len(part) for part in (outer.body.params, outer.body.results)] == [1, 1]
    assert [len(part) for part in (inner.body.params, inner.body.results)] == [1, 1]
    assert [eqn.op.name for eqn in inner.body.equations] == ["sine"]


def test_cotangents_that_nobody_needs_are_not_carried() -> None:
    """The gradient in one of two independent carries."""

    def loss(x: Any, y: Any) -> Any:
        def step(carry: Any, s: Any) -> Any:
            a, b = carry
            return (np.sin(a) * s, np.cos(b) * s), None

        last: Any = rematc.scan(step, (x, y), XS)[0]
        return last[0].sum()

    forward, backward = loops_of(rematc.lower(rematc.grad(loss), X, X).graph)
    assert forward.carry == 1
    assert backward.carry == 1
    assert "sine" not in [eqn.op.name for eqn in backward.body.equations]
