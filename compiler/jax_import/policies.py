"""Policies of `jax.checkpoint` as policies on the IR.

JAX's own become ours of the same name. Any other callable decides by JAX's primitives: it is asked about each equation
of its region at import, with the primitive, abstract values and parameters that JAX would give it, and what it answers
is kept as a label on the equation's results. What differentiation adds has no such equation; there the op is described
by the primitive that means the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from rematc.ir.core import Op, Types, Value
from rematc.ir.errors import CompileError
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.structural import Name
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy, Recompute, Save
from rematc.lowering import jax_adapter
from rematc.passes import policies

JaxPolicy = Callable[..., Any]

#: Equations whose own equations are asked about instead.
CONTAINERS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "call", "core_closed_call", "scan", "while", "cond", "remat2"),
        *("remat", "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat_opt"),
        *("custom_lin", "custom_linear_solve"),
    }
)
#: Ops that derivatives are made of, and the primitive that means the same.
_PRIMITIVES = {
    "add": "add",
    "convert": "convert_element_type",
    "cosine": "cos",
    "divide": "div",
    "exponential": "exp",
    "log": "log",
    "logistic": "logistic",
    "multiply": "mul",
    "negate": "neg",
    "power": "pow",
    "reduce_max": "reduce_max",
    "reduce_sum": "reduce_sum",
    "reshape": "reshape",
    "rsqrt": "rsqrt",
    "select": "select_n",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "sub",
    "tanh": "tanh",
    "transpose": "transpose",
    "compare": "eq",
    "broadcast_in_dim": "broadcast_in_dim",
}


_STRENGTH = (Save, Offload, Recompute)


def policy_of(policy: JaxPolicy | None, depth: int) -> Policy | None:
    """Our policy for one of `jax.checkpoint`'s; None for JAX's default.

    Args:
        policy: the callable that JAX calls with (primitive, *abstract values, **parameters).
        depth: how many policies are asked around this one.
    """
    if policy is None:
        return None
    known = _builtin(policy)
    return known if known is not None else AskedPolicy(policy, _source(policy), f"@policy{depth}")


def _builtin(policy: JaxPolicy) -> Policy | None:
    """Ours, for a policy that JAX defines."""
    given = jax.checkpoint_policies
    for name in (
        *("everything_saveable", "nothing_saveable", "dots_saveable", "checkpoint_dots"),
        *("dots_with_no_batch_dims_saveable", "checkpoint_dots_with_no_batch_dims"),
    ):
        if policy == getattr(given, name, None):
            found: Policy = getattr(policies, name)
            return found
    return _made(policy) if str(getattr(policy, "__module__", "")).startswith("jax.") else None


def _made(policy: JaxPolicy) -> Policy | None:
    """Ours, for what one of JAX's functions returned; its arguments are in the closure, or the fields."""
    maker = getattr(policy, "__qualname__", type(policy).__name__).partition(".<locals>")[0]
    held = inspect.getclosurevars(policy).nonlocals if inspect.isfunction(policy) else vars(policy)
    match maker, held:
        case ("save_only_these_names", {"names_which_can_be_saved": names}) | (
            "SaveOnlyTheseNames",
            {"saveable_names": names},
        ):
            return policies.save_only_these_names(*sorted(names))
        case ("save_any_names_but_these", {"names_not_to_save": names}) | ("SaveAnyNamesButThese", {"names": names}):
            return policies.save_any_names_but_these(*sorted(names))
        case "save_and_offload_only_these_names", {
            "names_which_can_be_saved": saved,
            "names_which_can_be_offloaded": offloaded,
            "offload_src": src,
            "offload_dst": dst,
        }:
            return policies.save_and_offload_only_these_names(
                names_which_can_be_saved=sorted(saved),
                names_which_can_be_offloaded=sorted(offloaded),
                offload_src=src,
                offload_dst=dst,
            )
        case "offload_dot_with_no_batch_dims", {"offload_src": src, "offload_dst": dst}:
            return policies.offload_dot_with_no_batch_dims(src, dst)
        case "save_from_both_policies", {"policy_1": first, "policy_2": second}:
            one, other = _builtin(first), _builtin(second)
            return None if one is None or other is None else policies.save_from_both_policies(one, other)
    return None


