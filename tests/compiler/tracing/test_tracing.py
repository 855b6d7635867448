"""Traces: what they record, where, and what becomes of closures, constants and tracers that escape."""

from __future__ import annotations

import threading
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.compiler.functions.calls import apply_graph, emit_op, emit_op1, trace_function
from rematc.compiler.tracing.trace import LITERAL_LIMIT, Tracer, current_trace, is_splat
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.arithmetic import Add, Negate
from rematc.ir.types import F32, F64, TensorType
from tests.support.tracing import run, traced

F32_3 = TensorType(F32, (3,))
ONE = jax.tree_util.tree_structure((0,))


def _inner(function: Any, type: TensorType = F32_3) -> Any:
    return trace_function(function, [type], [False], ["x"], ONE, name="inner")


# -- structure ---------------------------------------------------------------------------------------------------


def test_pytrees_go_in_and_out() -> None:
    point = namedtuple("point", "x y")  # a tree node

    def function(params: Any, scale: Any) -> Any:
        return {"sum": params["w"] + params["b"][0], "none": None, "p": point(scale, [params["b"][1]])}

    arguments = {"w": np.ones(3), "b": (np.arange(3.0), np.zeros(2))}, 2.0
    result = run(function, *arguments)
    np.testing.assert_array_equal(result["sum"], [1, 2, 3])
    assert result["none"] is None
    assert isinstance(result["p"], point)
    assert result["p"].x == 2


def test_parameters_have_the_names_given() -> None:
    graph = _inner(lambda x: x).graph
    assert [value.name for value in graph.params] == ["x"]
    assert graph.name == "inner"


def test_concrete_outputs_are_lifted() -> None:
    result = traced(lambda x: (x, 1.5, np.float32(2), np.arange(3), jnp.ones(2)), np.ones(2))
    assert [str(t) for t in result.graph.result_types] == ["f64[2]", "f64[]", "f32[]", "i64[3]", "f32[2]"]
    assert result.out_weak == (False, True, False, False, False)


def test_an_output_that_is_no_array_is_named_by_its_path() -> None:
    with pytest.raises(CompileError, match=r"output\['a'\]\[1\] of 'function' is a str"):

        def function(x: Any) -> Any:
            return {"a": [x, "text"]}

        traced(function, np.ones(2))
    with pytest.raises(CompileError, match="the output of 'function' is a object"):

        def function(x: Any) -> Any:
            return object()

        traced(function, np.ones(2))


def test_ops_can_be_emitted_directly() -> None:
    result = _inner(lambda x: (emit_op1(Negate(), x), *emit_op(Add(), x, np.ones(3, np.float32))))
    negative, sum = evaluate(result.graph, [np.ones(3, np.float32)])
    assert negative[0] == -1
    assert sum[0] == 2


def test_weak_arguments_are_weak() -> None:
    result = trace_function(
        lambda x, s: x * s, [F32_3, TensorType(F64, ())], [False, True], ["x", "s"],
        jax.tree_util.tree_structure((0, 0)), name="f",
    )  # fmt: skip
    assert str(result.graph.result_types[0]) == "f32[3]"


# -- closures ----------------------------------------------------------------------------------------------------


def test_ops_go_into_the_innermost_trace_even_on_outer_tracers() -> None:
    inner = []

    def function(x: Any) -> Any:
        inner.append(_inner(lambda z: np.sin(x) + z))
        return x

    outer = traced(function, np.ones(3, np.float32))
    assert [eqn.op.name for eqn in inner[0].graph.equations] == ["sine", "add"]
    assert outer.graph.equations == ()


def test_a_closure_becomes_one_trailing_parameter() -> None:
    found: list[Any] = []

    def function(x: Any) -> Any:
        y = np.cos(x)
        result = _inner(lambda z: z * x + y * x)
        found.append((result, x, y))
        return apply_graph(result.graph, [x, *result.captures], result.out_weak)[0]

    point = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(run(function, point), point * point + np.cos(point) * point, rtol=1e-6)
    (result, x, y) = found[0]
    assert [capture.value for capture in result.captures] == [x.value, y.value]
    assert len(result.graph.params) == 3
    assert result.constants == ()


def test_a_closure_reaches_through_two_traces() -> None:
    def function(x: Any) -> Any:
        def middle(y: Any) -> Any:
            low = _inner(lambda z: z + x)
            return apply_graph(low.graph, [y, *low.captures], low.out_weak)[0]

        result = _inner(middle)
        assert [capture.value for capture in result.captures] == [x.value]
        return apply_graph(result.graph, [x, *result.captures], result.out_weak)[0]

    np.testing.assert_array_equal(run(function, np.ones(3, np.float32)), [2, 2, 2])


