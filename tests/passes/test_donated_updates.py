"""Updates of donated parameters, behind the reads of what they are written over."""

from __future__ import annotations

import re

from rematc.ir.core import Graph
from rematc.ir.parser import parse_graph
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import make_program
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.prediction import predict
from rematc.passes.donated_updates import updated_early, updated_last

STEP = """graph @step(%w: f32[4,4], %ct: f32[4,4], %x: f32[4,4]) -> (f32[4,4], f32[4,4]) {
  %g: f32[4,4] = multiply %x, %ct
  %new: f32[4,4] = subtract %w, %g
  %dx: f32[4,4] = multiply %ct, %w
  return %new, %dx
}
"""


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def test_an_update_waits_for_the_reads_of_the_old_value() -> None:
    graph = parse_graph(STEP)
    found = updated_last(graph, [(0, 0)])
    verify(found)
    assert names(found) == ["multiply", "optimization_barrier", "multiply", "subtract"]
    barrier, _, update = found.equations[1:]
    assert barrier.operands == (graph.params[0], graph.results[1])
    assert update.operands[0] == barrier.results[0] and found.results == graph.results


def test_an_update_behind_all_reads_stays() -> None:
    product = "dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}"
    graph = parse_graph(STEP.replace("multiply %x, %ct", product).replace("multiply %ct, %w", "add %g, %x"))
    assert updated_last(graph, [(0, 0)]) is graph


SKIPPED = """graph @adam(%m: f32[64,64], %w: f32[64,64], %x: f32[64,64], %ok: bool[]) -> (f32[64,64], f32[64,64]) {
  %g: f32[64,64] = dot_general %x, %x {contract=[[0],[0]], batch=[[],[]]}
  %both: f32[64,64] = add %m, %g
  %is: bool[64,64] = broadcast_in_dim %ok {shape=[64,64], dimensions=[]}
  %first: f32[64,64] = select %is, %both, %m
  %0: f32[64,64] = subtract %w, %both
  %new: f32[64,64] = select %is, %0, %w
  return %first, %new
}
"""


def test_an_update_waits_for_another_one_that_may_compute_its_value_again() -> None:
    """Both read the sum, which has two operands; XLA computes it in both kernels rather than write it."""
    graph = parse_graph(SKIPPED)
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    barrier, last = found.equations[-2:]
    assert barrier.op.name == "optimization_barrier"
    assert barrier.operands == (graph.params[0], graph.results[1])
    assert last.results == graph.results[:1] and barrier.results[0] in last.operands


READ = """graph @adan(%w: f32[64,64], %last: f32[64,64], %x: f32[64,64]) -> (f32[64,64], f32[64,64]) {
  %g: f32[64,64] = dot_general %x, %x {contract=[[0],[0]], batch=[[],[]]}
  %0: f32[64,64] = subtract %g, %last
  %new: f32[64,64] = subtract %w, %0
  return %new, %g
}
"""


def test_an_update_that_is_read_is_given_to_its_place_behind_the_reads_of_the_old_value() -> None:
    graph = parse_graph(READ)
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    assert names(found) == ["dot_general", "subtract", "subtract", "optimization_barrier"]
    assert found.equations[-1].operands == (graph.results[1], graph.results[0])
    assert found.results == (graph.results[0], found.equations[-1].results[0])


def test_an_update_that_is_read_where_nothing_else_reads_the_old_value_stays() -> None:
    graph = parse_graph(
        READ.replace("subtract %g, %last", "subtract %g, %x").replace("dot_general %x", "dot_general %last")
    )
    assert updated_last(graph, [(0, 0), (1, 1)]) is graph


def test_who_keeps_to_an_order_needs_no_barrier_for_what_is_read() -> None:
    graph = parse_graph(READ)
    assert updated_last(graph, [(0, 0), (1, 1)], is_held=False) is graph


LAYERS = 8


def last_gradients(is_held: bool) -> Graph:
    """Layers of which each gradient is kept for the next step, which reads the last one."""
    text, results = "", []
    for layer in range(LAYERS):
        results += [f"%new{layer}", f"%g{layer}"]
        text += f"""  %g{layer}: f32[64,64] = dot_general %h{layer}, %h{layer} {{contract=[[0],[0]], batch=[[],[]]}}
  %d{layer}: f32[64,64] = subtract %g{layer}, %last{layer}
  %new{layer}: f32[64,64] = subtract %w{layer}, %d{layer}
  %p{layer}: f32[64,64] = dot_general %h{layer}, %w{layer} {{contract=[[1],[0]], batch=[[],[]]}}
  %h{layer + 1}: f32[64,64] = tanh %p{layer}
"""
    params = ", ".join(f"%w{layer}: f32[64,64], %last{layer}: f32[64,64]" for layer in range(LAYERS))
    types = ", ".join(["f32[64,64]"] * len(results))
    graph = parse_graph(
        f"graph @f({params}, %h0: f32[64,64]) -> ({types}) {{\n{text}  return {', '.join(results)}\n}}\n"
    )
    return updated_last(graph, [(place, place) for place in range(2 * LAYERS)]) if is_held else graph


