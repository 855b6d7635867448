"""`checkpoint` through the public interface: what is saved, what is recomputed, what is pinned.

The numbers are those of JAX's own rematerialization (`jax.checkpoint`, 0.10 to 0.12) on the same functions, where
nothing else is said. Where rematc means something else on purpose, the test says so.
"""

from __future__ import annotations

import functools
import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc import policies
from rematc.compiler.functions.calls import trace_function
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import linearize, vjp
from tests.support.smooth_graphs import count_ops, is_float

Function = Callable[..., Any]
# Results are trees, which tests know and types do not.
grad: Any = rematc.grad
checkpoint: Any = rematc.checkpoint


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    random = np.random.default_rng(0)
    return [np.asarray(random.normal(0, 0.5, shape), dtype) for shape in shapes]


def residuals(function: Function, *args: Any) -> list[str]:
    """Types of what is saved, an argument as its name."""
    found = rematc.saved_residuals(function, *args)
    return [row.provenance.removeprefix("from the argument ") if row.is_argument else str(row.type) for row in found]


def computed(function: Function, *args: Any) -> list[Any]:
    """What is saved beside the arguments."""
    return [row for row in rematc.saved_residuals(function, *args) if not row.is_argument]


def forward_and_backward(function: Function, *args: Any) -> tuple[Counter[str], Counter[str]]:
    """Ops of the forward and of the backward graph, with respect to all floating-point arguments."""
    graph = rematc.trace(function, *args)
    pulled = vjp(graph, is_float(graph))
    return count_ops(DeadCode().run(pulled.forward)), count_ops(pulled.backward)


def linear_ops(function: Function, *args: Any) -> Counter[str]:
    """Ops of the linear graph: what is recomputed, and one equation for each tangent."""
    graph = rematc.trace(function, *args)
    return count_ops(linearize(graph, is_float(graph)).linear)


def barrier_operands(function: Function, *args: Any) -> list[int]:
    """How many values each barrier of the StableHLO of `function` holds."""
    text = rematc.lower(function, *args).stablehlo()
    return [
        line.split(" : ")[0].count("%") - 1 for line in text.splitlines() if "stablehlo.optimization_barrier" in line
    ]


# -- the chain of the notebook: f = g(w3, g(w2, g(w1, x))), g = sin(dot(w, x)) -----------------------------------------

CHAIN = arrays((5, 4), (6, 5), (7, 6), (4,))
ARGUMENTS = ["w1", "w2", "w3", "x"]


def g(w: Any, x: Any) -> Any:
    return np.sin(np.dot(w, x))


def f(w1: Any, w2: Any, w3: Any, x: Any) -> Any:
    return g(w3, g(w2, g(w1, x)))


def f2(w1: Any, w2: Any, w3: Any, x: Any) -> Any:
    layer = checkpoint(g)
    return layer(w3, layer(w2, layer(w1, x)))


f3 = checkpoint(f, policy=policies.dots_with_no_batch_dims_saveable)


@functools.partial(checkpoint, policy=policies.save_only_these_names("a"))
def f4(w1: Any, w2: Any, w3: Any, x: Any) -> Any:
    x = rematc.checkpoint_name(g(w1, x), name="a")
    x = rematc.checkpoint_name(g(w2, x), name="b")
    return rematc.checkpoint_name(g(w3, x), name="c")


F4_LINE = f4.__wrapped__.__code__.co_firstlineno + 2


def test_residuals_without_a_checkpoint() -> None:
    sines_and_cosines = ["f32[5]", "f32[5]", "f32[6]", "f32[6]", "f32[7]"]
    assert residuals(f, *CHAIN) == [*ARGUMENTS, *sines_and_cosines]
    ops = [row.provenance.split()[2] for row in computed(f, *CHAIN)]
    assert ops == ["sine", "cosine", "sine", "cosine", "cosine"]


def test_residuals_of_three_checkpoints() -> None:
    assert residuals(f2, *CHAIN) == [*ARGUMENTS, "f32[5]", "f32[6]"]
    assert [row.provenance.split()[2] for row in computed(f2, *CHAIN)] == ["sine", "sine"]


