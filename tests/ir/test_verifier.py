"""The verifier: each law, broken once, is reported at the user's line with the equations around it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import VerifierError
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Add, Negate
from rematc.ir.ops.regions import Call
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import DEFINED_RESULTS, LAWS, UNIQUE_PARAMS, verify
from tests.support.random_graphs import graphs
from tests.support.work import lines_run

PAIR = TensorType(F32, (2,))
TRIPLE = TensorType(F32, (3,))
LINE = Location("model.py", 12, 8)
X, Y, Z = Value(PAIR, "x"), Value(PAIR), Value(PAIR)


def negation(operand: Value, result: Value, loc: Location | None = LINE) -> Equation:
    return Equation(Negate(), (operand,), (result,), loc)


@given(graphs())
def test_what_the_builder_makes_obeys_the_laws(graph: Graph) -> None:
    verify(graph)


@dataclass(frozen=True, slots=True)
class Impostor(Negate):
    """Says it is 'negate'."""


BROKEN = [
    (0, Graph("g", (X,), (Equation(Impostor(), (X,), (Y,), LINE),), ()), "Impostor is not the op registered as"),
    (1, Graph("g", (X,), (negation(Z, Y), negation(Y, Z)), ()), "operand 0 of 'negate' has no definition before it"),
    (1, Graph("g", (X,), (negation(Y, Y),), ()), "operand 0 of 'negate' has no definition"),
    (2, Graph("g", (X,), (negation(X, Y), negation(X, Y)), ()), "a result of 'negate' is a value that is defined"),
    (2, Graph("g", (X,), (negation(X, X),), ()), "a result of 'negate' is a value that is defined"),
    (3, Graph("g", (X,), (negation(X, Value(TRIPLE)),), ()), r"'negate' gives \(f32\[2\]\), its results are of type"),
    (3, Graph("g", (X,), (Equation(Add(), (X,), (Y,), LINE),), ()), "'add' takes 2 operands, got 1"),
]


@pytest.mark.parametrize(("law", "graph", "message"), BROKEN)
def test_a_breach_names_the_line_the_law_and_the_equation(law: int, graph: Graph, message: str) -> None:
    with pytest.raises(VerifierError, match=message) as caught:
        verify(graph)
    assert caught.value.loc == LINE
    assert f"in graph 'g', where {LAWS[law].text}:" in caught.value.message
    assert "> %" in caught.value.message or "> %x" in caught.value.message


def test_every_law_can_be_broken() -> None:
    assert {law for law, _, _ in BROKEN} == set(range(len(LAWS)))


def test_parameters_are_distinct() -> None:
    with pytest.raises(VerifierError, match=UNIQUE_PARAMS):
        verify(Graph("g", (X, X), (), ()))


def test_results_are_defined() -> None:
    with pytest.raises(VerifierError, match=f"{DEFINED_RESULTS}, but result 1 is not"):
        verify(Graph("g", (X,), (), (X, Y)))


def calling(body: Graph, loc: Location | None = LINE) -> Graph:
    operand = Value(PAIR, "operand")
    results = tuple(Value(value.type) for value in body.results)
    return Graph("caller", (operand,), (Equation(Call(body), (operand,), results, loc),), results)


def test_a_region_reads_nothing_around_it() -> None:
    inner = Value(PAIR)
    graph = calling(Graph("body", (inner,), (negation(inner, Y),), (Y,)))
    outer = graph.params[0]
    verify(graph)
    captures = calling(Graph("body", (inner,), (Equation(Negate(), (outer,), (Y,), None),), (Y,)))
    with pytest.raises(VerifierError, match="in graph 'body', where an operand is defined before it is used") as caught:
        verify(captures)
    assert caught.value.loc == LINE  # of the call: the equation itself has none


def test_a_body_shared_by_many_calls_is_checked_once() -> None:
    """Functions that call the one before twice: 2**40 equations, were each call a copy."""
    inner = Value(PAIR)
    body = Graph("f", (inner,), (negation(inner, Y),), (Y,))
    for _ in range(40):
        x, first, second = Value(PAIR), Value(PAIR), Value(PAIR)
        twice = (Equation(Call(body), (x,), (first,)), Equation(Call(body), (first,), (second,)))
        body = Graph("f", (x,), twice, (second,))
    assert lines_run(lambda: verify(body)) < 40 * 200


def test_an_excerpt_shows_few_lines() -> None:
    b = Builder("long")
    x = b.parameter(PAIR, "x")
    for _ in range(100):
        x = b.negate(x)
    broken = Graph("long", tuple(b.params), (*b.equations, negation(Y, Z)), (x,))
    with pytest.raises(VerifierError) as caught:
        verify(broken)
    shown = caught.value.message.splitlines()[2:]
    assert len(shown) == 4
    assert shown[-1] == '> %100: f32[2] = negate %? loc("model.py":12:8)'
