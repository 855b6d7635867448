"""Loops through the public interface: the meaning of jax.lax.scan, its derivatives, what policies save in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.scan.op import Scan
from rematc.passes.accounting import flat_equations

RANDOM = np.random.default_rng(0)
W, X0, XS = RANDOM.normal(size=(4, 4)) / 2, RANDOM.normal(size=4), RANDOM.normal(size=(6, 4))


def close(found: Any, expected: Any) -> None:
    """Equal trees but for the order of sums, in float64."""
    ours, theirs = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert np.asarray(one).shape == np.asarray(other).shape
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def recurrence(scan: Any, lib: Any, wrap: Callable[[Any], Any] = lambda f: f, **options: Any) -> Any:
    """A loss over a scan that uses consts, carries, xs and ys."""

    def loss(w: Any, x0: Any, xs: Any) -> Any:
        @wrap
        def step(carry: Any, x: Any) -> Any:
            h, total = carry
            h = lib.sin(w @ h) + x
            h = lib.sin(w @ h)
            return (h, total + (h * x).sum()), lib.cos(h * x)

        (h, total), ys = scan(step, (x0, 0.0), xs, **options)
        return (h * h).sum() + total + (lib.sin(ys) ** 2).sum()

    return loss


# -- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, 4, True])
def test_is_the_loop(reverse: bool, unroll: int) -> None:
    def step(carry: Any, x: Any) -> Any:
        return {"h": carry["h"] * x["a"] + x["b"], "n": carry["n"] + 1}, (carry["h"], x["b"])

    init, xs = {"h": np.ones(3), "n": 0}, {"a": RANDOM.normal(size=(5, 3)), "b": np.arange(5)}
    found = rematc.scan(step, init, xs, reverse=reverse, unroll=unroll)
    with jax.enable_x64(True):
        close(found, jax.lax.scan(step, init, xs, reverse=reverse))


def test_runs_over_a_length_alone() -> None:
    last, ys = rematc.scan(lambda c, _: (c * 2, c), np.float32(1), length=4)
    assert last == np.float32(16)
    np.testing.assert_array_equal(ys, np.array([1, 2, 4, 8], np.float32))


def test_of_no_steps_gives_the_first_carry_and_empty_stacks() -> None:
    last, ys = rematc.scan(lambda c, x: (c + x, c), np.ones(2), np.zeros((0, 2)))
    np.testing.assert_array_equal(last, np.ones(2))
    assert np.asarray(ys).shape == (0, 2)


@pytest.mark.parametrize("options", [{}, {"snapshots": 5}], ids=str)
def test_the_program_does_not_grow_with_the_steps(options: dict[str, Any]) -> None:
    def lines(steps: int) -> int:
        loss = rematc.grad(recurrence(rematc.scan, np, **options), argnums=(0, 1, 2))
        return rematc.lower(loss, W, X0, np.zeros((steps, 4))).stablehlo().count("\n")

    assert lines(10) == lines(1000)


# -- derivatives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"unroll": 4}], ids=str)
@pytest.mark.parametrize("policy", [None, "nothing", "dots", "everything"])
def test_gradients_are_jax_s(policy: str | None, options: dict[str, Any]) -> None:
    found = rematc.value_and_grad(recurrence(rematc.scan, np, **options), (0, 1, 2), policy=policy)(W, X0, XS)
    with jax.enable_x64(True):
        close(found, jax.value_and_grad(recurrence(jax.lax.scan, jnp, **options), (0, 1, 2))(W, X0, XS))


def test_tangents_are_jax_s() -> None:
    tangents = (W + 1, X0 - 1, XS * 2)
    found = rematc.jvp(recurrence(rematc.scan, np), (W, X0, XS), tangents)
    with jax.enable_x64(True):
        close(found, jax.jvp(recurrence(jax.lax.scan, jnp), (W, X0, XS), tangents))


def test_second_derivatives_are_jax_s() -> None:
    def slope(lib: Any, scan: Any, grad: Any) -> Any:
        return lambda x0: (grad(lambda x: recurrence(scan, lib)(W, x, XS))(x0) * X0).sum()

    found = rematc.grad(slope(np, rematc.scan, rematc.grad))(X0)
    with jax.enable_x64(True):
        close(found, jax.grad(slope(jnp, jax.lax.scan, jax.grad))(X0))


def nested(lib: Any, scan: Any, cond: Any, grad: Any, options: dict[str, Any], order: int) -> Any:
    """A derivative of a loop in a loop with a branch."""

    def loss(w: Any, x: Any) -> Any:
        def step(c: Any, u: Any) -> Any:
            def inner(d: Any, v: Any) -> Any:
                return lib.sin(w @ d) * v + u, (d * v).sum()

            d, s = scan(inner, c, XS[:2])
            return cond(d.sum() > 0, lambda d: lib.cos(d) * w[0], lambda d: d * d, d), s

        c, ys = scan(step, x, XS, **options)
        return lib.sin(c).sum() + (lib.sin(ys) ** 2).sum()

    if order == 1:
        return grad(loss)
    return lambda w, x: grad(lambda x: (grad(loss, 1)(w, x) * X0).sum())(x)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("options", [{}, {"snapshots": 2}, {"levels": (2, 3)}], ids=str)
def test_loops_in_loops_have_jax_s_derivatives_under_a_policy(options: dict[str, Any], order: int) -> None:
    def grad(function: Any, *argnums: Any) -> Any:
        return rematc.grad(function, *argnums, policy="dots")

    found = rematc.jit(nested(np, rematc.scan, rematc.cond, grad, options, order))(W, X0)
    with jax.enable_x64(True):
        close(found, nested(jnp, jax.lax.scan, jax.lax.cond, jax.grad, {}, order)(W, X0))


POLICIES = st.sampled_from([None, "nothing", "dots", "everything", "names=a", "names=b"])


@pytest.mark.slow
@settings(max_examples=12)
@given(st.data())
def test_under_any_policies_it_is_the_unrolled_loop(data: st.DataObject) -> None:
    """Random bodies: values and gradients of the scan are those of Python's loop."""
    steps = data.draw(st.lists(st.sampled_from(["sin", "dot", "const", "mix", "name", "swap", "fixed"]), max_size=5))
    inner, outer = data.draw(POLICIES), data.draw(POLICIES)

    def body(w: Any, carry: Any, x: Any) -> Any:
        h, g, fixed = carry
        for index, what in enumerate(steps):
            match what:
                case "sin":
                    h = np.sin(h) + x
                case "dot":
                    h = np.tanh(w @ h)
                case "const":
                    g = g + np.cos(w).sum(0) * x
                case "mix":
                    g = g * np.cos(h) + fixed
                case "name":
                    h = rematc.checkpoint_name(np.sin(h), "ab"[index % 2])
                case "swap":
                    h, g = g, h
                case "fixed":
                    g = g + np.exp(-(fixed * fixed))
        return (h, g, fixed), (g * x, fixed, h)

    def loss(is_scan: bool, w: Any, x0: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            return body(w, carry, x)

        wrapped: Any = rematc.checkpoint(step, policy=inner) if inner else step
        carry: Any = (x0, x0 * 2, np.cos(x0))
        ys: Any
        if is_scan:
            carry, ys = rematc.scan(wrapped, carry, xs)
        else:
            rows = []
            for index in range(len(XS)):
                carry, y = wrapped(carry, xs[index])
                rows.append(y)
            ys = tuple(np.stack(column) for column in zip(*rows, strict=True))
        total = sum((np.sin(part) * np.cos(part + 1)).sum() for part in (*carry, *ys))
        return total

    def graded(is_scan: bool, policy: str | None) -> Any:
        function = rematc.value_and_grad(lambda *args: loss(is_scan, *args), (0, 1, 2), policy=policy)
        return rematc.jit(function)(W, X0, XS)

    close(graded(True, outer), graded(False, None))


# -- what is saved -------------------------------------------------------------------------------------------------


def differentiation(loss: Any, *args: Any, policy: str | None = None) -> Differentiation:
    (record,) = rematc.lower(rematc.value_and_grad(loss, policy=policy), *args).records
    assert isinstance(record, Differentiation)
    return record


def loops(graph: Graph) -> list[Scan]:
    """The scans of a graph, those in checkpoint regions included."""
    found = []
    for eqn in graph.equations:
        if isinstance(eqn.op, Scan):
            found.append(eqn.op)
        for region in eqn.op.regions():
            found.extend(loops(region))
    return found


def in_loops(graph: Graph) -> Counter[str]:
    """How often each op stands in the bodies of a graph's loops."""
    return Counter(eqn.op.name for loop in loops(graph) for eqn in flat_equations(loop.body))


def three_layers(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = np.sin(x @ w)
    return x


def test_products_saved_inside_a_loop_are_not_repeated() -> None:
    """jax's test_remat_checkpoint_dots_inside_scan: two sines, three cosines, six products in the backward pass."""

    def loss(w: Any) -> Any:
        layers = rematc.checkpoint(lambda x: three_layers(w, x), policy="dots")
        return rematc.scan(lambda x, _: (layers(x), None), np.ones(5), length=2)[0].sum()  # type: ignore[attr-defined]  # an array

    counts = in_loops(differentiation(loss, np.ones((5, 5))).vjp.backward)
    assert (counts["sine"], counts["cosine"], counts["dot_general"]) == (2, 3, 6)


def test_products_of_a_loop_inside_a_checkpoint_are_not_repeated() -> None:
    """jax's test_remat_checkpoint_dots_outside_scan, where the third sine is dead: it has sin 3, cos 3, dot 6."""

    def loss(w: Any) -> Any:
        loop = rematc.checkpoint(
            lambda: rematc.scan(lambda x, _: (three_layers(w, x), None), np.ones(5), length=2)[0], policy="dots"
        )
        return loop().sum()  # type: ignore[attr-defined]  # an array

    counts = in_loops(differentiation(loss, np.ones((5, 5))).vjp.backward)
    assert (counts["cosine"], counts["dot_general"]) == (3, 6)
    assert counts["sine"] <= 3


def test_a_loop_under_a_checkpoint_is_repeated() -> None:
    def loss(x: Any) -> Any:
        return rematc.checkpoint(lambda c: rematc.scan(lambda c, _: (np.sin(c), None), c, length=3)[0])(x)

    record = differentiation(loss, 1.0)
    counts = in_loops(record.vjp.backward)
    assert counts["sine"] == 1
    assert counts["cosine"] == 1
    assert [row.param for row in record.vjp.residuals] == [0]


def test_a_policy_that_saves_the_cosines_of_a_loop_repeats_nothing() -> None:
    def save_cosines(op: Op, types: object, name: object) -> bool:
        return op.name == "cosine"

    def loss(x: Any) -> Any:
        return rematc.checkpoint(
            lambda c: rematc.scan(lambda c, _: (np.sin(c), None), c, length=3)[0], policy=save_cosines
        )(x)

    counts = in_loops(differentiation(loss, 1.0).vjp.backward)
    assert counts["sine"] == 0
    assert counts["cosine"] == 0


def test_what_does_not_change_in_the_loop_is_never_stacked() -> None:
    """Slices, consts, what follows from consts alone, and carries that stay as they are cross as they are."""

    def loss(w: Any, x0: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, fixed = carry
            return (h * np.exp(w) * x * fixed, fixed), None

        return rematc.scan(step, (x0, np.cos(x0)), xs)[0][0].sum()  # type: ignore[index]  # a pair

    vjp = differentiation(loss, np.ones(4), X0, XS).vjp
    stacked = [row for row in vjp.residuals if row.value.type.shape == (6, 4) and row.param is None]
    # The carry of each step times three fixed factors: exp(w) * x * fixed is one more that changes with x.
    assert all(row.source is not None and row.source.op.name == "multiply" for row in stacked)
    forward = [eqn.op.name for eqn in vjp.forward.equations]
    assert forward.count("exponential") == 1
    assert all("exponential" not in [eqn.op.name for eqn in loop.body.equations] for loop in loops(vjp.forward))


def stacked(loss: Any, *args: Any) -> list[str]:
    """The ops whose results the forward loop stacks for the backward one; "carry" for carries."""
    vjp = differentiation(loss, *args).vjp
    ((loop, used),) = [
        (eqn.op, {index for index, value in enumerate(eqn.results) if value in vjp.forward.results})
        for eqn in vjp.forward.equations
        if isinstance(eqn.op, Scan)
    ]
    sources = {value: eqn.op.name for eqn in loop.body.equations for value in eqn.results}
    return sorted(sources.get(loop.body.results[index], "carry") for index in used if index >= loop.carry)


def test_a_loop_stacks_the_fewest_bytes_from_which_light_work_leads() -> None:
    """Of a gelu its operand and the tanh, whatever the derivative's factors are; they are repeated."""

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            u = h @ w
            return h + 0.5 * u * (1 + np.tanh(0.8 * (u + 0.04 * u * u * u))), None

        return rematc.scan(step, x, length=5)[0].sum()  # type: ignore[attr-defined]  # an array

    assert stacked(loss, W, X0) == ["carry", "dot_general", "tanh"]
    assert in_loops(differentiation(loss, W, X0).vjp.backward)["tanh"] == 0


def test_much_light_work_in_a_row_is_not_repeated_as_a_whole() -> None:
    def loss(x: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            for _i in range(40):
                h = h - 0.1 * h * h
            return np.sin(h), None

        return rematc.scan(step, x, length=5)[0].sum()  # type: ignore[attr-defined]  # an array

    kept = stacked(loss, X0)
    # Of 120 equations in a row at most 16 are repeated without a stacked value in between; the derivative reads 80.
    assert kept.count("carry") == 1
    assert 120 / 17 <= len(kept) <= 40


def test_what_a_loop_stacks_anyway_is_not_computed_again() -> None:
    """The result 3 c is a stack: with it nothing else is, where c would do as well."""

    def loss(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            y = 3 * c
            return np.negative(c), (y, y * y)

        _, stacks = rematc.scan(step, x, length=5)
        return (stacks[0] + stacks[1]).sum()  # type: ignore[index]  # a pair

    vjp = differentiation(loss, X0).vjp
    (loop,) = loops(vjp.forward)
    assert len(loop.body.results) - loop.carry == 2
    assert [eqn.op.name for eqn in loop.body.equations].count("multiply") == 2


def test_slices_that_the_backward_pass_needs_are_not_copied() -> None:
    def loss(c: Any, xs: Any) -> Any:
        return rematc.scan(lambda c, x: (c * x, None), c, xs)[0].sum()  # type: ignore[attr-defined]  # an array

    assert [row.param for row in differentiation(loss, X0, XS).vjp.residuals] == [1]


def test_unused_carries_and_stacks_go() -> None:
    def loss(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            a, b, c = carry
            return (np.sin(a), np.cos(b), c * b), (np.exp(a), b)

        carry, _ys = rematc.scan(step, (x, x, x), length=3)
        return carry[0]  # type: ignore[index]  # a triple

    (loop,) = loops(rematc.lower(loss, 1.0).graph)
    assert loop.carry == 1
    assert [eqn.op.name for eqn in loop.body.equations] == ["sine"]


def test_nested_policies_both_have_to_allow_a_stack() -> None:
    def saved(inner: str, outer: str | None) -> int:
        def loss(w: Any) -> Any:
            layers = rematc.checkpoint(lambda x: three_layers(w, x), policy=inner)
            return rematc.scan(lambda x, _: (layers(x), None), np.ones(5), length=2)[0].sum()  # type: ignore[attr-defined]  # an array

        rows = differentiation(loss, np.ones((5, 5)), policy=outer).vjp.residuals
        return sum(row.source is not None and row.source.op.name == "dot_general" for row in rows)

    assert saved("dots", None) == 3
    assert saved("dots", "dots") == 3
    assert saved("dots", "nothing") == 0
    # The carry leaves the inner region: the outer policy saves the last product and computes the carry from it.
    assert saved("nothing", "dots") == 1


def test_reports_say_which_line_in_the_body_a_stack_comes_from() -> None:
    def loss(x: Any) -> Any:
        return rematc.scan(lambda c, _: (np.sin(np.exp(c)), None), x, length=100)[0]

    rows = [str(row) for row in rematc.saved_residuals(loss, 1.0)]
    assert rows
    assert all("test_scan.py" in row and row.endswith(", 100 steps") for row in rows)


def test_offloaded_values_of_a_loop_wait_stacked_on_the_host() -> None:
    def step(c: Any, _: Any) -> Any:
        return np.sin(rematc.checkpoint_name(np.sin(c), "a")), None

    def loss(x: Any) -> Any:
        return rematc.checkpoint(lambda x: rematc.scan(step, x, length=3)[0], policy="offload=a")(x).sum()  # type: ignore[attr-defined]  # an array

    residuals = differentiation(loss, np.ones(16)).vjp.residuals
    assert [str(row.value.type) for row in residuals if row.param is None] == ["f64<host>[3,16]"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("levels", [(6,), (2, 3), (3, 2, 1)])
def test_nested_levels_are_the_same_loop(levels: tuple[int, ...], reverse: bool) -> None:
    found = rematc.value_and_grad(recurrence(rematc.scan, np, levels=levels, reverse=reverse), (0, 1, 2))(W, X0, XS)
    close(found, rematc.value_and_grad(recurrence(rematc.scan, np, reverse=reverse), (0, 1, 2))(W, X0, XS))


def test_nested_levels_keep_the_carries_of_one_level() -> None:
    def loss(x: Any) -> Any:
        return rematc.scan(lambda c, _: (np.sin(np.sin(c)), None), x, length=1000, levels=(10, 100))[0]

    rows = [row for row in rematc.saved_residuals(loss, 1.0) if not row.is_argument]
    assert [row.type.shape for row in rows] == [(10,)]


@pytest.mark.parametrize("options", [{}, {"reverse": True}], ids=str)
@pytest.mark.parametrize("snapshots", [1, 2, 3, 9])
def test_from_snapshots_it_is_the_same_loop(snapshots: int, options: dict[str, Any]) -> None:
    loss = recurrence(rematc.scan, np, snapshots=snapshots, **options)
    found = rematc.value_and_grad(loss, (0, 1, 2))(W, X0, XS)
    close(found, rematc.value_and_grad(recurrence(rematc.scan, np, **options), (0, 1, 2))(W, X0, XS))


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_snapshots_hold_under_policies(policy: str) -> None:
    loss = recurrence(rematc.scan, np, rematc.checkpoint, snapshots=2)
    found = rematc.value_and_grad(loss, (0, 1, 2), policy=policy)(W, X0, XS)
    close(found, rematc.value_and_grad(recurrence(rematc.scan, np), (0, 1, 2))(W, X0, XS))


def test_a_loop_with_snapshots_stacks_nothing_and_takes_the_fewest_steps() -> None:
    def loss(x: Any) -> Any:
        return rematc.scan(lambda c, _: (np.sin(np.sin(c)), None), x, length=100, snapshots=6)[0]

    vjp = differentiation(loss, 1.0).vjp
    assert [row.param for row in vjp.residuals] == [0]
    (loop,) = loops(vjp.backward)
    assert loop.length == 280 + 100


def test_levels_have_to_make_up_the_steps() -> None:
    with pytest.raises(CompileError, match="whose product is the number of steps, 6; got 2 x 4"):
        rematc.scan(lambda c, x: (c, None), X0, XS, levels=(2, 4))


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (lambda c, x: ({"h": c["h"].astype(np.float32)}, None), r"carry\['h'\] .* f64\[4\] before a step .*f32\[4\]"),
        (
            lambda c, x: ({"h": c["h"][:2]}, None),
            r"carry\['h'\] .* f64\[4\] before .* f64\[2\] after it; keep its shape",
        ),
        (lambda c, x: (c["h"], None), "takes a carry of the structure .*'h'.* and returns one of"),
        (lambda c, x: c, r"a step of scan returns \(carry, y\)"),
    ],
)
def test_a_step_that_changes_the_carry_is_refused_at_its_line(step: Any, text: str) -> None:
    with pytest.raises(CompileError, match=text) as caught:
        rematc.scan(step, {"h": X0}, XS)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize(
    ("xs", "length", "text"),
    [
        ({"a": np.zeros((3, 2)), "b": np.zeros(4)}, None, r"3 \(xs\['a'\]\), 4 \(xs\['b'\]\)"),
        (np.zeros(3), 4, r"4 \(length\), 3 \(xs\)"),
        (np.float64(1), None, "steps as its first dimension"),
        (None, None, "needs its length"),
    ],
)
def test_lengths_have_to_agree(xs: Any, length: int | None, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        rematc.scan(lambda c, x: (c, None), 1.0, xs, length)
