"""Every op as a JAX function: what it computes, and how JAX differentiates it."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from rematc.compiler.jax_export.evaluating import RULES
from rematc.compiler.jax_export.exporting import jax_function
from rematc.ir.core import OPS, Array
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.collective import Collective
from rematc.ir.ops.custom_vjp import CustomLinear
from rematc.passes.jvp import jvp
from tests.support.samples import Sample, assert_close, families, graph_of, in_double, is_double, tolerance_of

#: JAX leaves zeros above the diagonal where a matrix has no factor, and rounds running products its own way.
DIFFERENT = ("not definite, upper not read",)


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def first_rows() -> dict[str, Sample]:
    """The first two rows of each op: one for each kind of thing it does, mostly."""
    found: dict[str, list[Sample]] = {}
    for samples in families().values():
        for sample in samples:
            found.setdefault(sample.op.name, []).append(sample)
    return {
        f"{name}-{index}": sample
        for name, samples in found.items()
        for index, sample in enumerate([samples[0], samples[-1]][: len(samples)])
        if sample.label not in DIFFERENT
    }


ROWS = first_rows()
DIFFERENTIABLE = {
    key: next((one for one in (sample,) if one.differentiable and is_double(one)), None) for key, sample in ROWS.items()
}
DOUBLES = {key: sample for key, sample in DIFFERENTIABLE.items() if sample is not None}


def test_every_op_has_a_rule() -> None:
    families()
    assert [name for name, op in OPS.items() if op not in RULES] == []


@pytest.mark.parametrize("key", ROWS)
def test_values_are_those_of_the_reference(key: str) -> None:
    sample = ROWS[key]
    if isinstance(sample.op, (Collective, CustomLinear)):
        pytest.skip("has no value of its own")
    arrays = sample.arrays()
    graph = graph_of(sample.op, sample.types)
    given = jax.jit(jax_function(graph))(*arrays)
    for actual, expected in zip(given, sample.op.reference(arrays), strict=True):
        assert_close(np.asarray(actual), expected, tolerance_of(sample, expected), sample.signed_zeros)


@pytest.mark.parametrize("key", DOUBLES)
def test_jax_differentiates_as_our_rules_do(key: str) -> None:
    """Forwards the jvp's reference; backwards its adjoint: <J t, u> = <t, J' u>."""
    sample = DOUBLES[key]
    arrays, wrt = sample.arrays(), sample.differentiable
    random = np.random.default_rng(3)
    graph = graph_of(sample.op, sample.types)
    tangents = [_direction(random, arrays[i]) for i in wrt]

    def function(*moving: Array) -> object:
        given = list(arrays)
        for i, array in zip(wrt, moving, strict=True):
            given[i] = array
        found = jax_function(graph)(*given)
        return [y for y in found if jax.numpy.issubdtype(y.dtype, np.inexact)]

    moving = [arrays[i] for i in wrt]
    _, outgoing = jax.jvp(function, moving, tangents)
    differentiated = jvp(graph, [i in wrt for i in range(len(arrays))])
    expected = iter(evaluate(differentiated.graph, [*arrays, *tangents])[len(graph.results) :])
    inexact = [flag for flag, y in zip(differentiated.has_tangent, graph.results, strict=True) if y.type.dtype.is_inexact]
    for actual, is_set in zip(outgoing, inexact, strict=True):
        wanted = next(expected) if is_set else np.zeros_like(actual)
        np.testing.assert_allclose(actual, wanted, 1e-8, 1e-8 * max(1.0, float(np.abs(wanted).max(initial=0))))
    _, pull = jax.vjp(function, *moving)
    cts = [_direction(random, np.asarray(y)) for y in outgoing]
    left = sum(_product(t, u) for t, u in zip(outgoing, cts, strict=True))
    right = sum(_product(t, u) for t, u in zip(tangents, pull(cts), strict=True))
    np.testing.assert_allclose(left, right, 1e-8, 1e-8 * max(1.0, abs(left)))


def _direction(random: np.random.Generator, like: Array) -> Array:
    values = random.standard_normal(like.shape)
    if np.iscomplexobj(like):
        return np.asarray(values + 1j * random.standard_normal(like.shape), like.dtype)
    return np.asarray(values, like.dtype)


def _product(left: object, right: object) -> float:
    return float(np.sum(in_double(np.asarray(left)) * in_double(np.asarray(right))).real)