def test_residuals_of_products() -> None:
    assert residuals(f3, *CHAIN) == [*ARGUMENTS, "f32[5]", "f32[6]", "f32[7]"]
    assert [row.provenance.split()[2] for row in computed(f3, *CHAIN)] == ["dot_general"] * 3


def test_residuals_by_name() -> None:
    assert residuals(f4, *CHAIN) == [*ARGUMENTS, "f32[5]"]
    (named,) = computed(f4, *CHAIN)
    assert named.label == "a"
    assert re.fullmatch(rf"f32\[5\] named 'a' from .*test_checkpoint\.py:{F4_LINE} \(f4\)", str(named))


@pytest.mark.parametrize(
    ("function", "forward", "backward", "count"),
    [
        (f, (3, 3, 3), (0, 0, 6, 3), 9),
        (f2, (3, 0, 3), (0, 3, 9, 3), 6),
        (f3, (3, 0, 3), (2, 3, 6, 3), 7),
        (f4, (3, 0, 3), (1, 3, 9, 3), 5),
    ],
    ids=["f", "f2", "f3", "f4"],
)
def test_ops_of_the_chain(function: Function, forward: tuple[int, ...], backward: tuple[int, ...], count: int) -> None:
    """{forward sine, cosine, dot | backward sine, cosine, dot, multiply}, and the number of residuals."""
    ahead, back = forward_and_backward(function, *CHAIN)
    assert tuple(ahead[op] for op in ("sine", "cosine", "dot_general")) == forward
    assert tuple(back[op] for op in ("sine", "cosine", "dot_general", "multiply")) == backward
    assert len(residuals(function, *CHAIN)) == count


def test_gradients_of_the_chain_are_those_of_jax() -> None:
    def loss(*args: Any) -> Any:
        return np.sum(f(*args) ** 2)

    def jax_loss(w1: Any, w2: Any, w3: Any, x: Any) -> Any:
        for w in (w1, w2, w3):
            x = jnp.sin(w @ x)
        return jnp.sum(x**2)

    chain = [array.astype(np.float64) for array in CHAIN]
    with jax.enable_x64(True):
        expected = jax.grad(jax_loss, argnums=(0, 1, 2, 3))(*chain)
    plain = grad(loss, argnums=(0, 1, 2, 3))(*chain)
    named = grad(lambda *args: np.sum(f4(*args) ** 2), argnums=(0, 1, 2, 3))(*chain)
    for found in (plain, named):
        for one, other in zip(found, expected, strict=True):
            # XLA sums products in another order than JAX's own compilation of the same program.
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


# -- recursive checkpoints ---------------------------------------------------------------------------------------------


def compose(functions: list[Function]) -> Function:
    def composed(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return composed


def recursive(functions: list[Function]) -> Function:
    """The first half is a checkpoint, and each half again, down to pairs."""
    if len(functions) <= 2:
        return compose(functions)
    half = len(functions) // 2
    return compose([checkpoint(recursive(functions[:half])), recursive(functions[half:])])


def binomial(functions: list[Function]) -> Function:
    """Both halves are checkpoints, and each half again, down to pairs."""
    if len(functions) <= 2:
        return compose(functions)
    half = len(functions) // 2
    return compose([checkpoint(binomial(part)) for part in (functions[:half], functions[half:])])


@pytest.mark.parametrize(("count", "saved", "sines"), [(8, 4, 5), (16, 5, 17)])
def test_recursive_checkpoints(count: int, saved: int, sines: int) -> None:
    sine_chain: list[Function] = [np.sin] * count
    assert len(residuals(compose(sine_chain), np.float32(3.0))) == count
    assert len(residuals(recursive(sine_chain), np.float32(3.0))) == saved
    forward, backward = forward_and_backward(recursive(sine_chain), np.float32(3.0))
    assert (forward["sine"], backward["sine"]) == (count, sines)


@pytest.mark.parametrize(("count", "sines"), [(4, 2), (8, 8), (16, 24)])
def test_recomputation_of_binomial_checkpoints(count: int, sines: int) -> None:
    forward, backward = forward_and_backward(binomial([np.sin] * count), np.float32(3.0))
    assert (forward["sine"], backward["sine"]) == (count, sines)


# -- policies ----------------------------------------------------------------------------------------------------------


def sines(x: Any) -> Any:
    return np.sin(np.sin(x))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (lambda op, types, name: True, (0, 0)),
        (lambda op, types, name: False, (1, 2)),
        (lambda op, types, name: op.name == "sine", (0, 2)),
        (lambda op, types, name: op.name == "cosine", (0, 0)),
        ("everything", (0, 0)),
        ("nothing", (1, 2)),
        (None, (1, 2)),
    ],
    ids=["all", "none", "sine", "cosine", "everything", "nothing", "default"],
)
@pytest.mark.parametrize("is_jitted", [False, True], ids=["plain", "jit"])
def test_custom_policies(policy: object, expected: tuple[int, int], is_jitted: bool) -> None:
    """(sines, cosines) that the backward graph computes; a policy sees into a function under `jit`."""
    function = checkpoint(rematc.jit(sines) if is_jitted else sines, policy=policy)
    _, backward = forward_and_backward(function, np.float32(1.0))
    assert (backward["sine"], backward["cosine"]) == expected


