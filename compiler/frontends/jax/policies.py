"""Policies of `jax.checkpoint` as policies on the IR.

JAX's own become ours of the same name. Any other callable decides by JAX's primitives: it is asked about each equation
of its region at import, with the primitive, abstract values and parameters that JAX would give it, and what it answers
is kept as a label on the equation's results. What differentiation adds, and what comes from NumPy, has no such
equation; there the op is described by the equation of JAX's that it is exported as.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax

from rematc.compiler.frontends.jax.placing import OfType
from rematc.ir.collecting import users_code
from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError, MissingRuleError
from rematc.ir.ops.collective import Collective
from rematc.ir.ops.devices import DeviceCollective, DeviceVary
from rematc.ir.ops.mapped import Border
from rematc.ir.ops.placement import Placement
from rematc.ir.ops.structural import Name
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy, Recompute, Save
from rematc.ir.traversal import all_equations
from rematc.ir.values import Types, Value
from rematc.lowering import caches
from rematc.lowering.jax_export.evaluating import graph_of
from rematc.lowering.jax_export.exporting import apply_graph
from rematc.lowering.jax_internals.jaxprs import own_name
from rematc.lowering.jax_internals.shardings import on_devices, on_mesh, replicated
from rematc.passes import policies
from rematc.passes.manual_computations import has_borders
from rematc.passes.policy_base import BuiltinPolicy
from rematc.passes.policy_functions import PrimitivePolicy, source_of

JaxPolicy = Callable[..., Any]

#: Equations whose own equations are asked about instead.
CONTAINERS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "call", "core_closed_call", "scan", "while", "cond", "remat2"),
        *("remat", "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat_opt"),
        *("custom_lin", "custom_linear_solve", "rematc_checkpoint"),
    }
)
#: Primitives that place values, as placements call them; of others a type says it.
_PLACING = frozenset({"device_put", "layout_constraint", "relayout", "reshard", "sharding_constraint"})
_STRENGTH = (Save, Offload, Recompute)


#: The policies that are asked about each equation of JAX's which is imported now, outer ones first.
_around: ContextVar[tuple[AskedPolicy, ...]] = ContextVar("asked_policies_around", default=())


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OwnRegion:
    """What `rematc.jax.checkpoint` gives `jax.checkpoint` for a policy: the import knows the region by it.

    Attributes:
        policy: what may be saved; None is nothing.
        prevent_cse: as `rematc.jax.checkpoint` was given it, for each array.
        is_cut: whether it is to be cut into segments.
    """

    policy: Policy | None
    prevent_cse: bool | tuple[bool, ...] | None
    is_cut: bool

    def __call__(self, primitive: Any, *avals: Any, **params: Any) -> bool:
        """Nothing is saved. JAX does not ask: the region has a derivative of its own."""
        return False


def policy_of(policy: JaxPolicy | None, around: Sequence[AskedPolicy] = ()) -> Policy | None:
    """Our policy for one of `jax.checkpoint`'s; None for JAX's default.

    Args:
        policy: the callable that JAX calls with (primitive, *abstract values, **parameters).
        around: the policies that are asked around this one.
    """
    if isinstance(policy, OwnRegion):
        return None if policy.policy is None else labelled(policy.policy, around)
    if policy is None:
        return None
    if isinstance(policy, BuiltinPolicy):
        return labelled(adopted(policy), around)  # one of ours that was given to jax.checkpoint
    known = _builtin(policy)
    return known if known is not None else labelled(_asked(policy, source_of(policy)), around)


def adopted(policy: Policy) -> Policy:
    """The policy, in which functions of JAX's primitives can be asked about ops."""
    if isinstance(policy, policies.Either):
        return policies.save_from_both_policies(adopted(policy.first), adopted(policy.second))
    if isinstance(policy, PrimitivePolicy):
        known = _builtin(policy.function)
        return known if known is not None else _asked(policy.function, policy.source)
    return policy


def _asked(function: JaxPolicy, source: str) -> AskedPolicy:
    return AskedPolicy(function, source, f"@{source.rpartition(':')[2]}")


def labelled(policy: Policy, around: Sequence[AskedPolicy]) -> Policy:
    """The policy, with labels for its answers that are not those of another policy around it."""
    if isinstance(policy, policies.Either):
        first = labelled(policy.first, around)
        return policies.save_from_both_policies(first, labelled(policy.second, (*around, *asked_in(first))))
    if not isinstance(policy, AskedPolicy):
        return policy
    taken = {one.label for one in around if one.function is not policy.function}
    label = policy.label
    while label in taken:
        label += "'"
    return replace(policy, label=label)


