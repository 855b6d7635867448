"""Graphs of derivatives: what laws of differentiation compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.arithmetic import Clamp
from rematc.ir.ops.conversion import BitcastConvert, ReducePrecision
from rematc.ir.ops.spectral import Eigh
from rematc.ir.ops.structural import Name, StopGradient
from rematc.ir.ops.triangular import Cholesky
from rematc.ir.policy import Policy
from rematc.ir.types import C128, F64
from rematc.ir.values import Array, Value
from rematc.passes.linearize import under_policy, vjp
from rematc.passes.regions import RegionRewriter
from tests.support.fuzzing.noise import flat, is_inexact


def run(graph: Graph, arguments: Sequence[Array]) -> list[Array]:
    """The results, by the reference."""
    with np.errstate(all="ignore"):
        return evaluate(graph, arguments)


def is_in_double(graph: Graph) -> bool:
    """Whether all inexact values are in double precision."""
    values = [*graph.params, *(value for eqn in graph.equations for value in eqn.results)]
    inner = all(is_in_double(region) for eqn in graph.equations for region in eqn.op.regions())
    return inner and all(not v.type.dtype.is_inexact or v.type.dtype in (F64, C128) for v in values)


def has_complex(graph: Graph) -> bool:
    """Whether a parameter or result is complex."""
    return any(value.type.dtype.is_complex for value in (*graph.params, *graph.results))


def is_without_derivative(error: CompileError) -> bool:
    """Whether an error says that there cannot be a derivative: of some ops, and backwards through loops without end."""
    return "does not exist" in str(error) or "the number of steps of a while_loop" in str(error)


def wrt(graph: Graph) -> list[bool]:
    """Which parameters can be differentiated."""
    return [value.type.dtype.is_inexact for value in graph.params]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of <ct, results> as a graph.

    Attributes:
        graph: parameters: those of the function, then a cotangent for each result that has one; results: a cotangent
            for each inexact parameter that has one.
        of: the results that have a cotangent.
        has_ct: for each inexact parameter whether it has one.
        primals: how many parameters the function has.
    """

    graph: Graph
    of: tuple[int, ...]
    has_ct: tuple[bool, ...]
    primals: int


def gradient(
    graph: Graph, policy: Policy | None = None, with_values: bool = False, varies: Sequence[bool] | None = None
) -> Gradient | None:
    """The gradient, under a policy on the whole graph where there is one; None where a rule does not exist.

    `with_values` puts the function's own results first; `varies` says with respect to which parameters, if not all.
    """
    primal = graph if policy is None else under_policy(graph, policy)
    try:
        pulled = vjp(primal, wrt(graph) if varies is None else varies)
    except CompileError as error:
        if not is_without_derivative(error):
            raise
        return None
    of = tuple(index for index, is_set in enumerate(pulled.has_tangent) if is_set)
    b = Builder("gradient")
    params = [b.parameter(value.type, value.name) for value in graph.params]
    cts = [b.parameter(graph.results[index].type, "ct") for index in of]
    forward = b.inline(pulled.forward, params)
    count = len(graph.results)
    backward = b.inline(pulled.backward, [*forward[count:], *cts])
    values = forward[:count] if with_values else ()
    return Gradient(b.build(*values, *backward), of, pulled.has_ct, len(params))


def numbers_like(arrays: Sequence[Array], seed: int) -> list[Array]:
    """A random array around 0 for each inexact one."""
    random = np.random.default_rng(1000 + seed)
    found: list[Array] = []
    for array in arrays:
        if is_inexact(array):
            drawn = random.normal(size=(2, *array.shape))
            found.append(
                np.asarray(drawn[0] + 1j * drawn[1] if array.dtype.kind == "c" else drawn[0]).astype(array.dtype)
            )
    return found


def cotangents(graph: Graph, of: Sequence[int], seed: int) -> list[Array]:
    """Cotangents of the results `of`: the same for a result, whatever others there are."""
    found = []
    for index in of:
        type = graph.results[index].type
        found += numbers_like([np.zeros(type.shape, type.dtype.numpy)], 17 * index + seed)
    return found


def has_no_difference(graph: Graph) -> bool:
    """Whether ops have derivatives that differences of their results do not show.

    Roundings; bits; what reads one triangle of a matrix, and takes the Hermitian part of its tangent.
    """
    return any(
        isinstance(eqn.op, (ReducePrecision, BitcastConvert, Cholesky, Eigh))
        or any(map(has_no_difference, eqn.op.regions()))
        for eqn in graph.equations
    )


def meets_a_bound(graph: Graph, arguments: Sequence[Array]) -> bool:
    """Whether a number that is clamped is equal to a bound, as it is where it is clamped by itself: a kink.

    So are bounds that meet. Of what is clamped in loops and branches nobody knows.
    """
    flattened = flat(graph)
    if any(_clamps(region) for eqn in flattened.equations for region in eqn.op.regions()):
        return True
    clamps = [eqn for eqn in flattened.equations if isinstance(eqn.op, Clamp)]
    if not clamps:
        return False
    operands = iter(run(replaced_results(flattened, [value for eqn in clamps for value in eqn.operands]), arguments))
    triples = [(next(operands), next(operands), next(operands)) for _ in clamps]
    return any(np.any((x == low) | (x == high) | np.greater_equal(low, high)) for low, x, high in triples)


def _clamps(graph: Graph) -> bool:
    return any(isinstance(eqn.op, Clamp) or any(map(_clamps, eqn.op.regions())) for eqn in graph.equations)


def unstopped(graph: Graph) -> Graph:
    """The graph with names for stopped gradients, which differences do not see."""
    regions = RegionRewriter(unstopped)
    equations = []
    for eqn in graph.equations:
        op = Name("a") if isinstance(eqn.op, StopGradient) else regions.op(eqn.op)
        equations.append(eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc))
    return Graph(graph.name, graph.params, tuple(equations), graph.results)


def only_inexact_results(graph: Graph) -> Graph:
    """The graph with its inexact results alone."""
    results = tuple([value for value in graph.results if value.type.dtype.is_inexact])
    return Graph(graph.name, graph.params, graph.equations, results)


def replaced_results(graph: Graph, results: Sequence[Value]) -> Graph:
    """The graph with other results."""
    return Graph(graph.name, graph.params, graph.equations, tuple(results))
