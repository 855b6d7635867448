"""`vmap` and the collectives through the public interface: against loops in NumPy, and against `jax.vmap`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc import policies
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.passes.linearize import vjp
from tests.support.smooth_graphs import count_ops, is_float

Function = Callable[..., Any]
# Results are trees, which tests know and types do not.
vmap: Any = rematc.vmap
grad: Any = rematc.grad
pmean: Any = rematc.pmean
all_gather: Any = rematc.all_gather


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(0, 0.5, shape) for shape in shapes]


X, W, B = arrays((5, 3), (3, 4), (4,))


def layer(w: Any, b: Any, x: Any) -> Any:
    return np.tanh(x @ w + b)


def assert_close(found: Any, expected: Any) -> None:
    """The same tree, to the roundings of sums in another order."""
    assert str(jax.tree_util.tree_structure(found)) == str(jax.tree_util.tree_structure(expected))
    pairs = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True)
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


# -- axes --------------------------------------------------------------------------------------------------------------


def test_a_function_of_one_element_becomes_one_of_a_batch() -> None:
    assert_close(vmap(layer, (None, None, 0))(W, B, X), layer(W, B, X))


def test_an_axis_for_all_arguments_and_one_for_each() -> None:
    x, y = arrays((5, 3), (5, 3))
    assert_close(vmap(np.dot)(x, y), (x * y).sum(1))
    assert_close(vmap(np.dot, [0, 1])(x, y.T), (x * y).sum(1))
    assert_close(vmap(np.dot, (-2, -1))(x, y.T), (x * y).sum(1))


@pytest.mark.parametrize(("axis", "place"), [(0, 0), (1, 2), (2, 1), (-1, -1), (-3, 0)])
def test_results_have_the_batch_where_out_axes_says(axis: int, place: int) -> None:
    (x,) = arrays((2, 3, 4))
    found = vmap(lambda e: np.sin(e) * 2, in_axes=axis, out_axes=place)(x)
    expected = jax.vmap(lambda e: jnp.sin(e) * 2, in_axes=axis, out_axes=place)(x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, np.moveaxis(2 * np.sin(x), axis, place), rtol=1e-12)


def test_axes_are_prefixes_of_trees() -> None:
    params = {"w": W, "b": np.stack([B] * 5)}

    def model(params: Any, pair: Any) -> Any:
        x, scale = pair
        return {"y": layer(params["w"], params["b"], x), "parts": (x * scale, scale)}

    axes = ({"w": None, "b": 0}, (0, None))
    found = vmap(model, axes, {"y": 1, "parts": (0, None)})(params, (X, 2.0))
    assert_close(found, {"y": layer(W, B, X).T, "parts": (X * 2, np.asarray(2.0))})


def test_keyword_arguments_are_mapped_along_their_first_axis() -> None:
    assert_close(vmap(lambda x, *, y: x * y)(X, y=X), X * X)


def test_what_is_closed_over_is_shared() -> None:
    assert_close(vmap(lambda x: layer(W, B, x))(X), layer(W, B, X))


def test_results_that_no_element_has_of_its_own() -> None:
    assert_close(vmap(lambda x: (x, W[0] + 1))(X), (X, np.stack([W[0] + 1] * 5)))
    assert_close(vmap(lambda x: (x, W[0] + 1), out_axes=(0, None))(X), (X, W[0] + 1))


def test_the_size_may_be_given() -> None:
    assert_close(vmap(lambda x: x + 1, in_axes=None, axis_size=3)(np.arange(2.0)), np.ones((3, 2)) + np.arange(2.0))
    assert vmap(np.sin, axis_size=5)(X).shape == X.shape


def test_flags_and_strings_stay_what_they_are() -> None:
    def scaled(x: Any, mode: str, negate: bool) -> Any:
        y = x * 2 if mode == "double" else x
        return -y if negate else y

    assert_close(vmap(scaled, (0, None, None))(X, "double", True), -2 * X)


def test_an_empty_batch() -> None:
    assert vmap(lambda x: layer(W, B, x).sum())(X[:0]).shape == (0,)


# -- composition -------------------------------------------------------------------------------------------------------


def loss(w: Any, b: Any, x: Any) -> Any:
    return np.sin(layer(w, b, x)).sum()


def loss_in_jax(w: Any, b: Any, x: Any) -> Any:
    return jnp.sin(jnp.tanh(x @ w + b)).sum()


AXES = (None, None, 0)


@pytest.mark.parametrize("policy", [None, "dots", "nothing", policies.dots_with_no_batch_dims_saveable])
def test_gradients_of_each_element(policy: Any) -> None:
    found = vmap(grad(loss, (0, 1), policy=policy), AXES)(W, B, X)
    with jax.enable_x64(True):
        expected = jax.vmap(jax.grad(loss_in_jax, (0, 1)), AXES)(W, B, X)
    assert_close(found, expected)


@pytest.mark.parametrize("wrap", [lambda f: f, rematc.checkpoint, rematc.jit], ids=["plain", "checkpoint", "jit"])
def test_gradient_of_a_batch(wrap: Any) -> None:
    found = grad(lambda w, b, x: vmap(wrap(loss), AXES)(w, b, x).sum(), (0, 1, 2))(W, B, X)
    with jax.enable_x64(True):
        expected = jax.grad(lambda w, b, x: jax.vmap(loss_in_jax, AXES)(w, b, x).sum(), (0, 1, 2))(W, B, X)
    assert_close(found, expected)


def test_nested_with_jit_and_tangents() -> None:
    x, y = arrays((4, 3), (2, 3))
    outer = rematc.jit(vmap(vmap(np.dot, (None, 0)), (0, None)))
    assert_close(outer(x, y), x @ y.T)
    _, tangent = rematc.jvp(vmap(lambda x: np.sin(x) * x), (x,), (np.ones_like(x),))
    assert_close(tangent, np.cos(x) * x + np.sin(x))


def test_value_and_grad_with_auxiliary_data() -> None:
    both = vmap(rematc.value_and_grad(lambda x: ((x**2).sum(), {"x": x}), has_aux=True))
    (value, aux), gradient = both(X)
    assert_close((value, aux, gradient), ((X**2).sum(1), {"x": X}, 2 * X))


@pytest.mark.parametrize("name", ["cumsum", "argmax", "max", "prod", "linalg.inv", "linalg.det", "linalg.cholesky"])
def test_numpy_functions_on_each_element(name: str) -> None:
    """Those whose rules do more than add a dimension to an op's parameters."""
    function: Any = np
    for part in name.split("."):
        function = getattr(function, part)
    matrices = np.random.default_rng(1).normal(size=(4, 3, 3))
    matrices = matrices @ matrices.transpose(0, 2, 1) + np.eye(3)
    np.testing.assert_allclose(vmap(function)(matrices), np.stack([function(m) for m in matrices]), rtol=1e-9)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