def dots(x: Any) -> Any:
    for _ in range(3):
        x = np.sin(np.matmul(x, x))
    return x


@pytest.mark.parametrize(
    ("policy", "shape", "expected"),
    [
        (policies.checkpoint_dots, (2, 2), (2, 6)),
        (policies.checkpoint_dots_with_no_batch_dims, (2, 2), (2, 6)),
        (policies.checkpoint_dots_with_no_batch_dims, (3, 2, 2), (2, 9)),
        (policies.checkpoint_dots, (3, 2, 2), (2, 6)),
    ],
)
def test_policies_on_products(policy: Any, shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    """(sines, products) of the linear graph of three sines of squares of matrices."""
    for function in (dots, rematc.jit(dots)):
        found = linear_ops(checkpoint(function, policy=policy), *arrays(shape))
        assert (found["sine"], found["dot_general"]) == expected


def named_products(x: Any) -> Any:
    """Products of x with squares of c, three of them named, and one more without a name."""
    factors = [rematc.checkpoint_name(np.exp(x[index]), name) for index, name in enumerate("yzw")]
    return factors[0] * factors[1] * factors[2] * np.sin(x[3])


@pytest.mark.parametrize(
    ("names", "denied", "allowed"), [("yzw", 0, 3), ("zw", 1, 2), ("w", 2, 1), ("", 3, 0)], ids=["yzw", "zw", "w", ""]
)
def test_name_lists(names: str, denied: int, allowed: int) -> None:
    """How many values are saved where these names are denied, and where only they are allowed."""
    (x,) = arrays((4,))
    for policy, count in (
        (policies.save_any_names_but_these(*names), denied),
        (policies.save_only_these_names(*names), allowed),
    ):
        found = computed(checkpoint(named_products, policy=policy), x)
        assert len(found) == count
        assert all(row.label in "yzw" for row in found)


def test_anything_but_these_names_denies_the_value_however_it_is_read() -> None:
    """JAX saves the value without its name (2023), or saves everything (0.10 and later)."""

    def function(x: Any) -> Any:
        e = np.exp(x)
        return np.sin(rematc.checkpoint_name(e, "e")) + np.cos(e)

    denied = checkpoint(function, policy=policies.save_anything_except_these_names("e"))
    (x,) = arrays((3,))
    assert all("exponential" not in row.provenance for row in computed(denied, x))
    assert all(row.label is None for row in computed(denied, x))
    assert forward_and_backward(denied, x)[1]["exponential"] == 1


def test_a_saved_name_serves_consumers_of_the_unnamed_value() -> None:
    """JAX computes the exponential again for the cosine, which reads it without its name."""

    def function(x: Any) -> Any:
        e = np.exp(x)
        return np.sin(rematc.checkpoint_name(e, "e")) + np.cos(e)

    saved = checkpoint(function, policy="names=e")
    (x,) = arrays((3,))
    assert [row.label for row in computed(saved, x)] == ["e"]
    assert residuals(saved, x) == ["f32[3]"], "not even the argument is needed"
    assert forward_and_backward(saved, x)[1]["exponential"] == 0


def test_names_on_a_pytree() -> None:
    def function(x: Any) -> Any:
        pair = rematc.checkpoint_name({"a": np.sin(x), "b": (np.exp(x), None)}, "foo")
        return pair["a"] * pair["b"][0]

    found = computed(checkpoint(function, policy="names=foo"), *arrays((3,)))
    assert [row.provenance.split(" from ")[0] for row in found] == ["named 'foo'"] * 2


def test_a_name_on_what_is_saved_anyway() -> None:
    def function(x: Any) -> Any:
        x = rematc.checkpoint_name(x * x, "foo")
        return x * x

    saved = checkpoint(function, policy=lambda op, types, name: op.name == "multiply")
    rows = rematc.saved_residuals(saved, np.float32(3.0))
    assert [str(row).split(" from ")[0] for row in rows] == ["f32[]", "f32[] named 'foo'"]


def test_a_name_changes_nothing_outside_a_trace() -> None:
    x = {"a": np.arange(3.0)}
    assert rematc.checkpoint_name(x, "a") is x


def test_a_name_must_be_a_string() -> None:
    with pytest.raises(rematc.CompileError, match="checkpoint_name takes a string for the name, got 3"):
        rematc.trace(lambda x: rematc.checkpoint_name(x, 3), 1.0)  # type: ignore[arg-type]  # that is what is tested


def test_names_keep_python_numbers_weak() -> None:
    graph = rematc.trace(lambda x, rate: x * rematc.checkpoint_name(rate * 2, "rate"), *arrays((3,)), 0.5)
    assert str(graph.result_types[0]) == "f32[3]"


def test_everything_saveable_is_exactly_no_checkpoint() -> None:
    """In JAX it still pins what is saved, which can take more memory than no checkpoint."""

    def loss(function: Function) -> Function:
        return rematc.value_and_grad(lambda x: np.sum(function(x)))

    plain, wrapped = (loss(one) for one in (dots, checkpoint(dots, policy="everything")))
    (x,) = arrays((2, 2))
    assert rematc.lower(wrapped, x).graph == rematc.lower(plain, x).graph


def test_nested_policies_both_count() -> None:
    """In JAX the outer policy alone decides."""

    def inner(x: Any) -> Any:
        return np.sin(rematc.checkpoint_name(np.sin(x), "in"))

    (x,) = arrays((3,))
    for outer_policy, inner_policy, saved in (
        ("nothing", "names=in", []),
        ("names=in", "nothing", []),
        ("names=in", "names=in", ["in"]),
        ("everything", "nothing", []),
        ("everything", "names=in", ["in"]),
    ):
        wrapped = checkpoint(checkpoint(inner, policy=inner_policy), policy=outer_policy)
        assert [row.label for row in computed(wrapped, x)] == saved, (outer_policy, inner_policy)


def test_a_policy_decides_result_by_result() -> None:
    """JAX asks once for an equation, and means all its results."""
    asked = []

    def policy(op: Any, types: Any, name: str | None) -> tuple[bool, ...]:
        asked.append(op.name)
        return (op.name == "sine",)

    function = checkpoint(sines, policy=policy)
    assert [row.provenance.split()[2] for row in computed(function, *arrays((3,)))] == ["sine"]
    assert set(asked) == {"sine", "cosine"}


def test_offloaded_names() -> None:
    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["y"],
        names_which_can_be_offloaded=["z", "w"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    offloaded = checkpoint(named_products, policy=policy)
    (x,) = arrays((4,))
    assert [str(row).split(" from ")[0] for row in computed(offloaded, x)] == [
        "f32[] named 'y'",
        "f32<host>[] named 'z'",
        "f32<host>[] named 'w'",
    ]
    forward, backward = forward_and_backward(offloaded, x)
    assert (forward["to_memory"], backward["to_memory"]) == (2, 2)


def test_offloaded_products() -> None:
    def function(x: Any) -> Any:
        x = np.matmul(x, x)
        x = np.sin(x)
        return np.sin(np.matmul(x[None], x[None]))

    policy = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    forward, backward = forward_and_backward(checkpoint(function, policy=policy), *arrays((2, 2)))
    assert (forward["to_memory"], backward["to_memory"]) == (1, 1), "the batched product is recomputed"


def test_wrong_policies_are_errors_at_the_users_line() -> None:
    with pytest.raises(rematc.CompileError, match="unknown policy 'dotz'; did you mean 'dots'") as failure:
        checkpoint(sines, policy="dotz")
    assert _is_here(failure.value)
    wrong = checkpoint(sines, policy=lambda *_: "yes")
    with pytest.raises(rematc.CompileError, match="returned 'yes'; a policy returns True, False, SAVE"):
        residuals(wrong, np.float32(1.0))


def _is_here(error: rematc.CompileError) -> bool:
    return error.loc is not None and error.loc.file == __file__


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["nothing", None, "dots"])
def test_constants_are_not_hoisted(policy: str | None) -> None:
    checkpointed = functools.partial(checkpoint, policy=policy)

    (square,) = arrays((2, 2))
    assert residuals(checkpointed(lambda x: np.einsum("ii->i", x)), square) == []
    assert residuals(checkpointed(lambda x: np.zeros((2, 2), np.float32) * x), square) == []
    assert residuals(checkpointed(lambda x: np.zeros((2, 2), np.float32) * np.sin(x)), square) == ["x"]


def test_masks_are_not_saved_without_a_checkpoint_either() -> None:
    """JAX saves an array of zeros for a `where`, and the mask itself."""

    def causal(x: Any) -> Any:
        position = np.arange(4)
        return np.where(position[:, None] >= position, x, -1e9) * np.ones((4, 4), np.float32)

    (x,) = arrays((4, 4))
    assert residuals(causal, x) == []


def test_values_read_twice_are_saved_once() -> None:
    """A function under `jit` whose result is also its residual: one copy, not two."""
    exponential = rematc.jit(np.exp)
    assert residuals(checkpoint(lambda x: np.sin(exponential(x)), policy=lambda *_: True), np.float32(1.0)) == [
        "f32[]",
        "f32[]",
    ]
    assert residuals(exponential, np.float32(1.0)) == ["f32[]"]


# -- static arguments --------------------------------------------------------------------------------------------------


def scaled(x: Any, is_doubled: Any, *, power: Any = 1) -> Any:
    """A function that branches on its arguments: traced numbers cannot tell."""
    if is_doubled == 1:
        x = 2 * x
    for _ in range(power):
        x = np.sin(x)
    return x


@pytest.mark.parametrize(
    ("options", "args", "kwargs"),
    [
        ({"static_argnums": 1}, (1,), {}),
        ({"static_argnums": (1,)}, (1,), {}),
        ({"static_argnums": -1}, (1,), {}),
        ({"static_argnums": 1}, (), {"is_doubled": 1}),
        ({"static_argnames": "is_doubled"}, (1,), {}),
        ({"static_argnames": ("is_doubled", "power")}, (), {"is_doubled": 1, "power": 3}),
        ({"static_argnums": 1, "static_argnames": "power"}, (1,), {"power": 2}),
    ],
)
def test_static_arguments(options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """By position, counted from either end, or by name; both hold for both ways of calling."""
    wrapped = checkpoint(scaled, **options)
    graph = rematc.trace(lambda x: wrapped(x, *args, **kwargs), np.float32(1.0))
    (region,) = graph.equations
    assert isinstance(region.op, Checkpoint)
    assert count_ops(graph)["sine"] == kwargs.get("power", 1)
    assert len(region.operands) == 1


def test_arguments_that_are_not_static_cannot_be_branched_on() -> None:
    wrapped = checkpoint(scaled)
    with pytest.raises(rematc.CompileError, match="static_argnums") as failure:
        rematc.trace(lambda x: wrapped(x, 1), np.float32(1.0))
    assert _is_here(failure.value)


def test_unhashable_static_arguments() -> None:
    def chosen(x: Any, names: list[str], options: dict[str, Any]) -> Any:
        return np.sin(x) * options["scale"] if "sin" in names else x

    wrapped = checkpoint(chosen, static_argnums=(1, 2))
    gradient = grad(lambda x: wrapped(x, ["sin"], {"scale": 2.0}))(np.float64(0.5))
    np.testing.assert_allclose(gradient, 2 * np.cos(0.5), rtol=1e-14)


def test_flags_need_no_static_argnums() -> None:
    def scaled_if(x: Any, is_doubled: bool) -> Any:
        return 2 * x if is_doubled else x

    wrapped = checkpoint(scaled_if)
    assert count_ops(rematc.trace(lambda x: wrapped(x, True), np.float32(1.0)))["multiply"] == 1
    assert count_ops(rematc.trace(lambda x: wrapped(x, False), np.float32(1.0)))["multiply"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"static_argnums": 2}, "static_argnums names argument 2, but 'scaled' takes 2 positional arguments"),
        ({"static_argnums": -3}, "static_argnums names argument -3, but 'scaled' takes 2"),
        ({"static_argnames": "pwer"}, "static_argnames names 'pwer', but 'scaled' has no such argument"),
    ],
)
def test_static_arguments_that_do_not_exist(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rematc.CompileError) as failure:
        checkpoint(scaled, **options)
    assert message in str(failure.value)
    assert _is_here(failure.value)


