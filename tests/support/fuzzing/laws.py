"""What holds for every program, in the reference interpreter alone: text, passes, derivatives, policies.

A law takes a `Case` and raises `BrokenLawError`, or whatever the compiler raised, where it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.policy import Policy
from rematc.ir.printer import print_graph
from rematc.ir.values import Array
from rematc.ir.verifier import verify
from rematc.passes.jvp import jvp
from rematc.passes.linearize import linearize, under_policy, vjp
from rematc.passes.manager import PASSES, PassManager, parse_pipeline
from rematc.passes.policies import parse_policy
from rematc.passes.vmap import vmap
from tests.support.arrays import arguments_for, same_bits
from tests.support.fuzzing.derivatives import (
    cotangents,
    gradient,
    has_complex,
    has_no_difference,
    is_in_double,
    is_without_derivative,
    meets_a_bound,
    numbers_like,
    only_inexact_results,
    run,
    unstopped,
    wrt,
)
from tests.support.fuzzing.noise import Uncertain, flat, is_inexact, noisy
from tests.support.smooth_graphs import TERMS, by_seed


class BrokenLawError(AssertionError):
    """A law that does not hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program and its arguments.

    Attributes:
        graph: the program.
        seed: of the arguments and of all that is random in a law; every fourth has special values among them.
    """

    graph: Graph
    seed: int = 0

    def arguments(self) -> list[Array]:
        return arguments_for(self.graph, self.seed, special=0.3 if self.seed % 4 == 3 else 0.0)


Law = Callable[[Case], None]


# -- text and passes ---------------------------------------------------------------------------------------------------


def text_reads_back(case: Case) -> None:
    """parse(print(g)) is g, of the program and of its gradient; both obey the verifier."""
    pulled = gradient(case.graph)
    for graph in (case.graph, *([pulled.graph] if pulled else [])):
        verify(graph)
        text = print_graph(graph)
        read = parse(text)
        if read != graph or print_graph(read) != text:
            raise BrokenLawError("what was printed reads back as another graph")


def passes_keep_the_meaning(case: Case) -> None:
    """Every pass, and a random pipeline, leaves all bits as they are, or where it may not, what is beyond doubt."""
    _keeps_meaning(case.graph, case.arguments(), case.seed)


def passes_keep_gradients(case: Case) -> None:
    """Likewise of the program's gradient."""
    pulled = gradient(case.graph, policy_of(case.seed), with_values=True)
    if pulled is not None:
        cts = cotangents(case.graph, pulled.of, case.seed)
        _keeps_meaning(pulled.graph, [*case.arguments(), *cts], case.seed)


def _keeps_meaning(graph: Graph, arguments: list[Array], seed: int) -> None:
    expected = run(graph, arguments)
    random = np.random.default_rng(seed)
    names = sorted(name for name, cls in PASSES.items() if cls.keeps_meaning and cls.__module__.startswith("rematc."))
    drawn = [names[index] for index in random.integers(0, len(names), 5)]
    for pipeline in (*names, ",".join(drawn)):
        outcome = PassManager(parse_pipeline(pipeline)).run(graph).graph
        found = run(outcome, arguments)
        if same_bits(found, expected):
            continue
        keeps_bits = all(PASSES[name].keeps_bits for name in pipeline.split(","))
        if keeps_bits or Uncertain(graph, arguments).disagreement(found):
            raise BrokenLawError(f"the pipeline '{pipeline}' changes the results")


# -- policies ----------------------------------------------------------------------------------------------------------