def test_an_outer_tracer_as_output_is_captured() -> None:
    def function(x: Any) -> Any:
        result = _inner(lambda z: x)
        return apply_graph(result.graph, [x * 2, *result.captures], result.out_weak)[0]

    np.testing.assert_array_equal(run(function, np.ones(3, np.float32)), [1, 1, 1])


# -- constants ---------------------------------------------------------------------------------------------------


def test_small_arrays_are_literals_and_large_ones_parameters() -> None:
    small, large = np.arange(float(LITERAL_LIMIT)), np.arange(LITERAL_LIMIT + 1.0)
    assert traced(lambda x: x + small, small).constants == ()
    result = traced(lambda x: x + large, large)
    assert len(result.constants) == 1
    assert len(result.graph.params) == 2
    assert [eqn.op.name for eqn in result.graph.equations] == ["add"]


def test_a_large_array_is_one_parameter_however_often_it_is_used() -> None:
    large, jax_array = np.arange(100.0), jnp.arange(100.0)
    result = traced(lambda x: x + large * large + jax_array - jax_array, large)
    assert [str(value.type) for value in result.graph.params[1:]] == ["f64[100]", "f32[100]"]


def test_a_constant_is_what_the_array_was_while_tracing() -> None:
    large = np.arange(100.0)
    result = traced(lambda x: x + large, large)
    large[:] = 0
    np.testing.assert_array_equal(result.constants[0], np.arange(100.0))
    assert not result.constants[0].flags.writeable


def test_an_array_changed_between_two_uses_is_two_constants() -> None:
    buffer = np.arange(100.0)

    def function(x: Any) -> Any:
        y = x + buffer
        buffer[0] = 50.0
        return y * buffer

    result = run(function, np.ones(100))
    assert result[0] == 1 * 50
    assert result[1] == 2 * 1


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, 2.5])
def test_a_large_array_of_one_value_is_broadcast(value: float) -> None:
    array = np.full((20, 30), value)
    result = traced(lambda x: np.copysign(x, array), np.ones((20, 30)))
    assert result.constants == ()
    found = evaluate(traced(lambda x: (array,), np.ones(1)).graph, [np.ones(1)])[0]
    np.testing.assert_array_equal(np.signbit(found), np.signbit(array))


@pytest.mark.parametrize("array", [np.arange(100), np.arange(100, dtype=np.uint8)[:, None], np.arange(99)[None]])
def test_a_line_of_integers_is_counted(array: Any) -> None:
    result = traced(lambda x: (x, array), np.ones(1))
    assert result.constants == ()
    np.testing.assert_array_equal(evaluate(result.graph, [np.ones(1)])[1], array)


def test_what_is_no_line_of_integers_is_not_counted() -> None:
    for array in (np.arange(1, 101), np.arange(100)[::-1], np.arange(100).reshape(10, 10), np.arange(300).astype("u1")):
        assert len(traced(lambda x, array=array: (x, array), np.ones(1)).constants) == 1


@pytest.mark.parametrize("of_jax", [False, True])
def test_one_element_of_each_row_by_counted_rows_is_chosen_and_not_scattered(of_jax: bool) -> None:
    rows, labels = 100, np.arange(100) * 7 % 10

    def loss(x: Any) -> Any:
        return -(jnp if of_jax else np).sum(x[np.arange(rows), labels] ** 2)

    gradient = rematc.grad(rematc.from_jax(loss) if of_jax else loss)
    x = np.random.default_rng(0).normal(size=(rows, 10)).astype(np.float32)
    assert "scatter" not in rematc.lower(gradient, x).stablehlo()
    found: Any = rematc.compile(gradient, x)(x)
    np.testing.assert_allclose(found, jax.grad(lambda x: -jnp.sum(x[np.arange(rows), labels] ** 2))(x))


def test_splats_are_compared_bit_by_bit() -> None:
    assert is_splat(np.full(100, np.nan))
    assert not is_splat(np.array([0.0, -0.0]))
    assert not is_splat(np.zeros(0))
    assert is_splat(np.zeros((3, 4), bool)[:, ::2])


def test_constants_of_inner_traces_are_the_root_s() -> None:
    large = np.arange(100.0)

    def function(x: Any) -> Any:
        result = _inner(lambda z: z + large, TensorType(F64, (100,)))
        assert result.constants == ()
        assert len(result.captures) == 1
        return apply_graph(result.graph, [x + large, *result.captures], result.out_weak)[0]

    outer = traced(function, large)
    assert len(outer.constants) == 1
    np.testing.assert_array_equal(run(function, large), 3 * large)


