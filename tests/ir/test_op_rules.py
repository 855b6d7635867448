"""Every rule of every op, on sample operands: the laws that make an op right.

Rows stand in tests/support/op_samples/<family>.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.errors import MissingRuleError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.collective import Collective
from rematc.ir.ops.devices import DeviceCollective, DeviceVary
from rematc.ir.ops.mapped import Border
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.registry import OPS
from rematc.ir.types import F64
from rematc.ir.values import Array
from rematc.ir.verifier import verify
from rematc.lowering.writer import RULES as WRITTEN
from rematc.passes.jvp import Jvp, jvp
from rematc.passes.legalize.rules import RULES as EXPANDED
from rematc.passes.transpose import Transposed, transpose
from rematc.passes.vmap import vmap
from tests.support.batched import jax_results, random_like, tangents_of, xla_results
from tests.support.samples import (
    Sample,
    Tolerance,
    assert_close,
    epsilon,
    families,
    graph_of,
    in_double,
    is_double,
    magnitude,
    rows,
    tolerance_of,
    type_of,
)

ROWS = rows()


def sample_of(key: str) -> Sample:
    family, index = ROWS[key]
    return families()[family][index]


DIFFERENTIABLE = [key for key in ROWS if sample_of(key).differentiable]
SMOOTH = [key for key in DIFFERENTIABLE if sample_of(key).step is not None]
WITH_JAX = [key for key in ROWS if sample_of(key).jax is not None]

#: Ops whose operands no row can make, and where they are tested.
WITHOUT_ROWS = {
    "axis_gather": "has a meaning inside vmap alone: tests/passes",
    "axis_index": "has a meaning inside vmap alone: tests/passes",
    "axis_max": "has a meaning inside vmap alone: tests/passes",
    "axis_min": "has a meaning inside vmap alone: tests/passes",
    "axis_sum": "has a meaning inside vmap alone: tests/passes",
    "call": "owns a graph: tests/passes",
    "checkpoint": "owns a graph: tests/passes",
    "case": "owns graphs: tests/compiler/api/control_flow/test_branches.py",
    "custom_jvp": "owns graphs: tests/compiler/api/transforms/test_custom_derivatives.py",
    "custom_linear": "has a transpose alone: tests/compiler/api/transforms/test_custom_derivatives.py",
    "custom_vjp": "owns graphs: tests/compiler/api/transforms/test_custom_derivatives.py",
    "device_exchange": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "device_extremum": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "device_gather": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "device_map": "has a meaning on devices alone: tests/compiler/test_device_maps.py",
    "device_permute": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "device_scatter": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "device_sum": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "device_vary": "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    "full_to_shard": "has a value on devices alone: tests/passes/test_manual_computations.py",
    "manual_computation": "owns a graph, of one device: tests/passes/test_manual_computations.py",
    "scan": "owns a graph: tests/ir/test_loops.py, tests/compiler/api/control_flow/test_scan.py",
    "shard_to_full": "has a value on devices alone: tests/passes/test_manual_computations.py",
    "while": "owns graphs: tests/compiler/api/control_flow/test_branches.py",
    "to_memory": "its operand or result lies in the host's memory: tests/passes",
}

#: Ops that no jvp applies to tangents, but users do in rules of their own:
#: tests/compiler/api/transforms/test_custom_derivatives.py.
LINEAR_IN_RULES_OF_USERS = {"linear_solve", "name"}


def jvp_of(sample: Sample, arrays: Sequence[Array]) -> Jvp:
    graph = graph_of(sample.op, [type_of(array) for array in arrays])
    return jvp(graph, [index in sample.differentiable for index in range(len(arrays))])


def linear_graph(differentiated: Jvp) -> Graph:
    """The tangents of the results alone, as a function of primals and tangents."""
    graph, count = differentiated.graph, len(differentiated.has_tangent)
    return Graph(graph.name, graph.params, graph.equations, graph.results[count:])


def transposed(sample: Sample, arrays: Sequence[Array]) -> Transposed:
    is_linear = [False] * len(arrays) + [True] * len(sample.differentiable)
    return transpose(linear_graph(jvp_of(sample, arrays)), is_linear)


def pushed_forward(
    sample: Sample, arrays: list[Array], tangents: list[Array]
) -> tuple[list[Array], list[Array | None]]:
    """Results and their tangents, by the op's jvp rule."""
    differentiated = jvp_of(sample, arrays)
    values = evaluate(differentiated.graph, [*arrays, *tangents])
    count = len(differentiated.has_tangent)
    outgoing = iter(values[count:])
    return values[:count], [next(outgoing) if is_set else None for is_set in differentiated.has_tangent]


