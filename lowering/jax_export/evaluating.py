"""A graph as a JAX function: each equation by a rule that applies `jax.lax`, and the registry of these rules.

A rule is a function of (equation, operands) that gives the results, all of them JAX's arrays or tracers. Rules stand
in modules of this folder by family, mirroring `rematc.ir.ops`; `rematc.lowering.jax_export.exporting` gathers them.
What comes out is an ordinary JAX function: `jit`, `vmap`, `shard_map` and derivatives of any order are JAX's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.errors import MissingRuleError
from rematc.ir.types import TensorType
from rematc.lowering.jax_internals.shardings import varying_axes_of
from rematc.lowering.labels import Labels
from rematc.passes.jvp import jvp
from rematc.passes.linearize import Linearized, linearize
from rematc.passes.manual_computations import with_manual_computations
from rematc.passes.phases import phases_of

#: JAX's operations. Any: many have no annotations, and none take what they give.
lax: Any = jax.lax
_config: Any = jax.config
Rule = Callable[[Equation, Sequence[Any]], Sequence[Any]]
#: What applies the equations of each op.
RULES: dict[type[Op], Rule] = {}
_R = TypeVar("_R", bound=Rule)


def exports(*ops: type[Op]) -> Callable[[_R], _R]:
    """Decorator: this function applies the equations of these ops."""

    def enter(rule: _R) -> _R:
        for op in ops:
            if op in RULES:
                raise ValueError(f"two export rules for '{op.name}'")
            RULES[op] = rule
        return rule

    return enter


def evaluate(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """Apply a graph to JAX's arrays or tracers, one for each parameter; its results.

    Raises MissingRuleError at the equation's line for an op without a rule.
    """
    graph = with_manual_computations(graph)
    env: dict[Any, Any] = dict(zip(graph.params, operands, strict=True))
    labels = _labels.get().inside(graph)
    with wide_types(graph):
        for eqn in graph.equations:
            rule = RULES.get(type(eqn.op))
            if rule is None:
                raise MissingRuleError(f"export of '{eqn.op.name}' needs a rule in lowering/jax_export", eqn.loc)
            with _labelled(eqn, labels):
                results = rule(eqn, [env[value] for value in eqn.operands])
            env.update(zip(eqn.results, results, strict=True))
    return [env[value] for value in graph.results]


# -- names ------------------------------------------------------------------------------------------------------------

_NO_LABELS = Labels({})
#: Those of the graph that is evaluated.
_labels: ContextVar[Labels] = ContextVar("labels", default=_NO_LABELS)


def evaluate_labelled(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """As `evaluate`, for a whole program: XLA's instructions say of which phase of it they are."""
    graph = with_manual_computations(graph)
    token = _labels.set(Labels(phases_of(graph)))
    try:
        return evaluate(graph, operands)
    finally:
        _labels.reset(token)


@contextmanager
def _labelled(eqn: Equation, labels: Labels) -> Iterator[None]:
    found = labels.phases.get(eqn)
    if found is None:
        yield
        return
    own = labels.of(eqn, found)
    token = _labels.set(own)
    try:
        with jax.named_scope(own.label(eqn.loc)):
            yield
    finally:
        _labels.reset(token)


# -- 64-bit types -----------------------------------------------------------------------------------------------------


@contextmanager
def wide_types(graph: Graph) -> Iterator[None]:
    """Turn JAX's 64-bit types on for this thread meanwhile, if the graph has any; without, JAX narrows them."""
    with jax.enable_x64(True) if not _config.jax_enable_x64 and _is_wide(graph) else nullcontext():
        yield


def _is_wide(graph: Graph) -> bool:
    """Whether a value of the graph has 64-bit numbers; those of regions are operands or results, or show themselves
    when the region is evaluated.
    """
    values = (*graph.params, *(value for eqn in graph.equations for value in eqn.results))
    return any(_is_wide_type(value.type) for value in values)


def _is_wide_type(type: TensorType) -> bool:
    return type.dtype.bits > (64 if type.dtype.is_complex else 32)


# -- shard_map --------------------------------------------------------------------------------------------------------


def varying_axes(values: Sequence[Any]) -> frozenset[str]:
    """The axes of `shard_map`, with its checks on, along which any of the values may differ from device to device."""
    found: frozenset[str] = frozenset()
    return found.union(*[varying_axes_of(jax.typeof(value)) for value in values])


def varied(values: Sequence[Any], axes: frozenset[str]) -> list[Any]:
    """The values as ones that may differ along all these axes: what loops and branches take must agree in that."""
    if not axes:
        return list(values)
    return [_varied(value, axes - varying_axes_of(jax.typeof(value))) for value in values]


def _varied(value: Any, axes: frozenset[str]) -> Any:
    return lax.pcast(value, tuple(sorted(axes)), to="varying") if axes else value


def varied_as(value: Any, aval: Any) -> Any:
    """The value as one that may differ at least along the axes along which values of JAX's type `aval` do."""
    axes = varying_axes_of(aval)
    return _varied(value, axes - varying_axes_of(jax.typeof(value))) if axes else value