def test_static_arguments_from_the_end_of_any_number() -> None:
    with pytest.raises(rematc.CompileError, match="count from the start"):
        checkpoint(lambda *args: args[0], static_argnums=-1)
    wrapped = checkpoint(lambda *args: args[0] * len(args[1]), static_argnums=1)
    assert str(rematc.trace(lambda x: wrapped(x, "ab"), np.float32(1.0)).result_types[0]) == "f32[]"


# -- prevent_cse -------------------------------------------------------------------------------------------------------


def product(params: Any, x: Any) -> Any:
    return np.sum(np.sin(params["w"] @ np.sin(x)) * params["b"])


def product_arguments() -> tuple[Any, Any]:
    w, b, x = arrays((3, 3), (3,), (3,))
    return {"b": b, "w": w}, x


@pytest.mark.parametrize(
    ("prevent_cse", "operands"),
    [
        (True, [4]),
        (False, []),
        ((True, True), [4]),
        ((False, True), [2]),
        ((True, False), [3]),
        (({"b": False, "w": True}, False), [2]),
        (({"b": False, "w": True}, True), [3]),
        ((False, False), []),
    ],
)
def test_which_operands_are_pinned(prevent_cse: Any, operands: list[int]) -> None:
    """b, w and x where they are asked for, and the cotangent always; no argument pinned is no barrier at all."""
    wrapped = checkpoint(product, prevent_cse=prevent_cse)
    assert barrier_operands(grad(wrapped, argnums=(0, 1)), *product_arguments()) == operands


