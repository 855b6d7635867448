"""The cut that needs no thought: a function's equations in equal runs, each in `jax.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core


def cut_into_runs(function: Callable[..., Any], arguments: tuple[Any, ...], count: int) -> Callable[..., Any]:
    """The same function; its jaxpr's top-level equations evaluated in `count` checkpointed runs of equal length."""
    closed = jax.make_jaxpr(function)(*arguments)
    jaxpr = closed.jaxpr
    # Each equation's last reader decides what a run returns.
    last_read = {var: index for index, eqn in enumerate(jaxpr.eqns) for var in eqn.invars if _is_var(var)}
    last_read.update({var: len(jaxpr.eqns) for var in jaxpr.outvars if _is_var(var)})
    length = -(-len(jaxpr.eqns) // count)

    def cut(*operands: Any) -> Any:
        env = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        env.update(zip(jaxpr.invars, jax.tree_util.tree_leaves(operands), strict=True))
        for start in range(0, len(jaxpr.eqns), length):
            end = min(start + length, len(jaxpr.eqns))
            eqns = jaxpr.eqns[start:end]
            made = dict.fromkeys(var for eqn in eqns for var in eqn.outvars)
            needed = dict.fromkeys(var for eqn in eqns for var in eqn.invars if _is_var(var) and var not in made)
            results = [var for var in made if last_read.get(var, -1) >= end]
            values = _checkpointed(eqns, list(needed), results)(*[env[var] for var in needed])
            env.update(zip(results, values, strict=True))
        (result,) = [env[var] for var in jaxpr.outvars]
        return result

    return cut


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, core.Literal)


def _checkpointed(eqns: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Any]:
    @jax.checkpoint
    def run(*operands: Any) -> Any:
        env = dict(zip(inputs, operands, strict=True))
        for eqn in eqns:
            values = [env[atom] if _is_var(atom) else atom.val for atom in eqn.invars]
            results = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
            env.update(zip(eqn.outvars, results if eqn.primitive.multiple_results else [results], strict=True))
        return [env[var] for var in outputs]

    return run