@pytest.mark.parametrize("key", ROWS)
def test_infer_agrees_with_reference(key: str) -> None:
    sample = sample_of(key)
    results = sample.op.reference(sample.arrays())
    assert tuple(type_of(result) for result in results) == sample.op.infer(sample.types)


@pytest.mark.parametrize("key", ROWS)
def test_reference_leaves_its_operands_alone(key: str) -> None:
    sample = sample_of(key)
    given = sample.arrays()
    for array in given:
        array.flags.writeable = False
    sample.op.reference(given)


@pytest.mark.parametrize("key", ROWS)
def test_stablehlo_agrees_with_reference(key: str) -> None:
    sample, (family, index) = sample_of(key), ROWS[key]
    expected = sample.op.reference(sample.arrays())
    for actual, wanted in zip(xla_results(family)[index], expected, strict=True):
        assert_close(actual, wanted, tolerance_of(sample, wanted), sample.signed_zeros)


@pytest.mark.parametrize("key", WITH_JAX)
def test_values_and_tangents_agree_with_jax(key: str) -> None:
    sample, (family, index) = sample_of(key), ROWS[key]
    expected = jax_results(family)[index]
    assert expected is not None
    arrays = sample.arrays()
    results, tangents = pushed_forward(sample, arrays, tangents_of(sample, arrays))
    for result, value in zip(results, expected[0], strict=True):
        assert_close(result, np.asarray(value), tolerance_of(sample, result))
    for result, tangent, wanted in zip(results, tangents, expected[1], strict=True):
        if wanted is None:
            assert tangent is None
            continue
        outgoing = np.zeros_like(result) if tangent is None else tangent
        assert_close(outgoing, np.asarray(wanted), loosened(tolerance_of(sample, outgoing)))


def loosened(tolerance: Tolerance) -> Tolerance:
    return Tolerance(4 * tolerance.relative, 4 * tolerance.absolute, "a derivative takes several roundings")


@pytest.mark.parametrize("key", SMOOTH)
def test_jvp_is_the_limit_of_differences(key: str) -> None:
    """(f(x + h t) - f(x - h t)) / 2h in double precision, whose error is h^2 f''' / 6 + eps f / h."""
    sample = sample_of(key)
    assert sample.step is not None
    arrays = [in_double(array) for array in sample.arrays()]
    tangents = tangents_of(sample, arrays)
    ahead, behind = (moved(sample, arrays, tangents, distance) for distance in (sample.step, -sample.step))
    results, outgoing = pushed_forward(sample, arrays, tangents)
    for result, tangent, later, earlier in zip(results, outgoing, ahead, behind, strict=True):
        dtype = type_of(result).dtype
        if not dtype.is_inexact:
            assert tangent is None
            continue
        difference = (in_double(later) - in_double(earlier)) / (2 * sample.step)
        actual = np.zeros_like(difference) if tangent is None else in_double(tangent)
        error = 1e3 * (epsilon(dtype) / sample.step + sample.step**2) * max(1, magnitude(result), magnitude(actual))
        np.testing.assert_allclose(actual, difference, rtol=0, atol=error)


def moved(sample: Sample, arrays: list[Array], tangents: list[Array], distance: float) -> tuple[Array, ...]:
    """The op's results at the operands plus a multiple of the tangents."""
    operands = list(arrays)
    for index, tangent in zip(sample.differentiable, tangents, strict=True):
        operands[index] = (in_double(operands[index]) + distance * in_double(tangent)).astype(operands[index].dtype)
    return sample.op.reference(operands)


@pytest.mark.parametrize("key", [key for key in SMOOTH if not is_double(sample_of(key))])
def test_jvp_in_low_precision_agrees_with_double(key: str) -> None:
    sample = sample_of(key)
    arrays = sample.arrays()
    tangents = tangents_of(sample, arrays)
    _, outgoing = pushed_forward(sample, arrays, tangents)
    _, expected = pushed_forward(sample, [in_double(a) for a in arrays], [in_double(t) for t in tangents])
    for actual, wanted in zip(outgoing, expected, strict=True):
        assert (actual is None) == (wanted is None)
        if actual is not None and wanted is not None:
            rounded = wanted.astype(actual.dtype)
            assert_close(actual, rounded, loosened(tolerance_of(sample, rounded)))


