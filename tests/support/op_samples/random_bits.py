"""Random bits from a state."""

from __future__ import annotations

from typing import Any

from jax import lax

from rematc.ir.ops.random_bits import RngBitGenerator
from rematc.ir.types import I16, I64, U8, U16, U32, U64, TensorType
from tests.support.samples import Sample, literal

ALGORITHMS = {
    "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
    "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
    "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
}
STATE = literal(U64, [2**40 + 7, 5])
#: The counter starts again inside the array, and carries.
LAST = literal(U64, [2**64 - 1, 2**64 - 2])
#: Even and odd sizes: which dimension neighbours share a counter along.
SHAPES = ((), (1,), (3,), (3, 5), (5, 3), (3, 4), (2, 3, 4), (3, 0))


def by_jax(op: RngBitGenerator) -> Any:
    return lambda state: lax.rng_bit_generator(  # type: ignore[no-untyped-call]  # JAX leaves it unannotated
        state, op.type.shape, op.type.dtype.numpy, algorithm=ALGORITHMS[op.algorithm]
    )


def row(algorithm: str, type: TensorType, label: str = "", state: Any = STATE) -> Sample:
    op = RngBitGenerator(type, algorithm)
    return Sample(op, (state,), jax=by_jax(op), label=f"{algorithm.lower()} {type}{label}")


SAMPLES = (
    *(row(algorithm, TensorType(U32, shape)) for algorithm in ("THREE_FRY", "PHILOX") for shape in SHAPES),
    *(row(algorithm, TensorType(dtype, (3, 3))) for algorithm in ("THREE_FRY", "PHILOX") for dtype in (U8, U16, U64)),
    *(row(algorithm, TensorType(U32, (3, 9)), " wraps", LAST) for algorithm in ALGORITHMS),
    *(row(algorithm, TensorType(U64, (7,)), " wraps", LAST) for algorithm in ALGORITHMS),
    *(
        Sample(RngBitGenerator(TensorType(dtype, (5,)), algorithm), (STATE,), label=f"{algorithm.lower()} {dtype}")
        for algorithm in ALGORITHMS
        for dtype in (I16, I64)
    ),
    Sample(RngBitGenerator(TensorType(U32, (5,)), "PHILOX"), (literal(U64, [7, 2**64 - 1, 5]),), label="three words"),
)
