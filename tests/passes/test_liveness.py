"""The peak of what lives at once."""

from __future__ import annotations

import pytest

from rematc.compiler.api.text import parse
from rematc.lowering.xla_cpu.prediction import allocation
from rematc.passes.liveness import Allocation, LiveRange, MemoryModel


@pytest.mark.parametrize(
    ("ranges", "inside", "peak"),
    [
        ([], [0], 0),
        ([LiveRange(4, 0, 1), LiveRange(4, 2, 3)], [0] * 4, 4),
        ([LiveRange(4, 0, 2), LiveRange(4, 2, 3)], [0] * 4, 8),
        ([LiveRange(4, 0, 0), LiveRange(1, 1, 1)], [0, 3], 4),
        ([LiveRange(4, 1, 0)], [0, 0], 0),
    ],
    ids=["nothing", "one after the other", "both in a step", "inside a step", "in another's place, and not read"],
)
def test_the_peak_is_the_most_that_lives_at_once(ranges: list[LiveRange], inside: list[int], peak: int) -> None:
    assert Allocation(ranges, inside).peak() == peak


def test_a_backend_is_a_memory_model() -> None:
    model: MemoryModel = allocation
    matrix = "f32[128,128]"
    products = [
        f"%{i}: {matrix} = dot_general %{'x' if i == 0 else i - 1}, %x {{contract=[[1],[0]], batch=[[],[]]}}"
        for i in range(4)
    ]
    found = model(parse(f"graph @f(%x: {matrix}) -> ({matrix}) {{ {' '.join(products)} return %3 }}"))
    assert found.peak() == 2 * 128 * 128 * 4
    assert all(one.begin <= one.end < len(found.inside) for one in found.ranges)
