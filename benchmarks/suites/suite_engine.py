"""How the adapters of others' tests run a traced function: by XLA, or by the NumPy reference interpreter.

Most of these tests are thousands of graphs of three equations each. XLA compiles one in some 30 ms, the interpreter
runs it in one; the environment variable `SUITE_ENGINE` chooses (`xla` or `reference`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax.tree_util
import numpy as np

import rematc
from rematc.compiler.functions.calls import trace_call
from rematc.compiler.tracing.arguments import CallArguments
from rematc.ir.interpreter import evaluate

USES_XLA = os.environ.get("SUITE_ENGINE", "reference") == "xla"


def traced_call(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, traced and computed; the leaves of the result are NumPy's arrays."""
    if USES_XLA:
        return jax.tree_util.tree_map(np.asarray, rematc.jit(function)(*arguments))
    call = CallArguments.of(function, arguments, {})
    traced = trace_call(function, call)
    params = traced.graph.params
    arrays = [np.asarray(x, p.type.dtype.numpy) for x, p in zip((*call.arrays, *traced.constants), params, strict=True)]
    with np.errstate(all="ignore"):
        results = evaluate(traced.graph, arrays)
    return jax.tree_util.tree_unflatten(traced.out_tree, [np.asarray(result) for result in results])
