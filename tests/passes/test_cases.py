"""Passes on IR text: each case of `cases/*.ir` is a pipeline (`// RUN:`), a graph, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rematc.ir.interpreter import evaluate
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.policies import parse_policy
from tests.support.filecheck import check
from tests.support.random_graphs import arguments_for, same_bits

FOLDER = Path(__file__).parent / "cases"
RUN = re.compile(r"// RUN: (\S+)\n")


def cases() -> Iterator[object]:
    for path in sorted(FOLDER.glob("*.ir")):
        for text in path.read_text().split("// -----\n"):
            title = text.strip().splitlines()[0].removeprefix("// ")
            yield pytest.param(text, id=f"{path.stem}: {title}")


@pytest.mark.parametrize("text", list(cases()))
def test_case(text: str) -> None:
    run = RUN.search(text)
    assert run is not None, "a case says its passes: // RUN: simplify,dce"
    graph = parse_graph(text, policies=parse_policy)
    result = PassManager(parse_pipeline(run[1])).run(graph).graph
    check(text, print_graph(result), "case")
    arguments = arguments_for(graph)
    assert same_bits(evaluate(result, arguments), evaluate(graph, arguments))
