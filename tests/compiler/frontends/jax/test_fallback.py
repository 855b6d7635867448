"""Primitives without an import rule: through JAX's own lowering and derivative, or an error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import rematc
import rematc.jax
from rematc.compiler.reports.fallbacks import Fallbacks
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.traversal import all_equations
from rematc.lowering.target import Target
from rematc.lowering.targeting import targeting
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax

X = jnp.asarray([0.5, -1.2, 2.0], jnp.float32)


def primitive(name: str, meaning: Any, rule: Any = None) -> Any:
    """A primitive of somebody's package: elementwise, with a lowering, perhaps with a derivative."""
    rules: Any = ad
    batchers: Any = batching
    made: Any = Primitive(name)
    made.def_impl(meaning)
    made.def_abstract_eval(lambda x, *_: x)
    mlir.register_lowering(made, mlir.lower_fun(meaning, multiple_results=False))
    if rule is not None:
        rules.defjvp2(made, *rule)
    batchers.defbroadcasting(made)
    return made


twist = primitive(
    "twist", lambda x, y: jnp.sin(x) * y, [lambda t, r, x, y: t * jnp.cos(x) * y, lambda t, r, x, y: 3 * t]
)
plain = primitive("plain", lambda x: x * x + 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: twist.bind(x, x + 1),
        lambda x: jax.lax.scan(lambda c, a: (twist.bind(c, a), c), x[0], x)[0],
        jax.checkpoint(lambda x: jnp.exp(twist.bind(x, x))),
    ],
    ids=["alone", "in a scan", "in a checkpoint"],
)
def test_its_lowering_is_its_meaning_and_the_rule_of_jax_its_derivative(function: Any) -> None:
    assert_like_jax(function, X)


def test_its_second_derivative_is_that_of_the_rule() -> None:
    def slope(api: Any, wrap: Any) -> Any:
        return api.grad(api.grad(wrap(lambda x: twist.bind(x, x * x))))(jnp.float32(0.4))

    np.testing.assert_allclose(slope(rematc, from_jax), slope(jax, lambda f: f), rtol=1e-5)


def linear(matrix: Any) -> Any:
    """A map of vectors whose implementation is a loop, so that only the rule says what its adjoint is."""

    def meaning(a: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, a @ c[1]), (0, x))[1]

    rules: Any = ad
    made: Any = Primitive("apply")
    made.def_impl(meaning)
    made.def_abstract_eval(lambda a, x: x)
    mlir.register_lowering(made, mlir.lower_fun(meaning, multiple_results=False))
    rules.defjvp2(made, lambda t, out, a, x: t @ x, lambda t, out, a, x: made.bind(a, t))
    rules.primitive_transposes[made] = lambda ct, a, x: [None, made.bind(a.T, ct)]
    return lambda x: made.bind(matrix, x) * made.bind(matrix * x, x)


def test_the_adjoint_of_a_linear_primitive_is_its_transpose_in_jax() -> None:
    matrix = jnp.arange(9.0, dtype=jnp.float32).reshape(3, 3) / 4
    assert_like_jax(linear(matrix), X, batched=False)


def test_a_callback_of_constants_is_called_where_the_program_runs_alone() -> None:
    """Branches that are not taken may raise."""

    def fail(_: Any) -> Any:
        raise AssertionError("it is called")

    def guarded(x: Any) -> Any:
        struct: Any = jax.ShapeDtypeStruct
        return jax.lax.cond(x[0] > 9, lambda: jax.pure_callback(fail, struct((3,), np.float32), 0), lambda: x * 2)

    np.testing.assert_allclose(rematc.jit(from_jax(guarded))(X), X * 2)


