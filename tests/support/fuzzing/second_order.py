"""What holds for second derivatives of every program, in the reference interpreter alone.

Policies decide what is kept and what is computed again, and stopped gradients are constants: neither may depend on how
often a program is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.structural import StopGradient
from rematc.ir.policy import Policy
from rematc.ir.values import Array, Value
from tests.support.fuzzing.derivatives import cotangents, gradient, run, wrt
from tests.support.fuzzing.laws import BrokenLawError, Case, Law, policy_of
from tests.support.fuzzing.noise import Uncertain


def policies_keep_second_gradients(case: Case) -> None:
    """Under any policies, of the program and of its gradient, the second gradient is what it is without.

    Not where cotangents are rounded to few bits: a sum of two is rounded once, or each of them, as it is recomputed.
    """
    if _rounds(case.graph):
        return
    twice = _second_gradient(case.graph, None, None)
    if twice is None:
        return
    arguments = [*case.arguments(), *_cotangents(twice, len(case.graph.params), case.seed)]
    expected = Uncertain(twice, arguments)
    for inner, outer in ((policy_of(case.seed), None), (policy_of(case.seed + 1), policy_of(case.seed + 2))):
        found = _second_gradient(case.graph, inner, outer)
        assert found is not None
        # Regions are differentiated by themselves, and what is added up in one is multiplied where it leaves.
        message = expected.disagreement(run(found, arguments), overflows_alike=True)
        if message:
            raise BrokenLawError(f"the second gradient under policies: {message}")


def _rounds(graph: Graph) -> bool:
    return any(isinstance(eqn.op, ReducePrecision) or any(map(_rounds, eqn.op.regions())) for eqn in graph.equations)


def stopped_gradients_are_constants(case: Case) -> None:
    """The second gradient is that of the program with parameters in place of what is stopped."""
    graph = case.graph
    stopped = [eqn for eqn in graph.equations if isinstance(eqn.op, StopGradient)]
    if not stopped:
        return
    values = run(
        Graph(graph.name, graph.params, graph.equations, tuple(eqn.results[0] for eqn in stopped)), case.arguments()
    )
    equations = tuple([eqn for eqn in graph.equations if not isinstance(eqn.op, StopGradient)])
    cut = Graph(graph.name, (*graph.params, *(eqn.results[0] for eqn in stopped)), equations, graph.results)
    varies = [*wrt(graph), *(False for _ in stopped)]
    sides = [_second_gradient(one, None, None, given) for one, given in ((graph, wrt(graph)), (cut, varies))]
    if sides[0] is None or sides[1] is None:
        return
    cts = _cotangents(sides[0], len(graph.params), case.seed)
    expected = Uncertain(sides[1], [*case.arguments(), *values, *cts])
    message = expected.disagreement(run(sides[0], [*case.arguments(), *cts]))
    if message:
        raise BrokenLawError(f"the second gradient where gradients are stopped: {message}")


def _second_gradient(
    graph: Graph, inner: Policy | None, outer: Policy | None, varies: Sequence[bool] | None = None
) -> Graph | None:
    """The gradient of <v, gradient of <u, results>>; zeros where there is none.

    Parameters: those of the graph, then u and v for each inexact result and varying parameter.
    """
    varies = wrt(graph) if varies is None else varies
    once = _gradient(graph, varies, inner)
    if once is None:
        return None
    return _gradient(once, [*varies, *(False for _ in once.params[len(graph.params) :])], outer)


def _gradient(graph: Graph, varies: Sequence[bool], policy: Policy | None) -> Graph | None:
    """Parameters: those of the graph, then a cotangent for each inexact result; a result for each varying parameter."""
    pulled = gradient(graph, policy, varies=varies)
    if pulled is None:
        return None
    b = Builder("gradient")
    params = [b.parameter(value.type, value.name) for value in graph.params]
    cts: dict[int, Value] = {
        index: b.parameter(value.type, "ct") for index, value in enumerate(graph.results) if value.type.dtype.is_inexact
    }
    given = iter(b.inline(pulled.graph, [*params, *(cts[index] for index in pulled.of)]))
    types = [value.type for value, is_set in zip(graph.params, varies, strict=True) if is_set]
    return b.build(*[next(given) if has else b.zeros(type) for has, type in zip(pulled.has_ct, types, strict=True)])


def _cotangents(graph: Graph, count: int, seed: int) -> list[Array]:
    """For the parameters after the first `count`."""
    types = [value.type for value in graph.params[count:]]
    like = Graph("like", graph.params, (), graph.params[count:])
    assert all(type.dtype.is_inexact for type in types)
    return cotangents(like, range(len(types)), seed)


SECOND: dict[str, Law] = {
    "second-policies": policies_keep_second_gradients,
    "second-stops": stopped_gradients_are_constants,
}