def test_saved_values_are_pinned_whatever_the_arguments_are() -> None:
    wrapped = checkpoint(product, prevent_cse=(False, True), policy="dots")
    assert barrier_operands(grad(wrapped, argnums=(0, 1)), *product_arguments()) == [3]


def test_leaves_that_are_no_arrays_do_not_shift_what_is_pinned() -> None:
    def activated(params: Any, x: Any) -> Any:
        return np.sum(np.sin(params["w"] * x)) if params["kind"] == "sine" else x

    wrapped = checkpoint(activated, prevent_cse=({"kind": False, "w": True}, False))
    (w, x) = arrays((3,), (3,))
    graph = rematc.trace(lambda w, x: wrapped({"kind": "sine", "w": w}, x), w, x)
    (region,) = (eqn.op for eqn in graph.equations if isinstance(eqn.op, Checkpoint))
    assert region.prevent_cse == (True, False)


def test_static_arguments_take_a_place_in_prevent_cse() -> None:
    """In JAX a tuple together with static arguments is not implemented."""
    wrapped = checkpoint(scaled, prevent_cse=(True, False), static_argnums=1)
    (region,) = rematc.trace(lambda x: wrapped(x, 1), np.float32(1.0)).equations
    assert isinstance(region.op, Checkpoint)
    assert region.op.prevent_cse == (True,)


