"""Which names a policy speaks of that no value has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rematc.ir.core import Graph
from rematc.ir.ops.structural import Name
from rematc.ir.policy import Policy, is_private
from rematc.ir.spelling import nearest
from rematc.ir.traversal import all_equations
from rematc.passes.policies import AnyNamesBut, AnythingExceptNames, Either, OffloadNames, OnlyNames


@dataclass(frozen=True, slots=True)
class UnknownNames:
    """Names of a policy that no value has.

    Attributes:
        names: these, in the policy's order.
        known: the names that values have.
        is_complete: whether these are all the names of the policy.
    """

    names: tuple[str, ...]
    known: tuple[str, ...]
    is_complete: bool

    @property
    def near(self) -> dict[str, str]:
        """For each of the names, the one that is spelled nearly so."""
        pairs = [(name, nearest(name, self.known)) for name in self.names]
        return {name: found[0] for name, found in pairs if found}

    def __str__(self) -> str:
        near = self.near
        listed = ", ".join(
            [f"'{name}'" + (f" (did you mean '{near[name]}'?)" if name in near else "") for name in self.names]
        )
        there = ", ".join(self.known) or "none; give them with checkpoint_name"
        return f"no value has the name{'s' * (len(self.names) > 1)} {listed}; names there: {there}"


def unknown_names(policy: Policy | None, graph: Graph) -> UnknownNames | None:
    """The names of the policy on a graph that no value in it has; None where all are there."""
    wanted = dict.fromkeys(_names_of(policy))
    if not wanted:
        return None
    known = dict.fromkeys(_names_in(graph))
    missing = tuple([name for name in wanted if name not in known])
    return UnknownNames(missing, tuple(sorted(known)), len(missing) == len(wanted)) if missing else None


def _names_of(policy: Policy | None) -> Sequence[str]:
    match policy:
        case Either(first, second):
            return (*_names_of(first), *_names_of(second))
        case OnlyNames(names) | AnyNamesBut(names) | AnythingExceptNames(names) | OffloadNames(names):
            return [name for name in names if not is_private(name)]
    return ()


def _names_in(graph: Graph) -> Iterator[str]:
    for eqn in all_equations(graph):
        if isinstance(eqn.op, Name) and not is_private(eqn.op.label):
            yield eqn.op.label
