"""Products are counted as often as they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import Executed, Times, executed_products
from tests.support.work import lines_run

X = np.ones((8, 16), np.float32)
W = np.ones((16, 16), np.float32)


def both(function: Callable[..., Any], *args: Any) -> list[Executed]:
    """What a function executes, counted before and after XLA's passes."""
    lowered = jax.jit(function).lower(*args)
    after = lowered.compile().as_text()
    assert after is not None
    return [executed_products(parse_hlo(text)) for text in (lowered.as_text(dialect="hlo"), after)]


def test_a_loop_counts_its_steps() -> None:
    def loop(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, 7)[0]

    for executed in both(loop, W, X):
        assert executed.total == Times(7, 7)
        assert executed.multiplications == 7 * 8 * 16 * 16
        assert executed.unknown_loops == 0


def test_loops_in_loops_multiply() -> None:
    def inner(c: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y @ w), c)

    def loop(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (inner(c, w), None), x, None, 5)[0]

    for executed in both(loop, W, X):
        assert executed.total == Times(15, 15)


def test_a_counter_may_begin_anywhere_and_end_at_an_entry_of_the_state() -> None:
    def loop(w: Any, x: Any) -> Any:
        def body(state: Any) -> Any:
            index, end, y = state
            return index + 2, end, jnp.sin(y @ w)

        return jax.lax.while_loop(lambda state: state[0] < state[1], body, (3, 10, x))[2]

    before, _ = both(loop, W, X)
    assert before.total == Times(4, 4)  # 3, 5, 7, 9
    assert before.unknown_loops == 0


def test_a_loop_of_unknown_length_counts_once_and_is_noted() -> None:
    def loop(w: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda y: y.sum() < 1000, lambda y: y @ w, x)

    for executed in both(loop, W, X):
        assert executed.total == Times(1, 1)
        assert executed.unknown_loops == 1


def test_a_conditional_is_a_range() -> None:
    def choose(w: Any, x: Any, index: Any) -> Any:
        branches = [jnp.sin, lambda y: y @ w, lambda y: jnp.sin(y @ w) @ w]
        return jax.lax.switch(index, branches, x)

    for executed in both(choose, W, X, 1):
        assert executed.total == Times(0, 2)
        assert str(executed.total) == "0 to 2"


