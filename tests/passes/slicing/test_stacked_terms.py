"""Stacks of terms: added in the steps of the loop that makes them where nothing else reads them."""

from __future__ import annotations

import pytest

from rematc.compiler.api.text import parse
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.arithmetic import Add
from rematc.ir.verifier import verify
from rematc.passes.slicing.stacked_terms import added_in_steps
from tests.support.arrays import arguments_for, assert_near

STEP = """
graph @stage(%sum: f32[3,4], %xs: f32[3,4]) -> (f32[], f32[3,4], RESULTS) {
  %0: f32[] = constant {type=f32[], data=0.0}
  %1: f32[], %2: f32[3,4] = scan %0, %xs {body=graph @step(%c: f32[], %x: f32[4]) -> (f32[], f32[4]) {
    %0: f32[4] = sine %x
    %1: f32[] = reduce_sum %0 {dimensions=[0]}
    %2: f32[] = add %c, %1
    return %2, %0
  }, consts=0, carry=1, length=3}
  %3: f32[3,4] = add %sum, %2
  MORE
  return %1, %3, RETURNED
}
"""
CASES = {
    "read once": ("f32[]", "%4: f32[] = negate %1", "%4", False),
    "the stack is read by another": ("f32[3,4]", "%4: f32[3,4] = negate %2", "%4", True),
    "the stack is a result": ("f32[3,4]", "%4: f32[] = negate %1", "%2", True),
    "the sum so far is read by another": ("f32[3,4]", "%4: f32[3,4] = negate %sum", "%4", True),
    "the sum so far is a result": ("f32[3,4]", "%4: f32[] = negate %1", "%sum", True),
}


@pytest.mark.parametrize(("results", "more", "returned", "stands_beside"), CASES.values(), ids=CASES)
def test_only_what_is_read_once_is_added_in_steps(results: str, more: str, returned: str, stands_beside: bool) -> None:
    before = parse(STEP.replace("RESULTS", results).replace("MORE", more).replace("RETURNED", returned))
    after = added_in_steps(before)
    verify(after)
    assert any(isinstance(eqn.op, Add) for eqn in after.equations) == stands_beside
    arrays = arguments_for(before, special=0)
    assert_near(evaluate(after, arrays), evaluate(before, arrays), 1e-6)
