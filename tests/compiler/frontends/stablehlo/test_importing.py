"""StableHLO text to graphs: what JAX writes, locations, loops, errors, and text cut or changed at any place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from jaxlib.mlir.dialects import _chlo_ops_gen, _stablehlo_ops_gen

import rematc
from rematc.compiler.frontends.stablehlo import importing
from rematc.compiler.frontends.stablehlo.block import REASONS, RULES
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.locations import Location
from rematc.ir.ops.custom_call import CustomCall
from rematc.ir.ops.placement import Placement
from rematc.ir.ops.regions import Call
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Array
from rematc.passes.linearize import vjp
from tests.support.samples import in_double

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
IDS = np.array([2, 0, 2, 7], np.int32)


def module(body: str, signature: str = "%x: tensor<2xf32>", results: str = "tensor<2xf32>") -> str:
    return f"func.func @main({signature}) -> ({results}) {{\n{body}\n}}"


def lowered(function: Callable[..., Any], *args: Array) -> str:
    return str(jax.jit(function).lower(*args).as_text(debug_info=True))


def loop(x: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c + row), c * row), x[0], x)


def branches(x: Any) -> Any:
    return lax.switch(1, [jnp.sin, jnp.cos, lambda y: y * 2], lax.cond(x[0, 0] > 0, jnp.exp, lambda y: -y, x))


def newton(x: Any) -> Any:
    return lax.while_loop(lambda y: jnp.max(jnp.abs(y * y - 2)) > 1e-3, lambda y: 0.5 * (y + 2 / y), jnp.abs(x) + 1)


PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[Array]]] = {
    "scan": (loop, (X,)),
    "branches": (branches, (X,)),
    "while": (newton, (X,)),
    "sort": (lambda x: jnp.sort(x, axis=0), (X,)),
    "argsort descending": (lambda x: jnp.argsort(x, axis=1, descending=True), (X,)),
    "lexsort": (lambda x: jnp.lexsort((x[0], jnp.round(x[1]))), (X,)),
    "top_k": (lambda x: lax.top_k(x, 2), (X,)),
    "argmax": (lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1)), (X,)),
    "gather": (lambda x, i: x[:, i % 4], (X, IDS)),
    "scatter": (lambda x, i: (x.at[:, i].add(1.0), x.at[i].max(0.5), x.at[i, 0].set(7.0)), (X, IDS)),
    "pooling": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"), (X,)),
    "reduce with a start": (lambda x: lax.reduce(x, 3.0, lax.add, (0,)), (X,)),
    "reduce by a function": (lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + a + b - 1, (1,)), (X,)),
    "statistics": (lambda x: (jnp.var(x, 0), jax.nn.softmax(x), jnp.median(x)), (X,)),
    "convolution": (lambda x: lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME"), (X,)),
    "fft": (jnp.fft.rfft, (X,)),
    "integers": (lambda i: (i // 2, i % 3, i >> 1, i**2, lax.population_count(i)), (IDS,)),
    "special functions": (lambda x: (lax.erf(x), lax.lgamma(x + 3), jnp.arcsinh(x), jnp.log1p(x * x)), (X,)),
    "nested calls": (lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(2 * x), (X,)),
    "gradient": (jax.grad(lambda x: jnp.sum(jnp.sin(x) @ x.T)), (X,)),
    "bfloat16": (lambda x: x.astype(jnp.bfloat16) * 2, (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_jax_mean_the_same(name: str) -> None:
    function, args = PROGRAMS[name]
    found = evaluate(rematc.from_stablehlo(lowered(function, *args)), args)
    expected = jax.tree.leaves(jax.jit(function)(*args))
    for actual, wanted in zip(found, expected, strict=True):
        assert actual.dtype == wanted.dtype
        # float32, summed in another order
        np.testing.assert_allclose(in_double(actual), in_double(np.asarray(wanted)), rtol=2e-5, atol=2e-5)


def test_a_loop_that_counts_is_differentiated_backwards() -> None:
    def loss(x: Any) -> Any:
        carry, rows = loop(x)
        return jnp.sum(carry) + jnp.sum(rows * rows)

    graph = rematc.from_stablehlo(lowered(loss, X))
    pulled = vjp(graph, [True])
    value, *residuals = evaluate(pulled.forward, [X])
    (gradient,) = evaluate(pulled.backward, [*residuals, np.ones((), np.float32)])
    wanted, expected = jax.value_and_grad(loss)(X)
    np.testing.assert_allclose(in_double(value), wanted, rtol=1e-5)
    np.testing.assert_allclose(in_double(gradient), expected, rtol=1e-4, atol=1e-6)


COUNTING = """
  %zero = stablehlo.constant dense<{start}> : tensor<i32>
  %one = stablehlo.constant dense<{stride}> : tensor<i32>
  %limit = stablehlo.constant dense<{limit}> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<2xf32>
  cond {{
    %c = stablehlo.compare {direction}, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    %z = stablehlo.add %y, %x : tensor<2xf32>
    stablehlo.return %j, %z : tensor<i32>, tensor<2xf32>
  }}
  return %r#0, %r#1 : tensor<i32>, tensor<2xf32>"""