@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_take_one_multiplication_a_tap(groups: int) -> None:
    images, kernel = np.ones((2, 8, 8, 4), np.float32), np.ones((3, 3, 4 // groups, 8), np.float32)

    def convolve(x: Any, k: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups)

    before, _ = both(convolve, images, kernel)
    assert before.multiplications == 2 * 8 * 8 * 8 * 3 * 3 * (4 // groups)


def test_batches_and_several_dimensions() -> None:
    def product(x: Any, y: Any) -> Any:
        return jnp.einsum("bhqd,bhkd->bhqk", x, y)

    for executed in both(product, np.ones((2, 3, 5, 7), np.float32), np.ones((2, 3, 11, 7), np.float32)):
        assert executed.total == Times(1, 1)
        assert executed.multiplications == 2 * 3 * 5 * 11 * 7


# What GPUs run, written from XLA's sources; there is no GPU to dump it from.
GPU = """HloModule m, is_scheduled=true

%gemm_fusion_dot_computation (a: bf16[64,32], b: bf16[32,16]) -> bf16[64,16] {
  %a = bf16[64,32]{1,0} parameter(0)
  %b = bf16[32,16]{1,0} parameter(1)
  ROOT %dot = bf16[64,16]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (x: f32[64,32], w: f32[32,16], i: f32[2,4,10,10], k: f32[8,4,3,3]) -> f32[64,16] {
  %x = f32[64,32]{1,0} parameter(0)
  %w = f32[32,16]{1,0} parameter(1)
  %i = f32[2,4,10,10]{3,2,1,0} parameter(2)
  %k = f32[8,4,3,3]{3,2,1,0} parameter(3)
  %gemm = (f32[64,16]{1,0}, s8[1024]{0}) custom-call(%x, %w), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  %f = (f32[2,8,8,8]{3,2,1,0}, u8[0]{0}) custom-call(%i, %k), window={size=3x3}, dim_labels=bf01_oi01->bf01, \
custom_call_target="__cudnn$convForward"
  %g = f32[2,8,8,8]{3,2,1,0} get-tuple-element(%f), index=0
  %bi = (f32[2,4,10,10]{3,2,1,0}, u8[0]{0}) custom-call(%g, %k), window={size=3x3}, dim_labels=bf01_oi01->bf01, \
custom_call_target="__cudnn$convBackwardInput"
  %bf = (f32[8,4,3,3]{3,2,1,0}, u8[0]{0}) custom-call(%i, %g), window={size=3x3}, dim_labels=bf01_oi01->bf01, \
custom_call_target="__cudnn$convBackwardFilter"
  %solve = f32[64,16]{1,0} custom-call(%x, %w), custom_call_target="__cublas$triangularSolve"
  ROOT %t = bf16[64,16]{1,0} fusion(%x, %w), kind=kCustom, calls=%gemm_fusion_dot_computation
}
"""


ONEDNN = """HloModule m
ENTRY %e {
  %x = f32[8,4,16]{2,1,0} parameter(0)
  %w = f32[16,32]{1,0} parameter(1)
  %packed = f32[512]{0} custom-call(%w), custom_call_target="__onednn$matmul_reorder"
  %y = f32[8,4,32]{2,1,0} custom-call(%x, %packed), custom_call_target="__onednn$matmul", \
backend_config={"onednn_matmul_config":{"weights_prepacked":true}}
  %s = f32[8,4,32]{2,1,0} custom-call(%y), custom_call_target="__onednn$softmax"
  %k = f32[4,3,3,8]{3,2,1,0} parameter(2)
  %r = f32[4,3,3,8]{3,2,1,0} custom-call(%k), custom_call_target="__cudnn$convReorderFilter", dim_labels=bf01_oi01->bf01
  %a = s8[64,32]{1,0} parameter(3)
  ROOT %f8 = (f32[64,16]{1,0}, s8[32]{0}) custom-call(%a, %a), custom_call_target="__cublas$lt$matmul$f8", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
}
"""


def by_size(executed: Executed) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for product, times in executed.products.items():
        counts[product.multiplications] += times.most
    return dict(counts)


def test_a_call_that_does_not_say_what_it_contracts() -> None:
    """And calls that only reorder weights are no products. By XLA's sources: no such program is made here."""
    executed = executed_products(parse_hlo(ONEDNN.replace("\\\n", "")))
    assert by_size(executed) == {8 * 4 * 32 * 16: 1, 64 * 16 * 32: 1}


KEPT_BRANCH = """HloModule m
%skipped (p: (f32[8,8])) -> f32[8,8] {
  %p = (f32[8,8]{1,0}) parameter(0)
  %zero = f32[] constant(0)
  ROOT %z = f32[8,8]{1,0} broadcast(%zero), dimensions={}
}
%taken (q: (f32[8,8])) -> f32[8,8] {
  %q = (f32[8,8]{1,0}) parameter(0)
  %x = f32[8,8]{1,0} get-tuple-element(%q), index=0
  ROOT %d = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%index (r: f32[8,8]) -> s32[] {
  %r = f32[8,8]{1,0} parameter(0)
  %first = f32[1,1]{1,0} slice(%r), slice={[0:1], [0:1]}
  %bits = s32[1,1]{1,0} bitcast-convert(%first)
  %one = s32[1,1]{1,0} constant({ /*i0=0*/ {ODD} })
  %some = s32[1,1]{1,0} or(%bits, %one)
  ROOT %scalar = s32[] bitcast(%some)
}
ENTRY %e {
  %x = f32[8,8]{1,0} parameter(0)
  %i = s32[] fusion(%x), kind=kLoop, calls=%index
  %t = (f32[8,8]{1,0}) tuple(%x)
  ROOT %c = f32[8,8]{1,0} conditional(%i, %t, %t), branch_computations={%skipped, %taken}
}
"""


@pytest.mark.parametrize(("number", "found"), [("1", "1"), ("-3", "1"), ("2", "0 to 1")])
def test_of_an_odd_index_the_second_branch_is_taken(number: str, found: str) -> None:
    executed = executed_products(parse_hlo(KEPT_BRANCH.replace("ODD", number)))
    assert str(executed.total) == found


def test_libraries_of_gpus() -> None:
    executed = executed_products(parse_hlo(GPU))
    convolution, product = 2 * 8 * 8 * 8 * 4 * 9, 64 * 32 * 16
    assert by_size(executed) == {product: 2, convolution: 3}
    assert executed.unread == 0


def test_a_computation_that_calls_itself_is_noted() -> None:
    text = "HloModule m\nENTRY %e {\n  %p = f32[2]{0} parameter(0)\n  ROOT %c = f32[2]{0} call(%p), to_apply=%e\n}\n"
    assert executed_products(parse_hlo(text)).unread == 1


def test_work_is_linear_in_the_text() -> None:
    def work(count: int) -> int:
        dot = "= f32[8,8]{1,0} dot(%dx, %dx), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        rows = "\n".join(f"  %d{index} {dot}" for index in range(count))
        text = f"HloModule m\nENTRY %e {{\n  %dx = f32[8,8]{{1,0}} parameter(0)\n{rows}\n}}\n"
        assert executed_products(parse_hlo(text)).total.most == count
        return lines_run(lambda: executed_products(parse_hlo(text)))

    assert work(2_000) < 2.5 * work(1_000)
