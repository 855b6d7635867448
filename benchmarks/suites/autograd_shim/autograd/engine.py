"""Functions run as autograd runs them: recorded where a trace is open, else computed, with autograd's kind of error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util
from suite_engine import traced_call

from rematc.compiler.tracing.trace import current_trace
from rematc.ir.errors import CompileError


class RefusedError(TypeError):
    """A CompileError; autograd refuses with TypeError what cannot be differentiated."""


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`: recorded in the open trace, else traced and computed."""
    if current_trace() is not None:
        return function(*arguments)
    try:
        result = traced_call(function, *arguments)
    except CompileError as error:
        raise RefusedError(str(error)) from error
    # NumPy's scalars where there are no dimensions, as NumPy itself returns them.
    return jax.tree_util.tree_map(lambda leaf: leaf[()], result)
