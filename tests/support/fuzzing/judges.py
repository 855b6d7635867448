"""XLA and JAX as judges of many programs at once: a compilation each for all of them.

Where XLA computes something else from our text than the reference, it may be XLA that is wrong: if it is right without
fusing and simplifying, or gives the same numbers for JAX's words. Such a find is kept apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.indexing import ScatterMaximum, ScatterMinimum
from rematc.ir.ops.window import ReduceWindowMax, ReduceWindowMin
from rematc.ir.values import Array
from rematc.lowering.module import stablehlo_module
from rematc.lowering.program import Program
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.passes.barriers import Barriers
from tests.support.fuzzing import jax_evaluator, stepwise
from tests.support.fuzzing.derivatives import cotangents, gradient
from tests.support.fuzzing.laws import BrokenLawError, Case
from tests.support.fuzzing.noise import Uncertain, flat, is_inexact, unit

Options = dict[str, str | bool]
#: XLA spends most of its time in LLVM; programs this small need none of it.
OPTIONS: Options = {"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": True}


@dataclass(frozen=True, slots=True)
class Joint:
    """A program together with its gradient, if it has one.

    Attributes:
        case: the program.
        graph: parameters: those of the program, then cotangents; results: those of the program, then the gradient.
        arguments: of the graph.
        of: which results have cotangents.
    """

    case: Case
    graph: Graph
    arguments: list[Array]
    of: tuple[int, ...]
    has_ct: tuple[bool, ...]

    @staticmethod
    def of_case(case: Case) -> Joint:
        pulled = gradient(case.graph, with_values=True)
        if pulled is None:
            return Joint(case, case.graph, case.arguments(), (), ())
        cts = cotangents(case.graph, pulled.of, case.seed)
        return Joint(case, pulled.graph, [*case.arguments(), *cts], pulled.of, pulled.has_ct)


class FaultOfXLAError(Exception):
    """A law that XLA breaks by itself."""


#: Each op is a kernel of its own, and stays as it is.
UNFUSED: Options = {"xla_disable_hlo_passes": "fusion,algsimp"}
#: Programs that XLA:CPU fails on in JAX's words as well: a Fourier transform of what a solve wrote in columns.
_FAULTS_OF_XLA = ("backends/cpu/runtime/fft_thunk.cc",)
Judge = Callable[[Sequence[Joint], Options], list[list[Array] | None]]


def verdicts(cases: Sequence[Case], judge: Judge) -> list[Exception | None]:
    """For each program what the judge finds wrong with its values and gradients."""
    joints: list[Joint] = []
    found: list[Exception | None] = []
    for case in cases:
        try:
            joints.append(Joint.of_case(case))
            found.append(None)
        except Exception as error:  # noqa: BLE001, RUF100  # whatever the compiler raises is a find
            found.append(error)
    judged = iter(_judged(joints, judge))
    return [next(judged) if error is None else error for error in found]


def _judged(joints: Sequence[Joint], judge: Judge) -> list[Exception | None]:
    """All at once; where that fails, in halves, down to the programs at fault."""
    if not joints:
        return []
    try:
        outcomes = judge(joints, OPTIONS)
    except Exception as error:  # noqa: BLE001, RUF100  # as above
        if len(joints) == 1:
            return [None if any(text in str(error) for text in _FAULTS_OF_XLA) else error]
        middle = len(joints) // 2
        return [*_judged(joints[:middle], judge), *_judged(joints[middle:], judge)]
    return [_verdict(joint, outcome, judge) for joint, outcome in zip(joints, outcomes, strict=True)]


def _verdict(joint: Joint, outcome: list[Array] | None, judge: Judge) -> Exception | None:
    if outcome is None:
        return None
    uncertain = Uncertain(joint.graph, joint.arguments)
    count = len(joint.case.graph.results)
    if judge is by_jax:
        outcome = [_without_overflow(*pair) for pair in zip(outcome, uncertain.expected, strict=True)]
        if _has_open_gradient(joint, uncertain):
            outcome = [*outcome[:count], *uncertain.expected[count:]]
    if not uncertain.disagreement(outcome):
        return None
    # Without LLVM's optimizations, exp(NaN) may be any number. What counts is what users get.
    (again,) = judge([joint], {})
    given = again or []
    if not uncertain.disagreement(given):
        return None
    if _is_of_xla(joint, uncertain, judge, given):
        return FaultOfXLAError(uncertain.disagreement(given))
    # Cleaning up a gradient folds its constants, also what is open: zeros of padding times a NaN. The program has it.
    graph = joint.case.graph
    if not Uncertain(graph, joint.case.arguments()).disagreement(given[:count]):
        given = [*uncertain.expected[:count], *given[count:]]
    message = uncertain.disagreement(given)
    return BrokenLawError(message) if message else None


def _is_of_xla(joint: Joint, uncertain: Uncertain, judge: Judge, given: Sequence[Array]) -> bool:
    (other,) = (by_jax if judge is by_xla else by_xla)([joint], {})
    if other is not None and all(map(_is_as, given, other)):
        return True
    (unfused,) = judge([joint], UNFUSED)
    return unfused is not None and not uncertain.disagreement(unfused)


def _is_as(x: Array, y: Array) -> bool:
    """Whether two arrays are the same but for some units in the last place."""
    if x.shape != y.shape or not is_inexact(x):
        return bool(np.array_equal(x, y))
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    return bool(np.allclose(x.astype(wide), y.astype(wide), rtol=8 * unit(x), atol=0, equal_nan=True))


def _nans(array: Array) -> Array:
    return np.isnan(array) if is_inexact(array) else np.zeros(array.shape, np.bool_)


def _without_overflow(found: Array, expected: Array) -> Array:
    """What JAX finds, and what is expected where it leaves the range of 16 or 8 bits.

    Of an op of ours it may make several, and each is rounded: 1 / y^2 of a quotient's derivative, e^-x of a logistic.
    """
    if not is_inexact(found) or found.dtype.itemsize > 2 or found.shape != expected.shape:
        return found
    return np.where(np.isfinite(found), found, expected)


def _has_open_gradient(joint: Joint, uncertain: Uncertain) -> bool:
    return is_picked_from_nans(joint.case.graph, joint.case.arguments()) or _is_masked(joint, uncertain)


def _is_masked(joint: Joint, uncertain: Uncertain) -> bool:
    """Whether JAX multiplies cotangents by masks, which makes NaN of infinite ones: in the extrema of a scatter."""
    if joint.case.graph.op_types.isdisjoint((ScatterMinimum, ScatterMaximum)):
        return False
    return not all(np.isfinite(array).all() for array in (*joint.arguments, *uncertain.expected) if is_inexact(array))


def is_picked_from_nans(graph: Graph, arguments: Sequence[Array]) -> bool:
    """Whether a window of which the extremum is taken holds a NaN: whose derivative it has is left open."""

    def values(graph: Graph, given: Sequence[Array]) -> list[Array]:
        env = dict(zip(graph.params, given, strict=True))
        for eqn in graph.equations:
            operands = [env[value] for value in eqn.operands]
            if isinstance(eqn.op, (ReduceWindowMax, ReduceWindowMin)) and _nans(operands[0]).any():
                raise _PickedFromNansError
            known = stepwise.has_steps(eqn.op)
            results = stepwise.apply(eqn.op, operands, values) if known else eqn.op.reference(operands)
            env.update(zip(eqn.results, results, strict=True))
        return [env[value] for value in graph.results]

    if graph.op_types.isdisjoint((ReduceWindowMax, ReduceWindowMin)):
        return False
    try:
        with np.errstate(all="ignore"):
            values(flat(graph), arguments)
    except _PickedFromNansError:
        return True
    return False


class _PickedFromNansError(Exception):
    """Ends the evaluation."""


def by_xla(joints: Sequence[Joint], options: Options) -> list[list[Array] | None]:
    """What XLA computes for our StableHLO."""
    b = Builder("batch")
    params = [[b.parameter(value.type) for value in joint.graph.params] for joint in joints]
    groups = [b.inline(Barriers().run(joint.graph), values) for joint, values in zip(joints, params, strict=True)]
    graph = b.build(*[value for group in groups for value in group])
    program = Program(stablehlo_module(graph), graph.param_types, graph.result_types, "batch")
    arguments = [array for joint in joints for array in joint.arguments]
    results = iter(compile_program(program, Target.of("cpu"), compiler_options=options)(*arguments))
    return [[np.asarray(next(results)) for _ in group] for group in groups]


#: lax.abs takes no 4-bit integers, lax.add no booleans, and so on; some derivatives are missing; the last is a fault
#: of lax.pad's transpose.
_REFUSALS = (
    *("does not accept dtype", "requires operand dtype", "VJP not implemented", "rule for 'nextafter' not implemented"),
    "Linearization failed to produce known values",  # of windows of floats of 8 bits
    *("value is of type <class 'NoneType'>", "Reverse-mode differentiation does not work for lax.while_loop"),
)


def by_jax(joints: Sequence[Joint], options: Options) -> list[list[Array] | None]:
    """What JAX makes of the same ops, differentiated by itself; None for programs that it cannot express."""
    expressed: list[bool] = []

    def evaluate_all(arguments: list[list[Any]]) -> list[list[Any]]:
        found = [_expressed(joint, given) for joint, given in zip(joints, arguments, strict=True)]
        expressed.extend(values is not None for values in found)
        return [values or [] for values in found]

    with jax.enable_x64(True):
        lowered = jax.jit(evaluate_all).lower([joint.arguments for joint in joints])
        results = lowered.compile(options or None)([joint.arguments for joint in joints])
    return [
        [np.asarray(value) for value in values] if is_set else None
        for values, is_set in zip(results, expressed, strict=True)
    ]


def _expressed(joint: Joint, arguments: list[Any]) -> list[Any] | None:
    if not jax_evaluator.is_expressible(joint.case.graph):
        return None
    try:
        return _values_and_gradient(joint, arguments)
    except (TypeError, ValueError, NotImplementedError) as error:
        if any(text in str(error) for text in _REFUSALS):
            return None
        raise


def _values_and_gradient(joint: Joint, arguments: list[Any]) -> list[Any]:
    graph = joint.case.graph
    if not joint.of:
        return list(jax_evaluator.evaluate(graph, arguments))
    primals, cts = arguments[: len(graph.params)], arguments[len(graph.params) :]
    varying = [index for index, value in enumerate(graph.params) if value.type.dtype.is_inexact]

    def function(*given: Any) -> tuple[Any, Any]:
        operands = list(primals)
        for index, value in zip(varying, given, strict=True):
            operands[index] = value
        results = jax_evaluator.evaluate(graph, operands)
        return tuple(results[index] for index in joint.of), results

    _, pull_back, results = jax.vjp(function, *[primals[index] for index in varying], has_aux=True)
    pulled = pull_back(tuple(cts))
    return [*results, *(ct for ct, is_set in zip(pulled, joint.has_ct, strict=False) if is_set)]


JUDGES: dict[str, Judge] = {"xla": by_xla, "jax": by_jax}
