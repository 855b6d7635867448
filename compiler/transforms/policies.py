"""The policies that users pass."""

from __future__ import annotations

from rematc.compiler.jax_import.policies import adopted
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.policy import Policy
from rematc.passes.policies import as_policy


def policy_argument(policy: object) -> Policy:
    """A policy from what users pass: text, a policy of ours or of JAX's, a function of ops or of JAX's primitives.

    What is wrong with it is an error at their line.
    """
    try:
        return adopted(as_policy(policy))
    except CompileError as error:
        error.loc = error.loc or user_location()
        raise


def whole_policy(policy: object) -> Policy | None:
    """The policy on a whole function; None and "none" mean that there is no checkpoint around it."""
    return None if policy is None or policy == "none" else policy_argument(policy)