@pytest.mark.parametrize(
    ("start", "stride", "limit", "direction"),
    [(0, 1, 5, "LT"), (0, 1, 5, "LE"), (2, 3, 10, "LT"), (9, 1, 5, "LT"), (0, 7, 7, "LE")],
)
def test_counted_loops_are_scans_of_as_many_steps(start: int, stride: int, limit: int, direction: str) -> None:
    body = COUNTING.format(start=start, stride=stride, limit=limit, direction=direction)
    graph = rematc.from_stablehlo(module(body, results="tensor<i32>, tensor<2xf32>"))
    assert any(isinstance(eqn.op, Scan) for eqn in graph.equations)
    counter, steps = start, 0
    while counter < limit or (direction == "LE" and counter == limit):
        counter, steps = counter + stride, steps + 1
    found, total = evaluate(graph, [np.array([1, 2], np.float32)])
    assert found == counter
    np.testing.assert_array_equal(total, np.array([1, 2], np.float32) * (steps + 1))


@pytest.mark.parametrize(("stride", "direction"), [(1, "NE"), (-1, "LT"), (0, "LT"), (2**30, "LT")])
def test_loops_that_may_not_end_or_overflow_stay_while(stride: int, direction: str) -> None:
    limit = 2**31 - 1 if stride == 2**30 else 5
    body = COUNTING.format(start=0, stride=stride, limit=limit, direction=direction)
    graph = rematc.from_stablehlo(module(body, results="tensor<i32>, tensor<2xf32>"))
    assert any(isinstance(eqn.op, While) for eqn in graph.equations)


def test_locations_and_names_are_kept() -> None:
    text = (
        'func.func @main(%x: tensor<2xf32> loc("weights")) -> tensor<2xf32> {\n'
        '  %0 = stablehlo.sine %x : tensor<2xf32> loc("loss"("model.py":12:8))\n'
        "  %1 = stablehlo.cosine %0 : tensor<2xf32>\n"
        "  return %1 : tensor<2xf32>\n}"
    )
    graph = rematc.from_stablehlo(text, file="net.mlir")
    assert graph.params[0].name == "weights"
    assert [eqn.loc for eqn in graph.equations] == [Location("model.py", 12, 8, "loss"), Location("net.mlir", 3, 8)]


def test_dense_resources_are_read() -> None:
    text = (
        module("%0 = stablehlo.constant dense_resource<blob> : tensor<2xf32>\nreturn %0 : tensor<2xf32>")
        + '\n{-#\n  dialect_resources: {\n builtin: {\n blob: "0x040000000000803F00000040"\n }\n }\n#-}\n'
    )
    np.testing.assert_array_equal(evaluate(rematc.from_stablehlo(text), [X[0, :2]])[0], np.array([1, 2], np.float32))


def test_a_resource_that_is_missing_is_an_error() -> None:
    text = module("%0 = stablehlo.constant dense_resource<blob> : tensor<2xf32>\nreturn %0 : tensor<2xf32>")
    with pytest.raises(CompileError, match=r"<stablehlo>:2:6: error: the resource 'blob' of a constant is not in"):
        rematc.from_stablehlo(text)


SCATTER = """
  %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    {body}
    stablehlo.return %c : tensor<f32>
  }}) : (tensor<4xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>"""


