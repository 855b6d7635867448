"""Derivative rules that `jax.vmap` runs for one element of a batch, given what they are to compute for all of it.

JAX differentiates what a checkpoint does to a whole batch where `jax.vmap` is inside of `jax.grad`, and asks policies
about that: of a product of two batches it saves none as one "without batch dimensions". A function with a rule of its
own is differentiated for one element instead, whose operands stand for batches. Here they are taken apart again. Where
`jax.grad` is inside of `jax.vmap`, policies are about one element, as in `jax.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
from jax._src.core import set_current_trace, trace_ctx
from jax._src.interpreters.batching import BatchTrace, BatchTracer

#: The tags of the batches outside of the differentiation of the function that is called now. All tags are equal.
_OUTSIDE: ContextVar[tuple[Any, ...]] = ContextVar("outside", default=())


@contextmanager
def called() -> Iterator[None]:
    """While a function with a derivative rule is called."""
    token = _OUTSIDE.set(tuple(_outside()))
    try:
        yield
    finally:
        _OUTSIDE.reset(token)


def _outside() -> Iterator[Any]:
    """The tags of batches that are outside of a differentiation."""
    trace, is_inside = trace_ctx.trace, True
    while trace is not None:
        if not isinstance(trace, BatchTrace):
            is_inside = False
        elif not is_inside:
            yield trace.tag
        trace = getattr(trace, "parent_trace", None)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a rule is run for one element of.

    Attributes:
        size: how many elements there are.
    """

    size: int
    _trace: Any

    @staticmethod
    def of(operands: Sequence[Any]) -> Batch | None:
        """The batch whose elements a derivative rule's operands are, if there is one and it is nothing more."""
        trace: Any = trace_ctx.trace
        if not isinstance(trace, BatchTrace) or any(trace.tag is tag for tag in _OUTSIDE.get()):
            return None
        data = trace.axis_data
        if data.spmd_name is not None or data.explicit_mesh_axis is not None:
            return None
        found = Batch(data.size, trace)
        return found if any(map(found.has, operands)) else None

    def has(self, operand: Any) -> bool:
        """Whether each element has an operand of its own."""
        return self._trace.to_batch_info(operand)[1] is not None

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Where the batch is whole."""
        around: Any = set_current_trace
        with around(self._trace.parent_trace):
            yield

    def whole(self, operand: Any, is_batched: bool) -> Any:
        """An operand for all elements, with these in front if they are to have one each."""
        value, dimension = self._trace.to_batch_info(operand)
        if dimension is None:
            return jax.numpy.broadcast_to(value, (self.size, *jax.numpy.shape(value))) if is_batched else value
        return jax.numpy.moveaxis(value, dimension, 0)

    def element(self, value: Any, is_batched: bool) -> Any:
        """What stands for one element of a value with all of them in front."""
        return BatchTracer(self._trace, value, 0) if is_batched else value