def test_closed_over_values_are_not_pinned_when_arguments_are_told_apart() -> None:
    def loss(w: Any, x: Any) -> Any:
        return checkpoint(lambda x: np.sum(np.sin(w * x)), prevent_cse=(True,))(x)

    assert barrier_operands(grad(loss, argnums=(0, 1)), *arrays((3,), (3,))) == [2]


@pytest.mark.parametrize(
    ("prevent_cse", "message"),
    [
        ((True,), "a tuple with an entry for each of the 2 positional arguments; got (True,)"),
        ("yes", "prevent_cse is a bool, or a tuple"),
        ((({"w": True}), True), "prevent_cse[0] is not a prefix of the argument's tree"),
    ],
)
def test_wrong_forms_of_prevent_cse(prevent_cse: Any, message: str) -> None:
    wrapped = checkpoint(product, prevent_cse=prevent_cse)
    with pytest.raises(rematc.CompileError) as failure:
        rematc.trace(wrapped, *product_arguments())
    assert message in str(failure.value)
    assert _is_here(failure.value)


# -- barriers in StableHLO ---------------------------------------------------------------------------------------------


def test_the_forward_pass_has_no_barrier() -> None:
    wrapped = checkpoint(product)
    assert barrier_operands(wrapped, *product_arguments()) == []
    assert barrier_operands(rematc.value_and_grad(wrapped), *product_arguments()) == [5], (
        "its arguments, the cotangent, and the loss"
    )