def test_indexing_by_arrays_of_each_element(in_axes: Any) -> None:
    x, i = np.arange(24.0).reshape(2, 4, 3), np.asarray([[0, 2, -1], [3, 3, 1]])
    args = (x if in_axes[0] == 0 else x[0], i if in_axes[1] == 0 else i[0])
    found = vmap(lambda x, i: (x[i], x[i, 1]), in_axes)(*args)
    elements = [[a[n] if axis == 0 else a for a, axis in zip(args, in_axes, strict=True)] for n in range(2)]
    assert_close(found, tuple(np.stack(parts) for parts in zip(*[(e[j], e[j, 1]) for e, j in elements], strict=True)))


# -- loops and branches ------------------------------------------------------------------------------------------------

SCALARS = np.asarray([0.5, 1.0, 3.0, 7.0])


def scanned(x: Any, *, wrap: Any = lambda f: f) -> Any:
    return rematc.scan(wrap(lambda c, a: (np.sin(c) * x + a, c)), x, np.arange(3.0))


def scanned_in_jax(x: Any) -> Any:
    return jax.lax.scan(lambda c, a: (jnp.sin(c) * x + a, c), x, jnp.arange(3.0))


def branching(x: Any) -> Any:
    return rematc.cond(x > 2, lambda y: np.sin(y) * x, lambda y: y * y, x)


def branching_in_jax(x: Any) -> Any:
    return jax.lax.cond(x > 2, lambda y: jnp.sin(y) * x, lambda y: y * y, x)


@pytest.mark.parametrize("wrap", [lambda f: f, rematc.checkpoint], ids=["plain", "checkpoint"])
def test_scans_of_each_element(wrap: Any) -> None:
    with jax.enable_x64(True):
        values = jax.vmap(scanned_in_jax)(SCALARS)
        gradients = jax.vmap(jax.grad(lambda x: scanned_in_jax(x)[1].sum()))(SCALARS)
    assert_close(vmap(lambda x: scanned(x, wrap=wrap))(SCALARS), values)
    assert_close(vmap(grad(lambda x: scanned(x, wrap=wrap)[1].sum()))(SCALARS), gradients)
    of_batch = grad(lambda xs: vmap(lambda x: scanned(x, wrap=wrap))(xs)[1].sum())
    assert_close(of_batch(SCALARS), gradients)


