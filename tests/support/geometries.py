"""Convolutions that hypothesis draws."""

from __future__ import annotations

import hypothesis.strategies as st

from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions


@st.composite
def geometries(draw: st.DrawFn) -> tuple[Convolution, tuple[int, ...], tuple[int, ...]]:
    """Any convolution of one or two spatial dimensions, with small sizes."""
    rank = draw(st.integers(1, 2))
    by_feature, by_batch = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]))

    def each(numbers: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(numbers, min_size=rank, max_size=rank)))

    def order() -> tuple[int, ...]:
        return tuple(draw(st.permutations(range(rank + 2))))

    dimensions = ConvolutionDimensions(order(), order(), order())
    op = Convolution(
        each(st.integers(1, 3)),
        tuple(zip(each(st.integers(-2, 4)), each(st.integers(-2, 4)), strict=True)),
        each(st.integers(1, 3)),
        each(st.integers(1, 3)),
        tuple(map(bool, each(st.integers(0, 1)))),
        dimensions,
        by_feature,
        by_batch,
    )
    sizes = [2 * by_batch, 2 * by_feature, *each(st.integers(0, 5))]
    taps = [2 * by_feature * by_batch, 2, *each(st.integers(1, 3))]
    x = tuple(sizes[dimensions.input.index(d)] for d in range(rank + 2))
    kernel = tuple(taps[dimensions.kernel.index(d)] for d in range(rank + 2))
    return op, x, kernel
