"""The module writer: its text is StableHLO that the bindings take, and says where every value comes from."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import CompileError, MissingRuleError, TypeMismatchError
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Add, Multiply, Negate
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Types, Value
from rematc.lowering.module import stablehlo_module, stablehlo_text
from rematc.lowering.target import Target
from rematc.lowering.validation import validate
from tests.support.work import lines_run

VECTOR = TensorType(F32, (4,))
LINE = Location("model.py", 12, 8, "loss")


def unary(op: Op, name: str = "g") -> Graph:
    x, y = Value(VECTOR, "x"), Value(VECTOR)
    return Graph(name, (x,), (Equation(op, (x,), (y,), LINE),), (y,))


def calls(*bodies: Graph) -> Graph:
    """A graph that applies the bodies one after the other."""
    value = start = Value(VECTOR)
    equations = []
    for body in bodies:
        result = Value(VECTOR)
        equations.append(Equation(Call(body), (value,), (result,), LINE))
        value = result
    return Graph("main", (start,), tuple(equations), (value,))


def test_the_whole_text_of_a_small_graph() -> None:
    assert stablehlo_text(unary(Negate())) == (
        "module @g {\n"
        '  func.func public @main(%arg0: tensor<4xf32> loc("x")) -> (tensor<4xf32>) {\n'
        "    %0 = stablehlo.negate %arg0 : tensor<4xf32> loc(#loc1)\n"
        "    func.return %0 : tensor<4xf32> loc(unknown)\n"
        "  } loc(unknown)\n"
        "} loc(unknown)\n"
        '#loc1 = loc("loss"("model.py":12:8))\n'
    )


def test_equal_bodies_are_one_function_and_others_of_the_same_name_get_their_own() -> None:
    text = stablehlo_text(calls(unary(Negate(), "f"), unary(Negate(), "f"), unary(Negate(), "main")))
    validate(text)
    assert text.count("func.func private @f(") == 1
    assert text.count("func.call @f(") == 2
    assert text.count("func.func private @main_1(") == 1


def test_calls_inside_calls_are_written() -> None:
    text = stablehlo_text(calls(calls(unary(Negate(), "leaf"))))
    validate(text)
    assert text.count("func.func private") == 2


def test_a_body_that_shares_values_with_its_caller_does_not_rename_them() -> None:
    x, y, z = Value(VECTOR), Value(VECTOR), Value(VECTOR)
    body = Graph("f", (x,), (Equation(Negate(), (x,), (y,)), Equation(Multiply(), (y, y), (z,))), (z,))
    result, total = Value(VECTOR), Value(VECTOR)
    for op in (Call(body), Checkpoint(body)):
        equations = (
            Equation(Negate(), (x,), (y,)),
            Equation(op, (y,), (result,)),
            Equation(Add(), (y, result), (total,)),
        )
        text = stablehlo_text(Graph("main", (x,), equations, (total,)))
        validate(text)
        (line,) = (line for line in text.splitlines() if "stablehlo.add" in line)
        assert "stablehlo.add %0, " in line


def test_a_call_of_several_results_names_each() -> None:
    x = Value(VECTOR)
    body = Graph("f", (x,), (), (x, x))
    first, second, total = Value(VECTOR), Value(VECTOR), Value(VECTOR)
    equations = (Equation(Call(body), (x,), (first, second)), Equation(Add(), (first, second), (total,)))
    text = stablehlo_text(Graph("main", (x,), equations, (total, x)))
    validate(text)
    assert "stablehlo.add %0#0, %0#1" in text


def test_a_graph_without_parameters_and_results() -> None:
    validate(stablehlo_text(Graph("nothing", (), (), ())))


@pytest.mark.parametrize("name", ["<lambda>", 'say "x\\y"', "größe\n", "7", ""])
def test_names_and_files_of_any_spelling_are_taken(name: str) -> None:
    x, y = Value(VECTOR, name or None), Value(VECTOR)
    graph = Graph(name, (x,), (Equation(Negate(), (x,), (y,), Location(name, 1, 0, name)),), (y,))
    validate(stablehlo_text(graph))
    validate(stablehlo_text(calls(graph)))


def test_arguments_and_results_in_host_memory_say_so() -> None:
    host = Value(TensorType(F32, (4,), on_host=True))
    text = stablehlo_text(Graph("main", (host,), (), (host,)))
    validate(text)
    assert text.count('{mhlo.memory_kind = "pinned_host"}') == 2


def test_an_op_without_a_rule_is_named_with_the_line() -> None:
    @dataclass(frozen=True, slots=True)
    class Unknown(Op):
        name = "unknown"

        def infer(self, operands: Types) -> tuple[TensorType, ...]:
            return tuple(operands)

    with pytest.raises(MissingRuleError, match=r"model\.py:12:8: error: lowering of 'unknown' needs a rule"):
        stablehlo_text(unary(Unknown()))


def test_a_recomputation_without_a_barrier_is_refused() -> None:
    op = Checkpoint(unary(Negate(), "layer"), is_differentiated=True)
    with pytest.raises(CompileError, match="'layer' reaches the lowering without a barrier"):
        stablehlo_text(unary(op))


def test_twice_as_many_equations_are_twice_the_work() -> None:
    def work(count: int) -> int:
        x = value = Value(VECTOR)
        equations = []
        for index in range(count):
            result = Value(VECTOR)
            equations.append(Equation(Add(), (value, x), (result,), Location("m.py", index // 10 + 1)))
            value = result
        return lines_run(lambda: stablehlo_text(Graph("main", (x,), tuple(equations), (value,))))

    assert work(10_000) < 2.5 * work(5_000)


# -- functions that XLA must keep apart --------------------------------------------------------------------------------


def kept_apart() -> Graph:
    """A sum computed in such a function, which has to wait for its second operand."""
    x, y = Value(VECTOR, "x"), Value(VECTOR, "y")
    a, b, total = Value(VECTOR), Value(VECTOR), Value(VECTOR)
    body = Graph("part", (a, b), (Equation(Add(), (a, b), (total,), LINE),), (total,))
    result = Value(VECTOR)
    return Graph("main", (x, y), (Equation(Call(body, (False, True)), (x, y), (result,), LINE),), (result,))


def test_a_function_that_is_kept_apart_is_one_on_the_cpu() -> None:
    module = stablehlo_module(kept_apart(), Target.of("cpu"))
    assert 'call @part(%arg0, %arg1) {mhlo.frontend_attributes = {inlineable = "false"}}' in module.text
    assert "optimization_barrier" not in module.text
    assert module.tuned_for == "cpu"
    validate(module.text)


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_elsewhere_its_body_stands_behind_a_barrier_over_what_it_waits_for(platform: str) -> None:
    module = stablehlo_module(kept_apart(), Target.of(platform))
    lines = [line.strip().partition(" loc(")[0] for line in module.text.splitlines() if "stablehlo." in line]
    assert lines == [
        "%0 = stablehlo.optimization_barrier %arg1 : tensor<4xf32>",
        "%1 = stablehlo.add %arg0, %0 : tensor<4xf32>",
    ]
    assert "@part" not in module.text and module.tuned_for == platform
    validate(module.text)


def test_a_function_that_waits_says_so_for_each_operand() -> None:
    body = unary(Negate())
    with pytest.raises(TypeMismatchError, match="'call' has 1 operands but pinned for 2"):
        Call(body, (True, False)).infer((VECTOR,))