def test_branches_of_each_element() -> None:
    with jax.enable_x64(True):
        gradients = jax.vmap(jax.grad(branching_in_jax))(SCALARS)
    assert_close(vmap(branching)(SCALARS), np.where(SCALARS > 2, np.sin(SCALARS) * SCALARS, SCALARS**2))
    assert_close(vmap(grad(branching))(SCALARS), gradients)
    assert_close(grad(lambda xs: vmap(branching)(xs).sum())(SCALARS), gradients)


def test_while_loops_go_on_until_the_last_element_is_done() -> None:
    def doubled(x: Any) -> Any:
        return rematc.while_loop(lambda c: c[0] < 20, lambda c: (c[0] * 2, c[1] + 1), (x, 0))

    values, steps = vmap(doubled)(SCALARS)
    np.testing.assert_array_equal(values, [32, 32, 24, 28])
    np.testing.assert_array_equal(steps, [6, 5, 3, 2])


# -- checkpoints -------------------------------------------------------------------------------------------------------


def chain(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = np.sin(x @ w)
    return x


SQUARE, ROWS, SQUARES = arrays((3, 3), (5, 3), (5, 3, 3))


def counts(function: Function, *args: Any) -> tuple[int, int, int]:
    """Residuals; sines and products of the backward graph."""
    graph: Graph = rematc.trace(function, *args)
    pulled = vjp(graph, is_float(graph))
    backward = count_ops(pulled.backward)
    return len(pulled.residuals), backward["sine"], backward["dot_general"]


@pytest.mark.parametrize(
    ("policy", "per_element", "expected"),
    [
        # The numbers of jax.checkpoint under jax.vmap. A product of weights that all elements share has no batch
        # dimension; one of weights of each element has.
        (None, False, (2, 2, 9)),
        ("dots", False, (5, 2, 6)),
        ("dots-no-batch", False, (5, 2, 6)),
        ("dots", True, (5, 2, 6)),
        ("dots-no-batch", True, (2, 2, 9)),
        ("everything", False, (7, 0, 6)),
    ],
)
def test_batched_checkpoints_save_and_recompute_what_their_policy_says(
    policy: Any, per_element: bool, expected: tuple[int, int, int]
) -> None:
    batch = vmap(rematc.checkpoint(chain, policy=policy), (0 if per_element else None, 0))
    assert counts(batch, SQUARES if per_element else SQUARE, ROWS) == expected


def test_a_checkpoint_of_a_batch_is_a_batch_of_checkpoints() -> None:
    inside = counts(vmap(rematc.checkpoint(chain, policy="dots"), (None, 0)), SQUARE, ROWS)
    outside = counts(rematc.checkpoint(vmap(chain, (None, 0)), policy="dots"), SQUARE, ROWS)
    assert inside == outside


def test_names_in_a_batch_are_seen_by_policies() -> None:
    def named(x: Any) -> Any:
        return np.sin(rematc.checkpoint_name(np.sin(x), "a"))

    saved = rematc.saved_residuals(vmap(rematc.checkpoint(named, policy=policies.save_only_these_names("a"))), ROWS)
    assert [str(row.type) for row in saved if not row.is_argument] == ["f64[5,3]"]


def test_vmap_of_a_gradient_keeps_the_barrier() -> None:
    """The recomputation of a batched backward graph is still apart from the forward evaluation."""
    lowered: Any = rematc.lower(vmap(grad(rematc.checkpoint(lambda x: np.sin(np.sin(x)).sum()))), ROWS)
    ops = count_ops(lowered.graph)
    assert ops["optimization_barrier"] == 1
    assert ops["sine"] == 1  # the forward ones are not needed
    traced: Graph = rematc.trace(vmap(rematc.checkpoint(np.sin, prevent_cse=False)), ROWS)
    (region,) = [eqn.op for eqn in traced.equations if isinstance(eqn.op, Checkpoint)]
    assert region.prevent_cse is False


# -- collectives -------------------------------------------------------------------------------------------------------


def test_collectives() -> None:
    def everything(x: Any) -> Any:
        return (
            rematc.psum(x, "i"),
            pmean({"x": x}, "i"),
            rematc.pmax(x, "i"),
            rematc.pmin(x, "i"),
            all_gather(x, "i"),
            all_gather(x, "i", axis=-1),
            all_gather(x, "i", axis=0, tiled=True),
        )

    found = vmap(everything, axis_name="i", out_axes=None)(X)
    expected = (X.sum(0), {"x": X.mean(0)}, X.max(0), X.min(0), X, X.T, X.reshape(-1))
    assert_close(found, expected)
    np.testing.assert_array_equal(vmap(lambda x: rematc.axis_index("i"), axis_name="i")(X), np.arange(5))


def test_sums_of_numbers_flags_and_what_is_shared() -> None:
    shared = np.asarray([1.0, 2.0])
    found = vmap(lambda x: (rematc.psum(1, "i") * x, rematc.psum(x > 0, "i"), rematc.psum(shared, "i")), axis_name="i")
    x = np.asarray([-1.0, 2.0, 3.0])
    assert_close(found(x), (3 * x, np.asarray([2, 2, 2], np.int32), np.stack([3 * shared] * 3)))


def test_collectives_over_several_axes() -> None:
    def centred(x: Any) -> Any:
        return x - pmean(x, ("i", "j")) + rematc.psum(x, "j") + rematc.axis_index("i")

    found = vmap(vmap(centred, axis_name="j"), axis_name="i")(X)
    assert_close(found, X - X.mean() + X.sum(1, keepdims=True) + np.arange(5)[:, None])


@pytest.mark.parametrize("wrap", [lambda f: f, rematc.checkpoint, rematc.jit], ids=["plain", "checkpoint", "jit"])
def test_gradients_through_collectives_agree_with_jax(wrap: Any) -> None:
    def normalized(x: Any) -> Any:
        y = (x - pmean(x, "i")) * rematc.axis_index("i")
        return (np.sin(y) * all_gather(y, "i").sum(0)).sum()

    def normalized_in_jax(x: Any) -> Any:
        y = (x - jax.lax.all_gather(x, "i").mean(0)) * jax.lax.axis_index("i")
        return (jnp.sin(y) * jax.lax.all_gather(y, "i").sum(0)).sum()

    f = wrap(normalized)
    with jax.enable_x64(True):
        of_each = jax.vmap(jax.grad(normalized_in_jax), axis_name="i")(X)
        of_all = jax.grad(lambda x: jax.vmap(normalized_in_jax, axis_name="i")(x).sum())(X)
    assert_close(vmap(grad(f), axis_name="i")(X), of_each)
    assert_close(grad(lambda x: vmap(f, axis_name="i")(x).sum())(X), of_all)


# -- errors ------------------------------------------------------------------------------------------------------------


def pair(x: Any, y: Any) -> Any:
    return x[..., None] * y


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: vmap(pair)(X, W),
            "the arguments of 'pair' disagree about the size of the batch: x has size 5 along axis 0, "
            "y has size 3 along axis 0; give None in in_axes",
        ),
        (
            lambda: vmap(pair, axis_size=4)({"a": X}, None),
            "x['a'] has size 5 along axis 0, axis_size is 4",
        ),
        (
            lambda: vmap(pair, (2, None))(X, W),
            "in_axes maps axis 2 of x for 'pair', but x is f64[5,3] of rank 2; give an axis that it has",
        ),
        (lambda: vmap(pair)(X, 1.0), "in_axes maps axis 0 of y for 'pair', but y is f64[] of rank 0"),
        (lambda: vmap(pair, (0,))(X, W), "in_axes of 'pair' has 1 entries, but there are 2 positional arguments"),
        (lambda: vmap(pair, (0, {"w": 0}))(X, W), "in_axes[1] of 'pair' is {'w': 0}, which is no prefix of the str"),
        (lambda: vmap(pair, (0, "w"))(X, W), "in_axes[1] of 'pair' is an integer, None or a pytree of them; got 'w'"),
        (lambda: vmap(pair, None)(X, W), "vmap of 'pair' maps no argument, so that the size of the batch is not known"),
        (
            lambda: vmap(lambda x: (x, x + 1), out_axes=(0, None))(X),
            "out_axes says None for output[1] of '<lambda>', which is not the same for all elements of the batch",
        ),
        (
            lambda: vmap(lambda x: x, out_axes=2)(X),
            "out_axes gives axis 2 for the output of '<lambda>', which with the batch has rank 2",
        ),
        (lambda: vmap(lambda x: x, out_axes=(0, 0))(X), "out_axes of '<lambda>' is (0, 0), which is no prefix"),
        (
            lambda: vmap(lambda x: rematc.psum(x, "j"), axis_name="i")(X),
            "psum over the axis 'j', but the axes named by the vmaps around it are: 'i'",
        ),
        (lambda: rematc.axis_index("i"), "axis_index over the axis 'i', but the axes named by the vmaps around it are"),
    ],
)
def test_errors_are_the_users(call: Function, message: str) -> None:
    with pytest.raises(rematc.CompileError, match=re.escape(message)) as caught:
        call()
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