@pytest.mark.parametrize("key", DIFFERENTIABLE)
def test_rules_emit_graphs_that_obey_the_laws(key: str) -> None:
    """In the row's own precision: a tangent has its result's type, a cotangent its operand's."""
    sample = sample_of(key)
    arrays = sample.arrays()
    differentiated, adjoint = jvp_of(sample, arrays), transposed(sample, arrays)
    verify(differentiated.graph)
    verify(adjoint.graph)
    results = differentiated.graph.result_types[: len(differentiated.has_tangent)]
    tangents = differentiated.graph.result_types[len(differentiated.has_tangent) :]
    assert tangents == tuple(t for t, is_set in zip(results, differentiated.has_tangent, strict=True) if is_set)
    operands = [type_of(arrays[index]) for index in sample.differentiable]
    assert adjoint.graph.result_types == tuple(t for t, is_set in zip(operands, adjoint.has_ct, strict=True) if is_set)


@pytest.mark.parametrize("key", DIFFERENTIABLE)
def test_transpose_is_adjoint(key: str) -> None:
    """<J v, u> = <v, J' u>, with the real part of the bilinear product for complex numbers.

    A map that conjugates, or goes between real and complex numbers, is linear over the reals alone.
    """
    sample = sample_of(key)
    arrays = [in_double(array) for array in sample.arrays()]
    tangents = tangents_of(sample, arrays)
    outgoing = [tangent for tangent in pushed_forward(sample, arrays, tangents)[1] if tangent is not None]
    cts = [random_like(tangent, seed=100 + index) for index, tangent in enumerate(outgoing)]
    adjoint = transposed(sample, arrays)
    pulled_back = iter(evaluate(adjoint.graph, [*arrays, *cts]))
    forwards = sum((product(v, u) for v, u in zip(outgoing, cts, strict=True)), 0j)
    present = [tangent for tangent, is_set in zip(tangents, adjoint.has_ct, strict=True) if is_set]
    backwards = sum((product(v, next(pulled_back)) for v in present), 0j)
    unit = max([epsilon(type_of(array).dtype) for array in outgoing], default=epsilon(F64))
    terms = sum(product(np.abs(in_double(v)), np.abs(in_double(u))) for v, u in zip(outgoing, cts, strict=True))
    error = (64 * unit + 4 * sample.tangent_rounding) * abs(terms)
    np.testing.assert_allclose(backwards.real, forwards.real, rtol=0, atol=error)


def product(x: Array, y: Array) -> complex:
    return complex(np.sum(in_double(x) * in_double(y)))


@pytest.mark.parametrize("key", DIFFERENTIABLE)
def test_derivatives_are_differentiable(key: str) -> None:
    """What rules emit has rules in turn, so derivatives of any order exist."""
    sample = sample_of(key)
    first = jvp_of(sample, sample.arrays()).graph
    count = len(sample.types)
    varies = [index in sample.differentiable or index >= count for index in range(len(first.params))]
    second = jvp(first, varies)
    results = second.graph.results[len(second.has_tangent) :]
    outermost = Graph("second", second.graph.params, second.graph.equations, results)
    is_linear = [index >= len(first.params) for index in range(len(outermost.params))]
    verify(transpose(outermost, is_linear).graph)


@pytest.mark.parametrize("key", [key for key in ROWS if type(sample_of(key).op).vmap is not Op.vmap])
def test_vmap_is_a_loop(key: str) -> None:
    """The op on a batch, in which each operand is batched or not, against the op on each element."""
    sample = sample_of(key)
    elements = [sample.arrays(), [make(np.random.default_rng(18)) for make in sample.operands], sample.arrays()]
    for is_batched in batchings(len(sample.operands)):
        given = [
            np.stack(arrays) if is_set else arrays[0]
            for arrays, is_set in zip(zip(*elements, strict=True), is_batched, strict=True)
        ]
        batched = vmap(graph_of(sample.op, sample.types), is_batched, len(elements))
        verify(batched.graph)
        for index, element in enumerate(elements):
            operands = [
                own if is_set else elements[0][i]
                for i, (own, is_set) in enumerate(zip(element, is_batched, strict=True))
            ]
            expected = sample.op.reference(operands)
            found = evaluate(batched.graph, given)
            for result, wanted, has_batch in zip(found, expected, batched.is_batched, strict=True):
                assert_close(result[index] if has_batch else result, wanted, tolerance_of(sample, wanted))


