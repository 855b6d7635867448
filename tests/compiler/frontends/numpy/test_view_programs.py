"""Random programs of views and writes in place do as they do in NumPy, whatever order its arguments have in memory."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from rematc.ir.errors import CompileError
from tests.support.tracing import run
from tests.support.view_programs import Arrays, program, replay, start

SEEDS, LENGTH = 120, 8


def _outcome(seed: int) -> str:
    """Compare one program; what came of it."""
    steps = program(seed, LENGTH)
    try:
        found = run(lambda *arguments: replay(steps, list(arguments)), *start())
    except CompileError as error:
        assert "not known whether" in error.message, error
        return "refused"
    for arguments in (start(), [np.asfortranarray(x) for x in start()]):
        expected: Arrays = replay(steps, arguments)
        for i, (got, want) in enumerate(zip(found, expected, strict=True)):
            np.testing.assert_array_equal(got, want, err_msg=f"array {i} of seed {seed}")
            assert got.shape == np.shape(want)
    return "equal"


@pytest.mark.parametrize("part", range(4))
def test_views_and_writes(part: int) -> None:
    outcomes = collections.Counter(_outcome(seed) for seed in range(part, SEEDS, 4))
    assert outcomes["equal"] > outcomes["refused"]
