"""JAX's primitive harnesses, and what one of them gives by JAX and by us."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax._src.internal_test_util import test_harnesses

from rematc.compiler.frontends.jax.importing import Imported, graph_of_jaxpr
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, InternalError
from rematc.lowering.jax_internals.calls import apply_program
from rematc.lowering.jax_internals.keys import is_key, key_words
from rematc.lowering.pipeline import make_program, run_passes
from rematc.passes.linearize import vjp

#: What an outcome says where everything agrees, and where there is nothing to compare.
PASSED, NONE = "passed", "none"


@dataclass(frozen=True, slots=True)
class Case:
    """One harness.

    Attributes:
        group: the primitive that it is about.
        name: unique among all.
        harness: JAX's object.
    """

    group: str
    name: str
    harness: Any


def cases() -> list[Case]:
    """All harnesses that JAX implements on this platform, in JAX's order, the names made unique and stable."""
    found, seen = [], dict[str, int]()
    for harness in sorted(test_harnesses.all_harnesses, key=lambda harness: str(harness.fullname)):
        if not harness.filter("cpu"):
            continue
        name = str(harness.fullname)
        seen[name] = seen.get(name, 0) + 1
        found.append(Case(str(harness.group_name), name if seen[name] == 1 else f"{name}#{seen[name]}", harness))
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        value: "passed", or what is wrong; "none" where JAX itself fails.
        gradient: the same; "none" where JAX has no derivative.
        fallbacks: the primitives without an import rule.
    """

    value: str
    gradient: str
    fallbacks: tuple[str, ...] = ()

    def as_json(self) -> str:
        """One line."""
        return json.dumps([self.value, self.gradient, list(self.fallbacks)])


class JaxError(Exception):
    """JAX itself cannot do this."""


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def _is_inexact(aval: Any) -> bool:
    return bool(jax.numpy.issubdtype(aval.dtype, np.inexact))


def _words(leaf: Any) -> Any:
    """Typed keys as their words."""
    return key_words(leaf) if is_key(leaf.dtype) else leaf


class Comparison:
    """One case: JAX's function of flat arrays, and ours."""

    def __init__(self, case: Case) -> None:
        self._arguments = case.harness.dyn_args_maker(np.random.RandomState(0))
        leaves, tree = jax.tree_util.tree_flatten(list(self._arguments))
        self.leaves = [jax.numpy.asarray(leaf) if not hasattr(leaf, "dtype") else leaf for leaf in leaves]

        def function(*flat: Any) -> list[Any]:
            return list(jax.tree_util.tree_leaves(case.harness.dyn_fun(*jax.tree_util.tree_unflatten(tree, flat))))

        self.function = function
        try:
            self.jaxpr = jax.make_jaxpr(function)(*self.leaves)
        except Exception as error:
            raise JaxError(_first_line(error)) from error
        rng = np.random.RandomState(1)
        self.inexact = [_is_inexact(aval) for aval in self.jaxpr.in_avals]
        self.cts = [_random(rng, aval.shape, aval.dtype) for aval in self.jaxpr.out_avals if _is_inexact(aval)]

    # -- JAX ---------------------------------------------------------------------------------------------------------

    def by_jax(self, leaves: Sequence[Any]) -> list[Any]:
        return [_words(leaf) for leaf in self.function(*leaves)]

    def gradient_by_jax(self, leaves: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        """Cotangents of the inexact arguments, for those of the inexact outputs."""

        def of_inexact(*given: Any) -> list[Any]:
            rest = iter(given)
            flat = [next(rest) if is_set else leaf for leaf, is_set in zip(leaves, self.inexact, strict=True)]
            return [leaf for leaf in self.function(*flat) if _is_inexact(leaf)]

        inside = [leaf for leaf, is_set in zip(leaves, self.inexact, strict=True) if is_set]
        try:
            _, pullback = jax.vjp(of_inexact, *inside)
            return list(pullback(list(cts)))
        except Exception as error:
            raise JaxError(_first_line(error)) from error

    # -- ours --------------------------------------------------------------------------------------------------------

    def ours(self, imported: Imported) -> Callable[..., list[Any]]:
        return _callable(imported.graph, imported.constants)

    def our_gradient(self, imported: Imported) -> Callable[..., list[Any]]:
        """A function of the arguments and the cotangents."""
        graph, constants = imported.graph, imported.constants
        wrt = [*self.inexact, *[False] * len(constants)]
        of = [_is_inexact(aval) for aval in self.jaxpr.out_avals]
        pulled = vjp(graph, wrt, of)
        forward, backward = _callable(pulled.forward, constants), _callable(pulled.backward, ())
        wanted = [has for has, is_set in zip(pulled.has_tangent, of, strict=False) if is_set]
        inside = [type for type, is_set in zip(graph.param_types, wrt, strict=True) if is_set]

        def gradient(leaves: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            residuals = forward(*leaves)[len(graph.results) :]
            used = [ct for ct, is_used in zip(cts, wanted, strict=True) if is_used]
            given = iter(backward(*residuals, *used))
            return [
                next(given) if has else jax.numpy.zeros(type.shape, type.dtype.numpy)
                for has, type in zip(pulled.has_ct, inside, strict=True)
            ]

        return gradient


def _callable(graph: Graph, constants: Sequence[Any]) -> Callable[..., list[Any]]:
    program = make_program(run_passes(graph).graph, ())

    def call(*operands: Any) -> list[Any]:
        return apply_program(program, [*map(_words, operands), *map(_words, constants)])

    return call


def _random(rng: np.random.RandomState, shape: tuple[int, ...], dtype: Any) -> Any:
    found = rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * rng.uniform(0.5, 1.5, shape)
    return np.asarray(found).astype(dtype)


def outcome_of(case: Case) -> Outcome:
    """Import, compute and differentiate one case, and compare with JAX."""
    try:
        comparison = Comparison(case)
    except JaxError as error:
        return Outcome(f"{NONE}: {error}", NONE)
    try:
        with differentiated():
            imported = graph_of_jaxpr(comparison.jaxpr, "harness")
        ours = comparison.ours(imported)
    except (CompileError, InternalError, NotImplementedError, TypeError, ValueError, KeyError, AttributeError) as error:
        return Outcome(f"not imported: {_first_line(error)}", NONE)
    gradient, wrong = None, NONE
    if any(comparison.inexact) and comparison.cts:
        try:
            gradient = comparison.our_gradient(imported)
        except (CompileError, InternalError, NotImplementedError, TypeError, ValueError, KeyError) as error:
            wrong = f"no gradient: {_first_line(error)}"
    return _compared(comparison, ours, gradient, wrong, tuple(sorted(imported.fallbacks)))


def _compared(
    comparison: Comparison, ours: Callable[..., list[Any]], gradient: Any, wrong: str, fallbacks: tuple[str, ...]
) -> Outcome:
    failures: list[str] = []

    def everything(leaves: Sequence[Any], cts: Sequence[Any]) -> tuple[Any, ...]:
        values = comparison.by_jax(leaves), ours(*leaves)
        if not (any(comparison.inexact) and comparison.cts):
            return (*values, [], [])
        try:
            expected = comparison.gradient_by_jax(leaves, cts)
        except JaxError as error:
            failures.append(str(error))
            return (*values, [], [])
        return (*values, expected, [] if gradient is None else gradient(leaves, cts))

    def values_only(leaves: Sequence[Any], cts: Sequence[Any]) -> tuple[Any, ...]:
        return (comparison.by_jax(leaves), ours(*leaves), [], [])

    try:
        found = jax.jit(everything)(comparison.leaves, comparison.cts)
    except Exception as error:
        failures.append(_first_line(error))
        try:
            found = jax.jit(values_only)(comparison.leaves, comparison.cts)
        except Exception as second:
            return Outcome(_who_failed(comparison, second), NONE, fallbacks)
    value = _difference(found[0], found[1], 1)
    if failures or not found[2]:
        return Outcome(value, NONE, fallbacks)
    if gradient is None:
        return Outcome(value, wrong, fallbacks)
    return Outcome(value, _difference(found[2], found[3], 16), fallbacks)


def _who_failed(comparison: Comparison, error: BaseException) -> str:
    """Whether JAX alone fails, too."""
    try:
        jax.jit(comparison.by_jax)(comparison.leaves)
    except Exception as second:
        return f"{NONE}: {_first_line(second)}"
    return f"not run: {_first_line(error)}"


def _difference(expected: Sequence[Any], found: Sequence[Any], factor: float) -> str:
    """passed, or which result differs by how much."""
    if len(expected) != len(found):
        return f"{len(found)} results, expected {len(expected)}"
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        wrong = _array_difference(np.asarray(one), np.asarray(other), factor)
        if wrong:
            return f"result {index}: {wrong}"
    return PASSED


def _array_difference(expected: Any, found: Any, factor: float) -> str:
    if expected.dtype == jax.dtypes.float0:
        return ""
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if not jax.numpy.issubdtype(expected.dtype, np.inexact):
        count = int((expected != found).sum())
        return f"{count} of {expected.size} elements differ" if count else ""
    if expected.dtype.kind == "c":
        return _array_difference(expected.real, found.real, factor) or _array_difference(
            expected.imag, found.imag, factor
        )
    tolerance = factor * _tolerance(expected.dtype)
    wide, other = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(wide)
        greatest = float(np.abs(wide[finite]).max(initial=0.0))
        # Sums in another order differ by some units in the last place of their terms, whatever their value.
        allowed = tolerance * (np.abs(wide) + min(1.0, greatest) + greatest / 4)
        same = (wide == other) | (np.isnan(wide) & np.isnan(other)) | (np.abs(wide - other) <= allowed)
    if same.all():
        return ""
    place = tuple(int(item) for item in np.argwhere(~same)[0])
    return f"{int((~same).sum())} of {same.size} elements differ, first {other[place]} where JAX has {wide[place]}"


def _tolerance(dtype: Any) -> float:
    """Some units in the last place: 64, of 16 bits and less 4."""
    info: Any = ml_dtypes.finfo
    return float(info(dtype).eps) * (64 if dtype.itemsize > 2 else 4)
