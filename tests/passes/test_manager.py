"""Pipelines: their text, their checks, their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError, InternalError, VerifierError
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.passes import differentiation
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import VJP, vjp
from rematc.passes.manager import (
    PASSES,
    Pass,
    PassManager,
    Watch,
    count_equations,
    parse_pipeline,
    print_pipeline,
    watching,
)
from rematc.passes.simplify import Simplify
from rematc.passes.transpose import Transposed, transpose
from rematc.passes.vmap import vmap

PAIR = TensorType(F32, (2,))
LINE = Location("model.py", 12, 8)


@dataclass(frozen=True, slots=True)
class Options(Pass):
    """A pass with an option of each type."""

    name = "options"
    count: int = 1
    factor: float = 0.5
    is_fast: bool = True
    label: str = "rows"
    limit: int | None = None
    policy: str | None = None

    def run(self, graph: Graph) -> Graph:
        return graph


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PASSES, Options.name, Options)
        yield


def test_a_pipeline_prints_the_options_that_are_not_at_their_defaults() -> None:
    passes = (DeadCode(), Simplify(), Simplify(max_elements=7), CommonSubexpressions())
    assert print_pipeline(passes) == "dce,simplify,simplify{max_elements=7},cse"
    assert parse_pipeline(" dce , simplify, simplify { max_elements = 7 },cse") == passes
    assert parse_pipeline("") == ()


WORDS = st.sampled_from(["none", "true", "1", "a,b", '"', "\\", "file.py:policy", "", "{", "nan"]) | st.text()


@given(
    st.builds(
        Options,
        count=st.integers(),
        factor=st.floats(allow_nan=False),
        is_fast=st.booleans(),
        label=WORDS,
        limit=st.none() | st.integers(),
        policy=st.none() | WORDS,
    )
)
def test_pipelines_round_trip(drawn: Options) -> None:
    passes = (drawn, DeadCode(), drawn)
    assert parse_pipeline(print_pipeline(passes)) == passes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dec", "there is no pass 'dec'; did you mean 'dce'? (passes: "),
        ("dce,", "found its end, expected the name of a pass"),
        ("dce cse", "found 'cse', expected ',' and another pass"),
        ("dce{x=1}", "the pass 'dce' has no option 'x' (it has no options)"),
        (
            "simplify{max_element=1}",
            "no option 'max_element'; did you mean 'max_elements'? (options: max_elements)",
        ),
        ("simplify{max_elements=1,max_elements=2}", "the option 'max_elements' of 'simplify' is given twice"),
        ("simplify{max_elements}", "found '}', expected '=' and a value"),
        ("simplify{max_elements=1", "found its end, expected ',' or '}'"),
        ("simplify{max_elements=one}", "simplify{max_elements} is of type int, got one"),
        ("simplify{max_elements=true}", "simplify{max_elements} is of type int, got true"),
        ("barriers{strategy=walls}", "unknown barrier strategy 'walls'"),
    ],
)
def test_a_wrong_pipeline_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_pipeline(text)
    assert message in caught.value.message


def test_a_quoted_none_is_a_string() -> None:
    assert parse_pipeline('options{policy="none"}') == (Options(policy="none"),)
    assert parse_pipeline("options{policy=none}") == (Options(policy=None),)


def repeated(count: int) -> Graph:
    b = Builder("f")
    x = b.parameter(PAIR)
    b.loc = LINE
    for _ in range(count):
        y = b.sine(x)
    return b.build(y)


def test_each_pass_is_recorded_and_shown() -> None:
    shown: list[tuple[str, int]] = []
    manager = PassManager(
        parse_pipeline("cse,simplify{max_elements=1},dce"),
        after_each=lambda text, graph: shown.append((text, len(graph.equations))),
    )
    result = manager.run(repeated(3))
    assert [record.text for record in result.records] == ["cse", "simplify{max_elements=1}", "dce"]
    assert [(r.equations_before, r.equations_after) for r in result.records] == [(3, 1), (1, 1), (1, 1)]
    assert all(record.seconds >= 0 for record in result.records)
    assert shown == [("cse", 1), ("simplify{max_elements=1}", 1), ("dce", 1)]
    assert len(result.graph.equations) == 1


def test_equations_of_regions_count() -> None:
    b = Builder()
    x = b.parameter(PAIR)
    y = b.emit1(Checkpoint(repeated(3)), x)
    assert count_equations(b.build(b.emit1(Checkpoint(repeated(2)), y))) == 7


@dataclass(frozen=True, slots=True)
class Forgets(Pass):
    """Drops the first equation, whatever reads it."""

    name = "forgets"
    much: bool = False

    def run(self, graph: Graph) -> Graph:
        return Graph(graph.name, graph.params, graph.equations[1:], graph.results)


def test_a_pass_that_breaks_the_graph_is_named_with_the_line() -> None:
    b = Builder("f")
    x = b.parameter(PAIR)
    b.loc = LINE
    graph = b.build(b.negate(b.negate(x)))
    with pytest.raises(
        InternalError, match=r"'forgets\{much=true\}' broke the graph: model\.py:12:8: error: operand 0"
    ):
        PassManager((DeadCode(), Forgets(much=True))).run(graph)
    unchecked = PassManager((Forgets(),), verify=False).run(graph)
    assert len(unchecked.graph.equations) == 1


def test_a_graph_that_is_broken_before_any_pass_is_no_fault_of_a_pass() -> None:
    stray, result = Value(PAIR), Value(PAIR)
    graph = Graph("f", (), (Equation(Negate(), (stray,), (result,), LINE),), (result,))
    with pytest.raises(VerifierError):
        PassManager((DeadCode(),)).run(graph)


def test_every_pass_is_described() -> None:
    for cls in PASSES.values():
        assert cls.__doc__
        assert not cls.__doc__.startswith(f"{cls.__name__}(")  # what dataclass writes where there is none


def cubed() -> Graph:
    b = Builder("f")
    x = b.parameter(PAIR)
    return b.build(b.multiply(x, b.multiply(x, x)))


def test_the_parts_of_a_differentiation_are_passes() -> None:
    shown: list[tuple[str, int]] = []
    watch = Watch(after_each=lambda text, graph: shown.append((text, len(graph.params))))
    with watching(watch):
        pulled = vjp(cubed(), [True])
        vmap(cubed(), [True], 2)
    assert ",".join([record.text for record in watch.records]) == VJP
    assert [text for text, _ in shown if text == "partial_eval"] == ["partial_eval"] * 2
    assert dict(shown)["jvp"] == 2, "the value and its tangent"
    assert watch.records[-1].equations_after == count_equations(pulled.forward) + count_equations(pulled.backward)
    assert vjp(cubed(), [True]).backward == pulled.backward, "as without a watch"
    assert len(watch.records) == VJP.count(",") + 1


def test_a_step_that_breaks_its_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Graph, is_linear: Sequence[bool]) -> Transposed:
        found = transpose(graph, is_linear)
        first = found.graph.equations[1:]
        return Transposed(Graph("f", found.graph.params, first, found.graph.results), found.has_ct)

    monkeypatch.setattr(differentiation, "transpose", broken)
    with pytest.raises(InternalError, match="the pass 'transpose' broke the graph"), watching(Watch()):
        vjp(cubed(), [True])


def test_no_pipeline_of_a_program_takes_a_derivative() -> None:
    with pytest.raises(CompileError, match="the pass 'jvp' is a part of a differentiation"):
        PassManager(parse_pipeline("simplify,jvp")).run(cubed())
