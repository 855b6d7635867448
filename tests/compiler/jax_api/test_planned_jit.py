"""`rematc.jax.jit` with a budget: a step that JAX has differentiated; `jax.jit` of the same step is the law."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Layout, with_layout_constraint

import rematc
import rematc.jax
from rematc.ir.errors import CompileError
from tests.support.many_devices import said_by

WEIGHTS = [np.full((64, 64), 1e-2, np.float32) + 0.9 * np.eye(64, dtype=np.float32)] * 4
X = np.linspace(-1, 1, 512 * 64, dtype=np.float32).reshape(512, 64)
STATE = (WEIGHTS, [np.zeros_like(w) for w in WEIGHTS])


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + jnp.tanh(jnp.tanh(x @ w) @ w)
    return jnp.mean(x * x)


def train_step(state: Any, x: Any, rate: Any = 0.1) -> Any:
    """Momentum; differentiated by JAX."""
    weights, moments = state
    value, gradients = jax.value_and_grad(loss)(weights, x)
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return ([w - rate * m for w, m in zip(weights, moments, strict=True)], moments), value


def temporary(jitted: Any, *args: Any) -> int:
    return int(jitted.lower(*args).compile().memory_analysis().temp_size_in_bytes)


def same(found: Any, expected: Any, steps: int = 1) -> None:
    """To what XLA rounds otherwise where it fuses otherwise: some units in the last place of the largest, each step."""
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(expected))
    assert [leaf.aval for leaf in jax.tree.leaves(found)] == [leaf.aval for leaf in jax.tree.leaves(expected)]
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * steps * np.abs(b).max())


WITHOUT = temporary(jax.jit(train_step), STATE, X)
EXPECTED = jax.jit(train_step)(STATE, X)


@pytest.mark.parametrize("donated", [(), (0,)])
def test_a_step_takes_no_more_than_its_budget(donated: Any) -> None:
    step: Any = rematc.jax.jit(train_step, budget="50%", donate_argnums=donated)
    reference = jax.jit(train_step)
    state, expected = jax.tree.map(jnp.array, STATE), STATE
    for _ in range(10):
        given = state
        (state, value), (expected, expected_value) = step(state, X), reference(expected, X)
        assert given[0][0].is_deleted() is bool(donated)
        same((state, value), (expected, expected_value), 10)
    report = step.report(STATE, X)
    assert report.budget.measured == temporary(step, STATE, X) <= report.budget.budget <= 0.51 * WITHOUT
    assert report.budget.compilations <= 3 and report.budget.plan.recomputes
    assert report.check.as_dict()["verdict"] == "kept"
    assert "computed again by the plan" in str(report)


def test_what_is_asked_for_takes_bytes_texts_budgets_and_plans() -> None:
    asked = (0.6 * WITHOUT) // 1
    for budget in (int(asked), f"{int(asked)}B", rematc.Budget("60%", never_repeat=["transpose"])):
        step: Any = rematc.jax.jit(train_step, budget=budget, plan_seconds=60)
        assert temporary(step, STATE, X) <= asked
    plan = step.report(STATE, X).budget.plan
    assert plan.constraints.never_repeat == ("transpose",)
    again: Any = rematc.jax.jit(train_step, plan=rematc.Plan.from_json(plan.to_json()))
    assert again.lower(STATE, X).as_text() == step.lower(STATE, X).as_text()
    same(again(STATE, X), EXPECTED)


def test_it_is_traced_and_compiled_once() -> None:
    traces = 0
    compilations: list[str] = []

    def counted(state: Any, x: Any) -> Any:
        nonlocal traces
        traces += 1
        return train_step(state, x)

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    state, x = jax.device_put((STATE, X))
    step: Any = rematc.jax.jit(counted, budget=WITHOUT * 2 // 3)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        step(state, x)
        made = step.report(state, x).budget.compilations
        assert len(compilations) == made
        step(state, x), step.lower(state, x).compile(), step(*jax.tree.map(np.asarray, (state, x)))
        assert (traces, len(compilations)) == (1, made)
        rematc.clear_caches()
        same(step(state, x), EXPECTED)
        assert traces == 2
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_arguments_of_other_types_are_planned_by_themselves() -> None:
    step: Any = rematc.jax.jit(train_step, budget=WITHOUT // 2)
    reference = jax.jit(train_step)
    for args in ((STATE, X), (STATE, X[:128]), (STATE, X, 0.2), (STATE, X, np.float32(0.2)), (STATE, X)):
        same(step(*args), reference(*args))
    same(step(STATE, x=X, rate=0.2), reference(STATE, x=X, rate=0.2))
    same(step((tuple(STATE[0]), STATE[1]), X)[1], EXPECTED[1])
    with jax.enable_x64(True):
        wide = jax.tree.map(np.float64, (STATE, X[:128]))
        same(step(*wide), reference(*wide))
    same(step(STATE, X), EXPECTED)


def test_static_arguments_flags_keys_and_what_is_no_array() -> None:
    def noisy(key: Any, x: Any, count: int, *, is_doubled: bool = False, name: str = "a") -> Any:
        key, own = jax.random.split(key)
        for _ in range(count):
            x = jnp.tanh(x * jax.random.normal(own, x.shape))
        return {name: key, "x": x * 2 if is_doubled else x, "none": None, "weak": jnp.sum(x) * 0 + 3}, 3

    options: Any = {"static_argnums": 2, "static_argnames": "name"}
    step: Any = rematc.jax.jit(noisy, budget="1MiB", **options)
    reference: Any = jax.jit(noisy, static_argnames=("is_doubled", "name"), static_argnums=2)
    for kwargs in ({}, {"is_doubled": True}, {"name": "b"}):
        found, expected = [one(jax.random.key(1), X, 3, **kwargs) for one in (step, reference)]
        assert str(jax.tree.structure(found)) == str(jax.tree.structure(expected))
        assert [one.aval for one in jax.tree.leaves(found)] == [one.aval for one in jax.tree.leaves(expected)]
        name = kwargs.get("name", "a")
        assert found[0].pop(name) == expected[0].pop(name)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7), found, expected)


def test_ahead_of_time() -> None:
    step: Any = rematc.jax.jit(train_step, budget="50%")
    struct: Any = jax.ShapeDtypeStruct
    structs = jax.tree.map(lambda one: struct(one.shape, one.dtype), (STATE, X))
    lowered = step.lower(*structs)
    compiled = lowered.compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= WITHOUT // 2
    assert "stablehlo.optimization_barrier" in lowered.as_text()
    same(compiled(STATE, X), EXPECTED)
    assert step.trace(*structs).jaxpr.out_avals == jax.jit(train_step).trace(*structs).jaxpr.out_avals
    placed = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    same(rematc.jax.jit(train_step, budget="50%", in_shardings=placed, out_shardings=placed)(STATE, X), EXPECTED)


@pytest.mark.parametrize(
    "transformed",
    [
        jax.jit,
        lambda step: jax.jit(lambda state, x: jax.lax.scan(lambda s, _: step(s, x), state, None, 1)),
        lambda step: jax.vmap(step, (None, 0)),
        lambda step: jax.grad(lambda state, x: step(state, x)[1]),
        lambda step: jax.vmap(jax.grad(lambda state, x: step(state, x)[1]), (None, 0)),
        lambda step: rematc.jax.jit(step, budget=WITHOUT // 2),
        lambda step: rematc.jax.value_and_grad(lambda state, x: step(state, x)[1], policy="nothing"),
    ],
    ids=["jit", "scan", "vmap", "grad", "vmap of grad", "budget", "policy"],
)
def test_a_part_of_another_program(transformed: Any) -> None:
    step: Any = rematc.jax.jit(train_step, budget=2 * WITHOUT // 3)
    found = transformed(step)(STATE, X)
    expected = transformed(jax.jit(train_step))(STATE, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


def test_as_a_part_of_jit_it_is_planned_by_the_prediction() -> None:
    step: Any = rematc.jax.jit(train_step, budget="60%")
    assert temporary(jax.jit(step), STATE, X) <= 0.6 * WITHOUT
    with jax.disable_jit():
        np.testing.assert_allclose(step(STATE, X)[1], EXPECTED[1], rtol=1e-6)


def test_many_threads_plan_once() -> None:
    traces: list[int] = []

    def counted(state: Any, x: Any) -> Any:
        traces.append(1)
        return train_step(state, x)

    step: Any = rematc.jax.jit(counted, budget="50%")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(step(STATE, X))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(traces) == 1 and len(found) == 4
    for one in found:
        same(one, EXPECTED)


def test_errors_have_the_users_line() -> None:
    with pytest.raises(CompileError, match=r"test_planned_jit.py:\d+:\d+: error: 'much' is no budget"):
        rematc.jax.jit(train_step, budget="much")
    with pytest.raises(CompileError, match=r"test_planned_jit.py:\d+:\d+: error: no plan was found for 16 B"):
        rematc.jax.jit(train_step, budget=16)(STATE, X)
    with pytest.raises(CompileError, match=r"test_planned_jit.py:\d+:\d+: error: 'train_step' has no plan to report"):
        rematc.jax.jit(train_step).report(STATE, X)  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match=r"test_planned_jit.py:\d+:\d+: error: JAX's 'sin' has accuracy"):
        asked = jax.lax.AccuracyMode.HIGHEST
        rematc.jax.jit(lambda x: jax.lax.sin(x, accuracy=asked), budget="1MiB")(X)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        rematc.jax.jit(lambda x: x if x.sum() > 0 else -x, budget="1MiB")(X)


def test_effects_happen_once_a_call(capfd: pytest.CaptureFixture[str]) -> None:
    def printing(state: Any, x: Any) -> Any:
        found = train_step(state, x)
        jax.debug.print("the loss is {}", found[1])
        return found

    step: Any = rematc.jax.jit(printing, budget="50%")
    for _ in range(2):
        same(step(STATE, X), EXPECTED)
    barrier: Any = jax.effects_barrier
    barrier()
    assert capfd.readouterr().out.count("the loss is") == 2


def two_readers(c: Any, xs: Any) -> Any:
    """What one loop stacks is read by two others, as where two losses are differentiated after another."""

    def forward(c: Any, x: Any) -> Any:
        a = jnp.tanh(c + x)
        b = jnp.sin(a)
        d = jnp.cos(b)
        return d, (a, b, jnp.exp(a), d * a)

    last, (a, b, e, f) = jax.lax.scan(forward, c, xs)
    one, _ = jax.lax.scan(lambda c, s: (c * s[0] + s[1], None), last, (a, e), reverse=True)
    return jax.lax.scan(lambda c, s: (c + s[0] * s[1], None), one, (b, f), reverse=True)[0]


def test_a_loop_whose_stacks_several_loops_read() -> None:
    xs = np.linspace(-1, 1, 16 * 64 * 64, dtype=np.float32).reshape(16, 64, 64)
    step: Any = rematc.jax.jit(two_readers, budget="60%")
    same(step(xs[0], xs), jax.jit(two_readers)(xs[0], xs))
    report = step.report(xs[0], xs).budget
    assert report.measured <= report.budget
    assert len(report.plan.loops) == 2


def accumulated_step(weights: Any, x: Any) -> Any:
    """A step of descent along the gradients of parts of a batch, summed in a loop."""

    def part(total: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, x)
        return jax.tree.map(jnp.add, total, gradients), value

    total, values = jax.lax.scan(part, jax.tree.map(jnp.zeros_like, weights), x.reshape(4, -1, x.shape[-1]))
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, total), values


def test_a_loop_whose_steps_differentiate() -> None:
    weights, x = STATE[0], jnp.tile(X, (4, 1))
    whole = temporary(jax.jit(accumulated_step), weights, x)
    step: Any = rematc.jax.jit(accumulated_step, budget=whole // 2)
    assert temporary(step, weights, x) <= whole // 2
    same(step(weights, x), jax.jit(accumulated_step)(weights, x))


def checkpointed(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.checkpoint(lambda x, w: x + jnp.tanh(jnp.tanh(x @ w) @ w))(x, w)
    return jnp.mean(x * x)


def test_checkpoints_in_a_loop_whose_steps_differentiate() -> None:
    """Forward and backward pass stand in one step, where XLA would merge them: what is held is what JAX holds."""

    def step(weights: Any, x: Any) -> Any:
        def part(weights: Any, x: Any) -> Any:
            gradients = jax.grad(checkpointed)(weights, x)
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), None

        return jax.lax.scan(part, weights, x.reshape(4, -1, x.shape[-1]))[0]

    weights, x = STATE[0] * 2, jnp.tile(X, (4, 1))
    whole = rematc.jax.jit(step)
    taken = temporary(whole, weights, x)
    ours = rematc.compile(rematc.from_jax(step), weights, x)
    assert ours.memory().temp_bytes < 1.2 * taken
    planned: Any = rematc.jax.jit(step, budget=int(1.2 * taken))
    same(planned(weights, x), jax.jit(step)(weights, x))


def descent(weights: Any, x: Any) -> Any:
    """Plain gradient descent: the old weights are read by the rest of the derivative, and by what is computed again."""

    def loss(weights: Any) -> Any:
        y = x
        for w in weights:
            y = jnp.tanh(y @ w)
        return jnp.sum(y * y)

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


def test_donated_weights_are_updated_after_the_reads_of_the_old_ones() -> None:
    x = np.linspace(-1, 1, 512 * 256, dtype=np.float32).reshape(512, 256)
    weights = [0.9 * np.eye(256, dtype=np.float32)] * 8
    expected = jax.jit(descent)(weights, x)
    step: Any = rematc.jax.jit(descent, budget="75%", donate_argnums=0)
    report = step.report(weights, x).budget
    entry = step.lower(weights, x).compile().as_text().partition("\nENTRY")[2]
    assert " copy(" not in entry  # JAX's own has seven
    assert report.measured <= report.budget and report.compilations == 1
    assert report.plan.extra_flops < 0.3 * report.plan.flops
    found = step([jnp.array(w) for w in weights], x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


PROGRAM = """
import json, jax, jax.numpy as jnp, numpy as np, rematc, rematc.jax
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
rows, columns, whole = [NamedSharding(mesh, spec) for spec in (P("data"), P(None, "model"), P())]
weights = [0.9 * np.eye(64, dtype=np.float32)] * 8
x = np.linspace(-1, 1, 512 * 64, dtype=np.float32).reshape(512, 64)
def loss(weights, x):
    for w in weights:
        x = jax.lax.with_sharding_constraint(x + jnp.tanh(jnp.tanh(x @ w) @ w), rows)
    return jnp.mean(x * x)
