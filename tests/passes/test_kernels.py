"""What a program has in memory, and who reads it."""

from __future__ import annotations

from rematc.ir.parser import parse_graph
from rematc.passes.kernels import kernels


def stored(body: str, results: str) -> list[str]:
    """The names of the stored values of equations over %x and %w: f32[8,8]."""
    graph = parse_graph(f"graph @f(%x: f32[8,8], %w: f32[8,8]) -> ({results}) {{\n{body}\n}}")
    names = {value: f"%{index}" for index, value in enumerate(v for eqn in graph.equations for v in eqn.results)}
    return [names[value] for value in kernels(graph.equations, graph.results).stored]


DOT = "dot_general {} {{contract=[[1],[0]], batch=[[],[]]}}"


def test_what_one_kernel_reads_is_a_part_of_it() -> None:
    body = "%0: f32[8,8] = tanh %x\n%1: f32[8,8] = add %0, %w\nreturn %1"
    assert stored(body, "f32[8,8]") == ["%1"]


def test_what_a_product_takes_is_in_memory() -> None:
    body = f"%0: f32[8,8] = negate %x\n%1: f32[8,8] = {DOT.format('%0, %w')}\nreturn %1"
    assert stored(body, "f32[8,8]") == ["%0", "%1"]


def test_a_sum_takes_its_operand_along() -> None:
    body = "%0: f32[8,8] = negate %x\n%1: f32[8] = reduce_sum %0 {dimensions=[1]}\nreturn %1"
    assert stored(body, "f32[8]") == ["%1"]


def test_of_two_readers_heavy_work_is_done_once_and_light_work_twice() -> None:
    product = f"%1: f32[8,8] = {DOT.format('%x, %w')}"
    after = f"{product}\n%2: f32[8,8] = add %0, %1\n%3: f32[8,8] = multiply %0, %x\nreturn %2, %3"
    assert "%0" in stored(f"%0: f32[8,8] = tanh %x\n{after}", "f32[8,8], f32[8,8]")
    assert "%0" not in stored(f"%0: f32[8,8] = negate %x\n{after}", "f32[8,8], f32[8,8]")
    assert "%0" in stored(f"%0: f32[8,8] = add %x, %w\n{after}", "f32[8,8], f32[8,8]"), "it reads more than it gives"
