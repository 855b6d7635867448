"""Which values a TPU holds as bfloat16 although they have 32 bits."""

from __future__ import annotations

import pytest

from rematc.ir.parser import parse_graph
from rematc.passes.planning.device import H100, V5E
from rematc.passes.planning.rounded_factors import rounded_factors
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate_passed

DOT = "dot_general {} {{contract=[[1],[0]], batch=[[],[]]}}"
MOVED = "transpose {} {{permutation=[1,0]}}"


def rounded(body: str, results: str, types: str) -> set[str]:
    graph = parse_graph(f"graph @f(%x: f32[8,8], %w: f32[8,8]) -> ({types}) {{\n{body}\nreturn {results}\n}}")
    names = {value: f"%{index}" for index, value in enumerate(v for eqn in graph.equations for v in eqn.results)}
    names |= {value: f"%{value.name}" for value in graph.params}
    return {names[value] for value in rounded_factors(graph)}


@pytest.mark.parametrize(
    ("body", "results", "types", "expected"),
    [
        (f"%0: f32[8,8] = sine %x\n%1: f32[8,8] = {DOT.format('%0, %w')}", "%1", "f32[8,8]", {"%0", "%w"}),
        (f"%0: f32[8,8] = sine %x\n%1: f32[8,8] = {DOT.format('%0, %w')}", "%1, %0", "f32[8,8], f32[8,8]", {"%w"}),
        (
            f"%0: f32[8,8] = sine %x\n%1: f32[8,8] = {MOVED.format('%0')}\n%2: f32[8,8] = {DOT.format('%1, %w')}\n"
            f"%3: f32[8,8] = {DOT.format('%2, %0')}",
            "%3",
            "f32[8,8]",
            {"%0", "%1", "%2", "%w"},
        ),
        (
            f"%0: f32[8,8] = sine %x\n%1: f32[8,8] = {DOT.format('%0, %w')}\n%2: f32[8,8] = add %0, %1",
            "%2",
            "f32[8,8]",
            {"%w"},
        ),
        (
            f"%0: f32[8,8] = sine %x\n%1: f32[8,8] = optimization_barrier %0\n%2: f32[8,8] = {DOT.format('%1, %w')}",
            "%2",
            "f32[8,8]",
            {"%1", "%w"},
        ),
    ],
)
def test_what_only_products_read_is_rounded(body: str, results: str, types: str, expected: set[str]) -> None:
    assert rounded(body, results, types) == expected


def test_what_is_computed_exactly_is_not_rounded() -> None:
    exact = DOT.format("%0, %w").replace("batch=[[],[]]", 'batch=[[],[]], precision="HIGHEST"')
    assert rounded(f"%0: f32[8,8] = sine %x\n%1: f32[8,8] = {exact}", "%1", "f32[8,8]") == set()


def test_plans_for_tpus_alone_count_half_its_bytes() -> None:
    """The product of a product: it is written, and read by another one alone."""
    body = f"%0: f32[512,512] = {DOT.format('%x, %x')}\n%1: f32[512,512] = {DOT.format('%0, %0')}"
    graph = parse_graph(f"graph @f(%x: f32[512,512]) -> (f32[512,512]) {{\n{body}\nreturn %1\n}}")
    sizes = [max(translate_passed(graph, Machine(device)).problem.size.tolist()) for device in (V5E, H100)]
    assert sizes == [512 * 512 * 2, 512 * 512 * 4]
