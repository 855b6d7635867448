"""The reference interpreter: what it computes, what it holds on to, what it refuses."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import InternalError, TypeMismatchError
from rematc.ir.interpreter import evaluate, last_uses
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Add, Negate
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.types import F32, F64, TensorType
from rematc.ir.values import Array, Types, Value

PAIR = TensorType(F32, (2,))
LINE = Location("model.py", 12, 8)


def doubled_plus_one() -> Graph:
    b = Builder("f")
    x = b.parameter(PAIR, "x")
    return b.build(b.add(b.add(x, x), b.full(PAIR, 1)))


def chain(op: Op, length: int) -> Graph:
    value = start = Value(PAIR, "x")
    equations = []
    for _ in range(length):
        result = Value(PAIR)
        equations.append(Equation(op, (value,), (result,), LINE))
        value = result
    return Graph("chain", (start,), tuple(equations), (value,))


def test_equations_are_evaluated_in_order() -> None:
    (result,) = evaluate(doubled_plus_one(), [np.array([1, -2], np.float32)])
    np.testing.assert_array_equal(result, np.array([3, -3], np.float32), strict=True)


@pytest.mark.parametrize("region", [Call, Checkpoint])
def test_a_region_means_its_body(region: type[Call] | type[Checkpoint]) -> None:
    b = Builder()
    x = b.parameter(PAIR, "x")
    graph = b.build(*b.emit(region(doubled_plus_one()), x), x)
    argument = np.array([1, -2], np.float32)
    result, same = evaluate(graph, [argument])
    np.testing.assert_array_equal(result, evaluate(doubled_plus_one(), [argument])[0])
    assert same is argument


@dataclass(frozen=True, slots=True)
class CountLive(Op):
    """Negates; notes how many earlier results of its kind are still held."""

    name = "count_live"
    seen: list[weakref.ref[Array]]
    counts: list[int]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        return tuple(operands)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        result = np.negative(operands[0])
        self.counts.append(sum(ref() is not None for ref in self.seen))
        self.seen.append(weakref.ref(result))
        return (result,)


def test_values_are_let_go_after_their_last_use() -> None:
    op = CountLive([], [])
    evaluate(chain(op, 50), [np.ones(2, np.float32)])
    assert max(op.counts) == 1  # the operand alone


def test_last_uses_names_each_value_once_and_keeps_results() -> None:
    x, y, z, unused = (Value(PAIR) for _ in range(4))
    first = Equation(Add(), (x, x), (y,))
    second = Equation(Negate(), (y,), (unused,))
    third = Equation(Add(), (y, y), (z,))
    assert last_uses(Graph("g", (x,), (first, second, third), (z,))) == [(x,), (unused,), (y,)]


def test_a_chain_of_a_hundred_thousand_equations_is_evaluated() -> None:
    (result,) = evaluate(chain(Negate(), 100_000), [np.ones(2, np.float32)])
    np.testing.assert_array_equal(result, np.ones(2, np.float32))


def test_too_few_arguments_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="graph 'f' takes 1 arguments, got 0"):
        evaluate(doubled_plus_one(), [])


@pytest.mark.parametrize("argument", [np.ones(2, np.float64), np.ones(3, np.float32), np.ones((2, 1), np.float32)])
def test_an_argument_of_another_type_is_refused_by_name(argument: Array) -> None:
    with pytest.raises(TypeMismatchError, match=r"argument 0 \(x\) of graph 'f' must be f32\[2\], got float"):
        evaluate(doubled_plus_one(), [argument])


@dataclass(frozen=True, slots=True)
class Refuses(Op):
    name = "refuses"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        return tuple(operands)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise TypeMismatchError("cannot be computed on the host")


@dataclass(frozen=True, slots=True)
class Lies(Refuses):
    name = "lies"

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (operands[0].astype(np.float64),)


def test_an_op_that_cannot_be_computed_is_reported_at_its_line() -> None:
    with pytest.raises(TypeMismatchError, match="cannot be computed") as caught:
        evaluate(chain(Refuses(), 1), [np.ones(2, np.float32)])
    assert caught.value.loc == LINE


def test_a_reference_that_contradicts_the_types_is_our_fault() -> None:
    with pytest.raises(InternalError, match=r"'lies' gave float64\[2\], expected f32\[2\] \(at model.py:12:8\)"):
        evaluate(chain(Lies(), 1), [np.ones(2, np.float32)])


def test_the_types_of_arguments_are_those_of_the_parameters() -> None:
    b = Builder("g")
    graph = b.build(b.parameter(TensorType(F64, ())))
    assert evaluate(graph, [np.asarray(2.0)]) == [np.asarray(2.0)]