def step(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, gradients)], value
options = dict(in_shardings=(columns, rows), out_shardings=(columns, whole), donate_argnums=0)
found = {}
for name, jit in (("jax", jax.jit), ("rematc", lambda f, **k: rematc.jax.jit(f, budget="60%", **k))):
    given = jax.device_put(weights, columns)
    jitted = jit(step, **options)
    new, value = jitted(given, jax.device_put(x, rows))
    structs = [jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=columns) for w in weights], x
    found[name] = [float(value), float(new[0].sum()), str(new[0].sharding), str(value.sharding), given[0].is_deleted(),
                   jitted.lower(*structs).compile().memory_analysis().temp_size_in_bytes]
typed = jax.make_mesh((4,), ("data",))
def of_types(weights, x):
    for w in weights:
        x = x + jnp.tanh(jnp.tanh(x @ w) @ w)
    return jnp.mean(x * x)
def taken(jitted, *args):
    return jitted.lower(*args).compile().memory_analysis().temp_size_in_bytes
with jax.set_mesh(typed):
    spread = [NamedSharding(typed, spec) for spec in (P(), P("data"))]
    arrays = jax.device_put((weights, x), tuple(spread))
    structs = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=one.sharding), arrays)
    def typed_step(weights, x):
        value, gradients = jax.value_and_grad(of_types)(weights, x)
        return [w - 0.1 * g for w, g in zip(weights, gradients)], value
    planned, ahead = [rematc.jax.jit(typed_step, budget="60%") for _ in range(2)]
    ways = (planned, arrays), (ahead, structs), (jax.jit(typed_step), structs)
    found["predicted"] = [one.report(*given).budget.plan.peak for one, given in ways[:2]]
    (new, value), (other, expected) = planned(*arrays), jax.jit(typed_step)(*arrays)
    found["typed"] = [taken(one, *given) for one, given in ways]
    found["values"] = [float(value), float(new[0].sum())], [float(expected), float(other[0].sum())]
    found["types"] = [str(jax.typeof(one)) for one in (new[0], other[0])]
