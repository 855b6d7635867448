"""What a JAX function's checkpoints would cost if they were placed well: the same loss under a policy on the whole.

A gradient made by `jax.grad` or `jax.value_and_grad` remembers the function that it is of (`__wrapped__`). That is
imported, the checkpoint regions in it dissolve, and rematc places its own under their policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from rematc.compiler.api.from_jax import from_jax
from rematc.compiler.api.transforms.gradients import value_and_grad
from rematc.compiler.driver.ahead import compile as compile_function
from rematc.compiler.functions.calls import TracedFunction, apply_graph, trace_call
from rematc.compiler.tracing.arguments import CallArguments
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.policy import Policy
from rematc.passes.barriers import Barriers
from rematc.passes.policies import nothing_saveable

#: More arguments than these are not tried out for which of them a gradient is with respect to.
_ARGUMENTS = 16


@dataclass(frozen=True, slots=True)
class Placed:
    """A loss under a policy on the whole.

    Attributes:
        policy: the policy's text: that of the function's own checkpoints.
        temp_bytes: temporary memory, as XLA reports it.
        flops: floating-point operations, a loop's body counted once.
    """

    policy: str
    temp_bytes: int
    flops: float


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The function that a gradient is of, what it is with respect to, and whether it returns auxiliary data too."""

    loss: Callable[..., Any]
    argnums: int | tuple[int, ...]
    has_aux: bool


def placed_well(function: Callable[..., Any], args: Sequence[Any], out_info: Any) -> Placed | None:
    """What the gradient that `function` computes takes with checkpoints placed by rematc.

    None where it is no gradient of `jax.grad` or `jax.value_and_grad`, perhaps under `jax.jit`, or cannot be imported.

    Args:
        function: the JAX function.
        args: its arguments.
        out_info: types of its results.
    """
    try:
        gradient = _gradient(function, args, out_info)
        if gradient is None:
            return None
        policy, loss = _bare(gradient.loss, args)
        compiled = compile_function(value_and_grad(loss, gradient.argnums, gradient.has_aux, policy=policy), *args)
    except CompileError:
        return None
    return Placed(policy.spec, compiled.memory().temp_bytes, compiled.flops())


def _gradient(function: Callable[..., Any], args: Sequence[Any], out_info: Any) -> _Gradient | None:
    """The outermost function that `function` wraps of which it gives the gradient."""
    leaves = jax.tree_util.tree_leaves(tuple(args))
    if len(args) > _ARGUMENTS or not all(_is_number(leaf) for leaf in leaves):
        return None
    found, given = _types(out_info), [_types(arg) for arg in args]
    loss = function
    while hasattr(loss, "__wrapped__"):
        loss = loss.__wrapped__
        value = _types(jax.eval_shape(loss, *args))
        if not value[1] or value[1][0][0] != ():
            continue
        has_aux = not jax.tree_util.treedef_is_leaf(value[0])
        for argnums in (*range(len(given)), *[tuple(range(count)) for count in range(1, len(given) + 1)]):
            wanted = given[argnums] if isinstance(argnums, int) else _types(tuple(args[index] for index in argnums))
            if found in _results(value, wanted, has_aux):
                return _Gradient(loss, argnums, has_aux)
    return None


#: The structure of some arrays, and their types.
_Types = tuple[Any, tuple[Any, ...]]


def _types(tree: Any) -> _Types:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return structure, tuple([(jax.typeof(leaf).shape, jax.typeof(leaf).dtype) for leaf in leaves])


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, complex)) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _results(value: _Types, gradients: _Types, has_aux: bool) -> list[_Types]:
    """What `value_and_grad` and `grad` would return of a function with this value."""
    if has_aux:
        children = value[0].children()
        if len(children) != 2 or not jax.tree_util.treedef_is_leaf(children[0]):
            return []
        aux = (children[1], value[1][children[0].num_leaves :])
        return [_pair(value, gradients), _pair(gradients, aux)]
    return [_pair(value, gradients), gradients]


def _pair(one: _Types, other: _Types) -> _Types:
    return jax.tree_util.treedef_tuple([one[0], other[0]]), (*one[1], *other[1])


def _bare(loss: Callable[..., Any], args: Sequence[Any]) -> tuple[Policy, Callable[..., Any]]:
    """The policy of a function's checkpoints, and the function without them."""
    imported = from_jax(loss)

    def bare(*arguments: Any) -> Any:
        call = CallArguments.of(imported, arguments, {})
        traced = trace_call(imported, call)
        operands = (*call.arrays, *_closed_over(traced))
        graph = Barriers("none").run(traced.graph)
        return jax.tree_util.tree_unflatten(traced.out_tree, apply_graph(graph, operands, traced.out_weak))

    traced = trace_call(imported, CallArguments.of(imported, tuple(args), {}))
    policies = {policy.spec: policy for policy in _policies(traced.graph)}
    policy = next(iter(policies.values())) if len(policies) == 1 else nothing_saveable
    return policy, bare


def _closed_over(traced: TracedFunction) -> tuple[object, ...]:
    return (*traced.captures, *traced.constants)


def _policies(graph: Graph) -> list[Policy]:
    """The policies of the outermost checkpoint regions of a graph, and of its loops' steps."""
    found: list[Policy] = []
    for eqn in graph.equations:
        if isinstance(eqn.op, Checkpoint):
            found.append(eqn.op.policy or nothing_saveable)
        elif isinstance(eqn.op, Scan):
            found.extend(_policies(eqn.op.body))
    return found
