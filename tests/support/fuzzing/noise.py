"""How far a program's results may be from the reference: measured, by computing it again with noise.

Random programs amplify rounding as they like, cancel, overflow and jump, so no fixed tolerance judges them. Each
inexact step is disturbed by some units in the last place, zeros lose their signs, subnormal numbers become zero: a
result that differs between such runs is uncertain by as much, and one whose kind changes (NaN, infinite, another
integer) is not judged at all. (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993.)
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops import (
    arithmetic,
    conversion,
    dynamic,
    indexing,
    logical,
    reduction,
    rounding,
    shape,
    structural,
    transcendental,
    window,
)
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.ops.solving import LinearSolve, LuSolve
from rematc.ir.ops.special import Digamma, Polygamma
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value
from rematc.passes.barriers import Barriers
from rematc.passes.inline import Inline
from tests.support.fuzzing import stepwise

UNITS = 8
RUNS = 3
#: A result may be off by so many times the spread of the noisy runs; a second look takes more runs.
FACTOR = 8
SECOND_LOOK = 24

_EXACT_MODULES = frozenset(module.__name__ for module in (dynamic, logical, shape, structural))
_EXACT_OPS: frozenset[type[Op]] = frozenset(
    {
        *(arithmetic.Negate, arithmetic.Abs, arithmetic.Sign, arithmetic.Maximum, arithmetic.Minimum),
        *(arithmetic.Clamp, conversion.BitcastConvert, indexing.Gather, indexing.Scatter, rounding.Floor),
        *(rounding.Ceil, rounding.RoundNearestEven, rounding.RoundNearestAfz, rounding.IsFinite),
        *(window.SelectAndGather, window.ReduceWindowMax, window.ReduceWindowMin),
        *(indexing.ScatterMinimum, indexing.ScatterMaximum, reduction.ReduceMin, reduction.ReduceMax),
    }
)


#: Ops that compute many results from many operands: what one infinity or NaN spoils is open, whether the zeros of
#: padding meet it, and what is picked from a window with a NaN.
_SPOILED: frozenset[str] = frozenset(
    {
        *("convolution", "cholesky", "triangular_solve", "linear_solve", "lu_solve", "lu", "qr", "eigh", "eig", "svd"),
        *("pseudo_inverse", "determinant", "log_determinant", "fft", "select_and_gather", "select_and_scatter"),
    }
)


def flat(graph: Graph) -> Graph:
    """The graph without calls and checkpoint regions."""
    return Inline().run(Barriers("none").run(Inline().run(graph)))


def noisy(graph: Graph, arguments: Sequence[Array], seed: int) -> list[Array]:
    """The results of a flat graph, computed with noise."""
    return _noisy(graph, arguments, np.random.default_rng(seed), seed)


def _noisy(graph: Graph, arguments: Sequence[Array], random: np.random.Generator, seed: int) -> list[Array]:
    is_flushed = bool(seed % 2)
    env: dict[Value, Array] = {}
    for param, argument in zip(graph.params, arguments, strict=True):
        env[param] = _flushed(argument) if is_flushed else argument
    with np.errstate(all="ignore"):
        for eqn in graph.equations:
            results = _noisy_results(eqn, [env[value] for value in eqn.operands], random, seed)
            env.update(zip(eqn.results, [_flushed(x) if is_flushed else x for x in results], strict=True))
    return [env[value] for value in graph.results]


def _noisy_results(eqn: Equation, operands: list[Array], random: np.random.Generator, seed: int) -> tuple[Array, ...]:
    if stepwise.has_steps(eqn.op):
        return stepwise.apply(eqn.op, operands, lambda graph, given: _noisy(graph, given, random, seed))
    if _is_exact(eqn.op, eqn.operand_types, eqn.result_types):
        results = eqn.op.reference(operands)
    else:
        # There is a polygamma of whole orders alone.
        exact = 1 if isinstance(eqn.op, Polygamma) else 0
        # By less and less, so that what is equal by its roundings is so in some runs.
        units = UNITS * 2.0 ** -(seed % 8)
        disturbed = [*operands[:exact], *[_disturbed(operand, random, units) for operand in operands[exact:]]]
        results = tuple([_disturbed(result, random, units) for result in eqn.op.reference(disturbed)])
    if _is_open(eqn.op, operands):
        return tuple([_unknown(result, seed) for result in results])
    if type(eqn.op).__module__ == transcendental.__name__:
        return tuple([_open_where_infinite(result, seed) for result in results])
    return results


def _open_where_infinite(array: Array, seed: int) -> Array:
    """Numbers in the complex plane that an implementation may have, or overflows on the way to."""
    if array.dtype.kind != "c":
        return array
    return np.where(np.isfinite(array), array, _unknown(array, seed))


def _is_exact(op: Op, operands: Sequence[TensorType], results: Sequence[TensorType]) -> bool:
    if type(op).__module__ in _EXACT_MODULES or type(op) in _EXACT_OPS:
        return True
    if isinstance(op, conversion.Convert):
        # XLA may leave out a rounding to few bits and what follows it.
        return not (results[0].dtype.is_inexact and results[0].dtype.bits < max(operands[0].dtype.bits, 32))
    return False


def unit(array: Array) -> float:
    """One unit in the last place of 1."""
    return float(ml_dtypes.finfo(array.real.dtype if array.dtype.kind == "c" else array.dtype).eps)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it unannotated


def tiny(array: Array) -> float:
    """The smallest normal number."""
    part = array.real.dtype if array.dtype.kind == "c" else array.dtype
    return float(ml_dtypes.finfo(part).smallest_normal)  # type: ignore[no-untyped-call]  # as above


def is_inexact(array: Array) -> bool:
    return array.dtype.kind not in "biu" and "int" not in array.dtype.name


def _disturbed(array: Array, random: np.random.Generator, units: float) -> Array:
    if not is_inexact(array) or not array.size:
        return array
    level = units * unit(array)
    if array.dtype.kind == "c":
        draws = random.uniform(-level, level, (2, *array.shape))
        sizes = np.abs(array)
        # A part that is nothing beside the other may be what is left of a difference of equals, or zero.
        disturbed = array.copy()
        disturbed.real, disturbed.imag = [
            np.where(
                (np.abs(part) <= level * sizes) & random.choice([False, True], array.shape), 0, part + sizes * draw
            )
            for part, draw in zip((array.real, array.imag), draws, strict=True)
        ]
        return disturbed
    wide = array.astype(np.float64)
    signs = random.choice([-1.0, 1.0], array.shape)
    moved = np.where(wide == 0, np.copysign(0.0, signs), wide * (1 + random.uniform(-level, level, array.shape)))
    return np.asarray(moved).astype(array.dtype)


def _is_permutation(array: Array) -> bool:
    return bool(np.array_equal(np.sort(array, -1), np.broadcast_to(np.arange(array.shape[-1]), array.shape)))


def _is_open(op: Op, operands: Sequence[Array]) -> bool:
    """Whether operands are such that the results are left open: infinite ones, of some ops and in the complex plane.

    So are the bits of a NaN, rows in an order that is none, integers divided by zero (an implementation's matter in
    StableHLO; XLA writes 1 for x / x), digamma at zero, which is NaN or infinite as the version of XLA has it, a
    complex power of zero and polygamma of infinite order, which are NaN to XLA, and polygamma of negative numbers,
    which XLA has for some orders.
    """
    if isinstance(op, (LinearSolve, LuSolve)) and not _is_permutation(operands[-2]):
        return True
    if isinstance(op, (arithmetic.Divide, rounding.Remainder)) and not is_inexact(operands[1]):
        return not operands[1].all()
    if isinstance(op, Digamma) and not operands[0].all():
        return True
    if isinstance(op, Polygamma) and (not _is_finite(operands[0]) or bool(np.less(operands[1], 0).any())):
        return True
    is_complex = any(operand.dtype.kind == "c" for operand in operands)
    if isinstance(op, arithmetic.Power) and is_complex and not operands[0].all():
        return True
    if all(map(_is_finite, operands)):
        return False
    is_bits = isinstance(op, conversion.BitcastConvert)
    return op.name in _SPOILED or is_bits or (is_complex and type(op).__module__ not in _EXACT_MODULES)


def _is_finite(array: Array) -> bool:
    return not is_inexact(array) or bool(np.isfinite(array).all())


def _is_finite_at(array: Array) -> Numeric:
    return np.isfinite(array) if is_inexact(array) else np.ones(array.shape, np.bool_)


def _unknown(array: Array, seed: int) -> Array:
    """Another array each time."""
    return np.full_like(array, np.nan if seed % 2 and is_inexact(array) else seed)


def _is_flushable(array: Array) -> bool:
    """Whether subnormal numbers are so in 32 bits, too, in which narrower floats are computed."""
    return array.dtype.itemsize >= 4 or tiny(array) == float(np.finfo(np.float32).tiny)


def _flushed(array: Array) -> Array:
    if not is_inexact(array) or array.dtype.kind == "c" or not _is_flushable(array) or not array.size:
        return array
    is_subnormal = (np.abs(array) < tiny(array)) & (array != 0)
    zeros = np.copysign(0.0, array.astype(np.float64)).astype(array.dtype)
    return np.where(is_subnormal, zeros, array) if is_subnormal.any() else array


class Uncertain:
    """A program's results by the reference, and how uncertain each element is.

    Attributes:
        expected: the results.
    """

    def __init__(self, graph: Graph, arguments: Sequence[Array]) -> None:
        self._graph = flat(graph)
        self._arguments = arguments
        self._runs: list[list[Array]] = []
        with np.errstate(all="ignore"):
            env = dict(zip(self._graph.params, arguments, strict=True))
            for eqn in self._graph.equations:
                results = eqn.op.reference([env[value] for value in eqn.operands])
                env.update(zip(eqn.results, results, strict=True))
        self.expected = [env[value] for value in self._graph.results]

    def disagreement(self, found: Sequence[Array], factor: float = FACTOR, *, overflows_alike: bool = False) -> str:
        """What is beyond doubt different, or nothing.

        With `overflows_alike` an infinity and a NaN are no difference: (a + b) c is infinite where a c + b c is NaN.
        """
        for runs in (RUNS, SECOND_LOOK):
            while len(self._runs) < runs:
                self._runs.append(noisy(self._graph, self._arguments, len(self._runs)))
            message = self._first(found, factor, overflows_alike)
            if not message:
                return ""
        return message

    def _first(self, found: Sequence[Array], factor: float, overflows_alike: bool) -> str:
        for index, (actual, expected) in enumerate(zip(found, self.expected, strict=True)):
            if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
                return f"result {index} is {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
            is_wrong = _wrong(actual, expected, [run[index] for run in self._runs], factor)
            if overflows_alike:
                is_wrong &= _is_finite_at(actual) | _is_finite_at(expected)
            if is_wrong.any():
                at = tuple(int(i) for i in np.argwhere(is_wrong)[0])
                return f"result {index} at {list(at)} is {actual[at]!r}, expected {expected[at]!r}"
        return ""


def _wrong(actual: Array, expected: Array, runs: Sequence[Array], factor: float) -> Numeric:
    """Where an array is not what is expected."""
    if not is_inexact(expected):
        is_stable = np.logical_and.reduce([run == expected for run in runs])
        return np.asarray(is_stable & (actual != expected))
    # Which part of an infinite or undefined complex number is so is left open.
    kind = np.isfinite if expected.dtype.kind == "c" else _kind
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    found, wanted, noisy_ones = actual.astype(wide), expected.astype(wide), [run.astype(wide) for run in runs]
    is_stable = np.logical_and.reduce([kind(run) == kind(wanted) for run in noisy_ones])
    is_other_kind = is_stable & (kind(found) != kind(wanted))
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(run - wanted) for run in noisy_ones], axis=0)
        allowed = factor * spread + 4 * unit(expected) * np.abs(wanted) + 4 * tiny(expected)
        is_far = is_stable & np.isfinite(wanted) & np.isfinite(found) & ~(np.abs(found - wanted) <= allowed)
    return np.asarray(is_other_kind | is_far)


def _kind(array: Numeric) -> Numeric:
    """0 for finite numbers, 1 and -1 for infinities, 2 for NaN."""
    return np.where(np.isnan(array), 2, np.where(np.isinf(array), np.sign(array), 0))
