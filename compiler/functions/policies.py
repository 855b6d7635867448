"""The policies that users pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rematc.compiler.frontends.jax.policies import adopted
from rematc.compiler.tracing.user_location import user_location, warn_user
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.passes.policies import OnlyNames, as_policy
from rematc.passes.policy_names import unknown_names


def policy_argument(policy: object) -> Policy:
    """A policy from what users pass: text, a policy of ours or of JAX's, a function of ops or of JAX's primitives.

    What is wrong with it is an error at their line.
    """
    try:
        return adopted(as_policy(policy))
    except CompileError as error:
        error.loc = error.loc or user_location()
        raise


#: Whether a name that no value has is an error: the command's own policies must mean something.
_is_strict: ContextVar[bool] = ContextVar("unknown_names_are_errors", default=False)


@contextmanager
def strict_names() -> Iterator[None]:
    """Make it an error if a policy on a whole function speaks of a name that no value has."""
    token = _is_strict.set(True)
    try:
        yield
    finally:
        _is_strict.reset(token)


def check_whole_names(policy: Policy | None, graph: Graph, function: str) -> None:
    """Warn the user of names in the policy on a whole function that no value of it has; see `strict_names`."""
    unknown = unknown_names(policy, graph)
    if unknown is not None and policy is not None:
        _tell(f"the policy {policy.spec} on '{function}': {unknown}")


def check_kept_names(names: Sequence[str], graph: Graph, function: str) -> None:
    """The same for names whose values a budget keeps."""
    unknown = unknown_names(OnlyNames(tuple(names)), graph)
    if unknown is not None:
        _tell(f"the budget of '{function}' keeps {', '.join(names)}: {unknown}")


def _tell(message: str) -> None:
    if _is_strict.get():
        raise CompileError(message, user_location())
    warn_user(message)


def check_names(policy: Policy | None, graph: Graph, function: str) -> None:
    """The same for a checkpoint. A policy that several checkpoints share may speak of names that one of them lacks:
    the user hears of it where none of its names is there, or one is spelled nearly like one that is.
    """
    unknown = unknown_names(policy, graph)
    if policy is not None and unknown is not None and (unknown.is_complete or unknown.near):
        warn_user(f"the policy {policy.spec} of a checkpoint of '{function}': {unknown}")


@dataclass(slots=True)
class Default:
    """The policy of derivatives that have none of their own, and whether there was one."""

    policy: Policy | None
    is_taken: bool = False


_default: ContextVar[Default] = ContextVar("policy_of_derivatives_without_one")


@contextmanager
def by_default(policy: Policy | None) -> Iterator[Default]:
    """Trace what `jit(..., policy=...)` compiles: derivatives in it that have no policy have this one."""
    found = Default(policy)
    if policy is None:
        yield found
        return
    token = _default.set(found)
    try:
        yield found
    finally:
        _default.reset(token)


def default_policy() -> Policy | None:
    """The policy of a derivative that has none of its own."""
    default = _default.get(None)
    if default is None:
        return None
    default.is_taken = True
    return default.policy


def whole_policy(policy: object) -> Policy | None:
    """The policy on a whole function; None and "none" mean that there is no checkpoint around it."""
    return None if policy is None or policy == "none" else policy_argument(policy)
