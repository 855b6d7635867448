"""Every op as a JAX function: what it computes, and how JAX differentiates it.

The rows of a family are one function, which is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from rematc.ir.facts import Effect
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.mapped import Border
from rematc.ir.registry import OPS
from rematc.ir.values import Array
from rematc.lowering.jax_export.evaluating import RULES
from rematc.lowering.jax_export.exporting import jax_function
from rematc.lowering.jax_export.opaque import opaque
from rematc.passes.jvp import jvp
from tests.support.samples import Sample, assert_close, families, graph_of, in_double, is_double, tolerance_of

#: JAX leaves zeros above the diagonal of the factor of a matrix that has none.
DIFFERENT = ("not definite, upper not read",)


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def is_opaque(sample: Sample) -> bool:
    """Whether the op is our own StableHLO in JAX's module, which other tests compile: see test_opaque.py."""
    return RULES[type(sample.op)] is opaque


def chosen(samples: Sequence[Sample]) -> list[Sample]:
    """The first and the last row of each op: the last ones are edges and rarer element types."""
    by_op: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.label not in DIFFERENT and sample.op.effect is Effect.NONE and not is_opaque(sample):
            by_op.setdefault(sample.op.name, []).append(sample)
    return [row for rows in by_op.values() for row in dict.fromkeys((rows[0], rows[-1]))]


def differentiated(samples: Sequence[Sample]) -> list[Sample]:
    """One row in double precision of each op that has derivatives."""
    taken = [one for one in samples if one.differentiable and is_double(one) and not one.tangent_rounding]
    found = {one.op.name: one for one in reversed(taken) if not is_opaque(one)}
    return list(found.values())


FAMILIES = {name: rows for name, rows in families().items() if chosen(rows)}
DIFFERENTIATED = {name: rows for name, samples in FAMILIES.items() if (rows := differentiated(samples))}


def test_every_op_has_a_rule() -> None:
    """But for borders: what is evaluated has regions in their place."""
    assert [name for name, op in OPS.items() if op not in RULES and not issubclass(op, Border)] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_the_reference(family: str) -> None:
    rows = chosen(FAMILIES[family])
    operands = [row.arrays() for row in rows]
    graphs = [graph_of(row.op, row.types) for row in rows]
    found = jax.jit(lambda every: [jax_function(graph)(*one) for graph, one in zip(graphs, every, strict=True)])(
        operands
    )
    for row, arrays, results in zip(rows, operands, found, strict=True):
        for actual, expected in zip(results, row.op.reference(arrays), strict=True):
            assert_close(np.asarray(actual), expected, tolerance_of(row, expected), row.signed_zeros)


@pytest.mark.parametrize("family", DIFFERENTIATED)
def test_jax_differentiates_as_our_rules_do(family: str) -> None:
    """Forwards as the jvp's reference; backwards its adjoint: <J t, u> = <t, J' u>."""
    rows = DIFFERENTIATED[family]
    random = np.random.default_rng(3)
    points = [[row.arrays()[i] for i in row.differentiable] for row in rows]
    tangents = [[_direction(random, array) for array in point] for point in points]

    def function(every: Sequence[Sequence[Any]]) -> list[list[Any]]:
        return [_inexact(row, point) for row, point in zip(rows, every, strict=True)]

    outgoing = jax.jit(lambda every, along: jax.jvp(function, (every,), (along,))[1])(points, tangents)
    cts = jax.tree.map(lambda y: _direction(random, np.asarray(y)), outgoing)
    pulled = jax.jit(lambda every, ct: jax.vjp(function, every)[1](ct)[0])(points, cts)
    for index, row in enumerate(rows):
        for actual, wanted in zip(outgoing[index], _reference(row, tangents[index]), strict=True):
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(actual, wanted, 1e-8, 1e-8 * scale, err_msg=row.id)
        left = _product(outgoing[index], cts[index])
        np.testing.assert_allclose(
            left, _product(tangents[index], pulled[index]), 1e-8, 1e-8 * max(1.0, abs(left)), err_msg=row.id
        )


def _inexact(row: Sample, point: Sequence[Any]) -> list[Any]:
    """The row's results that have derivatives, with other arrays for the operands that have tangents."""
    given: list[Any] = row.arrays()
    for i, array in zip(row.differentiable, point, strict=True):
        given[i] = array
    found = jax_function(graph_of(row.op, row.types))(*given)
    return [y for y in found if jax.numpy.issubdtype(y.dtype, np.inexact)]


def _reference(row: Sample, tangents: Sequence[Array]) -> list[Any]:
    """The tangents of these results, by our jvp and the reference interpreter."""
    graph = graph_of(row.op, row.types)
    made = jvp(graph, [i in row.differentiable for i in range(len(row.types))])
    given = iter(evaluate(made.graph, [*row.arrays(), *tangents])[len(graph.results) :])
    found: list[Any] = []
    for value, is_set in zip(graph.results, made.has_tangent, strict=True):
        if value.type.dtype.is_inexact:
            found.append(next(given) if is_set else np.zeros(value.type.shape, value.type.dtype.numpy))
    return found


def _direction(random: np.random.Generator, like: Array) -> Array:
    values = random.standard_normal(like.shape)
    if np.iscomplexobj(like):
        return np.asarray(values + 1j * random.standard_normal(like.shape), like.dtype)
    return np.asarray(values, like.dtype)


def _product(left: Sequence[Any], right: Sequence[Any]) -> float:
    pairs = [(in_double(np.asarray(x)), in_double(np.asarray(y))) for x, y in zip(left, right, strict=True)]
    return float(sum(np.sum(x * y).real for x, y in pairs))