def _source(policy: JaxPolicy) -> str:
    code = getattr(policy, "__code__", None)
    name = getattr(policy, "__qualname__", type(policy).__qualname__)
    return f"{code.co_filename}:{name}" if code else name


@dataclass(frozen=True, slots=True)
class AskedPolicy(policies.BuiltinPolicy):
    """A callable that decides by JAX's primitives.

    Attributes:
        function: called with (primitive, *abstract values, **parameters).
        source: its file and name.
        label: what its answers are marked by on the values of its region.
    """

    function: JaxPolicy
    source: str
    label: str

    @property
    def spec(self) -> str:
        return self.source

    def mark(self, eqn: Any) -> Name:
        """The label for the results of an equation. Raises CompileError for an answer that is none."""
        avals = [atom.aval for atom in eqn.invars]
        return Name(_written(self.label, self._ask(eqn.primitive, avals, eqn.params)))

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        answers = [_read(name) for name in names if name.startswith(f"{self.label}:")]
        if answers:
            # A value and its names are one: the strongest answer counts.
            return (min(answers, key=lambda one: _STRENGTH.index(type(one))),)
        described = _described(op, operands)
        if described is None:
            return (RECOMPUTE,)
        try:
            return (self._ask(*described),)
        except KeyError:
            return (RECOMPUTE,)  # it reads a parameter that only JAX's own equations have

    def _ask(self, primitive: Any, avals: Sequence[Any], params: dict[str, Any]) -> Decision:
        answer = self.function(primitive, *avals, **_without_clashes(self.function, params))
        if isinstance(answer, bool):
            return SAVE if answer else RECOMPUTE
        kind = type(answer).__name__
        if kind.startswith("Saveable"):
            return SAVE
        if kind.startswith("Recompute"):
            return RECOMPUTE
        if kind.startswith("Offloadable"):
            return Offload(answer.src, answer.dst)
        raise CompileError(
            f"the policy {self.source} returned {answer!r} for JAX's '{primitive.name}'; a policy of jax.checkpoint "
            "returns True or False, or one of Saveable, Recompute and Offloadable(src, dst)"
        )


def _without_clashes(function: JaxPolicy, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters, but one with the name of the argument that takes the primitive."""
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return params  # a builtin, which does not say
    return {name: value for name, value in params.items() if name != first}


def _written(label: str, decision: Decision) -> str:
    if isinstance(decision, Offload):
        return f"{label}:offload:{decision.src}:{decision.dst}"
    return f"{label}:{'save' if decision is SAVE else 'recompute'}"


def _read(name: str) -> Decision:
    _, what, *memories = name.split(":")
    if what == "offload":
        return Offload(*memories)
    return SAVE if what == "save" else RECOMPUTE


def _described(op: Op, operands: Types) -> tuple[Any, list[Any], dict[str, Any]] | None:
    """(primitive, abstract values, parameters) of an op that differentiation added."""
    avals = [jax_adapter.abstract_value(type) for type in operands]
    if isinstance(op, DotGeneral):
        return jax.lax.dot_general_p, avals, {"dimension_numbers": (op.contract, op.batch)}
    name = _PRIMITIVES.get(op.name)
    return None if name is None else (getattr(jax.lax, f"{name}_p"), avals, {})


def marked(asked: Sequence[AskedPolicy], b: Any, eqn: Any, results: Sequence[Value]) -> list[Value]:
    """The results of an equation under the labels that say what each policy around decided."""
    if eqn.primitive.name in CONTAINERS:
        return list(results)
    values = list(results)
    for policy in asked:
        mark = policy.mark(eqn)
        values = [b.emit1(mark, value) for value in values]
    return values