def varied_alike(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """`varied_as` of each value, with the type of the one at its place."""
    return [varied_as(value, jax.typeof(other)) for value, other in zip(values, others, strict=True)]


def axes_of_results(function: Callable[..., Sequence[Any]], operands: Sequence[Any]) -> list[frozenset[str]]:
    """For each result of a function of arrays, the axes along which it may differ."""
    return [varying_axes_of(aval) for aval in jax.make_jaxpr(function)(*operands).out_avals]


def varied_for_steps(step: Callable[..., Sequence[Any]], state: Sequence[Any], axes: frozenset[str]) -> list[Any]:
    """The state of a loop as values that differ wherever steps make them differ: types stay the same in a loop.

    Args:
        step: the state to the next one.
        state: before the first step.
        axes: along which anything differs that a step reads.
    """
    state = list(state)
    while any(axes - varying_axes_of(jax.typeof(value)) for value in state):
        found = axes_of_results(step, state)
        wider = [varied([value], one)[0] for value, one in zip(state, found, strict=True)]
        if all(one is other for one, other in zip(wider, state, strict=True)):
            break
        state = wider
    return state


# -- derivatives of our own -------------------------------------------------------------------------------------------


def graph_of(op: Op, types: Sequence[TensorType]) -> Graph:
    """The graph of one equation."""
    b = Builder(op.name)
    params = [b.parameter(type) for type in types]
    return b.build(*b.emit(op, *params))


def with_own_jvp(function: Callable[..., Sequence[Any]], eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """Apply `function`, which computes the equation's results, with the op's own rule for its derivative.

    For ops whose derivative JAX takes otherwise, or not at all. The function depends on the op alone.
    """
    results: Sequence[Any] = _derived(function, eqn.op, eqn.operand_types)(*operands)
    return results


@functools.lru_cache(maxsize=1024)
def _derived(function: Callable[..., Sequence[Any]], op: Op, types: tuple[TensorType, ...]) -> Callable[..., Any]:
    return forward_differentiated(graph_of(op, types), function)


def forward_differentiated(graph: Graph, function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """A function whose derivative is that of our own jvp of its graph; `function` computes its values."""

    def forward(present: tuple[bool, ...], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        differentiated = jvp(graph, present)
        results = evaluate(differentiated.graph, (*primals, *tangents))
        return results[: len(graph.results)], _spread(results[len(graph.results) :], differentiated.has_tangent)

    return differentiable_call(function, forward)


def linearized(graph: Graph, function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """A function whose derivative is split into forward and linear part by our own partial evaluation of its graph.

    Checkpoint regions so save what their policies let them, under whatever transformation of JAX's.

    Args:
        graph: the function's graph.
        function: computes its values.
    """

    def forward(present: tuple[bool, ...], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        parts = linearize(graph, present)
        results = evaluate(parts.forward, primals)
        count = len(graph.results)
        return results[:count], tangents_of(parts, results[count:], tangents)

    return differentiable_call(function, forward)


def tangents_of(parts: Linearized, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of a linearized graph's results; None for those that have none."""
    return _spread(evaluate(parts.linear, (*residuals, *tangents)), parts.has_tangent)


def _spread(tangents: Sequence[Any], has_tangent: Sequence[bool]) -> list[Any]:
    """The tangents of all results; None for those that have none."""
    given = iter(tangents)
    return [next(given) if is_set else None for is_set in has_tangent]


Forward = Callable[[tuple[bool, ...], Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]]


def differentiable_call(function: Callable[..., Sequence[Any]], forward: Forward) -> Callable[..., Sequence[Any]]:
    """A function of JAX's with a forward derivative.

    Args:
        function: of arrays, to a tuple of arrays.
        forward: (which operands have tangents, operands, these tangents) to (results, their tangents or None).
    """
    wrapped: Any = jax.custom_jvp(function)

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        present = tuple([_is_present(primal, tangent) for primal, tangent in zip(primals, tangents, strict=True)])
        given = [tangent for tangent, is_set in zip(tangents, present, strict=True) if is_set]
        if not given:
            results: Sequence[Any] = function(*primals)
            outgoing: Sequence[Any] = [None] * len(results)
        else:
            results, outgoing = forward(present, primals, given)
        pairs = zip(outgoing, results, strict=True)
        return tuple(results), tuple([no_tangent(y) if t is None else varied_as(t, jax.typeof(y)) for t, y in pairs])

    wrapped.defjvp(rule, symbolic_zeros=True)
    found: Callable[..., Sequence[Any]] = wrapped
    return found


def _is_present(primal: Any, tangent: Any) -> bool:
    if isinstance(tangent, jax.custom_derivatives.SymbolicZero):
        return False
    return bool(jax.numpy.issubdtype(jax.typeof(primal).dtype, np.inexact))


def no_tangent(value: Any) -> Any:
    """The zero tangent of a value, which is known to be zero: what depends on it alone has none either."""
    return jax.custom_derivatives.SymbolicZero(jax.typeof(value).to_tangent_aval())
