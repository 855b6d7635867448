"""In how many slices a program runs on a target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.lowering.slicing import AUTO, NEEDED, OFF, in_slices, slices_of
from rematc.lowering.target import Target

HEAD = """
graph @head(%x: f32[4096,64], %w: f32[64,65536]) -> (f32[4096]) {
  %0: f32[4096,65536] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[4096,65536] = sort %0 {dimension=1}
  %2: f32[4096] = reduce_max %1 {dimensions=[1]}
  return %2
}
"""


def derive(_: int) -> Graph:
    """A head, of one segment."""
    return parse(HEAD)


@pytest.mark.parametrize(
    ("given", "found"), [("16", 16), (1, OFF), ("1", OFF), ("off", OFF), ("auto", AUTO), ("needed", NEEDED), (8, 8)]
)
def test_slices_are_a_number_or_a_word(given: int | str, found: int | str) -> None:
    assert slices_of(given) == found


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_auto_takes_slices_no_larger_than_what_else_is_there(platform: str) -> None:
    choice = in_slices(derive, AUTO, Target.of(platform))
    assert choice.sliced is not None
    assert choice.sliced.largest.op == "dot_general"


def test_arrays_on_several_devices_are_not_cut() -> None:
    """Which of them holds what is not known here: slices along what is spread would move it."""
    target = replace(Target.of("cpu"), devices=4)
    with pytest.raises(CompileError, match="several devices"):
        in_slices(derive, 4, target)
    assert in_slices(derive, AUTO, target).sliced is None
    assert in_slices(derive, 4, Target.of("cpu")).sliced is not None
