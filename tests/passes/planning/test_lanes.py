"""What arrays of convolutions take in tiles of 128 lanes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc
from rematc.ir.core import Graph
from rematc.passes.planning.device import CPU, DEVICES, device_of
from rematc.passes.planning.lanes import padding
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate_passed

IMAGES, KERNEL = np.zeros((4, 32, 32, 3), np.float32), np.zeros((3, 3, 3, 32), np.float32)


def convolved(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def loss(x: jax.Array, kernel: jax.Array) -> jax.Array:
    y = jnp.tanh(convolved(x, kernel))
    grouped = y.reshape(*y.shape[:3], 8, 4)
    centred = (grouped - jnp.mean(grouped, (1, 2, 4), keepdims=True)).reshape(y.shape)
    return jnp.sum(jnp.transpose(jnp.concatenate([centred, centred], -1), (0, 3, 1, 2)) ** 2)


def lowered(images: np.ndarray = IMAGES) -> Graph:
    return rematc.lower(rematc.value_and_grad(rematc.from_jax(loss), 1), images, KERNEL).graph


def test_what_a_convolution_writes_and_what_follows_it_has_features_along_lanes() -> None:
    graph = lowered()
    found = {value.type.shape: times for value, times in padding(graph, 128).items()}
    assert found[4, 32, 32, 32] == 4 and found[4, 32, 32, 8, 4] == 4
    assert found[4, 32, 32, 3] == 32, "images along lanes, which are one more than features"
    assert found.get((4, 32, 32, 64), 2) == 2 and found.get((4, 64, 32, 32), 2) == 2
    assert found[3, 3, 3, 32] == 4, "a kernel's gradient has its largest dimension there"
    assert padding(graph, 1) == {}


def test_as_many_images_as_lanes_fill_them() -> None:
    graph = lowered(np.zeros((128, 8, 8, 3), np.float32))
    assert not [value for value in padding(graph, 128) if value.type.shape[:1] == (128,)]
    graph = lowered(np.zeros((96, 8, 8, 3), np.float32))
    assert {padding(graph, 128)[value] for value in padding(graph, 128) if value.type.shape == (96, 8, 8, 32)} == {
        4 / 3
    }


def test_other_arrays_lie_in_the_dimension_that_fills_lanes_best() -> None:
    def pairs(x: Any) -> Any:
        return np.tanh(x @ x.transpose(0, 2, 1)).sum()

    def times(shape: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        graph = rematc.lower(pairs, np.zeros(shape, np.float32)).graph
        return {value.type.shape: times for value, times in padding(graph, 128).items()}

    assert times((2, 192, 64))[2, 192, 192] == 4 / 3
    assert (128, 192, 192) not in times((128, 192, 64))
    assert not times((2, 256, 64)), "256 fills two, for what is transposed, too"


def test_plans_for_tpus_count_whole_tiles() -> None:
    graph = lowered()
    tpu = translate_passed(graph, Machine(device_of("tpu")))
    cpu = translate_passed(graph, Machine(CPU))
    biggest = [max(each.problem.size.tolist()) for each in (tpu, cpu)]
    assert biggest[0] >= 2 * biggest[1]
    assert {name for name, device in DEVICES.items() if device.lanes > 1} == {"v4", "v5e", "v5p", "v6e"}