def asked_in(policy: Policy | None) -> tuple[AskedPolicy, ...]:
    """The functions of JAX's primitives in a policy."""
    if isinstance(policy, policies.Either):
        return (*asked_in(policy.first), *asked_in(policy.second))
    return (policy,) if isinstance(policy, AskedPolicy) else ()


@contextmanager
def asking(policy: Policy | None) -> Iterator[Policy | None]:
    """Trace or import what this policy is on; gives the policy, with labels of its own."""
    around = _around.get()
    found = None if policy is None else labelled(policy, around)
    token = _around.set((*around, *asked_in(found)))
    try:
        yield found
    finally:
        _around.reset(token)


def asked_around() -> tuple[AskedPolicy, ...]:
    """The policies that are to be asked about what is imported now, outer ones first."""
    return _around.get()


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


@dataclass(frozen=True, slots=True)
class AskedPolicy(BuiltinPolicy):
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
        with users_code():
            answer = self.function(primitive, *avals, **_without_clashes(self.function, params))
        decision = decision_of(answer)
        if decision is not None:
            return decision
        raise CompileError(
            f"the policy {self.source} returned {answer!r} for JAX's '{primitive.name}'; a policy of jax.checkpoint "
            "returns True or False, or one of Saveable, Recompute and Offloadable(src, dst)"
        )


def decision_of(answer: Any) -> Decision | None:
    """What a policy of JAX's means by its answer; None where it is no answer."""
    if isinstance(answer, bool):
        return SAVE if answer else RECOMPUTE
    kind = type(answer).__name__
    if kind.startswith("Saveable"):
        return SAVE
    if kind.startswith("Recompute"):
        return RECOMPUTE
    return Offload(answer.src, answer.dst) if kind.startswith("Offloadable") else None


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
    """(primitive, abstract values, parameters) of the equation of JAX's that an op means; None where there is none."""
    try:
        return _exported(op, tuple(operands))
    except MissingRuleError:
        return None


def _traced(op: Op, operands: Types) -> Any:
    graph = graph_of(op, operands)
    struct: Any = jax.ShapeDtypeStruct
    sources = [eqn.op.source for eqn in all_equations(graph) if isinstance(eqn.op, Placement)]
    typed = [source.mesh for source in sources if isinstance(source, OfType)]
    # What types say, JAX asks only of values that have such types; inside of regions it is said on the mesh around.
    mesh = typed[0] if typed and isinstance(op, Placement) else None

    def traced() -> Any:
        sharding = None if mesh is None else replicated(mesh)
        given = [struct(type.shape, type.dtype.numpy, sharding=sharding) for type in operands]
        return jax.make_jaxpr(lambda *arrays: tuple(apply_graph(graph, arrays)))(*given).jaxpr

    sizes = _devices_of(graph)
    with jax.enable_x64(True), contextlib.nullcontext() if typed and mesh is None else on_mesh(mesh):
        # What comes back to a loop would have to differ from device to device as what it begins with.
        return on_devices(sizes, traced, is_checked=not op.regions()) if sizes else traced()


def _devices_of(graph: Graph) -> dict[str, int]:
    """The axes whose devices tell each other what a graph computes, and how many there are; none of its own maps."""
    found: dict[str, int] = {}
    for eqn in () if has_borders(graph) else all_equations(graph):
        if isinstance(eqn.op, DeviceCollective | DeviceVary):
            found.update(zip(eqn.op.over, eqn.op.sizes, strict=True))
        elif isinstance(eqn.op, Collective):
            found[eqn.op.axis] = eqn.op.size
    return found


@lru_cache(maxsize=1 << 12)
def _exported(op: Op, operands: Types) -> tuple[Any, list[Any], dict[str, Any]] | None:
    if isinstance(op, Border) or (isinstance(op, Placement) and op.what not in _PLACING):
        return None  # the way into a `shard_map`, or out of it, and what types say: no equations
    jaxpr = _traced(op, operands)
    while True:
        made = [eqn for eqn in jaxpr.eqns if any(one is jaxpr.outvars[0] for one in eqn.outvars)]
        if not made:
            return None
        inner = made[0].params.get("call_jaxpr", made[0].params.get("jaxpr"))
        if inner is None or made[0].primitive.name not in CONTAINERS:
            return made[0].primitive, [atom.aval for atom in made[0].invars], made[0].params
        jaxpr = getattr(inner, "jaxpr", inner)


caches.table(_exported.cache_clear)


def marked(asked: Sequence[AskedPolicy], b: Any, eqn: Any, results: Sequence[Value]) -> list[Value]:
    """The results of an equation under the labels that say what each policy around decided."""
    if own_name(eqn.primitive) in CONTAINERS:
        return list(results)
    values = list(results)
    for policy in asked:
        mark = policy.mark(eqn)
        values = [b.emit1(mark, value) for value in values]
    return values
