"""The built-in policies, under JAX's names, and their text form (`dots+names=a,b`).

A policy is asked once per value that the backward graph needs and does not have. What it is told is the op that
computes the value, the op's operand types, and the names that `checkpoint_name` gave to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.bodies import chosen, settled
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.scan.op import Scan
from rematc.ir.policy import CROSSING, RECOMPUTE, SAVE, Decision, Offload, Policy, is_private
from rematc.ir.spelling import suggestion
from rematc.ir.values import Types, Value
from rematc.passes.policy_base import BuiltinPolicy, combined
from rematc.passes.policy_functions import load_policy, policy_of_function


def _save_if(condition: bool) -> tuple[Decision, ...]:
    return (SAVE if condition else RECOMPUTE,)


@dataclass(frozen=True, slots=True)
class Everything(BuiltinPolicy):
    """Every value may be saved: exactly as if there were no checkpoint."""

    is_everything = True
    spec = "everything"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return (SAVE,)


@dataclass(frozen=True, slots=True)
class Nothing(BuiltinPolicy):
    """Nothing but a region's operands is saved. The default of `checkpoint`."""

    spec = "nothing"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return (RECOMPUTE,)


@dataclass(frozen=True, slots=True)
class Dots(BuiltinPolicy):
    """Results of matrix products and convolutions are saved."""

    spec = "dots"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return _save_if(op.is_product)


def _taking_time(op: Op) -> tuple[bool, ...]:
    """Whether a result, or all alike, follows from more than work element by element and moves of data.

    A loop of known length, and branches, are what they do for a result: a loop that ends in products may still give the
    states of its steps, which are not made of them, by light work alone.
    """
    if isinstance(op, Case):
        return tuple([any(flags) for flags in zip(*map(_dear_results, op.branches), strict=True)])
    if isinstance(op, Scan):
        body, consts, xs = op.body, (False,) * op.consts, (False,) * (len(op.body.params) - op.consts - op.carry)
        flags, _, _ = settled(
            lambda carries: (dear := _dear_results(body, (*consts, *carries, *xs)), dear), (False,) * op.carry
        )
        return flags
    return (not (op.is_fusible or isinstance(op, Gather)),)


def _dear_results(graph: Graph, params: Sequence[bool] = ()) -> tuple[bool, ...]:
    """For each result of a graph the same, where what is flagged of the parameters takes time."""
    dear = set(chosen(graph.params, params)) if params else set[Value]()
    for eqn in graph.equations:
        flags = [not dear.isdisjoint(eqn.operands) or is_dear for is_dear in _taking_time(eqn.op)]
        dear.update(chosen(eqn.results, flags * len(eqn.results) if len(flags) == 1 else flags))
    return tuple([value in dear for value in graph.results])


@dataclass(frozen=True, slots=True)
class Auto(BuiltinPolicy):
    """Only elementwise work, which XLA computes with what reads it, and moves of data, gathers too, is done again.

    Of products, convolutions, reductions, sorts and all else that takes time nothing is done twice; loops are, for what
    their steps give by such light work alone. What is saved are the fewest bytes from which the rest follows.
    """

    spec = "auto"
    saves_least = True

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return tuple([SAVE if is_dear else RECOMPUTE for is_dear in _taking_time(op)])


def _is_unbatched_dot(op: Op) -> bool:
    return isinstance(op, DotGeneral) and not op.batch[0]


@dataclass(frozen=True, slots=True)
class DotsWithNoBatchDims(BuiltinPolicy):
    """Results of matrix products without batch dimensions are saved.

    In a transformer these are the projections, not the attention scores. Convolutions are not saved.
    """

    spec = "dots-no-batch"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return _save_if(_is_unbatched_dot(op))


@dataclass(frozen=True, slots=True)
class OffloadDotsWithNoBatchDims(BuiltinPolicy):
    """Results of matrix products without batch dimensions wait in host memory."""

    offload_src: str = "device"
    offload_dst: str = "pinned_host"

    @property
    def spec(self) -> str:
        return "offload-dots-no-batch"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return (Offload(self.offload_src, self.offload_dst),) if _is_unbatched_dot(op) else (RECOMPUTE,)


