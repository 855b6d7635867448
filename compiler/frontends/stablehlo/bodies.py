"""What the body of a reduction or scatter does, where the IR has an op for it."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.compiler.frontends.stablehlo.block import Block
from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.ops.arithmetic import Add, Maximum, Minimum, Multiply
from rematc.ir.ops.logical import And, Or
from rematc.ir.values import Array, Value
from rematc.passes.vmap import vmap

#: Ops of two operands whose order does not matter.
_COMMUTATIVE = (Add, Multiply, Maximum, Minimum, And, Or)


def combiner(body: Graph) -> type[Op] | None:
    """The op that a body of two scalars applies to them, where it does nothing else."""
    if len(body.params) != 2 or len(body.results) != 1 or len(body.equations) != 1:
        return None
    (eqn,) = body.equations
    if body.results != eqn.results or set(eqn.operands) != set(body.params):
        return None
    return next((op for op in _COMMUTATIVE if type(eqn.op) is op), None)


def second_of_two(body: Graph) -> bool:
    """Whether a body of two scalars gives the second."""
    return len(body.params) == 2 and body.results == (body.params[1],)


def equals(block: Block, value: Value, array: Array) -> bool:
    """Whether a value is the constant with exactly these elements."""
    found = block.constants.get(value)
    return found is not None and found.dtype == array.dtype and found.tobytes() == array.tobytes()


def at_arrays(b: Builder, body: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
    """A body of scalars applied at each index of arrays of one shape."""
    shape = operands[0].type.shape
    size = operands[0].type.size
    if not size:
        return tuple([b.zeros(result.type.with_shape(shape)) for result in body.results])
    if not shape:
        return b.inline(body, operands)
    lined = [b.reshape(operand, (size,)) for operand in operands]
    batched = vmap(body, [True] * len(lined), size)
    results = b.inline(batched.graph, lined)
    return tuple(
        [
            b.reshape(value, shape) if is_batched else b.broadcast_in_dim(value, shape, ())
            for value, is_batched in zip(results, batched.is_batched, strict=True)
        ]
    )
