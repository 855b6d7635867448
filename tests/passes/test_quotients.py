"""Derivatives of quotients: of the quotient and the dividend the one is a residual that others need as well."""

from __future__ import annotations

import pytest

from rematc.compiler.text import parse
from rematc.passes.linearize import linearize, vjp

#: What follows the quotient %2 = e^x / y, and which equations give the computed residuals.
CASES = {
    "reshaped": ("%3: f64[4] = reshape %2 {shape=[4]} %4: f64[4] = sine %3", ["exponential", "cosine"]),
    "read itself": ("%4: f64[4] = multiply %2, %2", ["exponential", "divide"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_residual_is_the_one_that_others_read(name: str) -> None:
    rest, expected = CASES[name]
    graph = parse(
        "graph @f(%x: f64[4], %y: f64[4]) -> (f64[4]) {"
        f" %1: f64[4] = exponential %x %2: f64[4] = divide %1, %y {rest} return %4 }}"
    )
    found = [row.source.op.name for row in vjp(graph, [True, True]).residuals if row.source is not None]
    assert sorted(found) == sorted(expected)


def test_an_operand_that_nobody_else_reads_is_no_residual() -> None:
    """In h / (1 + e^-h) the quotient is what a product reads; the dividend would be one value more."""
    graph = parse(
        "graph @f(%x: f64[4,4], %w: f64[4,4]) -> (f64[4,4]) {"
        " %0: f64[4,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]} %1: f64[4,4] = negate %0"
        " %2: f64[4,4] = exponential %1 %3: f64[4,4] = divide %0, %2"
        " %4: f64[4,4] = dot_general %3, %w {contract=[[1],[0]], batch=[[],[]]} return %4 }"
    )
    found = [row.source.op.name for row in vjp(graph, [True, True]).residuals if row.source is not None]
    assert sorted(found) == ["divide", "exponential"]


def test_a_product_with_a_dimension_of_one_reads_the_quotient_in_another_shape() -> None:
    """XLA drops the dimension and would hold both shapes: only the product reads the quotient."""
    for shape, readers in (("1,4", 1), ("2,2", 2)):
        graph = parse(
            f"graph @f(%x: f64[{shape}], %y: f64[{shape}], %w: f64[{shape}]) -> (f64[]) {{"
            f" %0: f64[{shape}] = exponential %x %1: f64[{shape}] = divide %0, %y"
            " %2: f64[] = dot_general %1, %w {contract=[[0,1],[0,1]], batch=[[],[]]} return %2 }"
        )
        linear = linearize(graph, [True] * 3)
        (quotient,) = [
            param
            for param, row in zip(linear.linear.params, linear.residuals, strict=False)
            if row.source is not None and row.source.op.name == "divide"
        ]
        assert sum(quotient in eqn.operands for eqn in linear.linear.equations) == readers