def test_equal_scalars_are_one_constant() -> None:
    result = traced(lambda x: x * 2.0 + x * 2.0 * 2.0, np.ones(()))
    assert [eqn.op.name for eqn in result.graph.equations].count("constant") == 1


# -- tracers that escape -----------------------------------------------------------------------------------------


def test_an_escaped_tracer_names_its_line_its_function_and_the_way_out() -> None:
    kept: list[Any] = []

    def leaky(x: Any) -> Any:
        kept.append(np.sin(x))
        return x

    traced(leaky, np.ones(3))
    with pytest.raises(CompileError) as caught:
        traced(lambda x: x + kept[0], np.ones(3))
    message = caught.value.message
    assert "f64[3] of 'leaky'" in message
    assert "made by 'sine'" in message
    assert f"{__file__}:{leaky.__code__.co_firstlineno + 1}" in message
    assert "return the value from 'leaky'" in message
    assert caught.value.loc is not None
    assert caught.value.loc.line > leaky.__code__.co_firstlineno


def test_an_escaped_parameter_and_one_used_outside_all_traces() -> None:
    kept: list[Any] = []

    def leaky(x: Any) -> Any:
        kept.append(x)
        return x

    traced(leaky, np.ones(3))
    for use in (lambda t: t + 1, np.sin, np.sum, lambda t: t[0], lambda t: t.mean(), bool, lambda t: t.T, list):
        with pytest.raises(CompileError, match="the parameter x0"):
            use(kept[0])
    assert current_trace() is None


def test_a_trace_closes_when_the_function_raises() -> None:
    def function(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        traced(function, np.ones(3))
    assert current_trace() is None


def test_threads_have_traces_of_their_own() -> None:
    inside, done = threading.Event(), threading.Event()
    seen: list[Any] = []

    def function(x: Any) -> Any:
        inside.set()
        assert done.wait(10)
        return x + 1

    def other() -> None:
        assert inside.wait(10)
        seen.append(current_trace())
        seen.append(run(lambda x: x * 2, np.ones(2)))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    result = run(function, np.ones(2))
    thread.join()
    assert seen[0] is None
    np.testing.assert_array_equal(seen[1], [2, 2])
    np.testing.assert_array_equal(result, [2, 2])


def test_a_tracer_used_in_another_thread_is_refused() -> None:
    errors: list[BaseException] = []

    def function(x: Any) -> Any:
        def use() -> None:
            try:
                x + 1
            except CompileError as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return x

    traced(function, np.ones(2))
    assert "still being traced" in str(errors[0])


# -- locations ---------------------------------------------------------------------------------------------------


def _locations(function: Any, *arguments: Any) -> list[tuple[str, int, int, str]]:
    graph = traced(function, *arguments).graph
    return [(eqn.op.name, eqn.loc.line, eqn.loc.column, eqn.loc.function) for eqn in graph.equations if eqn.loc]


def test_equations_stand_at_the_user_s_expression() -> None:
    def model(x: Any) -> Any:
        y = np.sin(x) + 1.0
        return y.sum(), -y

    line = model.__code__.co_firstlineno
    assert _locations(model, np.ones(3)) == [
        ("sine", line + 1, 13, "model"),
        ("constant", line + 1, 13, "model"),
        ("broadcast_in_dim", line + 1, 13, "model"),
        ("add", line + 1, 13, "model"),
        ("reduce_sum", line + 2, 16, "model"),
        ("negate", line + 2, 25, "model"),
    ]


def test_frames_of_numpy_and_jax_are_not_the_user_s() -> None:
    def model(x: Any) -> Any:
        return jax.tree_util.tree_map(lambda leaf: leaf * leaf, {"a": x})

    ((op, line, _, function),) = _locations(model, np.ones(3))
    assert (op, line, function) == ("multiply", model.__code__.co_firstlineno + 1, "<lambda>")


def test_methods_are_named_with_their_class() -> None:
    assert _locations(Layer().forward, np.ones(3))[0][3] == "Layer.forward"


class Layer:
    """A model's layer."""

    def forward(self, x: Any) -> Any:
        """One op."""
        return -x


def test_tracers_describe_themselves() -> None:
    shown: list[str] = []

    def function(x: Any, s: Any) -> Any:
        assert isinstance(x, Tracer)
        shown.extend([repr(x), repr(s), str(x.shape), str(x.dtype), str(x.ndim), str(x.size)])
        return x

    traced(function, np.ones((2, 3), np.float32), 1)
    assert shown == [
        "<tracer f32[2,3] of 'function'>", "<tracer i64[] weak of 'function'>", "(2, 3)", "float32", "2", "6",
    ]  # fmt: skip