@dataclass(frozen=True, slots=True)
class OnlyNames(BuiltinPolicy):
    """Values with one of these names are saved, and nothing else."""

    names: tuple[str, ...]

    @property
    def spec(self) -> str:
        return f"names={','.join(self.names)}"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return _save_if(any(name in self.names for name in names))


@dataclass(frozen=True, slots=True)
class AnyNamesBut(BuiltinPolicy):
    """Values with any name are saved, except those with one of these."""

    names: tuple[str, ...]

    @property
    def spec(self) -> str:
        return f"any-names-but={','.join(self.names)}" if self.names else "any-names"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        own = [name for name in names if not is_private(name)]
        return _save_if(bool(own) and not any(name in self.names for name in own))


@dataclass(frozen=True, slots=True)
class AnythingExceptNames(BuiltinPolicy):
    """Every value is saved except those with one of these names, under whichever alias they are read."""

    names: tuple[str, ...]

    @property
    def spec(self) -> str:
        return f"except={','.join(self.names)}"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return _save_if(not any(name in self.names for name in names))


@dataclass(frozen=True, slots=True)
class OffloadNames(BuiltinPolicy):
    """Values with one of these names wait in host memory; with `names=c+offload=a,b` others are saved."""

    names: tuple[str, ...]
    offload_src: str = "device"
    offload_dst: str = "pinned_host"

    @property
    def spec(self) -> str:
        return f"offload={','.join(self.names)}"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        if any(name in self.names for name in names):
            return (Offload(self.offload_src, self.offload_dst),)
        return (RECOMPUTE,)


@dataclass(frozen=True, slots=True)
class Either(BuiltinPolicy):
    """Saved if either policy saves it; offloaded if one offloads it and none saves it."""

    first: Policy
    second: Policy

    @property
    def is_everything(self) -> bool:  # type: ignore[override]  # a property where the family has a constant
        return self.first.is_everything or self.second.is_everything

    @property
    def saves_least(self) -> bool:  # type: ignore[override]  # a property where the family has a constant
        return self.first.saves_least or self.second.saves_least

    @property
    def spec(self) -> str:
        return f"{self.first.spec}+{self.second.spec}"

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        return combined(self.first.decide(op, operands, names), self.second.decide(op, operands, names))


everything_saveable = Everything()
nothing_saveable = Nothing()
dots_saveable = checkpoint_dots = Dots()
auto = Auto()
dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = DotsWithNoBatchDims()


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Offload results of matrix products without batch dimensions from one memory to another."""
    return OffloadDotsWithNoBatchDims(offload_src, offload_dst)


def save_only_these_names(*names: str) -> Policy:
    """Save values with one of these names, and nothing else."""
    return OnlyNames(names) if names else nothing_saveable


def save_any_names_but_these(*names: str) -> Policy:
    """Save every named value except those with one of these names."""
    return AnyNamesBut(names)


def save_anything_except_these_names(*names: str) -> Policy:
    """Save every value except those with one of these names."""
    return AnythingExceptNames(names) if names else everything_saveable


def save_from_both_policies(first: object, second: object) -> Policy:
    """Save what either policy saves; offload what one of them offloads and none saves."""
    return _any_of([*_terms(as_policy(first)), *_terms(as_policy(second))])


def with_crossing(policy: Policy) -> Policy:
    """The policy on a segment: what crosses to other segments is saved for them, so this one may use it, too."""
    return _any_of([*_terms(policy), OnlyNames((CROSSING,))])


def _terms(policy: Policy) -> list[Policy]:
    """The policies that a combination is made of, in order."""
    terms: list[Policy] = []
    while isinstance(policy, Either):
        terms.append(policy.second)
        policy = policy.first
    return [policy, *reversed(terms)]


def _any_of(terms: Sequence[Policy]) -> Policy:
    """The combination of policies, nested the same way however it came about, so that its text parses back to it."""
    policy, *rest = terms
    for term in rest:
        policy = Either(policy, term)
    return policy


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Save some names, offload others. Raises CompileError where a name is in both lists."""
    both = sorted(set(names_which_can_be_saved) & set(names_which_can_be_offloaded))
    if both:
        raise CompileError(f"names cannot be both saved and offloaded: {', '.join(both)}; keep each in one list")
    offloaded = OffloadNames(tuple(names_which_can_be_offloaded), offload_src, offload_dst)
    saved = tuple(names_which_can_be_saved)
    return Either(OnlyNames(saved), offloaded) if saved else offloaded


