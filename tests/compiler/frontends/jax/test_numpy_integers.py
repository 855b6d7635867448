"""Sizes and dimensions that the user gave as NumPy's integers: in graphs they are Python's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.ir.core import Graph

X = np.ones((4, 6), np.float32)
# JAX takes them, its types do not.
Number: Any = np.int64
ZERO, ONE, TWO = Number(0), Number(1), Number(2)
SINGLE = np.float32

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: jnp.split(x, np.array([1, 3]), axis=1)[1],
    "split by sizes": lambda x: lax.split(x, (ONE, Number(3)), ZERO)[1],
    "slice": lambda x: lax.slice(x, (ONE, ZERO), (TWO, TWO), (ONE, TWO)),
    "pad": lambda x: lax.pad(x, SINGLE(0), ((ONE, ONE, ZERO), (ZERO, TWO, ONE))),
    "pad with negative": lambda x: lax.pad(x, SINGLE(0), ((-ONE, ONE, ZERO), (ZERO, -TWO, ZERO))),
    "concatenate": lambda x: jnp.roll(x, ONE, axis=ZERO),
    "broadcast": lambda x: lax.broadcast_in_dim(x, (TWO, Number(4), Number(6)), (ONE, TWO)),
    "reverse": lambda x: lax.rev(x, (ONE,)),
    "reduce": lambda x: lax.reduce(x, SINGLE(0), lax.add, (ZERO,)),
    "argmax": lambda x: x[lax.argmax(x, ZERO, np.int32)[0]],
    "windows": lambda x: lax.reduce_window(x, -SINGLE(np.inf), lax.max, (TWO, TWO), (ONE, ONE), "VALID"),
    "convolution": lambda x: lax.conv_general_dilated(
        x[None, None], jnp.ones((1, 1, 2, 2)), (ONE, TWO), ((ZERO, ONE), (ZERO, ZERO)), (ONE, ONE), (ONE, ONE)
    ),
    "in a loop": lambda x: lax.scan(lambda c, row: (c, lax.slice(row, (ZERO,), (TWO,))), 0.0, x)[1],
}


def numpy_integers(one: object) -> Iterator[Any]:
    if isinstance(one, np.generic):
        yield one
    elif isinstance(one, (tuple, list)):
        for inner in one:
            yield from numpy_integers(inner)


def numpy_integers_of(graph: Graph) -> Iterator[tuple[str, Any]]:
    for eqn in graph.equations:
        fields: Any = dataclasses.fields(eqn.op) if dataclasses.is_dataclass(eqn.op) else ()
        for found in numpy_integers([getattr(eqn.op, one.name) for one in fields]):
            yield eqn.op.name, found
        for found in numpy_integers([one.type.shape for one in eqn.results]):
            yield eqn.op.name, found
        for inner in eqn.op.regions():
            yield from numpy_integers_of(inner)


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_hold_plain_integers(name: str) -> None:
    def loss(x: Any) -> Any:
        return (PROGRAMS[name](x) * 2.0).sum()

    jax.make_jaxpr(loss)(X)  # JAX takes it
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss)), X)
    assert not list(numpy_integers_of(lowered.traced.graph))
    json.dumps(lowered.predicted_peak())
