"""The order in which kernels run, and how results lie in memory."""

from __future__ import annotations

import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.fusion import fuse
from rematc.lowering.xla_cpu.instructions import Program
from rematc.lowering.xla_cpu.orders import Scheduler, breadth_first, depth_first
from rematc.lowering.xla_cpu.prediction import allocation
from rematc.lowering.xla_cpu.schedule import Schedule, kernels_of, schedule

MATRIX = "f32[128,128]"


def scheduled(graph: Graph, scheduler: Scheduler) -> Schedule:
    program = Program(graph, None, lambda eqn: (), Target.of("cpu"))
    fuse(program)
    return schedule(kernels_of(program), scheduler)


def order(body: str, results: str, scheduler: Scheduler = breadth_first) -> list[str]:
    """The kernels of a graph over %x and %w, by name."""
    types = ", ".join([MATRIX] * len(results.split(",")))
    graph = parse(f"graph @f(%x: {MATRIX}, %w: {MATRIX}) -> ({types}) {{ {body} return {results} }}")
    return [
        kernel.name for kernel in scheduled(graph, scheduler).order if kernel.name not in ("parameter", "end", "after")
    ]


def test_a_kernel_runs_when_the_last_of_what_it_reads_is_there() -> None:
    """The sine could wait until the last product, but it is ready first."""
    product = "{contract=[[1],[0]], batch=[[],[]]}"
    body = (
        f"%0: {MATRIX} = dot_general %x, %w {product} %1: {MATRIX} = dot_general %0, %w {product}"
        f"%2: {MATRIX} = sine %x %3: {MATRIX} = dot_general %1, %2 {product}"
    )
    assert sorted(order(body, "%3")[:2]) == ["dot_general", "sine"]


def test_what_follows_a_barrier_waits_for_all_of_it() -> None:
    body = (
        f"%0: {MATRIX} = tanh %x %1: {MATRIX} = exponential %w %2: {MATRIX}, %3: {MATRIX} = optimization_barrier %0, %1"
        f" %4: {MATRIX} = sine %2"
    )
    assert order(body, "%4, %3") == ["tanh", "exponential", "barrier", "sine"]


def test_what_is_ready_together_runs_in_the_order_of_the_results() -> None:
    body = f"%0: {MATRIX} = tanh %x %1: {MATRIX} = sine %0 %2: {MATRIX} = exponential %0"
    assert order(body, "%1, %2") == ["tanh", "sine", "exponential"]
    assert order(body, "%2, %1") == ["tanh", "exponential", "sine"]


PRODUCT = "{contract=[[1],[0]], batch=[[],[]]}"


def test_depth_first_computes_an_operand_with_all_that_it_needs() -> None:
    """One branch after the other: breadth first both tangents run before the products that read them."""
    body = (
        f"%0: {MATRIX} = tan %x %1: {MATRIX} = dot_general %0, %w {PRODUCT} %2: {MATRIX} = tan %w"
        f"%3: {MATRIX} = dot_general %2, %w {PRODUCT} %4: {MATRIX} = dot_general %1, %3 {PRODUCT}"
    )
    first, second = ["tan", "dot_general"], ["tan", "tan", "dot_general", "dot_general"]
    assert order(body, "%4", depth_first) == [*first, *first, "dot_general"]
    assert order(body, "%4", breadth_first) == [*second, "dot_general"]


def test_depth_first_goes_first_where_more_reads_what_was_written() -> None:
    """The first operand stands on a value that has two readers, then on larger ones; else in program order."""
    shared = f"%0: {MATRIX} = tan %x %1: {MATRIX} = log %w %2: {MATRIX} = dot_general %1, %1 {PRODUCT}"
    body = f"{shared} %3: {MATRIX} = dot_general %0, %2 {PRODUCT}"
    assert order(body, "%3", depth_first) == ["log", "dot_general", "tan", "dot_general"]
    body = f"{shared} %3: {MATRIX} = dot_general %0, %2 {PRODUCT} %4: {MATRIX} = dot_general %0, %x {PRODUCT}"
    assert order(body, "%3, %4", depth_first) == ["tan", "log", "dot_general", "dot_general", "dot_general"]


@pytest.mark.parametrize("scheduler", [breadth_first, depth_first])
def test_every_kernel_runs_once_after_what_it_reads(scheduler: Scheduler) -> None:
    """Of a chain in which each sum reads the two before it, some written and some repeated."""
    lines = [f"%0: {MATRIX} = tanh %x", f"%1: {MATRIX} = add %0, %w"]
    lines += [f"%{n}: {MATRIX} = {'add' if n % 3 else 'power'} %{n - 1}, %{n - 2}" for n in range(2, 40)]
    graph = parse(f"graph @f(%x: {MATRIX}, %w: {MATRIX}) -> ({MATRIX}) {{ {' '.join(lines)} return %39 }}")
    found = scheduled(graph, scheduler)
    assert len(set(found.order)) == len(found.order) == len(found.time)
    for kernel in found.order:
        assert all(found.time[operand] < found.time[kernel] for operand in kernel.operands if operand.is_written)


def test_temporaries_go_into_the_buffers_of_larger_results() -> None:
    """One of two matrices lies in the result that is written last, unless that is smaller."""

    def peak(result: str, last: str) -> int:
        product = "{contract=[[1],[0]], batch=[[],[]]}"
        body = f"%0: {MATRIX} = tanh %x %1: {MATRIX} = dot_general %0, %w {product} %2: {result} = {last}"
        return allocation(parse(f"graph @f(%x: {MATRIX}, %w: {MATRIX}) -> ({result}) {{ {body} return %2 }}")).peak()

    assert peak(MATRIX, "dot_general %1, %w {contract=[[1],[0]], batch=[[],[]]}") == 4 * 128**2
    assert peak("f32[256,128]", "concatenate %1, %w {dimension=0}") == 4 * 128**2
    assert peak("bf16[128,128]", "convert %1 {dtype=bf16}") == 2 * 4 * 128**2