def test_last_gradients_are_not_copied_and_copies_are_predicted() -> None:
    donated, taken = range(2 * LAYERS), []
    for is_held in (False, True):
        graph = last_gradients(is_held)
        target = Target.of("cpu")
        program = make_program(graph, (), target)
        taken.append(compile_program(program, target, donated=donated).memory().temp_bytes)
        assert abs(predict(graph, target, donated).peak - taken[-1]) <= 3 * 64 * 64 * 4
    arrays = [size // (64 * 64 * 4) for size in taken]
    assert arrays[1] <= arrays[0] - LAYERS // 2


def test_of_two_updates_that_read_each_others_old_values_one_waits() -> None:
    graph = parse_graph(STEP.replace("multiply %ct, %w", "subtract %ct, %w"))
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    assert names(found) == ["subtract", "optimization_barrier", "multiply", "subtract"]


SIGNS = """graph @lion(%p: f32[64,64], %m: f32[64,64], %g: f32[64,64], %a: f32[64,64]) -> (f32[64,64], f32[64,64]) {
  %0: f32[64,64] = multiply %m, %a
  %1: f32[64,64] = multiply %g, %a
  %2: f32[64,64] = add %0, %1
  %moment: f32[64,64] = subtract %2, %g
  %3: f32[64,64] = multiply %m, %m
  %4: f32[64,64] = add %3, %g
  %5: f32[64,64] = tanh %4
  %weight: f32[64,64] = subtract %p, %5
  return %weight, %moment
}
"""


def test_an_update_waits_for_that_of_another_parameter_which_reads_the_old_value() -> None:
    """Not for what is a part of that one's kernel, and all of its own kernel reads the value that waits."""
    graph = parse_graph(SIGNS)
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    assert names(found)[-5:] == ["optimization_barrier", "multiply", "multiply", "add", "subtract"]
    barrier, first = found.equations[-5:-3]
    assert barrier.operands == (graph.params[1], graph.results[0])
    assert first.operands[0] == barrier.results[0]


def test_what_is_shared_with_another_kernel_stays_and_only_the_rest_waits() -> None:
    text = SIGNS.replace("%4: f32[64,64] = add %3, %g", "%4: f32[64,64] = add %3, %1")
    found = updated_last(parse_graph(text), [(0, 0), (1, 1)])
    verify(found)
    assert names(found)[-4:] == ["optimization_barrier", "multiply", "add", "subtract"]


BACKWARD = """graph @adam(
    %w0: f32[4,4], %w1: f32[4,4], %w2: f32[4,4], %m0: f32[4,4], %m1: f32[4,4], %m2: f32[4,4], %t: f32[4,4],
    %x: f32[4,4], %one: f32[4,4]
) -> (f32[4,4], f32[4,4], f32[4,4], f32[4,4], f32[4,4], f32[4,4], f32[4,4], f32[4,4]) {
  %h1: f32[4,4] = dot_general %x, %w0 {contract=[[1],[0]], batch=[[],[]]}
  %h2: f32[4,4] = dot_general %h1, %w1 {contract=[[1],[0]], batch=[[],[]]}
  %y: f32[4,4] = dot_general %h2, %w2 {contract=[[1],[0]], batch=[[],[]]}
  %dw2: f32[4,4] = dot_general %h2, %y {contract=[[0],[0]], batch=[[],[]]}
  %d2: f32[4,4] = dot_general %y, %w2 {contract=[[1],[1]], batch=[[],[]]}
  %dw1: f32[4,4] = dot_general %h1, %d2 {contract=[[0],[0]], batch=[[],[]]}
  %d1: f32[4,4] = dot_general %d2, %w1 {contract=[[1],[1]], batch=[[],[]]}
  %dw0: f32[4,4] = dot_general %x, %d1 {contract=[[0],[0]], batch=[[],[]]}
  %step: f32[4,4] = add %t, %one
  %n0: f32[4,4] = add %m0, %dw0
  %n1: f32[4,4] = add %m1, %dw1
  %n2: f32[4,4] = add %m2, %dw2
  %u0: f32[4,4] = divide %n0, %step
  %u1: f32[4,4] = divide %n1, %step
  %u2: f32[4,4] = divide %n2, %step
  %v0: f32[4,4] = subtract %w0, %u0
  %v1: f32[4,4] = subtract %w1, %u1
  %v2: f32[4,4] = subtract %w2, %u2
  return %v0, %v1, %v2, %n0, %n1, %n2, %step, %y
}
"""
PAIRS = [(place, place) for place in range(7)]


def names_in(text: str) -> list[str]:
    return re.findall(r"^  %(\w+):", text, re.MULTILINE)


def order_of(text: str, pairs: list[tuple[int, int]]) -> list[str]:
    graph = parse_graph(text)
    found = updated_early(graph, pairs)
    verify(found)
    written = {eqn.results[0]: name for eqn, name in zip(graph.equations, names_in(text), strict=True)}
    return [written[eqn.results[0]] for eqn in found.equations]


def test_an_update_comes_when_its_gradient_is_there_and_the_old_value_is_read() -> None:
    """With the moments that it is made from; the count of steps, which all are made from, comes with the first."""
    names = order_of(BACKWARD, PAIRS)
    assert " ".join(names) == "h1 h2 y dw2 d2 step n2 u2 v2 dw1 n1 u1 d1 v1 dw0 n0 u0 v0"


def test_an_update_waits_for_what_is_computed_from_all_gradients() -> None:
    clipped = BACKWARD.replace("add %t, %one", "add %t, %norm").replace(
        "  %step:",
        "  %norm: f32[4,4] = add %dw0, %dw1\n  %step:",
    )
    assert order_of(clipped, PAIRS) == names_in(clipped)


def test_what_depends_on_parameters_alone_comes_with_who_reads_it() -> None:
    """Weight decay could be computed before all else, and would be held."""
    decayed = BACKWARD.replace(
        "%n2: f32[4,4] = add %m2, %dw2", "%wd: f32[4,4] = multiply %w2, %m2\n  %n2: f32[4,4] = add %wd, %dw2"
    )
    names = order_of(decayed, PAIRS)
    assert names[4:8] == ["d2", "step", "wd", "n2"]


def test_without_updates_nothing_moves() -> None:
    graph = parse_graph(BACKWARD)
    assert updated_early(graph, []).equations == graph.equations


def test_what_an_update_is_made_from_is_not_held_until_it_is_there() -> None:
    """The forward pass reads the old value, too; what it gives is no operand of a barrier behind the update."""
    read = (
        READ.replace("subtract %g, %last", "subtract %g, %h")
        .replace("  %g:", "  %h: f32[64,64] = dot_general %x, %last {contract=[[0],[0]], batch=[[],[]]}\n  %g:")
        .replace("dot_general %x, %x", "dot_general %x, %h")
    )
    graph = parse_graph(read)
    assert updated_last(graph, [(0, 0), (1, 1)]) is graph


PASSED = """graph @step(%w: f32[4,4], %ct: f32[4,4], %x: f32[4,4]) -> (f32[4,4], f32[4,4]) {
  %g: f32[4,4] = multiply %x, %ct
  %dx: f32[4,4] = dot_general %ct, %w {contract=[[1],[0]], batch=[[],[]]}
  %new: f32[4,4] = subtract %w, %g
  %later: f32[4,4], %given: f32[4,4] = optimization_barrier %dx, %new
  return %given, %later
}
"""


def test_an_update_that_the_next_stage_waits_for_still_comes_behind_the_reads_of_the_old_value() -> None:
    """In the order of the graph alone it does; a compiler that orders anew would copy what it writes."""
    graph = parse_graph(PASSED)
    found = updated_last(graph, [(0, 0)])
    verify(found)
    assert names(found) == ["dot_general", "optimization_barrier", "multiply", "subtract", "optimization_barrier"]
    barrier, _, update = found.equations[1:4]
    assert barrier.operands == (graph.params[0], graph.equations[1].results[0])
    assert update.operands[0] == barrier.results[0]


def test_an_update_that_a_stage_waits_for_before_the_old_value_is_read_stays() -> None:
    lines = PASSED.splitlines(keepends=True)
    early = "".join([*lines[:2], lines[3], lines[4].replace("%dx", "%g"), lines[2], *lines[5:]])
    graph = parse_graph(early)
    assert names(updated_last(graph, [(0, 0)])) == names(graph)


def test_each_of_the_updates_that_one_equation_writes_is_given_to_its_place() -> None:
    """As those of a loop: what others read of them goes behind the reads of its own old value."""
    graph = parse_graph(
        """graph @two(%a: f32[4,4], %b: f32[4,4], %x: f32[4,4]) -> (f32[4,4], f32[4,4], f32[4,4]) {
  %n: f32[4,4], %m: f32[4,4] = optimization_barrier %x, %x
  %p: f32[4,4] = dot_general %a, %n {contract=[[1],[0]], batch=[[],[]]}
  %q: f32[4,4] = dot_general %b, %m {contract=[[1],[0]], batch=[[],[]]}
  %s: f32[4,4] = add %p, %q
  return %n, %m, %s
}
"""
    )
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    barriers = [eqn.operands for eqn in found.equations[4:]]
    assert barriers == [
        (graph.results[0], graph.equations[1].results[0]),
        (graph.results[1], graph.equations[2].results[0]),
    ]