def test_scatters_by_any_function_follow_one_another() -> None:
    """x / u one after the other, where no order gives the same as a product: indices overlap, and one is outside."""
    body = SCATTER.format(body="%c = stablehlo.subtract %b, %a : tensor<f32>")
    text = module(body, "%x: tensor<4xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>", "tensor<4xf32>")
    x, u = np.arange(4, dtype=np.float32), np.array([10, 20, 30], np.float32)
    (found,) = evaluate(rematc.from_stablehlo(text), [x, np.array([[1], [1], [4]], np.int32), u])
    np.testing.assert_array_equal(found, np.array([0, 20 - (10 - 1), 2, 3], np.float32))


def test_the_selection_of_a_window_may_be_any() -> None:
    """GT keeps the last of equal elements, where GE keeps the first."""
    body = """
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%x, %s, %zero) <{window_dimensions = array<i64: 2>,
    window_strides = array<i64: 2>, padding = dense<0> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare DIRECTION, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %r : tensor<4xf32>"""
    args = [np.array([1, 1, 3, 2], np.float32), np.array([5, 6], np.float32)]
    for direction, expected in (("GE", [5, 0, 6, 0]), ("GT", [0, 5, 6, 0])):
        text = module(body.replace("DIRECTION", direction), "%x: tensor<4xf32>, %s: tensor<2xf32>", "tensor<4xf32>")
        np.testing.assert_array_equal(evaluate(rematc.from_stablehlo(text), args)[0], np.array(expected, np.float32))


def test_total_order_tells_zeros_and_nans_apart() -> None:
    body = """
  %r = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<5xf32>) -> tensor<5xf32>
  return %r : tensor<5xf32>"""
    graph = rematc.from_stablehlo(module(body, "%x: tensor<5xf32>", "tensor<5xf32>"))
    x = np.array([0.0, -0.0, np.nan, -np.nan, 1], np.float32)
    (found,) = evaluate(graph, [x])
    np.testing.assert_array_equal(found, np.array([-np.nan, -0.0, 0.0, 1, np.nan], np.float32))
    np.testing.assert_array_equal(np.signbit(found), [True, True, False, False, False])


# -- operations that JAX does not write --------------------------------------------------------------------------------

