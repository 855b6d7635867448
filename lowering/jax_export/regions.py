"""Export of ops that own graphs: calls, checkpoints, loops, branches, custom derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
from jax import checkpoint as jax_checkpoint  # by name: users may put rematc.jax.checkpoint in its place
from jax.experimental.xla_metadata import set_xla_metadata

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.custom_vjp import CustomLinear, CustomVjp
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.traversal import all_equations
from rematc.ir.types import TensorType
from rematc.lowering.jax_export.evaluating import (
    axes_of_results,
    evaluate,
    exports,
    forward_differentiated,
    graph_of,
    lax,
    linearized,
    no_tangent,
    varied,
    varied_alike,
    varied_as,
    varied_for_steps,
    varying_axes,
)
from rematc.lowering.jax_export.opaque import opaque
from rematc.lowering.jax_internals.checkpoints import policy_of_recomputation
from rematc.lowering.jax_internals.settings import without_remat3
from rematc.lowering.targeting import current_target


@exports(Call)
def call(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`jax.jit` of the function: a body that is called often is traced once."""
    assert isinstance(eqn.op, Call)
    function = _jitted(eqn.op.body)
    if eqn.op.is_inlineable:
        results: Sequence[Any] = function(*operands)
        return results
    # The attribute is what XLA's pass call-inliner reads. JAX leaves the function without annotations.
    with set_xla_metadata(inlineable="false"):  # type: ignore[no-untyped-call]
        kept: Sequence[Any] = function(*operands)
    return kept


@functools.lru_cache(maxsize=512)
def _jitted(body: Graph) -> Callable[..., Any]:
    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(body, operands))

    run.__name__ = run.__qualname__ = body.name
    return jax.jit(run)


#: Whether regions are `jax.checkpoint`, and JAX says what of them is saved.
_are_of_jax: ContextVar[bool] = ContextVar("regions_are_of_jax", default=False)


@contextmanager
def regions_of_jax() -> Iterator[None]:
    """While graphs are applied that hold what a policy of `jax.checkpoint` around them knows, and what it does not."""
    token = _are_of_jax.set(True)
    try:
        yield
    finally:
        _are_of_jax.reset(token)


@exports(Checkpoint)
def checkpoint(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """A function whose derivative saves what the region's policy lets it; of its backward side, `jax.checkpoint`."""
    op = eqn.op
    assert isinstance(op, Checkpoint)
    if op.is_differentiated or _are_of_jax.get():
        return _recomputing(op)(*operands)
    return _checkpointed(op, eqn.operand_types)(*operands)


@functools.lru_cache(maxsize=512)
def _checkpointed(op: Checkpoint, types: tuple[TensorType, ...]) -> Callable[..., Sequence[Any]]:
    if knows_jax_alone(op.body):
        return _checkpoint_of_jax(op)
    return linearized(graph_of(op, types), lambda *operands: tuple(evaluate(op.body, operands)))


def knows_jax_alone(graph: Graph) -> bool:
    """Whether an op has a derivative of the user's that was not traced, which JAX finds where it differentiates."""
    ops = [eqn.op for eqn in all_equations(graph)]
    return any(isinstance(op, CustomDerivative) and not op.has_rule and op.source is not None for op in ops)


def _checkpoint_of_jax(op: Checkpoint) -> Callable[..., Sequence[Any]]:
    """`jax.checkpoint` of a region that JAX has to differentiate; it saves nothing, which every policy allows."""

    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(op.body, operands))

    run.__name__ = run.__qualname__ = op.body.name
    if op.policy is not None and op.policy.is_everything:
        return run
    return jax_checkpoint(run, prevent_cse=_of_jax(op))


def _of_jax(op: Checkpoint) -> bool | tuple[bool, ...]:
    """What `jax.checkpoint` is told of `prevent_cse`."""
    return op.prevent_cse if isinstance(op.prevent_cse, tuple) else op.prevent_cse is not False


@functools.lru_cache(maxsize=512)
def _recomputing(op: Checkpoint) -> Callable[..., Sequence[Any]]:
    """What computes again from its operands: JAX must save nothing by itself of it, and keep it behind its barrier."""

    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(op.body, operands))

    run.__name__ = run.__qualname__ = op.body.name
    prevent_cse = _of_jax(op)

    def recompute(*operands: Any) -> Sequence[Any]:
        # JAX's newer checkpoint cannot be transposed, and these are linear.
        with without_remat3():
            is_apart = not current_target().barriers_hold
            policy = policy_of_recomputation() if is_apart else None
            recomputed = jax_checkpoint(run, prevent_cse=prevent_cse, policy=policy)
            results: Sequence[Any] = recomputed(*operands)
        return results

    return recompute


