"""The derivatives of convolutions and windowed ops, which have geometries that no model writes, as XLA runs them."""

from __future__ import annotations

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Call
from rematc.ir.values import Array, Value
from rematc.lowering.module import stablehlo_text
from rematc.lowering.target import Target
from rematc.passes.jvp import jvp
from rematc.passes.transpose import transpose
from tests.support.op_samples import convolution, window
from tests.support.samples import Sample, Tolerance, assert_close, epsilon, graph_of, magnitude, type_of
from tests.support.xla import run_stablehlo


def cotangents(sample: Sample) -> tuple[Graph, list[Array]]:
    """The graph of the cotangents of the row's differentiable operands, and its arguments."""
    types = sample.types
    differentiated = jvp(graph_of(sample.op, types), [i in sample.differentiable for i in range(len(types))])
    graph, count = differentiated.graph, len(differentiated.has_tangent)
    linear = Graph("linear", graph.params, graph.equations, graph.results[count:])
    is_linear = [False] * len(types) + [True] * len(sample.differentiable)
    adjoint = transpose(linear, is_linear).graph
    random = np.random.default_rng(3)
    cts = [random.standard_normal(t.shape).astype(t.dtype.numpy) for t in adjoint.param_types[len(types) :]]
    return adjoint, [*sample.arrays(), *cts]


def test_xla_runs_convolutions_inside_of_functions_as_the_reference_does() -> None:
    """There their text has another order of dimensions on the CPU."""
    b = Builder("inside")
    calls = [Call(graph_of(sample.op, sample.types)) for sample in convolution.SAMPLES]
    arguments = [array for sample in convolution.SAMPLES for array in sample.arrays()]
    params = iter([b.parameter(type_of(array)) for array in arguments])
    results = [b.emit1(call, *[next(params) for _ in call.body.params]) for call in calls]
    graph = b.build(*results)
    text = stablehlo_text(graph)
    assert " dims = [" in text and " dims = [" not in stablehlo_text(graph, Target.of("cuda"))
    for got, wanted in zip(run_stablehlo(text, arguments), evaluate(graph, arguments), strict=True):
        _assert_same_sums(got, wanted)


@pytest.mark.parametrize("samples", [convolution.SAMPLES, window.SAMPLES], ids=["convolution", "window"])
def test_xla_runs_the_cotangents_as_the_reference_does(samples: tuple[Sample, ...]) -> None:
    b = Builder("cotangents")
    graphs: list[tuple[Graph, list[Array]]] = []
    arguments: list[Array] = []
    results: list[Value] = []
    for sample in samples:
        if sample.differentiable:
            graph, given = cotangents(sample)
            results.extend(b.inline(graph, [b.parameter(type_of(array)) for array in given]))
            graphs.append((graph, given))
            arguments.extend(given)
    actual = iter(run_stablehlo(stablehlo_text(b.build(*results)), arguments))
    for graph, given in graphs:
        for wanted in evaluate(graph, given):
            _assert_same_sums(next(actual), wanted)


def _assert_same_sums(actual: Array, wanted: Array) -> None:
    unit = epsilon(type_of(wanted).dtype)
    tolerance = Tolerance(32 * unit, 32 * unit * magnitude(wanted), "XLA sums in another order")
    assert_close(actual, wanted, tolerance)
