"""Loops, calls and regions in parts: what their graphs do along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax

import rematc
from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.slicings import SAME, Slicing, sum_dtype
from rematc.ir.types import BF16, F32, I32, TensorType
from rematc.ir.values import Array
from tests.support.drawing import Drawing, Hypothesis
from tests.support.parts import added_up, in_parts, ways
from tests.support.random_graphs import ROWS
from tests.support.samples import type_of


def equation_of(function: Callable[..., Any], *arguments: Any, op: type[Op] = Scan) -> Equation:
    """The last equation of an op in what JAX's function is traced to."""
    graph = rematc.trace(rematc.from_jax(function), *arguments)
    return [eqn for eqn in graph.equations if isinstance(eqn.op, op)][-1]


def check(eqn: Equation, slicing: Slicing, count: int, arrays: Sequence[Array]) -> None:
    """That the parts are the whole, and terms come in the element type in which they are added up."""
    whole = eqn.op.reference(arrays)
    parts = in_parts(eqn.op, slicing, count, arrays)
    for place, (d, expected) in enumerate(zip(slicing.results, whole, strict=True)):
        pieces = [part[place] for part in parts]
        if d == SAME:
            found = pieces
        elif d is not None:
            found = [np.concatenate(pieces, d)]
        elif slicing.into_of(place) is not None:
            found = pieces[-1:]
        else:
            assert {piece.dtype for piece in pieces} == {sum_dtype(type_of(expected).dtype).numpy}
            found = [np.asarray(added_up(pieces))]
        for one in found:
            rough = 1e-2 if expected.dtype.itemsize < 4 else 1e-4
            np.testing.assert_allclose(one.astype(complex), expected.astype(complex), rtol=rough, atol=rough)


def slicings_of(eqn: Equation) -> tuple[Slicing, ...]:
    return eqn.op.slicings(eqn.operand_types, eqn.result_types)


def check_all(eqn: Equation) -> tuple[Slicing, ...]:
    """The slicings of an equation, each of which is checked in all numbers of parts."""
    random = np.random.default_rng(0)
    arrays = []
    for type in eqn.operand_types:
        numbers = random.integers(0, 3, type.shape) if type.dtype.is_integer else random.normal(size=type.shape)
        arrays.append(np.asarray(numbers, type.dtype.numpy))
    for slicing, count in ways(eqn.op, arrays):
        check(eqn, slicing, count, arrays)
    return slicings_of(eqn)


W, H, XS = jnp.ones((4, 4)), jnp.ones((6, 4)), jnp.ones((3, 6, 4))


def cell(w: Any, h: Any, x: Any) -> Any:
    return jnp.tanh(h @ w + x)