print(json.dumps(found))
"""


def test_types_say_how_arrays_lie_and_structs_say_it_too() -> None:
    """On a mesh as `jax.make_mesh` makes it; plans count what one device has."""
    found = said_by(PROGRAM, 4)
    arrays, structs, plain = found["typed"]
    assert arrays == structs <= 0.6 * plain
    assert found["predicted"][0] == found["predicted"][1] == pytest.approx(arrays, rel=0.05)
    np.testing.assert_allclose(found["values"][0], found["values"][1], rtol=1e-5)
    assert found["types"][0] == found["types"][1]


@pytest.mark.slow
def test_shardings_are_kept() -> None:
    found = said_by(PROGRAM, 4)
    assert found["rematc"][2:5] == found["jax"][2:5] and found["jax"][4]
    np.testing.assert_allclose(found["rematc"][:2], found["jax"][:2], rtol=1e-5)
    assert found["rematc"][5] < found["jax"][5]


def test_a_derivative_with_a_budget_hands_back_what_has_no_text() -> None:
    """Inside of a JAX program nobody asks how values are spread, which takes StableHLO's text."""
    w = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)

    def loss(w: Any) -> Any:
        laid: Any = with_layout_constraint  # which JAX leaves without annotations
        return jnp.sum(jnp.sin(laid(w @ w, Layout((1, 0)))) ** 2)

    found = jax.jit(rematc.jax.value_and_grad(loss, budget="1MiB"))(w)
    for one, other in zip(found, jax.value_and_grad(loss)(w), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