def test_one_barrier_for_each_checkpoint() -> None:
    def loss(*args: Any) -> Any:
        return np.sum(f2(*args))

    found = barrier_operands(grad(loss, argnums=(0, 1, 2, 3)), *CHAIN)
    assert found == [3, 4, 4], "the layer's weights, its input, and the cotangent, and the gradient that is done"


def test_the_gradient_alone_has_no_forward_pass() -> None:
    """With `grad` of a whole function under a checkpoint everything is computed behind the barrier, once."""
    text = rematc.lower(grad(checkpoint(product)), *product_arguments()).stablehlo()
    before, _, after = text.partition("stablehlo.optimization_barrier")
    assert "stablehlo.dot_general" not in before
    assert after.count("stablehlo.cosine") == 1, "of the product; x is not differentiated"


def test_names_leave_no_trace_in_stablehlo() -> None:
    def loss(x: Any) -> Any:
        return np.sum(rematc.checkpoint_name(np.sin(x), "a"))

    def plain(x: Any) -> Any:
        return np.sum(np.sin(x))

    with_name, without = (
        re.sub(r"loc\(.*", "", rematc.lower(grad(one), *arrays((3,))).stablehlo()) for one in (loss, plain)
    )
    assert with_name.replace("loss", "plain") == without


# -- tracing -----------------------------------------------------------------------------------------------------------


def test_a_function_is_traced_once_for_ten_calls() -> None:
    count = 0

    @rematc.checkpoint
    def counted(x: Any, flag: bool) -> Any:
        nonlocal count
        count += 1
        return np.sin(x) if flag else x

    gradient = grad(lambda x: counted(x, True))
    for _ in range(10):
        gradient(np.float32(1.0))
    assert count == 1


def test_outside_a_trace_the_function_itself_runs() -> None:
    seen: list[type] = []

    @rematc.checkpoint
    def function(x: Any) -> Any:
        seen.append(type(x))
        return np.sin(x)

    assert function(0.5) == np.sin(0.5)
    assert seen == [float]
    assert function.__name__ == "function"


