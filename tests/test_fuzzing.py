"""A few hundred random programs against every law and judge; benchmarks/fuzz.py judges thousands."""

from __future__ import annotations

import pytest

from rematc.ir.core import Graph
from tests.support.fuzzing.finds import ALL, finds, header
from tests.support.random_graphs import ROWS, seeded_program

PROGRAMS = 300
CHUNK = 50


@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
@pytest.mark.parametrize("law", ALL)
def test_programs_obey(law: str, start: int) -> None:
    found = [f"{header(find)}// {find.error}\n{find.text}" for find in finds(range(start, start + CHUNK), [law])]
    assert not found, "to be left in tests/regressions:\n\n" + "\n".join(found)


def _names(graph: Graph) -> set[str]:
    return {eqn.op.name for eqn in graph.equations} | {
        name for eqn in graph.equations for region in eqn.op.regions() for name in _names(region)
    }


def test_the_programs_have_nearly_every_op() -> None:
    drawn = set().union(*[_names(seeded_program(seed)) for seed in range(PROGRAMS)])
    ops = {op.name for row in ROWS for op in row.ops}
    assert len(ops - drawn) <= len(ops) / 20, sorted(ops - drawn)
    assert {"scan", "while", "case", "checkpoint", "call"} <= drawn
