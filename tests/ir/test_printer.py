"""The printed form: one golden graph, and the laws of names, fields and literals."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.printer import print_excerpt, print_graph
from rematc.ir.types import F32, I32, TensorType
from rematc.ir.values import Array, Value
from tests.support.random_graphs import graphs
from tests.support.work import lines_run

SCALAR = TensorType(F32, ())


def layer() -> Graph:
    b = Builder("layer")
    x, w = b.parameter(TensorType(F32, (4, 8)), "x"), b.parameter(TensorType(F32, (8, 8)), "params['w']")
    b.loc = Location("model.py", 12, 8, "f")
    product = b.dot_general(x, w, ([1], [0]))
    b.loc = Location("model.py", 13, 5)
    return b.build(b.reduce_sum(b.scale(product, 0.1), (0, 1)), product)


def test_the_whole_text_of_a_graph() -> None:
    assert print_graph(layer()) == (
        "graph @layer(%x: f32[4,8], %params_w: f32[8,8]) -> (f32[], f32[4,8]) {\n"
        '  %0: f32[4,8] = dot_general %x, %params_w {contract=[[1],[0]], batch=[[],[]]} loc("f"("model.py":12:8))\n'
        '  %1: f32[] = constant {type=f32[], data=0.1} loc("model.py":13:5)\n'
        '  %2: f32[4,8] = broadcast_in_dim %1 {shape=[4,8], dimensions=[]} loc("model.py":13:5)\n'
        '  %3: f32[4,8] = multiply %0, %2 loc("model.py":13:5)\n'
        '  %4: f32[] = reduce_sum %3 {dimensions=[0,1]} loc("model.py":13:5)\n'
        "  return %4, %0\n"
        "}\n"
    )


def test_regions_are_indented_and_several_results_typed_one_by_one() -> None:
    b = Builder("main")
    x, w = b.parameter(TensorType(F32, (4, 8)), "x"), b.parameter(TensorType(F32, (8, 8)), "w")
    results = b.emit(Checkpoint(layer(), None, (True, False)), x, w)
    lines = print_graph(b.build(*results), locations=False).splitlines()
    assert lines[1] == (
        "  %0: f32[], %1: f32[4,8] = checkpoint %x, %w "
        "{body=graph @layer(%x: f32[4,8], %params_w: f32[8,8]) -> (f32[], f32[4,8]) {"
    )
    assert lines[2] == "    %0: f32[4,8] = dot_general %x, %params_w {contract=[[1],[0]], batch=[[],[]]}"
    assert lines[-3:] == ["  }, prevent_cse=[true,false]}", "  return %0, %1", "}"]


def test_locations_can_be_left_out() -> None:
    assert "loc(" not in print_graph(layer(), locations=False)


def named(*hints: str | None) -> str:
    return print_graph(Graph("g", tuple(Value(SCALAR, hint) for hint in hints), (), ())).splitlines()[0]


def test_parameters_get_distinct_readable_names() -> None:
    assert named("x", "x", "x_1", None, "0", "params['w'][0].b", "日本") == (
        "graph @g(%x: f32[], %x_1: f32[], %x_1_1: f32[], %arg3: f32[], %_0: f32[], %params_w_0_.b: f32[], "
        "%arg6: f32[]) -> () {"
    )


def test_names_are_linear_work() -> None:
    assert lines_run(lambda: named(*["x"] * 4_000)) < 2.5 * lines_run(lambda: named(*["x"] * 2_000))


def test_names_of_graphs_and_files_are_quoted_where_needed() -> None:
    x, y = Value(SCALAR), Value(SCALAR)
    equation = Builder()
    equation.loc = Location('a "b"\\\n\u2028é.py', 1, 0)
    result = equation.emit1(Negate(), x)
    graph = Graph('<lambda> "f"', (x, y), tuple(equation.equations), (result,))
    text = print_graph(graph)
    assert text.startswith(r'graph @"<lambda> \"f\""(')
    assert r'loc("a \"b\"\\\u000a\u2028é.py":1:0)' in text


def literal(array: Array) -> str:
    b = Builder("g")
    line = print_graph(b.build(b.constant(array))).splitlines()[1]
    return line[line.index("data=") + len("data=") : -1]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float64(0.1), "0.1"),
        (np.float64(np.float32(0.1)), "0.10000000149011612"),
        (np.array([1, -0.0, np.inf, -np.inf, np.nan], np.float32), "[1.0,-0.0,inf,-inf,nan]"),
        (np.array([[1, 2], [3, 4]], np.uint8), "[[1,2],[3,4]]"),
        (np.array([2**64 - 1, 2**53 + 1], np.uint64), "[18446744073709551615,9007199254740993]"),
        (np.array([-(2**63)], np.int64), "[-9223372036854775808]"),
        (np.array([True, False]), "[true,false]"),
        (np.array(1.5 - 2j, np.complex64), "[1.5,-2.0]"),
        (np.array(0.1, ml_dtypes.bfloat16), "0.100098"),
        (np.zeros((0, 3), np.float32), "0x"),
    ],
)
def test_few_elements_print_in_decimal(array: Array, text: str) -> None:
    assert literal(np.asarray(array)) == text


def test_many_elements_print_in_hexadecimal() -> None:
    assert literal(np.arange(100, dtype=np.uint8)) == "0x" + bytes(range(100)).hex()


def test_the_payload_of_a_nan_prints_in_hexadecimal() -> None:
    quiet = np.frombuffer(struct.pack("<I", 0x7FC00001), np.float32)
    assert literal(quiet) == "0x0100c07f"


def test_an_excerpt_shows_the_equations_around_one_and_survives_broken_graphs() -> None:
    good = layer()
    broken = Graph(good.name, good.params, good.equations[1:], good.results)
    assert print_excerpt(broken, 2, around=1).splitlines() == [
        '  %1: f32[4,8] = broadcast_in_dim %0 {shape=[4,8], dimensions=[]} loc("model.py":13:5)',
        '> %2: f32[4,8] = multiply %?, %1 loc("model.py":13:5)',
        '  %3: f32[] = reduce_sum %2 {dimensions=[0,1]} loc("model.py":13:5)',
    ]


@given(graphs())
@settings(max_examples=50)
def test_printing_is_deterministic_and_reads_only_the_graph(graph: Graph) -> None:
    assert print_graph(graph) == print_graph(graph)


def test_values_on_the_host_say_so() -> None:
    graph = Graph("g", (Value(TensorType(I32, (3,), on_host=True), "x"),), (), ())
    assert print_graph(graph) == "graph @g(%x: i32<host>[3]) -> () {\n  return\n}\n"