F = np.array([1.0, np.inf, -np.inf, -3.0], np.float32)
BODIES: dict[str, tuple[str, str, str, Sequence[Array], Sequence[Any]]] = {
    "scan of CHLO": (
        """%z = stablehlo.constant dense<0.0> : tensor<3xf32>
        %r:2 = chlo.scan(%x) inits(%z) dimension=1 attributes {is_reverse = true} {
        ^bb0(%a: tensor<3xf32>, %c: tensor<3xf32>):
          %s = stablehlo.add %a, %c : tensor<3xf32>
          stablehlo.return %s, %s : tensor<3xf32>, tensor<3xf32>
        } : (tensor<3x4xf32>, tensor<3xf32>) -> (tensor<3x4xf32>, tensor<3xf32>)
        return %r#0, %r#1 : tensor<3x4xf32>, tensor<3xf32>""",
        "%x: tensor<3x4xf32>",
        "tensor<3x4xf32>, tensor<3xf32>",
        (X,),
        (np.cumsum(X[:, ::-1], 1)[:, ::-1], X.sum(1)),
    ),
    "tuples in tuples": (
        """%a = stablehlo.tuple %x : tuple<tensor<4xf32>>
        %b = stablehlo.tuple %a, %x : tuple<tuple<tensor<4xf32>>, tensor<4xf32>>
        %c = stablehlo.get_tuple_element %b[0]
          : (tuple<tuple<tensor<4xf32>>, tensor<4xf32>>) -> tuple<tensor<4xf32>>
        %d = stablehlo.get_tuple_element %c[0] : (tuple<tensor<4xf32>>) -> tensor<4xf32>
        return %d : tensor<4xf32>""",
        "%x: tensor<4xf32>",
        "tensor<4xf32>",
        (F,),
        (F,),
    ),
    "infinities": (
        """%a = chlo.is_inf %x : tensor<4xf32> -> tensor<4xi1>
        %b = chlo.is_pos_inf %x : tensor<4xf32> -> tensor<4xi1>
        %c = chlo.is_neg_inf %x : tensor<4xf32> -> tensor<4xi1>
        return %a, %b, %c : tensor<4xi1>, tensor<4xi1>, tensor<4xi1>""",
        "%x: tensor<4xf32>",
        "tensor<4xi1>, tensor<4xi1>, tensor<4xi1>",
        (F,),
        (np.isinf(F), np.isposinf(F), np.isneginf(F)),
    ),
    "broadcasting": (
        """%a = chlo.broadcast_multiply %x, %y : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
        %b = chlo.broadcast_compare %x, %y {comparison_direction = #chlo<comparison_direction LT>}
          : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xi1>
        return %a, %b : tensor<3x4xf32>, tensor<3x4xi1>""",
        "%x: tensor<3x4xf32>, %y: tensor<4xf32>",
        "tensor<3x4xf32>, tensor<3x4xi1>",
        (X, X[1]),
        (X * X[1], np.less(X, X[1])),
    ),
    "bits": (
        """%a = stablehlo.bitcast_convert %x : (tensor<2xui8>) -> tensor<2x8xi1>
        %b = stablehlo.bitcast_convert %a : (tensor<2x8xi1>) -> tensor<2xi8>
        return %a, %b : tensor<2x8xi1>, tensor<2xi8>""",
        "%x: tensor<2xui8>",
        "tensor<2x8xi1>, tensor<2xi8>",
        (np.array([5, 254], np.uint8),),
        (np.unpackbits(np.array([[5], [254]], np.uint8), 1, bitorder="little") != 0, np.array([5, -2], np.int8)),
    ),
    "map": (
        """%a = "stablehlo.map"(%x, %x) <{dimensions = array<i64: 0, 1>}> ({
        ^bb0(%p: tensor<f32>, %q: tensor<f32>):
          %s = stablehlo.multiply %p, %q : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
        return %a : tensor<3x4xf32>""",
        "%x: tensor<3x4xf32>",
        "tensor<3x4xf32>",
        (X,),
        (X * X,),
    ),
    "the greatest by total order": (
        """%v, %i = chlo.top_k(%x, k = 3) : tensor<4xf32> -> (tensor<3xf32>, tensor<3xi32>)
        return %v, %i : tensor<3xf32>, tensor<3xi32>""",
        "%x: tensor<4xf32>",
        "tensor<3xf32>, tensor<3xi32>",
        (np.array([-np.nan, -np.inf, np.nan, 2], np.float32),),
        (np.array([np.nan, 2, -np.inf], np.float32), np.array([2, 3, 1], np.int32)),
    ),
    "upper halves of products": (
        "%a = chlo.mulhi %x, %x : tensor<2xi64>, tensor<2xi64> -> tensor<2xi64>\nreturn %a : tensor<2xi64>",
        "%x: tensor<2xi64>",
        "tensor<2xi64>",
        (np.array([2**62 + 12345, -(2**61) - 3], np.int64),),
        (np.array([(2**62 + 12345) ** 2 >> 64, (2**61 + 3) ** 2 >> 64], np.int64),),
    ),
    "sizes that are constants": (
        """%l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
        %h = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
        %s = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
        %a = stablehlo.real_dynamic_slice %x, %l, %h, %s
          : (tensor<3x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<1x2xf32>
        return %a : tensor<1x2xf32>""",
        "%x: tensor<3x4xf32>",
        "tensor<1x2xf32>",
        (X,),
        (X[1:2, 0:3:2],),
    ),
    "batch normalization": (
        """%one = stablehlo.constant dense<1.0> : tensor<4xf32>
        %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
        %y, %m, %v = "stablehlo.batch_norm_training"(%x, %one, %zero) <{epsilon = 0.0 : f32, feature_index = 1 : i64}>
          : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>)
        return %y, %m, %v : tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>""",
        "%x: tensor<3x4xf32>",
        "tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>",
        (X,),
        ((X - X.mean(0)) / X.std(0), X.mean(0), X.var(0)),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_operations_mean_what_the_specification_says(name: str) -> None:
    body, signature, results, args, expected = BODIES[name]
    found = evaluate(rematc.from_stablehlo(module(body, signature, results)), args)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(in_double(actual), in_double(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("type", "literal", "elements"),
    [
        ("bf16", "[1.5, -2.0, 0x7FC0]", [1.5, -2.0, np.nan]),
        ("f8E4M3FN", "[1.5, -2.0, 0.5]", [1.5, -2.0, 0.5]),
        ("f4E2M1FN", "[1.5, -2.0, 6.0]", [1.5, -2.0, 6.0]),
        ("i4", "[-8, 7, 0]", [-8, 7, 0]),
        ("ui2", "[3, 0, 1]", [3, 0, 1]),
        ("complex<f32>", "[(1.0, 2.0), (-0.5, 0.0), (0.0, 3.0)]", [1 + 2j, -0.5, 3j]),
        ("complex<f64>", "(1.0, 2.0)", [1 + 2j] * 3),
        ("i1", "[true, false, true]", [True, False, True]),
        ("ui64", "18446744073709551615", [2**64 - 1] * 3),
    ],
)
def test_constants_of_every_kind_are_read(type: str, literal: str, elements: list[complex]) -> None:
    tensor = f"tensor<3x{type}>"
    text = module(f"%0 = stablehlo.constant dense<{literal}> : {tensor}\nreturn %0 : {tensor}", "", tensor)
    (found,) = evaluate(rematc.from_stablehlo(text), [])
    np.testing.assert_array_equal(in_double(found).tolist(), elements)


ALGORITHM = """%0 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0], algorithm = <
  lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = f32, lhs_component_count = 1,
  rhs_component_count = 1, num_primitive_operations = {1}, allow_imprecise_accumulation = false>
  : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
return %0 : tensor<f32>"""


@pytest.mark.parametrize(("type", "rounded"), [("f32", 1.00390625), ("bf16", 1.0), ("f16", 1.00390625)])
def test_an_algorithm_rounds_operands(type: str, rounded: float) -> None:
    graph = rematc.from_stablehlo(module(ALGORITHM.format(type, 1), results="tensor<f32>"))
    (found,) = evaluate(graph, [np.array([1.00390625, 0], np.float32)])  # 1 + 2^-8: bf16 has 7 bits
    assert found == np.float32(rounded) ** 2


CALLED = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = func.call @f(%x){} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.sine %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}}"""


@pytest.mark.parametrize(
    ("attributes", "is_inlineable"), [("", True), (' {mhlo.frontend_attributes = {inlineable = "false"}}', False)]
)
def test_a_call_that_is_kept_apart_stays_so(attributes: str, is_inlineable: bool) -> None:
    graph = rematc.from_stablehlo(CALLED.format(attributes))
    (op,) = [eqn.op for eqn in graph.equations]
    assert isinstance(op, Call) and op.is_inlineable is is_inlineable
    assert is_inlineable is ("inlineable" not in rematc.lower(graph, np.ones(2, np.float32)).stablehlo())


# -- errors ------------------------------------------------------------------------------------------------------------

CONSTRAINED = """sdy.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = sdy.sharding_constraint %x <@mesh, [{{"x"}}]> {{{}}} : tensor<2xf32>
  return %0 : tensor<2xf32>
}}"""

ERRORS = {
    "a sharding for XLA's older partitioner": (
        module(
            '%0 = stablehlo.custom_call @f(%x) {mhlo.sharding = "{replicated}"} : (tensor<2xf32>) -> tensor<2xf32>\n'
            "return %0 : tensor<2xf32>"
        ),
        r"<stablehlo>:2:6: error: 'stablehlo.custom_call' has mhlo.sharding = .*, which is written for XLA's older",
    ),
    "a memory that the IR does not have": (
        module(
            "%0 = stablehlo.custom_call @annotate_device_placement(%x) {has_side_effect = true, "
            'mhlo.frontend_attributes = {_xla_buffer_placement = "unpinned_host"}} : (tensor<2xf32>) -> tensor<2xf32>\n'
            "return %0 : tensor<2xf32>"
        ),
        r"<stablehlo>:2:6: error: 'stablehlo.custom_call' places a value in the memory 'unpinned_host'",
    ),
    "an accuracy that is asked for": (
        module(
            "%0 = stablehlo.sine %x {result_accuracy = #stablehlo.result_accuracy<mode = "
            "#stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<2xf32>\nreturn %0 : tensor<2xf32>"
        ),
        r":2:6: error: 'stablehlo.sine' has result_accuracy = .*HIGHEST.*, which the IR does not have",
    ),
    "an attribute of an operation": (
        module(
            '%0 = stablehlo.sine %x {mhlo.frontend_attributes = {_xla_compute_type = "host"}} : tensor<2xf32>\n'
            "return %0 : tensor<2xf32>"
        ),
        r":2:6: error: 'stablehlo.sine' has mhlo.frontend_attributes = {_xla_compute_type = \"host\"}, which",
    ),
    "an attribute of an operation inside a region": (
        module(
            "%0 = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "%1 = stablehlo.reduce(%x init: %0) across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>\n"
            " reducer(%a: tensor<f32>, %b: tensor<f32>) {\n"
            "  %2 = stablehlo.add %a, %b {xla.other = 1 : i32} : tensor<f32>\n"
            "  stablehlo.return %2 : tensor<f32>\n }\n return %1 : tensor<f32>",
            results="tensor<f32>",
        ),
        r"error: 'stablehlo.(add|reduce)' has xla.other = 1 : i32, which the IR does not have",
    ),
    "an attribute of a call": (
        CALLED.format(' {mhlo.frontend_attributes = {_xla_compute_type = "host"}}'),
        r"error: 'func.call' has mhlo.frontend_attributes = {'_xla_compute_type': 'host'}, which the IR does not have",
    ),
    "another attribute of a call": (
        CALLED.format(" {mhlo.other = 1 : i32}"),
        r"error: 'func.call' has mhlo.other = 1 : i32, which the IR does not have",
    ),
    "an attribute of a constraint": (
        CONSTRAINED.format('mhlo.frontend_attributes = {_xla_compute_type = "host"}'),
        r":3:8: error: 'sdy.sharding_constraint' has mhlo.frontend_attributes = .*, which the IR does not have",
    ),
    "an attribute of an argument": (
        module("return %x : tensor<2xf32>", '%x: tensor<2xf32> {mhlo.layout_mode = "auto"}', "tensor<2xf32>"),
        r"error: '\"main\"' has, of argument 0, the attribute mhlo.layout_mode = \"auto\", which the IR does not have",
    ),
    "no module": ("what", r"<stablehlo>:1:\d+: error: not a StableHLO module"),
    "types that do not fit": (
        module("%0 = stablehlo.add %x, %x : tensor<3xf32>\nreturn %0 : tensor<3xf32>"),
        r"<stablehlo>:2:20: error: not a StableHLO module that MLIR accepts: use of value '%x' expects different type",
    ),
    "no such function": ("func.func @mian() { return }", r"no function 'main'; did you mean 'mian'\?"),
    "recursion": (
        "func.func @main() { call @f() : () -> () \n return }\nfunc.func @f() { call @f() : () -> () \n return }",
        r"<stablehlo>:3:1: error: function 'f' calls itself",
    ),
    "a call back into Python": (
        module(
            "%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
            "return %0 : tensor<2xf32>"
        ),
        r"<stablehlo>:2:6: error: 'stablehlo.custom_call' of 'xla_ffi_python_cpu_callback' cannot be imported: "
        "it calls a Python function of the process that wrote the text; call it by rematc.pure_callback",
    ),
    "a part of a program for each device": (
        module(
            "%0 = stablehlo.custom_call @SPMDFullToShardShape(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
            "return %0 : tensor<2xf32>"
        ),
        r"<stablehlo>:2:6: error: 'stablehlo.custom_call' of 'SPMDFullToShardShape' cannot be imported: it is one "
        "program for each device",
    ),
    "a call that is given a token": (
        module(
            "%0 = stablehlo.create_token : !stablehlo.token\n"
            "%1 = stablehlo.custom_call @magic(%0) : (!stablehlo.token) -> tensor<2xf32>\nreturn %1 : tensor<2xf32>"
        ),
        r"<stablehlo>:2:6: error: 'stablehlo.create_token' cannot be imported: it orders effects",
    ),
    "a call that gives a token": (
        module(
            "%0 = stablehlo.custom_call @magic(%x) : (tensor<2xf32>) -> !stablehlo.token\nreturn %x : tensor<2xf32>"
        ),
        r"<stablehlo>:2:6: error: a value of type !stablehlo.token; expected a tensor",
    ),
    "an effect": (
        module("%0 = stablehlo.create_token : !stablehlo.token\nreturn %x : tensor<2xf32>"),
        r"<stablehlo>:2:6: error: 'stablehlo.create_token' cannot be imported: it orders effects",
    ),
    "a shape that is not known": (
        "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\nreturn %x : tensor<?xf32>\n}",
        r"<stablehlo>:1:1: error: a value of type tensor<\?xf32>, whose sizes are not known",
    ),
    "an operation whose location is unknown": (
        module("%0 = stablehlo.create_token : !stablehlo.token loc(unknown)\nreturn %x : tensor<2xf32>"),
        r"<stablehlo>:2:6: error: 'stablehlo.create_token' cannot be imported",
    ),
    "an algorithm of several parts": (
        module(ALGORITHM.format("bf16", 3), results="tensor<f32>"),
        r"<stablehlo>:2:6: error: 'stablehlo.dot_general' multiplies bf16 by bf16 into f32 from 3 products of 1 and 1 "
        "parts, an algorithm that the IR does not have",
    ),
    "an algorithm of other types": (
        module(ALGORITHM.format("tf32", 1), results="tensor<f32>"),
        r"<stablehlo>:2:6: error: 'stablehlo.dot_general' multiplies tf32 by tf32 into f32, an algorithm that",
    ),
    "elements that are not known": (
        module("return %x : tensor<2xf6E2M3FN>", "%x: tensor<2xf6E2M3FN>", "tensor<2xf6E2M3FN>"),
        r"<stablehlo>:1:1: error: elements of type f6E2M3FN; expected one of bf16",
    ),
}


def test_a_constraint_is_placed_by_its_attribute_too() -> None:
    text = CONSTRAINED.format("sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>")
    ops = [eqn.op for eqn in rematc.from_stablehlo(text).equations]
    assert [op.dimensions for op in ops if isinstance(op, Placement)] == [('{"x"}',), ("{}",)]


CALLS_FOR_OPS = {
    "erf": ("mhlo.attributes = {}, mhlo.version = 1 : i64", "tensor<2xf32>"),
    "lgamma": ("mhlo.attributes = {}", "tensor<2xf32>"),
    "topk": ("mhlo.attributes = {k = 2 : i64, largest = true}, mhlo.version = 1 : i64", "tensor<2xf32>, tensor<2xi32>"),
}


@pytest.mark.parametrize("name", CALLS_FOR_OPS)
def test_calls_that_stand_for_operations_of_chlo_are_those(name: str) -> None:
    attributes, results = CALLS_FOR_OPS[name]
    x, many = np.array([0.25, 1.5], np.float32), "topk" in name
    call = f"%0{':2' if many else ''} = stablehlo.custom_call @mhlo.{name}(%x) {{{attributes}}}"
    returned = "%0#0, %0#1" if many else "%0"
    graph = rematc.from_stablehlo(
        module(f"{call} : (tensor<2xf32>) -> ({results})\nreturn {returned} : {results}", results=results)
    )
    functions: dict[str, Any] = {"erf": lax.erf, "lgamma": lax.lgamma, "topk": lambda x: lax.top_k(x, 2)}
    expected = functions[name](x)
    for found, wanted in zip(evaluate(graph, [x]), expected if many else [expected], strict=True):
        np.testing.assert_allclose(in_double(found), in_double(np.asarray(wanted)), rtol=1e-5)
    assert "custom_call" not in [eqn.op.name for eqn in graph.equations]


def test_any_other_call_is_kept_as_it_stands() -> None:
    """The smallest elements have no op."""
    attributes = "mhlo.attributes = {k = 2 : i64, largest = false}"
    call = f"%0 = stablehlo.custom_call @mhlo.topk(%x) {{{attributes}}}"
    graph = rematc.from_stablehlo(module(f"{call} : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>"))
    (eqn,) = graph.equations
    assert eqn.op == CustomCall(
        "mhlo.topk", graph.result_types, (("mhlo.attributes", "{k = 2 : i64, largest = false}"),)
    )


def test_a_function_of_a_library_may_be_called_a_callback() -> None:
    call = "%0 = stablehlo.custom_call @my_callback(%x) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>"
    assert [eqn.op.name for eqn in rematc.from_stablehlo(module(call)).equations] == ["custom_call"]


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_line(name: str) -> None:
    text, message = ERRORS[name]
    with pytest.raises(CompileError, match=message):
        rematc.from_stablehlo(text)


def test_every_operation_is_imported_or_has_a_reason() -> None:
    names = {
        cls.OPERATION_NAME
        for dialect in (_chlo_ops_gen, _stablehlo_ops_gen)
        for cls in vars(dialect).values()
        if hasattr(cls, "OPERATION_NAME")
    }
    assert importing.FAMILIES  # which enter the rules
    known = set(RULES) | set(REASONS)
    assert sorted(names - known - {"stablehlo.return"}) == []
    assert not set(RULES) & set(REASONS)


TEXT = lowered(lambda x: (jnp.sort(loop(x)[0]), x.at[0].add(1.0)), X)


@settings(max_examples=150)
@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text('abx%0#<>(){}[]:,=-"\\\0é\n', max_size=6))
@example(TEXT.index("jax.result_info"), 0, "a")
def test_changed_text_is_a_graph_or_an_error_with_a_place(at: int, removed: int, inserted: str) -> None:
    text = TEXT[:at] + inserted + TEXT[at + removed :]
    try:
        graph = rematc.from_stablehlo(text)
    except CompileError as error:
        assert error.loc is not None or "function 'main'" in error.message
    else:
        assert isinstance(graph, Graph)


@settings(max_examples=50)
@given(st.integers(0, len(TEXT) - 1))
def test_text_that_ends_early_is_an_error_with_a_place(end: int) -> None:
    try:
        rematc.from_stablehlo(TEXT[:end])
    except CompileError as error:
        assert error.loc is not None or "function 'main'" in error.message
    else:
        assert TEXT[end:].lstrip().startswith("#loc") or not TEXT[end:].strip() or end == 0


def test_an_argument_that_may_be_overwritten_is_said_aloud() -> None:
    text = module("return %x : tensor<2xf32>", "%x: tensor<2xf32> {jax.buffer_donor = true}", "tensor<2xf32>")
    with pytest.warns(
        UserWarning, match=r"argument 0 may be overwritten \(jax.buffer_donor\); a graph does not say so"
    ):
        rematc.from_stablehlo(text)


UPDATES = {"scatter": lax.scatter, "add": lax.scatter_add, "max": lax.scatter_max, "multiply": lax.scatter_mul}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("batch", [(), (5,)])
def test_a_scatter_need_not_scatter_along_a_dimension(name: str, batch: tuple[int, ...]) -> None:
    """All windows are at the start, one after another where there are several."""
    offsets = tuple(range(len(batch), len(batch) + 2))
    numbers = lax.ScatterDimensionNumbers(offsets, inserted_window_dims=(), scatter_dims_to_operand_dims=())
    x, updates = np.arange(12.0, dtype=np.float32).reshape(3, 4), np.full((*batch, 2, 3), 1.5, np.float32)

    def updated(x: Any, updates: Any) -> Any:
        return UPDATES[name](x, np.zeros((*batch, 0), np.int32), updates, numbers)

    graph = rematc.from_stablehlo(jax.jit(updated).lower(x, updates).as_text())
    np.testing.assert_array_equal(evaluate(graph, [x, updates])[0], updated(x, updates))


@pytest.mark.parametrize("batch", [(), (5,)])
def test_a_gather_need_not_gather_along_a_dimension(batch: tuple[int, ...]) -> None:
    offsets = tuple(range(len(batch), len(batch) + 2))
    numbers = lax.GatherDimensionNumbers(offsets, collapsed_slice_dims=(), start_index_map=())
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)

    def gathered(x: Any) -> Any:
        return lax.gather(x, np.zeros((*batch, 0), np.int32), numbers, (2, 3))

    graph = rematc.from_stablehlo(jax.jit(gathered).lower(x).as_text())
    np.testing.assert_array_equal(evaluate(graph, [x])[0], gathered(x))
