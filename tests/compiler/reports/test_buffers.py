"""XLA's buffer assignment, read: sums are those that XLA reports, and no two buffers are at one place at one time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.reports.buffers import Block, Buffer
from rematc.ir.errors import CompileError
from rematc.lowering.hlo.module import Shape
from rematc.lowering.hlo.protobuf import packed
from rematc.lowering.runtime import Executable

X = np.ones((512, 128), np.float32)
WEIGHTS = np.full((4, 2, 128, 128), 1e-3, np.float32)


def layer(weights: Any, x: Any) -> Any:
    return x + np.sin(np.tanh(x @ weights[0]) @ weights[1])


def chain(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = layer(weights, x)
    return np.mean(x * x)


def loop(layers: Any, x: Any) -> Any:
    x, _ = rematc.lax.scan(lambda carry, weights: (layer(weights, carry), None), x, layers)
    return np.mean(x * x)


def compiled(function: Callable[..., Any], policy: str | None, **options: Any) -> Compiled:
    return rematc.compile(rematc.value_and_grad(function, policy=policy), WEIGHTS, X, **options)


def overlap(one: Buffer, other: Buffer) -> bool:
    """Whether two buffers are at one place at one time; the last operand of a step may be written over by it."""
    if one.begin is None or other.begin is None or one.end is None or other.end is None:
        return False
    is_placed = one.offset < other.offset + other.size and other.offset < one.offset + one.size
    return is_placed and one.begin < other.end and other.begin < one.end


@pytest.mark.parametrize("function", [chain, loop])
@pytest.mark.parametrize("policy", [None, "nothing"])
def test_the_sums_are_xlas_and_buffers_keep_apart(function: Callable[..., Any], policy: str | None) -> None:
    one = compiled(function, policy)
    found, memory = one.buffers(), one.memory()
    assert found.size("temporary") == memory.temp_bytes
    assert found.size("argument") == memory.argument_bytes
    assert found.size("result") == memory.output_bytes
    sizes = [block.size for block in found.blocks]
    assert sizes == sorted(sizes, reverse=True)
    for block in found.blocks:
        assert all(0 <= buffer.offset <= block.size - buffer.size for buffer in block.buffers)
        assert [buffer.size for buffer in block.buffers] == sorted([one.size for one in block.buffers], reverse=True)
        assert all(buffer.end is None or buffer.end < found.steps for buffer in block.buffers)
        if block.kind == "temporary":
            assert not any(overlap(*pair) for pair in combinations(block.buffers, 2))


def largest(one: Compiled) -> Block:
    return next(block for block in one.buffers().blocks if block.kind == "temporary")


@pytest.mark.parametrize("function", [chain, loop])
def test_buffers_say_where_they_come_from(function: Callable[..., Any]) -> None:
    big = [buffer for buffer in largest(compiled(function, "nothing")).buffers if buffer.size >= X.nbytes]
    assert {buffer.part.partition("/")[0] for buffer in big} >= {"forward", "recompute", "backward"}
    placed = [buffer for buffer in big if buffer.loc is not None]
    assert placed and {buffer.loc.file for buffer in placed if buffer.loc} == {__file__}
    assert {"layer"} <= {buffer.loc.function for buffer in placed if buffer.loc}
    assert all(buffer.value.startswith("%") for buffer in placed)


def test_parts_of_loops_have_their_own_types() -> None:
    types = {buffer.type for buffer in largest(compiled(loop, None)).buffers if buffer.size >= len(WEIGHTS) * X.nbytes}
    assert types == {"f32[4,512,128]"}, "and not those of the loop's first part"


def test_the_text_begins_with_sums_and_names_arguments() -> None:
    one = compiled(chain, "nothing")
    lines = str(one.buffers()).splitlines()
    assert lines[0].startswith("XLA's buffer assignment of 'chain', over ")
    assert next(line for line in lines if line.startswith("temporary")).split()[1] == "1"
    assert any(line.split()[3:5] == ["layers", "f32[4,2,128,128]"] for line in lines)
    inspection = one.report().inspection
    assert inspection is not None and inspection.stages()["buffers"] == str(one.buffers())


def test_a_loaded_program_has_them_too(tmp_path: Path) -> None:
    one = compiled(chain, "nothing")
    one.save(tmp_path / "step.rematc")
    # Arguments may have other names there.
    assert (
        str(rematc.load(tmp_path / "step.rematc").buffers()).partition("arguments:")[0]
        == str(one.buffers()).partition("arguments:")[0]
    )


def test_where_xla_does_not_say_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = compiled(chain, None)
    monkeypatch.setattr(Executable, "buffer_assignment", lambda self: None)
    with pytest.raises(CompileError, match="XLA does not say where it puts the buffers of 'chain' on 'cpu'"):
        one.buffers()


def test_parts_of_shapes_are_found() -> None:
    text = "(f32[2]{0}, (s32[], /*index=5*/bf16[3,4]{1,0:T(8,128)(2,1)}), pred[])"
    assert [str(Shape.of(Shape.part(text, index))) for index in [(0,), (1, 0), (1, 1), (2,), (7,)]] == [
        "f32[2]",
        "s32[]",
        "bf16[3,4]",
        "pred[]",
        "f32[2]",
    ]


def test_repeated_integers_are_read_packed_or_not() -> None:
    assert packed(b"\x1a\x03\x01\xac\x02\x18\x05", 3) == [1, 300, 5]


def test_on_a_terminal_tables_are_narrow() -> None:
    found = compiled(chain, "nothing").buffers()
    wide, narrow = (
        next(one for one in tables if "temporary" in one.title) for tables in (found.tables(), found.narrow_tables())
    )
    assert narrow.columns == ("bytes", "steps", "part", "value", "type", "from")
    assert set(wide.columns) - set(narrow.columns) == {"offset", "XLA's instruction"} and len(wide.rows) == len(
        narrow.rows
    )
