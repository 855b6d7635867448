"""What several segments of a backward graph compute again."""

from __future__ import annotations

import pytest

from rematc.compiler.api.text import parse
from rematc.passes.repeats import repeats_in_segments

SEGMENT = "{{body=graph @g(%a: f64[3], %ct: f64[3]) -> (f64[3]) {{\n{0}\n}}, is_differentiated=true}}"


def repeats(first: str, second: str, operand: str = "%x") -> list[tuple[str, int]]:
    """Of a backward graph with two segments in a row, which take a residual each and the cotangent."""
    graph = parse(
        f"""graph @backward(%x: f64[3], %y: f64[3], %ct: f64[3]) -> (f64[3]) {{
              %0: f64[3] = checkpoint %x, %ct {SEGMENT.format(first)}
              %1: f64[3] = checkpoint {operand}, %0 {SEGMENT.format(second)}
              return %1
            }}"""
    )
    return [(one.eqn.op.name, one.segments) for one in repeats_in_segments(graph, [False, False, True])]


SINE = "%0: f64[3] = sine %a\n %1: f64[3] = multiply %0, %ct\n return %1"
NEGATED = "%0: f64[3] = sine %a\n %1: f64[3] = negate %0\n %2: f64[3] = multiply %1, %ct\n return %2"


def test_what_both_segments_compute_of_one_value_is_repeated() -> None:
    assert repeats(SINE, NEGATED) == [("sine", 2)]
    assert dict(repeats(NEGATED, NEGATED)) == {"sine": 2, "negate": 2}


def test_what_they_compute_of_two_values_is_not() -> None:
    assert repeats(SINE, SINE, "%y") == []


@pytest.mark.parametrize(
    "text",
    [
        "%0: f64[3] = sine %ct\n return %0",
        "%0: f64[3] = constant {type=f64[3], data=[2.0,3.0,4.0]}\n %1: f64[3] = sine %0\n return %1",
    ],
)
def test_cotangents_and_constants_are_no_recomputation(text: str) -> None:
    assert repeats(text, text) == []


def test_twice_in_one_segment_is_no_repetition() -> None:
    twice = "%0: f64[3] = sine %a\n %1: f64[3] = sine %a\n %2: f64[3] = multiply %0, %1\n return %2"
    assert repeats(twice, "return %ct") == []