def batchings(count: int) -> list[tuple[bool, ...]]:
    """Ways to batch so many operands: all ways of up to three, of more those with one or all but one."""
    if count <= 3:
        return [way for way in itertools.product((True, False), repeat=count) if any(way)]
    one = [tuple(index == chosen for index in range(count)) for chosen in range(count)]
    return [(True,) * count, *one, *[tuple(not is_set for is_set in way) for way in one]]


@pytest.mark.parametrize("key", ROWS)
def test_text_reads_back(key: str) -> None:
    sample = sample_of(key)
    graph = graph_of(sample.op, sample.types)
    assert parse_graph(print_graph(graph)) == graph


# -- completeness ------------------------------------------------------------------------------------------------------


def ops() -> list[str]:
    """The registered ops of the package (tests may have registered their own)."""
    return sorted(name for name, op in OPS.items() if op.__module__.startswith("rematc."))


def sampled() -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for samples in families().values():
        for sample in samples:
            found.setdefault(sample.op.name, []).append(sample)
    return found


def linear_ops() -> set[str]:
    """The ops through which the transposition of some row goes."""
    found = set()
    for key in DIFFERENTIABLE:
        sample = sample_of(key)
        graph = linear_graph(jvp_of(sample, sample.arrays()))
        linear = set(graph.params[len(sample.types) :])
        for eqn in graph.equations:
            if not linear.isdisjoint(eqn.operands):
                linear.update(eqn.results)
                found.add(eqn.op.name)
    return found


@pytest.mark.each_case
def test_every_op_has_rows() -> None:
    assert sorted(set(ops()) - set(sampled())) == sorted(WITHOUT_ROWS)


@pytest.mark.each_case
def test_every_op_is_lowered() -> None:
    # Borders become the manual_computation between them before anything is written.
    gone = (Border, Collective, DeviceCollective, DeviceVary)
    lowered = [name for name in ops() if not issubclass(OPS[name], gone)]
    assert [name for name in lowered if OPS[name] not in WRITTEN and OPS[name] not in EXPANDED] == []


@pytest.mark.each_case
def test_every_op_is_differentiated_or_says_why_not() -> None:
    differentiated = {sample_of(key).op.name for key in DIFFERENTIABLE}
    without = [name for name in ops() if name not in differentiated and name not in WITHOUT_ROWS]
    assert [name for name in without if not OPS[name].no_jvp] == []
    assert [name for name in differentiated if OPS[name].no_jvp] == []


@pytest.mark.each_case
def test_every_op_is_transposed_or_says_why_not() -> None:
    ruled = {name for name in ops() if OPS[name].transpose is not Op.transpose}
    assert [name for name in ops() if name not in ruled and not OPS[name].no_transpose] == []
    assert sorted(ruled - linear_ops() - set(WITHOUT_ROWS) - LINEAR_IN_RULES_OF_USERS) == []


@pytest.mark.each_case
def test_every_op_is_batched_or_says_why_not() -> None:
    ruled = {name for name in ops() if OPS[name].vmap is not Op.vmap}
    assert [name for name in ops() if name not in ruled and not OPS[name].no_vmap] == []


@pytest.mark.parametrize("name", [name for name in sorted(sampled()) if OPS[name].no_jvp])
def test_an_op_without_jvp_gives_its_reason(name: str) -> None:
    context: Any = Builder()  # no transformation of graphs is asked for
    with pytest.raises(MissingRuleError, match=f"jvp of '{name}' "):
        sampled()[name][0].op.jvp(context, (), (), ())


@pytest.mark.parametrize("rule", ["jvp", "transpose"])
def test_an_op_without_a_rule_or_reason_says_where_to_write_it(rule: str) -> None:
    class Unruled(Op):
        __module__ = "rematc.ir.ops.shape"
        name = "unruled"

    context: Any = Builder()
    taken: dict[str, tuple[object, ...]] = {"jvp": ((), (), ()), "transpose": ((), ())}
    with pytest.raises(MissingRuleError, match=rf"{rule} of 'unruled' needs Unruled.{rule} \(ir/ops/shape.py\)"):
        getattr(Unruled(), rule)(context, *taken[rule])
