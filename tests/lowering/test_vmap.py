"""Batched ops run by XLA: the forms that vmap gives ops are forms that StableHLO and XLA take."""

from __future__ import annotations

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.values import Array, Value
from rematc.lowering.module import stablehlo_text
from rematc.passes.vmap import vmap
from tests.support.samples import assert_close, families, graph_of, tolerance_of
from tests.support.xla import run_stablehlo

SIZE = 2


@pytest.mark.parametrize("family", ["convolution", "dot", "dynamic", "indexing", "window"])
def test_xla_computes_each_element_of_a_batch(family: str) -> None:
    """All rows of a family in one program, all operands batched, and then the last alone."""
    b = Builder(family)
    arguments: list[Array] = []
    expected, tolerances = [], []
    results: list[Value] = []
    for sample in families()[family]:
        count = len(sample.operands)
        for is_batched in {(True,) * count, (*(False,) * (count - 1), True)}:
            batched = vmap(graph_of(sample.op, sample.types), is_batched, SIZE)
            elements = [sample.arrays(), [make(np.random.default_rng(18)) for make in sample.operands]]
            mixed = [
                [own if is_set else first for own, first, is_set in zip(one, elements[0], is_batched, strict=True)]
                for one in elements
            ]
            results.extend(b.inline(batched.graph, [b.parameter(type) for type in batched.graph.param_types]))
            arguments.extend(
                np.stack([one[i] for one in mixed]) if is_set else mixed[0][i] for i, is_set in enumerate(is_batched)
            )
            for parts in zip(*[sample.op.reference(one) for one in mixed], strict=True):
                expected.append(np.stack(parts))
                tolerances.append(tolerance_of(sample, expected[-1]))
    found = run_stablehlo(stablehlo_text(b.build(*results)), arguments)
    for actual, wanted, tolerance in zip(found, expected, tolerances, strict=True):
        assert_close(actual, wanted, tolerance)
