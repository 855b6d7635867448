"""Arrays of more than 2^31 elements: inferred, differentiated, counted, printed and written as valid StableHLO.

Nothing here is computed; such arrays have 8 GiB and more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.indexing import Gather, Scatter
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.sorting import Sort
from rematc.ir.ops.structural import Iota
from rematc.ir.ops.window import ReduceWindowMax
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.types import F32, I64, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.lowering.module import stablehlo_text
from rematc.lowering.validation import validate
from rematc.passes.linearize import vjp

SIDE = 2**17
LINE = TensorType(F32, (SIDE * SIDE,))  # 2^34 elements


#: Single elements of a line.
ELEMENTS = GatherDimensions((), (0,), (0,), 1)


def stepped(b: Builder, x: Value) -> Value:
    """As many steps as the line has elements."""
    step = Builder("step")
    carry, element = step.parameter(TensorType(F32, ())), step.parameter(TensorType(F32, ()))
    body = step.build(step.add(carry, element))
    return b.emit1(Scan(body, LINE.size, 0, 1), b.zeros(TensorType(F32, ())), x)


def scattered(b: Builder, x: Value) -> Value:
    """The line written into zeros, where each index may come twice: the derivative finds out which update won."""
    index = b.reshape(b.emit1(Iota(TensorType(I64, LINE.shape), 0)), (*LINE.shape, 1))
    return b.emit1(Scatter(ScatterDimensions.of(ELEMENTS)), b.zeros(LINE), index, x)


def gathered(b: Builder, x: Value) -> Value:
    index = b.reshape(b.emit1(Iota(TensorType(I64, LINE.shape), 0)), (*LINE.shape, 1))
    return b.emit1(Gather(ELEMENTS, (1,)), x, index)


PROGRAMS: dict[str, Callable[[Builder, Value], Value]] = {
    "sine": lambda b, x: b.sine(x),
    "square": lambda b, x: b.reshape(x, (SIDE, SIDE)),
    "slice": lambda b, x: b.slice(x, (2**33,), (2**34 - 1,), (3,)),
    "pad": lambda b, x: b.pad(x, b.zeros(TensorType(F32, ())), (2**33,), (-5,), (1,)),
    "product": lambda b, x: b.dot_general(b.reshape(x, (SIDE, SIDE)), b.reshape(x, (SIDE, SIDE)), ((1,), (0,))),
    "sort": lambda b, x: b.emit1(Sort(0), x),
    "windows": lambda b, x: b.emit1(ReduceWindowMax((4,), (2,), ((2, 2),), (1,), (1,)), x),
    "gather": gathered,
    "scatter": scattered,
    "scan": stepped,
}


def check(graph: Graph) -> None:
    verify(graph)
    assert parse_graph(print_graph(graph)) == graph
    validate(stablehlo_text(graph))


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_beyond_31_bits_are_kept(name: str) -> None:
    b = Builder("large")
    x = b.parameter(LINE, "x")
    result = PROGRAMS[name](b, x)
    total = b.reduce_sum(result, range(result.type.rank))
    graph = b.build(total)
    check(graph)
    pulled = vjp(graph, [True])
    assert pulled.backward.result_types == (LINE,)
    check(pulled.forward)
    check(pulled.backward)
    assert LINE.bytes == 2**36