def test_a_batch_goes_through_the_steps() -> None:
    """What is reset by a mask, a counter that all parts have, stacks of both."""

    def loop(w: Any, h: Any, xs: Any, is_reset: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, n = carry
            h = jnp.where(x[1][:, None], 0.0, h)
            return (cell(w, h, x[0]), n + 1), (h, n)

        return lax.scan(step, (h, 0), (xs, is_reset))

    eqn = equation_of(loop, W, H, XS, jnp.ones((3, 6), bool))
    assert check_all(eqn) == (Slicing((None, 0, None, 1, 1), (0, SAME, 1, SAME)),)


def test_what_is_summed_up_is_a_term_a_step_or_held() -> None:
    """Gradients of weights: of those of each step a stack of terms, of those of all steps one that parts add to."""

    def loss(shared: Any, own: Any, h: Any) -> Any:
        def step(h: Any, w: Any) -> Any:
            return jnp.sin(h @ w @ shared), None

        return lax.scan(step, h, own)[0].sum()

    eqn = equation_of(jax.grad(loss, (0, 1)), W, jnp.ones((3, 4, 4)), H)
    (found,) = [slicing for slicing in check_all(eqn) if slicing.is_sum]
    sums = [place for place, d in enumerate(found.results) if d is None]
    held = [place for place in sums if found.into_of(place) is not None]
    assert len(sums) == 2 and len(held) == 1
    assert [eqn.result_types[place].shape for place in sums if place not in held] == [(3, 4, 4)]


def test_terms_of_narrow_floats_are_wide() -> None:
    def loss(own: Any, h: Any) -> Any:
        return lax.scan(lambda h, w: (jnp.sin(h @ w), None), h, own)[0].sum()

    narrow = jnp.ones((3, 4, 4), jnp.bfloat16), jnp.ones((6, 4), jnp.bfloat16)
    eqn = equation_of(jax.grad(loss), *narrow)
    (found,) = [slicing for slicing in check_all(eqn) if slicing.is_sum]
    (place,) = [place for place, d in enumerate(found.results) if d is None]
    assert eqn.result_types[place] == TensorType(BF16, (3, 4, 4))


def test_tables_are_read_where_a_part_is() -> None:
    """Constants and counters, which stand in the body, along whatever dimension they are read."""
    b = Builder("body")
    x = b.parameter(TensorType(F32, (6, 6)), "x")
    table = b.constant(np.arange(36, dtype=np.float32).reshape(6, 6))
    rows = b.compare(b.iota(TensorType(I32, (6, 6)), 0), b.iota(TensorType(I32, (6, 6)), 1), "LT")
    y = b.select(rows, b.multiply(x, table), b.zeros(x.type))
    body = b.build(y, b.transpose(b.add(b.transpose(y, (1, 0)), table), (1, 0)))
    outer = Builder("main")
    outer.emit(Call(body), outer.parameter(x.type))
    assert check_all(outer.equations[0]) == (Slicing((0,), (0, 0)), Slicing((1,), (1, 1)))


def test_loops_in_loops_and_regions() -> None:
    def loss(w: Any, h: Any) -> Any:
        @jax.checkpoint
        def layer(h: Any, w: Any) -> Any:
            return lax.fori_loop(0, 2, lambda _, h: jnp.sin(h @ w), h)

        return lax.scan(lambda h, w: (layer(h, w), None), h, w)[0].sum()

    eqn = equation_of(jax.grad(loss), jnp.ones((3, 4, 4)), H)
    assert Scan in eqn.op.regions()[0].op_types and Checkpoint in eqn.op.regions()[0].op_types
    assert any(slicing.is_sum for slicing in check_all(eqn))


@pytest.mark.parametrize("op", [Call, Checkpoint])
def test_regions_are_what_they_hold(op: type[Call | Checkpoint]) -> None:
    b = Builder("body")
    x, w = b.parameter(TensorType(F32, (6, 4)), "x"), b.parameter(TensorType(F32, (4, 2)), "w")
    y = b.dot_general(x, w, ([1], [0]))
    body = b.build(y, b.reduce_sum(y, (0,)))
    outer = Builder("main")
    params = [outer.parameter(value.type) for value in body.params]
    outer.emit(op(body), *params)
    assert check_all(outer.equations[0]) == (Slicing((0, None), (0, None)), Slicing((None, 1), (1, 0)))


STEPS = {
    "a sum is read": lambda w, h, x: h * h.sum() + x,
    "a sum goes through a function": lambda w, h, x: h + jnp.sin(x.sum(0)),
    "rows are mixed": lambda w, h, x: jnp.flip(h, 0) + x,
    "rows are mixed by a product": lambda w, h, x: jnp.tril(jnp.ones((6, 6))) @ h + x,
    "a sum divides": lambda w, h, x: (h, w[0, 0] / x.sum()),
    "to a sum something is added": lambda w, h, x: (h, x.sum() + w[0, 0]),
    "of a sum something is taken": lambda w, h, x: (h, w[0, 0] - x.sum()),
    "two sums are multiplied": lambda w, h, x: (h, x.sum() * jnp.abs(x).sum()),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_what_needs_all_rows_is_not_cut_along_them(step: Callable[..., Any]) -> None:
    def loop(w: Any, h: Any, xs: Any) -> Any:
        def both(h: Any, x: Any) -> Any:
            found = step(w, h, x)
            return found if isinstance(found, tuple) else (found, None)

        return lax.scan(both, h, xs)

    eqn = equation_of(loop, W, H, XS)
    assert not any(slicing.operands[-1] == 1 for slicing in check_all(eqn))


@pytest.mark.parametrize("seen", [lambda total: total, lambda total: total * 2], ids=["itself", "twice"])
def test_a_held_sum_that_a_step_reads_is_not_held(seen: Callable[..., Any]) -> None:
    def loop(total: Any, xs: Any) -> Any:
        return lax.scan(lambda total, x: (total + x.sum(), seen(total)), total, xs)

    assert not any(slicing.is_sum for slicing in check_all(equation_of(loop, jnp.ones(()), XS)))


def test_a_held_sum_of_what_goes_in_reverse() -> None:
    def loop(total: Any, xs: Any) -> Any:
        return lax.scan(lambda total, x: (total + x.sum(0), x * 2), total, xs, reverse=True)

    found = check_all(equation_of(loop, jnp.ones(4), XS))
    assert Slicing((None, 1), (None, 1), (0, None)) in found and Slicing((0, 2), (0, 2)) in found


def test_products_of_what_nothing_cuts_are_not_computed_for_each_part() -> None:
    def loop(w: Any, h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h @ (w @ w) + x, None), h, xs)

    assert not any(slicing.operands[-1] == 1 for slicing in check_all(equation_of(loop, W, H, XS)))


def test_branches_go_with_a_batch() -> None:
    """One gives parts, another one what is made alone; gradients are terms of one, and zeros of another."""

    def loss(w: Any, x: Any, n: Any) -> Any:
        return lax.switch(n, [lambda w, x: x @ w, lambda w, x: jnp.sin(x) * 2, lambda w, x: jnp.zeros((6, 4))], w, x)

    eqn = equation_of(loss, W, H, jnp.int32(1), op=Case)
    assert any(slicing.results == (0,) for slicing in check_all(eqn))
    eqn = equation_of(jax.grad(lambda *args: loss(*args).sum(), (0, 1)), W, H, jnp.int32(1), op=Case)
    assert any(set(slicing.results) == {None, 0} for slicing in check_all(eqn))


def test_terms_of_branches_are_wide_in_all_of_them() -> None:
    def loss(w: Any, x: Any, n: Any) -> Any:
        return lax.switch(n, [lambda w, x: x @ w, lambda w, x: jnp.sin(x)], w, x).sum()

    eqn = equation_of(jax.grad(loss, (0, 1)), W.astype(jnp.bfloat16), H.astype(jnp.bfloat16), jnp.int32(1), op=Case)
    assert any(slicing.is_sum for slicing in check_all(eqn))


def test_a_while_loop_goes_with_a_batch_if_its_condition_does_not() -> None:
    def loop(w: Any, h: Any, n: Any) -> Any:
        def body(carry: Any) -> Any:
            i, h, total = carry
            h = cell(w, h, 1.0)
            return i + 1, h, total + h.sum(0)

        return lax.while_loop(lambda carry: carry[0] < n, body, (0, h, jnp.zeros(4)))

    eqn = equation_of(loop, W, H, 3, op=While)
    (found,) = check_all(eqn)
    assert found.results == (SAME, 0, None) and found.into == (None, None, 4)

    def until(h: Any) -> Any:
        return lax.while_loop(lambda h: h.sum() < 100, lambda h: h * 2, h)

    assert slicings_of(equation_of(until, H, op=While)) == ()

    def until_held(h: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] + c[1].sum(), c[1] * 2), (jnp.zeros(()), h))

    assert slicings_of(equation_of(until_held, H, op=While)) == ()


