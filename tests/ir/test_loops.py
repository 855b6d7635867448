"""Loops as ops: their types, their meaning in NumPy, their text, and what the passes do inside them."""

from __future__ import annotations

import numpy as np
import pytest

from rematc.compiler.api.text import parse
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.scan.op import Scan
from rematc.ir.printer import print_graph
from rematc.ir.verifier import verify
from rematc.lowering.module import stablehlo_text
from rematc.passes.accounting import flat_equations, total_work
from rematc.passes.manager import PassManager, parse_pipeline
from tests.support.xla import run_stablehlo

STEPS = """graph @f(%w: f32[2], %c: f32[2], %n: i32[], %xs: f32[3,2]) -> (f32[2], i32[], f32[3,2], f32[3,2]) {{
  %0: f32[2], %1: i32[], %2: f32[3,2], %3: f32[3,2] = scan %w, %c, %n, %xs
    {{body=graph @body(%w: f32[2], %c: f32[2], %n: i32[], %x: f32[2]) -> (f32[2], i32[], f32[2], f32[2]) {{
      %0: f32[2] = multiply %c, %w
      %1: f32[2] = add %0, %x
      %2: f32[2] = multiply %w, %c
      %3: i32[] = negate %n
      return %1, %3, %2, %x
    }}, length=3, consts=1, carry=2{options}}}
  return %0, %1, %2, %3
}}"""


def graph_of(options: str = "") -> str:
    return STEPS.format(options=options)


ARGUMENTS = [
    np.array([2, -1], np.float32),
    np.array([1, 3], np.float32),
    np.asarray(7, np.int32),
    np.arange(6, dtype=np.float32).reshape(3, 2),
]


@pytest.mark.parametrize("options", ["", ", is_reversed=true", ", unroll=2", ", is_reversed=true, unroll=3"])
def test_stablehlo_computes_what_the_reference_does(options: str) -> None:
    graph = parse(graph_of(options))
    verify(graph)
    expected = evaluate(graph, ARGUMENTS)
    for found, wanted in zip(run_stablehlo(stablehlo_text(graph), ARGUMENTS), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_reference_is_a_loop(is_reversed: bool) -> None:
    w, c, n, xs = ARGUMENTS
    ys = np.zeros_like(xs)
    for step in (2, 1, 0) if is_reversed else (0, 1, 2):
        ys[step] = w * c
        c = c * w + xs[step]
    found = evaluate(parse(graph_of(", is_reversed=true" if is_reversed else "")), ARGUMENTS)
    for one, wanted in zip(found, (c, -n, ys, xs), strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_text_reads_back() -> None:
    graph = parse(graph_of(", unroll=2"))
    assert parse(print_graph(graph)) == graph


def test_the_passes_clean_the_body() -> None:
    graph = parse(graph_of())
    result = PassManager(parse_pipeline("cse,dce")).run(graph).graph
    (eqn,) = result.equations
    assert isinstance(eqn.op, Scan)
    # w * c is c * w.
    assert [one.op.name for one in eqn.op.body.equations] == ["multiply", "add", "negate"]


def test_work_in_a_loop_counts_once_a_step() -> None:
    graph = parse(graph_of())
    assert total_work(flat_equations(graph)).equations == 12
    assert total_work(flat_equations(graph)).flops == total_work(graph.equations).flops == 3 * 6


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("length=3", "length=4", r"takes \(f32\[2\], f32\[2\], i32\[\], f32\[4,2\]\), got"),
        ("carry=2", "carry=9", "has more carries than its body"),
        ("return %1, %3, %2, %x\n", "return %1, %0, %2, %x\n", "carries"),
        ("consts=1", "consts=-1", "counts less than nothing"),
    ],
)
def test_what_does_not_fit_is_refused(old: str, new: str, text: str) -> None:
    source = graph_of().replace(old, new)
    if "return" in old:
        source = source.replace("(f32[2], i32[], f32[2], f32[2]) {", "(f32[2], f32[2], f32[2], f32[2]) {")
    with pytest.raises(CompileError, match=text):
        verify(parse(source))