@exports(Scan)
def scan(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.scan`."""
    op = eqn.op
    assert isinstance(op, Scan)
    consts, carry, xs = op.parts(operands)

    def step(state: Any, slices: Any) -> Any:
        results = evaluate(op.body, (*consts, *state, *slices))
        return tuple(varied_alike(results[: op.carry], state)), tuple(results[op.carry :])

    def of_one(*state: Any) -> Any:
        slices = [varied_as(lax.full(x.shape[1:], 0, x.dtype), jax.typeof(x)) for x in xs]
        return step(state, slices)[0]

    state = varied_for_steps(of_one, carry, varying_axes(operands))
    last, stacks = lax.scan(step, tuple(state), tuple(xs), op.length, op.is_reversed, op.unroll)
    return (*last, *stacks)


@exports(While)
def while_(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.while_loop`."""
    op = eqn.op
    assert isinstance(op, While)
    cond_consts, body_consts, carry = op.parts(operands)

    def is_on(state: Any) -> Any:
        return evaluate(op.cond, (*cond_consts, *state))[0]

    def step(state: Any) -> Any:
        return tuple(varied_alike(evaluate(op.body, (*body_consts, *state)), state))

    first = varied_for_steps(lambda *state: step(state), carry, varying_axes(operands))
    found: Sequence[Any] = lax.while_loop(is_on, step, tuple(first))
    return found


@exports(Case)
def case(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.switch`, which takes the first branch for an index below 0 and not the last."""
    op = eqn.op
    assert isinstance(op, Case)
    index, *rest = operands
    last = len(op.branches) - 1
    if not last:
        return evaluate(op.branches[0], rest)
    is_inside = lax.ge(index, lax.full_like(index, 0))
    chosen = lax.select(is_inside, index, lax.full_like(index, last))
    axes = [frozenset[str]()] * len(eqn.results)
    if varying_axes(operands):
        # As in JAX, whatever the index is.
        rows = [axes_of_results(functools.partial(_evaluated, branch), rest) for branch in op.branches]
        axes = [frozenset[str]().union(*row) for row in zip(*rows, strict=True)]
    branches = [functools.partial(_branch, branch, axes) for branch in op.branches]
    found: Sequence[Any] = lax.switch(chosen, branches, *rest)
    return found


def _branch(graph: Graph, axes: Sequence[frozenset[str]], *operands: Any) -> tuple[Any, ...]:
    results = evaluate(graph, operands)
    return tuple([varied([value], one)[0] for value, one in zip(results, axes, strict=True)])


def _evaluated(graph: Graph, *operands: Any) -> Sequence[Any]:
    return evaluate(graph, operands)


# -- derivatives that the user gives ----------------------------------------------------------------------------------


@exports(CustomJvp)
def custom_jvp(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """What it was in JAX, which knows all derivatives; else `jax.custom_jvp` of the rule.

    An adjoint that stands beside the rule is applied by our own transposition.
    """
    op = eqn.op
    assert isinstance(op, CustomJvp)
    if op.source is not None:
        return list(op.source(*operands))
    if op.adjoint is not None:
        return opaque(eqn, operands)
    return _with_rule(op, eqn.operand_types)(*operands)


@functools.lru_cache(maxsize=512)
def _with_rule(op: CustomJvp, types: tuple[TensorType, ...]) -> Callable[..., Sequence[Any]]:
    return forward_differentiated(graph_of(op, types), lambda *operands: tuple(evaluate(op.body, operands)))


@exports(CustomVjp)
def custom_vjp(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`jax.custom_vjp`."""
    op = eqn.op
    assert isinstance(op, CustomVjp)
    if op.source is not None:
        return list(op.source(*operands))
    if op.forward is None or op.backward is None:
        return evaluate(op.body, operands)
    return _with_backward(op)(*operands)


@functools.lru_cache(maxsize=512)
def _with_backward(op: CustomVjp) -> Callable[..., Sequence[Any]]:
    forward, backward = op.forward, op.backward
    assert forward is not None and backward is not None
    count = len(op.body.results)

    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(op.body, operands))

    def run_forward(*operands: Any) -> tuple[Any, Any]:
        results = evaluate(forward, operands)
        return tuple(results[:count]), (tuple(results[count:]), operands)

    def run_backward(saved: Any, cts: Any) -> tuple[Any, ...]:
        residuals, operands = saved
        present = [ct for ct, is_set in zip(cts, op.of, strict=True) if is_set]
        given = iter(evaluate(backward, (*residuals, *present)))
        pairs = zip(op.wrt, operands, strict=True)
        return tuple([varied_as(next(given), jax.typeof(x)) if is_set else no_tangent(x) for is_set, x in pairs])

    wrapped: Any = jax.custom_vjp(run)
    wrapped.defvjp(run_forward, run_backward)
    found: Callable[..., Sequence[Any]] = wrapped
    return found


exports(CustomLinear)(opaque)
