"""Compiled functions: the law is that of `jax.jit`, on programs of ours."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from rematc.ir.builder import Builder
from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32, TensorType, dtype_of_numpy
from rematc.ir.values import Value
from rematc.lowering.dispatch import Dispatcher, LoweredFunction
from rematc.lowering.program import Program
from rematc.lowering.remembering import MOST_SIGNATURES
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from tests.support.programs import program

LEAF = jax.tree_util.tree_structure(0)
floats = functools.partial(np.array, dtype=np.float32)
# Any: JAX leaves these untyped.
ShapeDtypeStruct: Any = jax.ShapeDtypeStruct


def is_x64_on() -> bool:
    return bool(jnp.asarray(np.array([1.0])).dtype == np.float64)


def type_of(leaf: Any) -> TensorType:
    aval = jax.typeof(leaf)
    dtype = dtype_of_numpy(aval.dtype)
    assert dtype is not None
    return TensorType(dtype, aval.shape)


def doubled(*, calls: list[Any] | None = None) -> Callable[..., LoweredFunction]:
    """Stages the function that doubles all leaves of its argument `x`."""

    def double(x: Any) -> LoweredFunction:
        if calls is not None:
            calls.append(x)
        leaves, tree = jax.tree_util.tree_flatten(x)
        types = [type_of(leaf) for leaf in leaves]
        return LoweredFunction(
            program(types, lambda b, *xs: [b.add(value, value) for value in xs], name="double"), tree
        )

    return double


def shifted_by(constant: Callable[[tuple[int, ...]], np.ndarray[Any, Any] | None]) -> Callable[..., LoweredFunction]:
    """Stages x + c, where c depends on the shape of x and is a hidden argument; plain x where it is None."""

    def shift(x: Any) -> LoweredFunction:
        array = constant(x.shape)
        if array is None:
            return LoweredFunction(program([type_of(x)], lambda b, x: [x]), LEAF)
        types = [type_of(x), type_of(array)]
        return LoweredFunction(program(types, lambda b, x, c: [b.add(x, c)], constants=[array]), LEAF)

    return shift


# -- signatures --------------------------------------------------------------------------------------------------------


def test_each_signature_is_staged_once() -> None:
    calls: list[Any] = []
    f = Dispatcher(doubled(calls=calls))
    np.testing.assert_array_equal(f(floats([1, 2])), [2, 4])
    np.testing.assert_array_equal(f(jnp.asarray(floats([3, 4]))), [6, 8])
    assert len(calls) == 1
    f(floats([1, 2, 3]))  # a shape
    f(np.array([1, 2], np.int32))  # a dtype
    f([floats([1, 2])])  # a tree
    f(2.0)  # a weak type
    assert len(calls) == 5
    for repeated in (np.array([5, 6], np.int32), 3.0, [floats([1, 2])]):
        f(repeated)
    assert len(calls) == 5


def test_retracing_by_jax_does_not_stage_again() -> None:
    calls: list[Any] = []
    f = Dispatcher(doubled(calls=calls))
    x = floats([1, 2])
    f(x)
    jax.jit(f)(x)
    jax.clear_caches()  # type: ignore[no-untyped-call]  # JAX's
    f(x)
    assert len(calls) == 1


def test_results_have_the_tree_that_was_lowered() -> None:
    result = Dispatcher(doubled())({"a": np.float32(1), "b": (np.int32(2), None)})
    assert result == {"a": 2.0, "b": (4, None)}


def test_static_arguments_are_part_of_the_signature_by_value() -> None:
    calls = []

    def power(x: Any, n: int, *, invert: bool = False) -> LoweredFunction:
        calls.append((n, invert))
        return LoweredFunction(program([type_of(x)], lambda b, x: [functools.reduce(b.multiply, [x] * n)]), LEAF)

    f = Dispatcher(power, static_argnums=(1,), static_argnames="invert")
    assert float(f(np.float32(2), 3)) == 8
    assert float(f(np.float32(2), n=3)) == 8
    assert float(f(np.float32(2), 2)) == 4
    assert float(f(np.float32(3), 2, invert=True)) == 9
    assert float(f(np.float32(3), 2, invert=False)) == 9
    assert calls == [(3, False), (3, False), (2, False), (2, True), (2, False)]
    assert float(Dispatcher(power, static_argnums=-1)(np.float32(2), 3)) == 8


def test_a_compiled_function_is_a_method_where_it_stands_in_a_class() -> None:
    class Model:
        @Dispatcher
        def double(self: Any, x: Any) -> LoweredFunction:  # jax sees `self` as an argument, so it must be a tree
            return doubled()(x)

    jax.tree_util.register_static(Model)
    assert float(Model().double(np.float32(2))) == 4


def test_the_functions_name_and_documentation_are_kept() -> None:
    f = Dispatcher(doubled())
    assert f.__name__ == "double"  # type: ignore[attr-defined]  # set by update_wrapper
    assert f.__wrapped__.__name__ == "double"  # type: ignore[attr-defined]  # as above


# -- 64 bits -----------------------------------------------------------------------------------------------------------


def test_64_bit_types_survive_and_the_users_setting_is_left_alone() -> None:
    f = Dispatcher(doubled())
    assert not is_x64_on()
    for x in (np.array([1.5]), np.array([2**40]), np.array([2**63 - 1], np.uint64), np.array([1j])):
        result = f(x)
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result, x + x)
    assert not is_x64_on()


def test_an_error_leaves_the_users_setting_alone() -> None:
    def fail(x: Any) -> LoweredFunction:
        raise CompileError("no")

    with pytest.raises(CompileError, match=r"^no$") as caught:
        Dispatcher(fail)(np.float64(1))
    assert not hasattr(caught.value, "__notes__")
    assert not is_x64_on()


# -- arrays in and out -------------------------------------------------------------------------------------------------


def test_numpy_takes_results_without_a_copy() -> None:
    result = Dispatcher(doubled())(np.ones(1000, np.float32))
    assert isinstance(result, jax.Array)
    assert np.asarray(result).__array_interface__["data"][0] == result.unsafe_buffer_pointer()


def test_donated_arguments_are_used_up() -> None:
    f = Dispatcher(doubled(), donate_argnums=0)
    x = jnp.ones(1000, jnp.float32) + 1
    f(x)
    assert x.is_deleted()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("text", r"argument x is a str, expected an array or a number; .* static_argnames"),
        ({"a": [np.array(["text"])]}, r"argument x\['a'\]\[0\] is a ndarray of dtype <U4"),
        ([object()], r"argument x\[0\] is a object"),
    ],
)
def test_what_is_no_array_is_named(argument: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        Dispatcher(doubled())(argument)


def test_other_type_errors_pass() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Dispatcher(doubled())()


# -- inside jax --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"xla_embed_ir_in_executable": False}])
def test_it_can_be_called_inside_jit(options: dict[str, Any]) -> None:
    f = Dispatcher(doubled(), compiler_options=options)
    g = jax.jit(lambda x: f(x + 1) + 1)
    np.testing.assert_array_equal(g(floats([1, 2])), [5, 7])
    np.testing.assert_array_equal(f(floats([1, 2])), [2, 4])


def test_it_can_be_called_inside_jit_with_64_bits_off() -> None:
    f = Dispatcher(doubled())
    wide = np.array([2.0**-40], np.float64) + 1
    with jax.enable_x64(True):
        x = jnp.asarray(wide)
    assert jax.jit(f)(x).dtype == np.float64
    np.testing.assert_array_equal(jax.jit(f)(x), wide * 2)


def test_it_can_be_exported() -> None:
    f = Dispatcher(doubled())
    exported: Any = export.export(jax.jit(f))(floats([1, 2]))
    assert "rematc_call" in exported.mlir_module()
    np.testing.assert_array_equal(exported.call(floats([1, 2])), [2, 4])


def test_it_runs_with_jit_disabled() -> None:
    with jax.disable_jit():
        np.testing.assert_array_equal(Dispatcher(doubled())(np.array([1.0, 2])), [2, 4])
        np.testing.assert_array_equal(Dispatcher(shifted_by(np.ones))(np.array([1.0, 2])), [2, 3])


def test_transformations_of_jax_are_refused_with_a_way_out() -> None:
    f = Dispatcher(doubled())
    with pytest.raises(CompileError, match=r"cannot differentiate 'double'.*rematc\.grad"):
        jax.grad(f)(np.float32(1))
    with pytest.raises(CompileError, match=r"jax\.vmap cannot batch 'double'"):
        jax.vmap(f)(np.ones((2, 3), np.float32))


# -- constants ---------------------------------------------------------------------------------------------------------


def test_constants_are_sent_to_the_device_once() -> None:
    constant = np.arange(5000, dtype=np.float64)
    f = Dispatcher(shifted_by(lambda shape: constant))
    with jax.enable_x64(True):
        x = jnp.ones(5000)
    np.testing.assert_array_equal(f(x), constant + 1)
    with jax.transfer_guard("disallow"):
        result = f(x)
    np.testing.assert_array_equal(result, constant + 1)


def test_constants_are_arguments_of_the_executable_not_text() -> None:
    constant = np.random.default_rng(0).normal(size=5000)
    f = Dispatcher(shifted_by(lambda shape: constant))
    f(np.ones(5000))
    with jax.enable_x64(True):
        jitted: Any = f._route.outermost
        text = jitted.func.lower(*jitted.args, np.ones(5000)).as_text()
    assert len(text) < 2000
    assert "%arg1: tensor<5000xf64>" in text


def test_signatures_may_take_different_constants_and_are_compiled_once_each(caplog: pytest.LogCaptureFixture) -> None:
    f = Dispatcher(shifted_by(lambda shape: None if shape == (1,) else np.arange(shape[0], dtype=np.float32)))
    sizes = (1, 3, 1, 2, 3, 1, 2, 2, 3, 1)
    with jax.log_compiles(True):
        for size in sizes:
            expected = np.ones(size) + (np.arange(size) if size > 1 else 0)
            np.testing.assert_array_equal(f(np.ones(size, np.float32)), expected)
    assert caplog.text.count("Finished XLA compilation of jit(shift)") == len(set(sizes))


def test_signatures_that_take_equal_constants_are_offered_the_same() -> None:
    def lower(x: Any) -> LoweredFunction:
        types = [type_of(x), TensorType(F32, (2,))]
        return LoweredFunction(program(types, lambda b, x, c: [x], constants=[floats([7, 8])]), LEAF)

    f = Dispatcher(lower)
    f(np.float32(1))
    entry = f._entry
    f(floats([1, 2]))
    assert f._entry is entry
    assert not f._route_of


def test_constants_first_met_inside_a_trace_are_arrays() -> None:
    f = Dispatcher(shifted_by(np.ones))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(lambda x: f(x) * 2)(np.ones(3)), [4, 4, 4])
    np.testing.assert_array_equal(f(np.ones(3)), [2, 2, 2])


def test_threads_that_first_call_a_function_at_once_stage_it_once() -> None:
    calls: list[Any] = []
    both = threading.Barrier(2)

    def lower(x: Any) -> LoweredFunction:
        calls.append(x)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.1)  # for another thread that stages it too
        return doubled()(x)

    f = Dispatcher(lower)

    def work(precision: str) -> float:
        with jax.default_matmul_precision(precision):  # which JAX traces for anew
            return float(f(np.float32(2)))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, ("float32", "tensorfloat32", "bfloat16", "float32"))) == [4.0] * 4
    assert len(calls) == 1


def test_threads_that_choose_routes_at_once_choose_right() -> None:
    interval = sys.getswitchinterval()
    for _ in range(2):
        f = Dispatcher(shifted_by(lambda shape: None if shape == (1,) else np.full(shape, shape[0], np.float32)))
        start = threading.Barrier(6)

        def work(size: int, f: Any = f, start: Any = start) -> list[float]:
            start.wait(5)
            return [float(f(np.ones(size, np.float32))[0]) for _ in range(3)]

        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(6) as pool:
                found = list(pool.map(work, (1, 2, 3, 1, 2, 3)))
        finally:
            sys.setswitchinterval(interval)
        assert found == [[1.0] * 3, [3.0] * 3, [4.0] * 3] * 2
        # Each set of constants has one route, which all threads found.
        assert len(f._routes) == 3
        assert len({id(route) for route in (f._route, *f._route_of.values())}) <= 3


def test_only_the_last_signatures_are_kept() -> None:
    f = Dispatcher(doubled())
    count = MOST_SIGNATURES + 10
    for size in range(count):
        jax.eval_shape(f, ShapeDtypeStruct((size,), np.float32))
    assert len(f._functions) == MOST_SIGNATURES


def test_constants_are_on_the_device_as_long_as_their_route_is() -> None:
    f = Dispatcher(shifted_by(lambda shape: np.full(shape, shape[0], np.float32)))
    f(np.ones(2, np.float32))
    (copy,) = f._constants._arrays.values()
    held = weakref.ref(copy)
    del copy
    assert held() is not None
    del f
    jax.clear_caches()  # type: ignore[no-untyped-call]  # JAX's
    gc.collect()
    assert held() is None


def test_threads_may_share_a_function() -> None:
    f = Dispatcher(shifted_by(lambda shape: np.full(shape, shape[0], np.float32)))

    def work(size: int) -> list[float]:
        return [float(f(np.ones(size, np.float32))[0]) for _ in range(30)]

    with ThreadPoolExecutor(4) as pool:
        for size, results in zip(range(1, 5), pool.map(work, range(1, 5)), strict=True):
            assert results == [1 + size] * 30


# -- barriers ----------------------------------------------------------------------------------------------------------


def test_barriers_hold_with_the_options_for_the_platform() -> None:
    layers, width, batch = 8, 16, 64

    @jax.checkpoint
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return x + jax.nn.gelu(jax.nn.gelu(x @ w) @ w)

    def loss(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in ws:
            x = layer(x, w)
        return x.sum()

    options = Target.of("cpu").compile_options(has_barriers=True)
    step = jax.jit(jax.value_and_grad(loss), compiler_options=options or None)
    ws = [ShapeDtypeStruct((width, width), np.float32)] * layers
    x = ShapeDtypeStruct((batch, width), np.float32)
    memory: Any = step.lower(ws, x).compile().memory_analysis()
    activations = memory.temp_size_in_bytes / (batch * width * 4)
    # One activation a layer and a few while a layer is recomputed; without the option it is 4 or 5 a layer.
    assert activations < layers + 6


def recomputing(x: Any) -> LoweredFunction:
    """Stages a barrier between x and 2 x."""
    body = lambda b, x: [b.add(*[b.emit1(OptimizationBarrier(), x)] * 2)]  # noqa: E731  # one expression
    return LoweredFunction(program([type_of(x)], body, name="recomputing"), LEAF)


def test_programs_with_barriers_get_the_options_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def options(program: Program, target: Target, given: Any = None) -> dict[str, Any]:
        asked.append(target)
        return {"xla_disable_hlo_passes": "cse_barrier_expander"}

    monkeypatch.setattr(Program, "compile_options", options)
    f = Dispatcher(recomputing)
    np.testing.assert_array_equal(f(floats([1, 2])), [2, 4])
    assert set(asked) == {current_target()}
    # JAX refuses options inside another jit; there the function must run without them.
    np.testing.assert_array_equal(jax.jit(lambda x: f(x) + 1)(floats([1, 2])), [3, 5])
    np.testing.assert_array_equal(f(floats([1, 2])), [2, 4])


def branching(is_depth_first: bool) -> Dispatcher:
    """Stages eight branches of which one after the other, or all at once, take memory."""

    def body(b: Builder, x: Value) -> list[Value]:
        products = [b.dot_general(b.scale(x, n), x, ((0,), (0,))) for n in range(1, 9)]
        return [b.reduce_sum(b.multiply(large, large), (0, 1)) for large in products]

    def lower(x: Any) -> LoweredFunction:
        made = program([type_of(x)], body, name="branching")
        tree = jax.tree_util.tree_structure([0] * 8)
        return LoweredFunction(dataclasses.replace(made, is_depth_first=is_depth_first), tree)

    return Dispatcher(lower)


@pytest.mark.parametrize("is_depth_first", [False, True])
def test_depth_first_programs_are_compiled_so_and_run_inside_others(
    monkeypatch: pytest.MonkeyPatch, is_depth_first: bool
) -> None:
    """Inside another `jax.jit` nothing may be said of the scheduler."""
    given: list[dict[str, Any]] = []
    jit: Any = jax.jit

    def recorded(*args: Any, **named: Any) -> Any:
        given.append(named)
        return jit(*args, **named)

    monkeypatch.setattr(jax, "jit", recorded)
    f = branching(is_depth_first)
    x = np.ones((4, 64), np.float32)
    expected = [4096 * 16 * n**2 for n in range(1, 9)]
    assert [float(value) for value in f(x)] == expected
    options = [named["compiler_options"] for named in given if "compiler_options" in named]
    is_expected = jax.default_backend() == "cpu" and is_depth_first
    assert options == [{"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}] * is_expected
    assert [float(value) for value in jax.jit(lambda x: f(2 * x))(x)] == [16 * value for value in expected]
    assert [float(value) for value in f(x)] == expected


def test_options_of_the_user_are_kept_beside_those_for_barriers() -> None:
    chosen: dict[str, str | bool | int] = {"xla_disable_hlo_passes": "cse", "xla_cpu_enable_fast_math": False}
    merged = Target.of("cpu").compile_options(chosen, has_barriers=True)
    assert merged["xla_cpu_enable_fast_math"] is False
    assert str(merged["xla_disable_hlo_passes"]).split(",")[0] == "cse"
    assert Target.of("cuda").compile_options({}, has_barriers=True) == {}


# -- our own tracing ---------------------------------------------------------------------------------------------------


def test_calls_are_recorded_while_our_own_trace_is_open() -> None:
    trace: list[object] = []
    f = Dispatcher(
        doubled(), open_trace=lambda: trace or None, record=lambda *args, **kwargs: ("recorded", args, kwargs)
    )
    assert float(f(np.float32(2))) == 4
    trace.append("open")
    assert f("anything", n=1) == ("recorded", ("anything",), {"n": 1})
