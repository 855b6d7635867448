"""Which sums over devices are joined into one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rematc.compiler.api.text import parse
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu import joining
from rematc.lowering.xla_cpu.fusion import fuse
from rematc.lowering.xla_cpu.instructions import Program
from rematc.lowering.xla_cpu.joining import join_sums
from rematc.lowering.xla_cpu.prediction import predict

OVER = '{over=["d"], sizes=[4]}'


def joined(body: str, results: str) -> list[list[int]]:
    """Of a graph over %x and %w, the operands of each sum over devices, by the numbers of the equations they are of."""
    types = ", ".join(["f32[64,64]"] * len(results.split(",")))
    text = f"graph @f(%x: f32[64,64], %w: f32[64,64]) -> ({types}) {{ {body} return {results} }}"
    graph = parse(text)
    program = Program(graph, None, lambda eqn: (), Target.of("cpu"))
    fuse(program)
    join_sums(program)
    sums = [one for one in program.in_postorder() if one.name in ("device_sum", "device_extremum")]
    return [[graph.equations.index(operand.eqn) for operand in one.operands if operand.eqn] for one in sums]


DOT = "{contract=[[1],[0]], batch=[[],[]]}"
TWO = f"""
%0: f32[64,64] = dot_general %x, %w {DOT}
%1: f32[64,64] = device_sum %0 {OVER}
%2: f32[64,64] = dot_general %w, %x {DOT}
"""


def test_what_does_not_wait_for_one_another_is_joined() -> None:
    assert joined(TWO + f"%3: f32[64,64] = device_sum %2 {OVER}", "%1, %3") == [[0, 2]]


def test_what_is_computed_from_a_sum_is_not_joined_with_it() -> None:
    behind = f"%3: f32[64,64] = dot_general %1, %w {DOT} %4: f32[64,64] = device_sum %3 {OVER}"
    assert joined(TWO + behind, "%1, %4") == [[0], [3]]


def test_others_are_joined_up_to_the_first_that_waits() -> None:
    """The walk from the results meets the second one, which waits for the first, before the third."""
    behind = f"%3: f32[64,64] = dot_general %1, %w {DOT} %4: f32[64,64] = device_sum %3 {OVER}"
    behind += f" %5: f32[64,64] = device_sum %2 {OVER}"
    assert joined(TWO + behind, "%1, %4, %5") == [[0], [3, 2]]
    assert joined(TWO + behind, "%1, %5, %4") == [[0, 2], [3]]


def test_what_no_result_needs_is_left_alone() -> None:
    rest = [f"%{i}: f32[64,64] = device_sum %2 {OVER}" for i in (3, 4, 5)]
    assert joined(TWO + " ".join(rest), "%1, %3") == [[0, 2]]


@pytest.mark.parametrize(
    "other",
    [
        'device_sum %2 {over=["e"], sizes=[4]}',
        'device_extremum %2 {over=["d"], sizes=[4], is_max=true}',
    ],
)
def test_sums_over_other_devices_and_extrema_are_not_joined(other: str) -> None:
    assert sorted(joined(TWO + f"%3: f32[64,64] = {other}", "%1, %3")) == [[0], [2]]


def test_only_so_many_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_MOST", 2)
    third = f"%4: f32[64,64] = dot_general %w, %w {DOT} %5: f32[64,64] = device_sum %4 {OVER}"
    three = TWO + f"%3: f32[64,64] = device_sum %2 {OVER} " + third
    assert joined(three, "%1, %3, %5") == [[0, 2], [4]]


def test_operands_and_results_of_all_are_there_at_once() -> None:
    """Each of three sums could lie where the product before it was, were they not one."""
    count, size = 3, 256 * 256 * 4
    lines, last = [], "%x"
    for i in range(count):
        lines += [
            f"%p{i}: f32[256,256] = dot_general %x, %w {DOT}".replace("%w", f"%w{i}"),
            f"%s{i}: f32[256,256] = device_sum %p{i} {OVER}",
            f"%a{i}: f32[256,256] = add {last}, %s{i}",
        ]
        last = f"%a{i}"
    params = ", ".join(["%x: f32[256,256]", *[f"%w{i}: f32[256,256]" for i in range(count)]])
    text = f"graph @f({params}) -> (f32[256,256]) {{ {' '.join(lines)} return {last} }}"
    # One of the six lies where the result will.
    assert predict(parse(text), replace(Target.of("cpu"), devices=4)).peak == (2 * count - 1) * size
