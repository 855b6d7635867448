"""Reading HLO: every line of real modules; no text, however damaged, raises."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.lowering.hlo.merging import TooLargeError, repeated_products
from rematc.lowering.hlo.module import Shape, called_computations, source_line
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import executed_products

X = np.ones((8, 16), np.float32)
W = np.ones((16, 16), np.float32)


def model(w: Any, x: Any) -> Any:
    """A product, a loop, a branch, a sort, a convolution, a checkpoint."""

    def step(c: Any, _: Any) -> Any:
        return jnp.tanh(c @ w), None

    x = jax.lax.scan(step, x, None, 5)[0]
    x = jax.lax.cond(x[0, 0] > 0, lambda y: y @ w, jnp.sin, x)
    x = jax.checkpoint(lambda y: jnp.sin(y @ w))(x)
    images = jnp.sort(x).reshape(1, 8, 16, 1)
    kernel = w[:3, :3].reshape(3, 3, 1, 1)
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    ).sum()


@functools.cache
def texts() -> dict[str, str]:
    """The same program before and after XLA's passes, with and without lines."""
    lowered = jax.jit(jax.value_and_grad(model)).lower(W, X)
    optimized = lowered.compile().as_text()
    assert optimized is not None
    return {
        "before": lowered.as_text(dialect="hlo"),
        "before, with lines": lowered.as_text(dialect="hlo", debug_info=True),
        "after": optimized,
    }


@pytest.mark.parametrize("stage", ["before", "before, with lines", "after"])
def test_every_line_of_a_real_module_is_read(stage: str) -> None:
    text = texts()[stage]
    module = parse_hlo(text)
    assert module.unread == 0
    assert module.entry in module.computations
    written = sum(line.startswith("  ") and " = " in line for line in text.splitlines())
    assert sum(len(one.instructions) for one in module.computations.values()) == written
    for computation in module.computations.values():
        assert computation.root is not None
        for instruction in computation.instructions.values():
            assert set(instruction.operands) <= set(computation.instructions)
            for names in called_computations(instruction).values():
                assert set(names) <= set(module.computations)


@pytest.mark.parametrize("stage", ["before, with lines", "after"])
def test_products_come_from_the_users_lines(stage: str) -> None:
    module = parse_hlo(texts()[stage])
    dots = [one for each in module.computations.values() for one in each.instructions.values() if one.opcode == "dot"]
    assert dots
    for dot in dots:
        line = source_line(dot, module)
        assert line is not None
        assert line.file == __file__


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("f32[4,8]{1,0}", Shape("f32", (4, 8))),
        ("pred[]", Shape("pred", ())),
        ("bf16[2,3]{1,0:T(8,128)(2,1)S(1)}", Shape("bf16", (2, 3))),
        ("f32[<=5,2]{1,0}", Shape("f32", (5, 2))),
        ("(f32[4,8]{1,0}, u8[16]{0})", Shape("f32", (4, 8))),
        ("token[]", Shape("token", ())),
        ("()", Shape("", ())),
    ],
)
def test_shapes(text: str, shape: Shape) -> None:
    assert Shape.of(text) == shape


def test_operands_with_shapes_comments_and_strings() -> None:
    module = parse_hlo("""HloModule m

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %c = f32[2]{0} constant({1, 2})
  %t = (f32[2]{0}, /*index=1*/f32[2]{0}) tuple(f32[2]{0} %p, /*index=1*/f32[2]{0} %c)
  ROOT %r = f32[2]{0} custom-call(%p, %c), custom_call_target="a(\\"b, %c)", metadata={op_name="x=\\"calls=%no\\""}
}
""")
    main = module.computations["main"].instructions
    assert main["t"].operands == ("p", "c")
    assert main["c"].operands == ()
    assert main["r"].operands == ("p", "c")
    assert called_computations(main["r"]) == {}
    assert module.unread == 0


def test_unknown_lines_are_counted() -> None:
    module = parse_hlo("HloModule m\n\nsomething new\nENTRY %main {\n  %x := what\n  ROOT %y = f32[] constant(1)\n}\n")
    assert module.unread == 2
    assert module.entry == "main"


@settings(max_examples=40)
@given(data=st.data())
def test_damaged_text_never_raises(data: st.DataObject) -> None:
    lines = texts()[data.draw(st.sampled_from(["before", "after"]))].splitlines()
    for _ in range(data.draw(st.integers(1, 6))):
        index = data.draw(st.integers(0, len(lines) - 1))
        line = lines[index]
        where = data.draw(st.integers(0, len(line)))
        match data.draw(st.sampled_from(["drop", "cut", "insert", "repeat", "swap"])):
            case "drop":
                lines[index] = ""
            case "cut":
                lines[index] = line[:where]
            case "insert":
                lines[index] = line[:where] + data.draw(st.text('(){}[],=%"\\ab1', max_size=4)) + line[where:]
            case "repeat":
                lines.insert(index, line)
            case "swap":
                other = data.draw(st.integers(0, len(lines) - 1))
                lines[index], lines[other] = lines[other], lines[index]
    module = parse_hlo("\n".join(lines))
    executed_products(module)
    with contextlib.suppress(TooLargeError):
        repeated_products(module)


@settings(max_examples=50)
@given(st.text())
def test_any_text_never_raises(text: str) -> None:
    executed_products(parse_hlo(text))
    executed_products(parse_hlo(f"HloModule m\nENTRY e {{\n{text}\n}}"))