def test_without_a_rule_only_the_derivative_is_an_error() -> None:
    function: Any = from_jax(lambda x, y: (plain.bind(x) * y).sum())
    np.testing.assert_allclose(function(X, X), ((X * X + 1) * X).sum(), rtol=1e-6)
    gradient: Any = rematc.grad(function, 1)(X, X)
    np.testing.assert_allclose(gradient, X * X + 1)
    with pytest.raises(
        CompileError, match=r"'plain' is differentiated.*Differentiation rule for 'plain' not"
    ) as caught:
        rematc.grad(function)(X, X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_the_trace_says_what_came_in_so() -> None:
    low = rematc.lower(from_jax(lambda x: plain.bind(twist.bind(x, x))), X)
    (note,) = [record for record in low.records if isinstance(record, Fallbacks)]
    assert sorted(note.primitives) == ["plain", "twist"]
    assert all(loc is not None and loc.file == __file__ for loc in note.primitives.values())


def test_without_a_lowering_it_is_an_error_that_says_so() -> None:
    lost: Any = Primitive("lost")
    lost.def_abstract_eval(lambda x: x)
    with pytest.raises(CompileError, match="JAX's 'lost' has no import rule, and its own lowering") as caught:
        rematc.trace(from_jax(lost.bind), X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_a_rule_that_cannot_be_imported_is_an_error_where_the_derivative_is_taken() -> None:
    lost: Any = Primitive("lost in a rule")
    lost.def_abstract_eval(lambda x: x)
    ruled = primitive("ruled", lambda x, y: x * y, [lambda t, r, x, y: lost.bind(t) * y, lambda t, r, x, y: t * x])
    function: Any = from_jax(lambda x: jnp.sum(ruled.bind(x, x)))
    found: Any = rematc.lower(function, X).compile()(X)
    np.testing.assert_allclose(found, jnp.sum(X * X), rtol=1e-6)
    with pytest.raises(CompileError, match="rule of 'ruled' cannot be imported: JAX's 'lost in a rule' has") as caught:
        rematc.grad(function)(X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize("is_nested", [False, True])
def test_shard_map_is_its_equations_or_one_op(is_nested: bool) -> None:
    """One op where it stands in another one: which devices compute by themselves is not the same for all."""
    mesh = jax.make_mesh((1, 1), ("i", "j"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    partition: Any = jax.sharding.PartitionSpec
    inner = jax.shard_map(jnp.sin, in_specs=partition("j"), out_specs=partition("j"), axis_names={"j"})
    function = jax.shard_map(
        inner if is_nested else jnp.sin,
        mesh=mesh,
        in_specs=partition("i"),
        out_specs=partition("i"),
        axis_names={"i"},
    )
    names = {eqn.op.name for eqn in all_equations(rematc.trace(from_jax(function), X))}
    borders = {"full_to_shard", "shard_to_full"}
    assert ("device_map" in names) == is_nested and (borders <= names) != is_nested
    found: Any = rematc.lower(from_jax(function), X).compile()(X)
    np.testing.assert_allclose(found, jnp.sin(X), rtol=1e-6)


class Table:
    """A parameter that is equal to itself alone, and prints as all others do."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __repr__(self) -> str:
        return "a table"


def test_parameters_that_print_alike_are_told_apart() -> None:
    def meaning(x: Any, *, table: Table) -> Any:
        return x * table.factor

    def untraceable(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("only its lowering says what it computes")

    tabled: Any = Primitive("tabled")
    tabled.def_impl(untraceable)
    tabled.def_abstract_eval(lambda x, **_: x)
    mlir.register_lowering(tabled, mlir.lower_fun(meaning, multiple_results=False))
    tables = [Table(0.0), Table(1.0)]
    found = from_jax(lambda x: [tabled.bind(x, table=table) for table in tables])(X)
    np.testing.assert_array_equal(found, [np.zeros(3), X])


def test_a_rule_that_computes_value_and_tangent_in_one_equation() -> None:
    """JAX differentiates it forwards alone: its value seems to depend on the tangent."""

    def both(x: Any, t: Any) -> list[Any]:
        return [jnp.sin(x), jnp.cos(x) * t]

    dual: Any = Primitive("dual")
    dual.multiple_results = True
    dual.def_impl(both)
    dual.def_abstract_eval(lambda x, t: [x, x])
    mlir.register_lowering(dual, mlir.lower_fun(both, multiple_results=True))
    wave = primitive("wave", jnp.sin)
    rules: Any = ad.primitive_jvps
    rules[wave] = lambda primals, tangents: tuple(dual.bind(*primals, *tangents))

    def loss(x: Any) -> Any:
        return jnp.sum(wave.bind(2 * x) ** 2)

    slopes: dict[str, Any] = {
        "backwards": rematc.grad(from_jax(loss))(X),
        "forwards": rematc.jvp(from_jax(loss), (X,), (jnp.ones(3),))[1],
        "of JAX, forwards": jax.jvp(loss, (X,), (jnp.ones(3),))[1],
        "under a checkpoint": jax.grad(rematc.jax.checkpoint(loss))(X),
    }
    np.testing.assert_allclose(slopes["backwards"], 2 * jnp.sin(4 * X), rtol=1e-5)
    np.testing.assert_allclose(slopes["under a checkpoint"], 2 * jnp.sin(4 * X), rtol=1e-5)
    np.testing.assert_allclose(slopes["forwards"], slopes["of JAX, forwards"], rtol=1e-5)


def test_a_rule_that_gives_none_for_a_tangent_is_an_error_that_says_so() -> None:
    """JAX's jvp refuses it, too, and its grad takes it for zero."""
    doubled = primitive("doubled", lambda x: 2 * x)
    rules: Any = ad.primitive_jvps
    rules[doubled] = lambda primals, tangents: (doubled.bind(*primals), None)
    with pytest.raises(CompileError, match=r"it gives None for a tangent that is zero, which jax.jvp refuses, too"):
        rematc.grad(from_jax(lambda x: jnp.sum(doubled.bind(x))))(X)


@pytest.mark.parametrize("function", [lambda x: jnp.ldexp(x, 2) * x, lambda x: jnp.frexp(x)[0] * x])
def test_what_a_rule_applies_to_tangents_has_the_transpose_of_jax(function: Any) -> None:
    """From jax 0.12 on these are primitives, made of operations on bits, and their rules are made of them."""

    def second(outer: Any, inner: Any) -> Any:
        return outer(lambda x: inner(lambda x: function(x).sum())(x).sum())

    ours, expected = rematc.jax.grad, second(jax.grad, jax.grad)(X)
    for found in (second(ours, ours), second(jax.grad, ours)):
        np.testing.assert_array_equal(found(X), expected)
    through_numpy = second(rematc.grad, lambda function: rematc.grad(from_jax(function)))
    np.testing.assert_array_equal(through_numpy(np.asarray(X)), expected)


def test_custom_partitioning_goes_back_to_jax_as_it_stands() -> None:
    """Where it stands in rules: JAX has no derivative of it, and no rule for batches, which the function itself has."""

    @custom_partitioning
    def partitioned(x: Any) -> Any:
        return jnp.tanh(x)

    rules: Any = partitioned.def_partition
    rules(lambda *_: None, infer_sharding_from_operands=lambda *_: None, sharding_rule="i j -> i j")

    @jax.custom_vjp
    def tanh(x: Any) -> Any:
        return partitioned(x)

    tanh.defvjp(lambda x: (partitioned(x), x), lambda x, ct: (ct * (1 - partitioned(x) ** 2),))
    gradient = rematc.jax.grad(lambda x: jnp.sum(tanh(x)))
    plain: Any = jax.grad(lambda x: jnp.sum(jnp.tanh(x)))
    assert str(jax.make_jaxpr(gradient)(X)).count("custom_partitioning[") == 2
    batch = jnp.stack([X, 2 * X])
    np.testing.assert_allclose(jax.vmap(gradient)(batch), jax.vmap(plain)(batch), rtol=1e-5, atol=1e-7)
    own: Any = rematc.grad(from_jax(lambda x: jnp.sum(tanh(x))))
    np.testing.assert_allclose(own(X), plain(X), rtol=1e-5, atol=1e-7)


def ragged(x: Any, w: Any) -> Any:
    """Rows of different groups by the matrices of these; the last row is in none."""
    return jnp.sum(jnp.sin(jax.lax.ragged_dot(x, w, jnp.asarray([2, 0, 3], jnp.int32))))


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm"])
def test_products_of_ragged_groups_are_imported_as_xla_computes_them(platform: str) -> None:
    """Of XLA's own op, which JAX lowers them to elsewhere than on CPUs, XLA for GPUs makes the same products."""
    x, w = jnp.cos(jnp.arange(24.0).reshape(6, 4)), jnp.sin(jnp.arange(60.0).reshape(3, 4, 5))
    with targeting(Target.of(platform)):
        graph = rematc.trace(from_jax(jax.value_and_grad(ragged, (0, 1))), x, w)
    assert any(isinstance(eqn.op, DotGeneral) for eqn in all_equations(graph))
    expected: list[Any] = jax.tree.leaves(jax.value_and_grad(ragged, (0, 1))(x, w))
    found: list[Any] = list(evaluate(graph, [np.asarray(x), np.asarray(w)]))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_products_of_ragged_groups_are_refused_where_xla_has_kernels_for_them() -> None:
    """They take as little work as if all groups were of one size; products take that of all groups for each row."""
    x, w = jnp.ones((6, 4)), jnp.ones((3, 4, 5))
    with targeting(Target.of("tpu")), pytest.raises(CompileError, match=r"'chlo\.ragged_dot' cannot be imported"):
        rematc.trace(from_jax(ragged), x, w)