# -- text ---------------------------------------------------------------------------------------------------------

_PLAIN: dict[str, Policy] = {
    "everything": everything_saveable,
    "nothing": nothing_saveable,
    "any-names": AnyNamesBut(()),
    "auto": auto,
    "dots": dots_saveable,
    "dots-no-batch": dots_with_no_batch_dims_saveable,
    "offload-dots-no-batch": OffloadDotsWithNoBatchDims(),
}
_NAMED: dict[str, Callable[[tuple[str, ...]], Policy]] = {
    "names": OnlyNames,
    "any-names-but": AnyNamesBut,
    "except": AnythingExceptNames,
    "offload": OffloadNames,
}
_JAX_NAMES = {
    "everything_saveable": "everything",
    "nothing_saveable": "nothing",
    "dots_saveable": "dots",
    "checkpoint_dots": "dots",
    "dots_with_no_batch_dims_saveable": "dots-no-batch",
    "checkpoint_dots_with_no_batch_dims": "dots-no-batch",
    "offload_dot_with_no_batch_dims": "offload-dots-no-batch",
    "save_only_these_names": "names",
    "save_any_names_but_these": "any-names-but",
    "save_anything_except_these_names": "except",
}


def describe_policies() -> list[tuple[str, str, str]]:
    """(short name, name in `rematc.policies`, what it does) of every built-in policy, for help texts.

    The names in `rematc.policies` are JAX's, where JAX has the policy.
    """
    rows = [("auto", "auto", _summary(auto))]
    for short, jax_name in ((s, j) for j, s in _JAX_NAMES.items() if not j.startswith("checkpoint_")):
        policy = _PLAIN[short] if short in _PLAIN else _NAMED[short](("a", "b"))
        rows.append((policy.spec, jax_name, _summary(policy)))
    offload = _NAMED["offload"](("a", "b"))
    rows.append((offload.spec, "save_and_offload_only_these_names", _summary(offload)))
    return rows


def _summary(policy: Policy) -> str:
    return " ".join((type(policy).__doc__ or "").split())


def parse_policy(text: str) -> Policy:
    """The policy written as `dots`, `names=a,b`, `dots+names=a`, or `file.py:function`.

    Raises CompileError for unknown names (with the nearest known one) and for files or functions that are not there.
    """
    return _any_of([_parse_term(term.strip()) for term in text.split("+")])


def _parse_term(term: str) -> Policy:
    if ".py:" in term:
        return load_policy(term)
    head, has_names, tail = term.partition("=")
    head = _JAX_NAMES.get(head, head)
    if head in _PLAIN and not has_names:
        return _PLAIN[head]
    if head in _NAMED:
        names = tuple(name.strip() for name in tail.split(",") if name.strip())
        if not names:
            raise CompileError(f"the policy '{head}' takes names: {head}=a,b")
        return _NAMED[head](names)
    hint = suggestion(head, [*_PLAIN, *_NAMED, *_JAX_NAMES])
    listed = ", ".join([*_PLAIN, *(f"{name}=a,b" for name in _NAMED), "file.py:function"])
    raise CompileError(f"unknown policy '{term}'{hint} (known: {listed}; combine with '+')")


def as_policy(policy: object) -> Policy:
    """A policy from what users pass: None (nothing is saved), text, a policy, or a function.

    Raises CompileError for anything else.
    """
    if policy is None:
        return nothing_saveable
    if isinstance(policy, str):
        return parse_policy(policy)
    if isinstance(policy, BuiltinPolicy):
        return policy
    if callable(policy):
        return policy_of_function(policy)
    raise CompileError(f"a policy is a name, a policy of rematc.policies or a function, not {policy!r}")