def test_closures_over_traced_values() -> None:
    def loss(x: Any, y: Any) -> Any:
        z = np.sin(x)
        return checkpoint(lambda y: np.sum(np.sin(y * z)))(y)

    def jax_loss(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(y * jnp.sin(x)))

    x, y = arrays((3,), (3,), dtype=np.float64)
    with jax.enable_x64(True):
        expected = jax.grad(jax_loss, argnums=(0, 1))(x, y)
    for one, other in zip(grad(loss, argnums=(0, 1))(x, y), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert residuals(loss, x, y) == ["y", "f64[3]", "f64[3]"], "y, sin x for the region, and cos x around it"


def test_integer_and_unused_arguments() -> None:
    @rematc.checkpoint
    def picked(x: Any, index: Any, unused: Any) -> Any:
        return np.sum(np.sin(x[index]))

    (x,) = arrays((4,), dtype=np.float64)
    gradient = grad(picked)(x, np.array([1, 1, 3]), x)
    np.testing.assert_allclose(gradient, np.cos(x) * [0, 2, 0, 1], rtol=1e-14)


def test_keyword_arguments_are_differentiated_through() -> None:
    wrapped = checkpoint(lambda x, *, scale: np.sin(x * scale))
    gradient = grad(lambda s: wrapped(0.5, scale=s))(np.float64(2.0))
    np.testing.assert_allclose(gradient, 0.5 * np.cos(1.0), rtol=1e-14)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere bfloat16 is rounded as well")
@pytest.mark.parametrize(
    ("dtype", "held"), [(jnp.bfloat16, "stablehlo.optimization_barrier"), (jnp.float16, "format = e5m10")]
)
def test_saved_values_of_16_bits_are_those_of_the_forward_pass(dtype: Any, held: str) -> None:
    """XLA may keep more than 16 bits inside a fusion; the saved value and the one used must be the same."""
    loss = checkpoint(lambda x: np.sum(np.sin(np.sin(x))), policy=lambda *_: True)
    text = rematc.lower(rematc.value_and_grad(loss), np.ones(3, dtype)).stablehlo()
    assert held in text
    assert ("reduce_precision" in text) == ("format" in held)


def test_residuals_are_logged_on_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="rematc.residuals"):
        rematc.lower(grad(lambda x: np.sum(f2(CHAIN[0], CHAIN[1], CHAIN[2], x))), CHAIN[3])
    assert "saves for its backward pass" in caplog.text
    assert "f32[6] output of sine from" in caplog.text


def test_residuals_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rematc.print_saved_residuals(f4, *CHAIN)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert re.fullmatch(r"f32\[5\] +20 B +named 'a' from .*:\d+ \(f4\)", lines[4])
    assert lines[5] == "1 value saved, 20 B; 4 arguments kept"


def test_residuals_of_arguments_in_trees_have_their_path() -> None:
    def loss(params: Any, *rest: Any) -> Any:
        return np.sum(params["w"] * rest[0] * rest[1]["y"])

    w, x, y = arrays((3,), (3,), (3,))
    assert residuals(checkpoint(loss), {"w": w}, x, {"y": y}) == ["params['w']", "rest[0]", "rest[1]['y']"]


def test_closed_over_arrays_are_constants() -> None:
    (large,) = arrays((100,))
    rows = rematc.saved_residuals(lambda x: np.sum(x * large), *arrays((100,)))
    assert [str(row) for row in rows] == ["f32[100] from a constant"]


def test_records_of_differentiations() -> None:
    lowered = rematc.lower(rematc.value_and_grad(lambda x: np.sum(dots(x)), policy="dots"), *arrays((2, 2)))
    (record,) = [one for one in lowered.records if isinstance(one, Differentiation)]
    assert record.policy == policies.dots_saveable
    assert isinstance(record.vjp.forward, Graph)
    (report,) = lowered.derivatives
    assert report.policy == "dots"
    assert [row.type.shape for row in report.residuals] == [(2, 2)] * 3
    assert set(report.recomputed) == {"sine", "cosine"}


def test_functions_traced_by_hand_agree() -> None:
    """The region that `checkpoint` records is the graph of the function alone."""
    graph = rematc.trace(checkpoint(sines), np.float32(1.0))
    (eqn,) = graph.equations
    assert isinstance(eqn.op, Checkpoint)
    inner = trace_function(
        sines, graph.param_types, [False], ["x"], jax.tree_util.tree_structure((0,)), name="sines"
    ).graph
    assert eqn.op.body == inner
