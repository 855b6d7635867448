"""What lies in a TPU's vector memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rematc
from rematc.passes.planning.device import CPU, H100, V5E
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.simulated_timeline import simulated, simulated_timeline
from rematc.passes.planning.vector_memory import in_vector_memory

LIVES = st.tuples(st.integers(0, 20), st.integers(-1, 20), st.integers(1, 50))


def test_what_lives_shortest_lies_there() -> None:
    assert in_vector_memory([0, 3, 6], [9, 4, 7], [64, 64, 64], 112, [0, 1, 2]) == {1, 2}
    assert in_vector_memory([0, 3, 6], [9, 4, 7], [64, 64, 64], 128, [0, 1, 2]) == {0, 1, 2}
    assert in_vector_memory([0, 3, 6], [9, 4, 7], [64, 64, 64], 128, [0]) == {0}
    assert not in_vector_memory([0, 3, 6], [9, 4, 7], [64, 64, 64], 0, [0, 1, 2])


@given(st.lists(LIVES, max_size=12), st.integers(0, 120))
def test_there_is_never_more_than_there_is_room_for(lives: list[tuple[int, int, int]], capacity: int) -> None:
    begins, ends, sizes = [[one[place] for one in lives] for place in range(3)]
    values = [value for value, (begin, end, _) in enumerate(lives) if end >= begin]
    found = in_vector_memory(begins, ends, sizes, capacity, values)
    taken = [sum(sizes[v] for v in found if begins[v] <= node <= ends[v]) for node in range(21)]
    assert max(taken) <= capacity and found <= set(values)
    for value in set(values) - found:  # nothing is left out for which there is room
        assert max(taken[begins[value] : ends[value] + 1]) + sizes[value] > capacity


@pytest.mark.parametrize("layers", [2, 6])
def test_what_a_tpu_takes_is_less_by_no_more_than_that(layers: int) -> None:
    def loss(w: np.ndarray, x: np.ndarray) -> np.ndarray:
        for _ in range(layers):
            x = np.tanh(x @ w)
        return np.sum(x)

    w, x = np.ones((1024, 1024), np.float32), np.ones((16384, 1024), np.float32)
    graph = rematc.lower(rematc.value_and_grad(loss), w, x).graph
    with_it, without = [simulated(graph, Machine(device)).peak for device in (V5E, replace(V5E, vector_memory=0))]
    assert without - V5E.vector_memory <= with_it < without
    timeline = simulated_timeline(graph, Machine(V5E), is_differentiated=True)
    assert timeline.peak == with_it, "reports say the same"
    assert not CPU.vector_memory and not H100.vector_memory