def policy_of(seed: int) -> Policy:
    """A built-in policy, or a user's."""
    return by_seed(seed) if seed % 2 else parse_policy(TERMS[seed // 2 % len(TERMS)])


def policies_keep_gradients(case: Case) -> None:
    """Under any policy, and in regions in regions, the gradient has the bits that it has without."""
    expected = gradient(case.graph)
    if expected is None:
        return
    arguments, bits = case.arguments(), []
    nested = under_policy(under_policy(case.graph, policy_of(case.seed + 1)), policy_of(case.seed + 2))
    for graph, policy in ((case.graph, None), (case.graph, policy_of(case.seed)), (nested, None)):
        pulled = gradient(graph, policy)
        assert pulled is not None
        given = iter(run(pulled.graph, [*arguments, *cotangents(case.graph, pulled.of, case.seed)]))
        types = [value.type for value in case.graph.params if value.type.dtype.is_inexact]
        bits.append(
            [
                next(given) if is_set else np.zeros(type.shape, type.dtype.numpy)
                for is_set, type in zip(pulled.has_ct, types, strict=True)
            ]
        )
    for found in bits[1:]:
        if not same_bits(found, bits[0]):
            raise BrokenLawError("the gradient under a policy has other bits")


# -- derivatives -------------------------------------------------------------------------------------------------------


def transpose_is_adjoint(case: Case) -> None:
    """<J v, u> = <v, J' u> of jvp and vjp."""
    _adjoint(case.graph, case.arguments(), case.seed)


def second_derivatives_agree(case: Case) -> None:
    """The gradient's jvp and vjp are adjoint, and its derivative is symmetric."""
    # Where gradients are stopped, the gradient is that of no function, and its derivative is not symmetric.
    graph = unstopped(case.graph)
    if not is_in_double(graph) or has_no_difference(graph):
        return
    pulled = gradient(graph)
    if pulled is None or not any(pulled.has_ct):
        return
    arguments = [*case.arguments(), *cotangents(graph, pulled.of, case.seed)]
    _adjoint(pulled.graph, arguments, case.seed)
    if not has_complex(graph):
        _symmetric(pulled.graph, pulled.primals, pulled.has_ct, arguments, case.seed)


def _adjoint(graph: Graph, arguments: list[Array], seed: int) -> None:
    graph = only_inexact_results(graph)
    if not is_in_double(graph) or has_no_difference(graph) or not graph.results or not any(wrt(graph)):
        return
    try:
        forwards, backwards = jvp(graph, wrt(graph)), vjp(graph, wrt(graph))
    except CompileError as error:
        if not is_without_derivative(error):
            raise
        return
    verify(forwards.graph)
    verify(backwards.forward)
    verify(backwards.backward)
    tangents = numbers_like(arguments, seed)
    types = [value.type for value in graph.results]
    cts = numbers_like([np.zeros(type.shape, type.dtype.numpy) for type in types], seed + 1)
    count = len(graph.results)
    used = [ct for ct, is_set in zip(cts, backwards.has_tangent, strict=True) if is_set]
    directions = [t for t, is_set in zip(tangents, backwards.has_ct, strict=True) if is_set]
    outgoing = [ct for ct, is_set in zip(cts, forwards.has_tangent, strict=True) if is_set]
    runs = [
        (flat(g), given) for g, given in ((forwards.graph, [*arguments, *tangents]), (backwards.forward, arguments))
    ]

    def products(noise: int | None) -> tuple[complex, complex, float]:
        pushed, kept = [run(g, x) if noise is None else noisy(g, x, noise) for g, x in runs]
        backward = flat(backwards.backward)
        given = [*kept[count:], *used]
        pulled = run(backward, given) if noise is None else noisy(backward, given, noise)
        (left, size), (right, other) = _dot(pushed[count:], outgoing), _dot(pulled, directions)
        return left, right, size + other

    is_mixed = (
        len({value.type.dtype.is_complex for value in (*graph.params, *graph.results) if value.type.dtype.is_inexact})
        > 1
    )
    _agree(products, "jvp and vjp are not adjoint", real=is_mixed or has_complex(graph))


def _symmetric(graph: Graph, primals: int, has_ct: Sequence[bool], arguments: list[Array], seed: int) -> None:
    varies = [index < primals and is_set for index, is_set in enumerate(wrt(graph))]
    try:
        forwards = jvp(graph, varies)
    except CompileError as error:
        if not is_without_derivative(error):
            raise
        return
    inexact = [array for array in arguments[:primals] if is_inexact(array)]
    v, w = numbers_like(inexact, seed), numbers_like(inexact, seed + 1)
    count = len(graph.results)
    flattened = flat(forwards.graph)
    with_ct = [index for index, is_set in enumerate(has_ct) if is_set]
    having = [index for index, is_set in zip(with_ct, forwards.has_tangent, strict=True) if is_set]

    def products(noise: int | None) -> tuple[complex, complex, float]:
        sides = []
        for along, other in ((v, w), (w, v)):
            given = [*arguments, *along]
            pushed = run(flattened, given) if noise is None else noisy(flattened, given, noise)
            sides.append(_dot(pushed[count:], [other[index] for index in having]))
        return sides[0][0], sides[1][0], sides[0][1] + sides[1][1]

    _agree(products, "the second derivative is not symmetric", real=False)


def _dot(xs: Sequence[Numeric], ys: Sequence[Numeric]) -> tuple[complex, float]:
    """The sum of products, and of their sizes."""
    with np.errstate(all="ignore"):
        terms = [np.asarray(x * y) for x, y in zip(xs, ys, strict=True)]
        return complex(sum(complex(np.sum(t)) for t in terms)), float(sum(float(np.sum(np.abs(t))) for t in terms))


def _agree(products: Callable[[int | None], tuple[complex, complex, float]], message: str, real: bool) -> None:
    """Raise where two numbers differ by more than their noise."""
    left, right, size = products(None)
    if not (np.isfinite(left) and np.isfinite(right) and np.isfinite(size)):
        return

    def distance(x: complex, y: complex) -> float:
        return abs((x - y).real) if real else abs(x - y)

    if distance(left, right) <= 1e-12 * size:
        return
    spread = 0.0
    for noise in range(12):
        one, other, _ = products(noise)
        spread = max(spread, distance(one, left), distance(other, right))
    if not distance(left, right) <= 8 * spread:
        raise BrokenLawError(f"{message}: {left} and {right}, uncertain by {spread}")


def jvp_is_the_limit_of_differences(case: Case) -> None:
    """(f(x + h v) - f(x - h v)) / 2h, where two steps h agree on it."""
    # Not at special values: a kink is where programs meet them.
    _difference(case.graph, arguments_for(case.graph, case.seed, special=0.0), case.seed)


def _difference(graph: Graph, arguments: list[Array], seed: int) -> None:
    graph = only_inexact_results(unstopped(graph))
    if not is_in_double(graph) or has_no_difference(graph) or not graph.results:
        return
    if meets_a_bound(graph, arguments):
        return
    try:
        forwards = jvp(graph, wrt(graph))
    except CompileError as error:
        if not is_without_derivative(error):
            raise
        return
    tangents = numbers_like(arguments, seed)
    outgoing = iter(run(forwards.graph, [*arguments, *tangents])[len(graph.results) :])
    types = [value.type for value in graph.results]
    found = [
        next(outgoing) if is_set else np.zeros(type.shape, type.dtype.numpy)
        for is_set, type in zip(forwards.has_tangent, types, strict=True)
    ]
    estimates: list[list[Numeric]] = []
    for step in (1e-4, 3e-5, 1e-5):
        ahead, behind = [_numbers(graph, _moved(arguments, tangents, h)) for h in (step, -step)]
        with np.errstate(all="ignore"):
            estimates.append([(x - y) / (2 * step) for x, y in zip(ahead, behind, strict=True)])
    for index, tangent in enumerate(found):
        with np.errstate(all="ignore"):
            three = [estimate[index] for estimate in estimates]
            size = 1 + np.abs(tangent) + np.abs(three[0])
            is_settled = (np.abs(three[0] - three[1]) < 1e-5 * size) & (np.abs(three[1] - three[2]) < 1e-5 * size)
            is_wrong = is_settled & ~(np.abs(tangent - three[1]) < 1e-3 * size) & np.isfinite(three[1])
        if is_wrong.any():
            at = tuple(int(i) for i in np.argwhere(is_wrong)[0])
            raise BrokenLawError(f"tangent {index} at {list(at)} is {tangent[at]}, the difference says {three[1][at]}")


def _numbers(graph: Graph, arguments: Sequence[Array]) -> list[Numeric]:
    return list(run(graph, arguments))


def _moved(arguments: Sequence[Array], tangents: Sequence[Numeric], step: float) -> list[Array]:
    given = iter(tangents)
    numbers: Sequence[Numeric] = arguments
    return [np.asarray(x + step * next(given)) if is_inexact(x) else x for x in numbers]


def linearization_gives_the_jvp(case: Case) -> None:
    """The linear graph after the forward graph gives the bits of the jvp, under any policy."""
    graph = only_inexact_results(case.graph)
    if not graph.results:
        return
    try:
        forwards = jvp(graph, wrt(graph))
        split = linearize(under_policy(graph, policy_of(case.seed)), wrt(graph))
    except CompileError as error:
        if not is_without_derivative(error):
            raise
        return
    arguments = case.arguments()
    tangents = numbers_like(arguments, case.seed)
    count = len(graph.results)
    expected = iter(run(forwards.graph, [*arguments, *tangents])[count:])
    kept = run(split.forward, arguments)
    found = iter(run(split.linear, [*kept[count:], *tangents]))
    for is_set, is_expected in zip(split.has_tangent, forwards.has_tangent, strict=True):
        tangent = next(expected) if is_expected else None
        outgoing = next(found) if is_set else None
        if tangent is not None and outgoing is not None and not same_bits([outgoing], [tangent]):
            raise BrokenLawError("the linear graph gives another tangent than the jvp")
        if tangent is not None and outgoing is None and np.any((tangent != 0) & ~np.isnan(tangent)):
            raise BrokenLawError("the linear graph has no tangent where the jvp has one")


# -- batches -----------------------------------------------------------------------------------------------------------


def vmap_is_a_loop(case: Case) -> None:
    """Each element of a batch, computed with all the others, is what it is by itself."""
    graph, size = case.graph, case.seed % 3 + 1
    random = np.random.default_rng(case.seed)
    is_batched = [bool(random.integers(0, 3)) for _ in graph.params]
    elements = [Case(graph, case.seed + 4 * index).arguments() for index in range(size)]
    shared = [
        np.stack(column) if is_set else column[0]
        for column, is_set in zip(zip(*elements, strict=True), is_batched, strict=True)
    ]
    batched = vmap(graph, is_batched, size)
    verify(batched.graph)
    found = run(batched.graph, shared)
    for index in range(size):
        arguments = [array[index] if is_set else array for array, is_set in zip(shared, is_batched, strict=True)]
        given = [
            np.asarray(array[index]) if is_set else array
            for array, is_set in zip(found, batched.is_batched, strict=True)
        ]
        message = Uncertain(graph, [np.asarray(array) for array in arguments]).disagreement(given)
        if message:
            raise BrokenLawError(f"element {index} of a batch of {size}: {message}")


LAWS: dict[str, Law] = {
    "text": text_reads_back,
    "passes": passes_keep_the_meaning,
    "gradient-passes": passes_keep_gradients,
    "policies": policies_keep_gradients,
    "linearize": linearization_gives_the_jvp,
    "adjoint": transpose_is_adjoint,
    "difference": jvp_is_the_limit_of_differences,
    "second": second_derivatives_agree,
    "vmap": vmap_is_a_loop,
}
