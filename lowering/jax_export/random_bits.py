"""Export of random bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.random import threefry2x32_p

from rematc.ir.core import Equation
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.ops.random_bits import RngBitGenerator
from rematc.lowering.jax_export.evaluating import exports, lax
from rematc.lowering.jax_export.opaque import opaque

_threefry2x32_p: Any = threefry2x32_p  # JAX does not type its primitives
_ALGORITHMS = {
    "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
    "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
    "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
}


@exports(Threefry2x32)
def threefry2x32(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """JAX's own primitive."""
    key, high, low = operands
    batch = len(key.shape) - 1
    words = [
        lax.broadcast_in_dim(lax.index_in_dim(key, word, batch, keepdims=False), high.shape, range(batch))
        for word in (0, 1)
    ]
    found: Sequence[Any] = _threefry2x32_p.bind(*words, high, low)
    return found


@exports(RngBitGenerator)
def rng_bit_generator(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.rng_bit_generator`, which takes states of two words."""
    op = eqn.op
    assert isinstance(op, RngBitGenerator)
    if eqn.operands[0].type.shape != (2,) or op.type.dtype.kind.name != "UINT":
        return opaque(eqn, operands)
    algorithm = _ALGORITHMS[op.algorithm]
    following: Sequence[Any] = lax.rng_bit_generator(operands[0], op.type.shape, op.type.dtype.numpy, algorithm)
    return following
