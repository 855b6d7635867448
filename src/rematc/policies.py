"""Rematerialization policies, under JAX's names. See `rematc.passes.policies`."""

from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy
from rematc.passes.policies import (
    auto,
    checkpoint_dots,
    checkpoint_dots_with_no_batch_dims,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    everything_saveable,
    nothing_saveable,
    offload_dot_with_no_batch_dims,
    parse_policy,
    save_and_offload_only_these_names,
    save_any_names_but_these,
    save_anything_except_these_names,
    save_from_both_policies,
    save_only_these_names,
)
from rematc.passes.policy_functions import of_ops, of_primitives

__all__ = [
    "RECOMPUTE",
    "SAVE",
    "Decision",
    "Offload",
    "Policy",
    "auto",
    "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "nothing_saveable",
    "of_ops",
    "of_primitives",
    "offload_dot_with_no_batch_dims",
    "parse_policy",
    "save_and_offload_only_these_names",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_from_both_policies",
    "save_only_these_names",
]