def test_effects_happen_as_often_as_they_did() -> None:
    def loop(h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            jax.debug.print("step {}", x.sum())
            return h + x, None

        return lax.scan(step, h, xs)

    assert slicings_of(equation_of(loop, H, XS)) == ()


def test_what_calls_back_is_called_as_often_as_it_was() -> None:
    def loop(n: Any, xs: Any) -> Any:
        def step(n: Any, x: Any) -> Any:
            own = lax.cond(n > 2, lambda n: jax.pure_callback(np.sin, n, n), lambda n: n, n)
            return own, x * 2

        return lax.scan(step, n, xs)

    assert slicings_of(equation_of(loop, jnp.ones(()), XS)) == ()


def test_there_are_no_more_parts_inside_than_outside() -> None:
    """Six rows are two of three: of these there are two parts, and of the rows three and six as well."""

    def loop(h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h, jnp.sin(x.reshape(2, 3, 4)).reshape(6, 4)), h, xs)

    eqn = equation_of(loop, jnp.ones(()), XS)
    assert not any(slicing.operands[1] == 1 for slicing in check_all(eqn))


@st.composite
def random_equations(draw: st.DrawFn, op: type[Op]) -> Equation:
    """A random loop, call or region over arrays whose dimensions have several parts."""
    (row,) = [row for row in ROWS if row.ops == (op,)]
    b = Builder()
    shapes = [(), (2,), (4,), (4, 2), (2, 4), (2, 4, 2)]
    palette = (F32, I32)
    pool = [b.parameter(TensorType(dtype, shape)) for dtype in palette for shape in shapes]
    row.step(Drawing(Hypothesis(draw), b, pool, palette, 1))
    found = [eqn for eqn in b.equations if isinstance(eqn.op, op)]
    assume(found)
    return found[-1]


@pytest.mark.parametrize("op", [Scan, While, Case, Call, Checkpoint])
def test_random_bodies_in_parts_are_the_whole(op: type[Op]) -> None:
    found = 0

    @settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(random_equations(op))
    def draw(eqn: Equation) -> None:
        nonlocal found
        with np.errstate(all="ignore"):
            found += len(check_all(eqn))

    draw()
    assert found > 100
