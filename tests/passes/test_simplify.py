"""Simplification on random graphs; `cases/simplify.ir` shows each rule on text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.conversion import Convert
from rematc.ir.parser import parse_graph
from rematc.ir.types import DTYPES, F32, DType, Kind, TensorType
from rematc.ir.verifier import verify
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.rewrites_elementwise import is_detour
from rematc.passes.simplify import Simplify
from tests.support.random_graphs import arguments_for, graphs, same_bits
from tests.support.work import lines_run

PAIR = TensorType(F32, (2,))


@given(graphs(regions=2), st.integers(0, 3))
def test_meaning_is_preserved_to_the_bit(graph: Graph, seed: int) -> None:
    simple = Simplify().run(graph)
    verify(simple)
    arguments = arguments_for(graph, seed)
    assert same_bits(evaluate(simple, arguments), evaluate(graph, arguments))


@given(graphs(regions=2))
def test_what_is_simple_is_returned_as_it_is(graph: Graph) -> None:
    simple = Simplify().run(graph)
    assert Simplify().run(simple) is simple


@given(graphs(regions=2), st.integers(0, 3))
def test_all_clean_up_passes_together_preserve_meaning(graph: Graph, seed: int) -> None:
    clean = PassManager(parse_pipeline("inline,simplify,cse,dce")).run(graph).graph
    arguments = arguments_for(graph, seed)
    assert same_bits(evaluate(clean, arguments), evaluate(graph, arguments))


REAL = [dtype for dtype in DTYPES.values() if dtype.bits >= 8 and dtype.kind is not Kind.COMPLEX]
REAL = [dtype for dtype in REAL if not dtype.is_float or dtype.bits >= 16]


def samples_of(dtype: DType) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Numbers at the edges of what the types hold."""
    powers = [2.0**k for k in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 62)]
    numbers = [sign * (power + step) for power in powers for step in (-1, 0, 1) for sign in (1, -1)]
    numbers += [0.0, -0.0, 0.5, -1.5, 3.1, 1e-40, 70000.0, 1e30, -1e300]
    if dtype.is_float:
        numbers += [np.inf, -np.inf, np.nan]
    return Convert(dtype).reference([np.array(numbers, np.float64)])[0]


@pytest.mark.parametrize("first", REAL, ids=str)
def test_a_detour_is_one_for_every_number(first: DType) -> None:
    numbers = samples_of(first)
    for over in REAL:
        once = Convert(over).reference([numbers])
        for last in REAL:
            if is_detour(first, over, last):
                found, expected = Convert(last).reference([numbers]), Convert(last).reference(once)
                assert found[0].tobytes() == expected[0].tobytes() or same_bits(found, expected), (first, over, last)


def chain(length: int) -> Graph:
    b = Builder()
    x = y = b.parameter(PAIR)
    for index in range(length // 5):
        y = b.negate(b.add(b.negate(y), b.sine(x)))
        y = b.scale(y, 1.5 if index % 2 else 0.25)
    return b.build(y)


def test_clean_up_of_twice_as_many_equations_is_twice_the_work() -> None:
    clean_up = PassManager(parse_pipeline("simplify,cse,dce"))

    def work(length: int) -> int:
        graph = chain(length)
        assert len(clean_up.run(graph).graph.equations) < len(graph.equations)
        return lines_run(lambda: clean_up.run(graph))

    assert work(10_000) < 2.5 * work(5_000)


@pytest.mark.parametrize(
    ("index", "size", "places"), [("i8", 300, [3, -56]), ("i4", 20, [3, -4]), ("f32", 4, [2, 1.5])]
)
def test_the_sum_of_what_is_chosen_stays_one_where_the_index_does_not_count(
    index: str, size: int, places: list[float]
) -> None:
    """Of numbers that begin anew several places are alike, and none is at one and a half."""
    text = f"""graph @f(%x: f32[2], %at: {index}[2]) -> (f32[2]) {{
      %0: {index}[2,{size}] = iota {{type={index}[2,{size}], dimension=1}}
      %1: {index}[2,{size}] = broadcast_in_dim %at {{shape=[2,{size}], dimensions=[0]}}
      %2: bool[2,{size}] = compare %0, %1 {{direction="EQ"}}
      %3: f32[2,{size}] = broadcast_in_dim %x {{shape=[2,{size}], dimensions=[0]}}
      %4: f32[] = constant {{type=f32[], data=0.0}}
      %5: f32[2,{size}] = broadcast_in_dim %4 {{shape=[2,{size}], dimensions=[]}}
      %6: f32[2,{size}] = select %2, %3, %5
      %7: f32[2] = reduce_sum %6 {{dimensions=[1]}}
      return %7
    }}"""
    graph = parse_graph(text)
    simple = Simplify().run(graph)
    arguments = [np.array([1.0, 2.0], np.float32), np.array(places).astype(DTYPES[index].numpy)]
    assert any(eqn.op.name == "reduce_sum" for eqn in simple.equations)
    assert same_bits(evaluate(simple, arguments), evaluate(graph, arguments))
