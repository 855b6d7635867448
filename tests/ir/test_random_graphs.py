"""The table of random graphs: every op is in it, and every row draws what it says."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.registry import OPS
from rematc.ir.types import TensorType
from rematc.ir.verifier import verify
from tests.support.drawing import Drawing, Hypothesis, Row
from tests.support.random_graphs import EXEMPT, PALETTES, ROWS, programs


def registered() -> set[str]:
    """The ops of the package (tests may have registered their own)."""
    return {name for name, op in OPS.items() if op.__module__.startswith("rematc.")}


def test_every_op_has_a_row_or_a_reason() -> None:
    """A new op needs a row in tests/support/graph_rows: fuzzing draws what stands there and nothing else."""
    drawn = {op.name for row in ROWS for op in row.ops}
    assert sorted(registered() - drawn - set(EXEMPT)) == []
    assert sorted(set(EXEMPT) - registered()) == []
    assert sorted(drawn & set(EXEMPT)) == []


def names_of(graph: Graph) -> set[str]:
    found: set[str] = set()
    for eqn in graph.equations:
        found.add(eqn.op.name)
        for region in eqn.op.regions():
            found |= names_of(region)
    return found


@st.composite
def one_step(draw: st.DrawFn, row: Row) -> Graph:
    """The graph of a row's step alone, over values of many types."""
    b = Builder()
    palette = draw(st.sampled_from(PALETTES))
    pool = [b.parameter(TensorType(dtype, shape)) for dtype in palette for shape in ((), (2,), (3,), (3, 3), (2, 3))]
    row.step(Drawing(Hypothesis(draw), b, pool, palette, 1))
    return b.build()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.ops[0].name)
def test_a_row_draws_its_ops(row: Row) -> None:
    drawn: set[str] = set()

    @settings(max_examples=60 * len(row.ops), derandomize=True, suppress_health_check=list(HealthCheck))
    @given(one_step(row))
    def draw(graph: Graph) -> None:
        verify(graph)
        drawn.update(names_of(graph))

    draw()
    assert sorted({op.name for op in row.ops} - drawn) == []


@settings(max_examples=50)
@given(programs())
def test_programs_obey_the_laws(graph: Graph) -> None:
    verify(graph)
