"""Lowering of random bits: a private function of integer arithmetic, one for each shape of the counters."""

from __future__ import annotations

import functools

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.logical import Or, ShiftLeft, ShiftRightLogical, Xor
from rematc.ir.ops.random import GROUPS, PARITY, ROTATIONS, Threefry2x32
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.lowering.writer import Writer, lowers

#: Of how many words at most a hash is kept apart.
_FEW = 1024
#: As calls that keep recomputation apart, but for what says that this one is none (`rematc.lowering.hlo.merging`).
_KEPT_APART = ' {mhlo.frontend_attributes = {inlineable = "false", recomputes = "false"}}'


def hashes_few(eqn: Equation) -> bool:
    """Whether an equation, a `threefry2x32`, hashes so few words that on the CPU a function of its own does."""
    return eqn.results[0].type.size <= _FEW


@lowers(Threefry2x32)
def threefry2x32(w: Writer, eqn: Equation) -> None:
    """`%r:2 = func.call @threefry2x32(%key, %high, %low)`.

    All rounds stand one after another: XLA makes a single loop over the elements of them and of what uses the bits,
    and compiles that faster than a loop over rounds, which also writes its words to memory after each.

    Few words are keys, or numbers that many elements have in common. On the CPU their function is kept apart: XLA would
    hash them again for each element, and LLVM as of jaxlib 0.12 takes time exponential in the number of rounds to
    vectorize a loop in which they are the same for all elements.
    """
    key, high, _ = eqn.operands
    kept = ""
    if hashes_few(eqn):
        w.is_tuned = True
        kept = _KEPT_APART if w.target.platform == "cpu" else ""
    callee = f"func.call @{w.function(_rounds(key.type, high.type))}({w.names(eqn.operands)}){kept}"
    signature = f"({w.types(eqn.operands)}) -> ({w.types(eqn.results)})"
    w.line(f"{w.define_all(eqn.results)}{callee} : {signature}", eqn.loc)


@functools.lru_cache(maxsize=256)
def _rounds(key_type: TensorType, type: TensorType) -> Graph:
    """The hash as equations."""
    b = Builder(Threefry2x32.name)
    key = b.parameter(key_type, "key")
    x0, x1 = b.parameter(type, "high"), b.parameter(type, "low")
    batch = key_type.rank - 1

    def word(index: int) -> Value:
        starts, limits = (*[0] * batch, index), (*key_type.shape[:-1], index + 1)
        scalar = b.reshape(b.slice(key, starts, limits), key_type.shape[:-1])
        return b.broadcast_in_dim(scalar, type.shape, range(batch))

    first, second = word(0), word(1)
    keys = (first, second, b.emit1(Xor(), b.emit1(Xor(), first, second), b.full(type, PARITY)))
    x0, x1 = b.add(x0, first), b.add(x1, second)
    for group in range(GROUPS):
        for distance in ROTATIONS[group % 2]:
            x0 = b.add(x0, x1)
            left = b.emit1(ShiftLeft(), x1, b.full(type, distance))
            right = b.emit1(ShiftRightLogical(), x1, b.full(type, 32 - distance))
            x1 = b.emit1(Xor(), x0, b.emit1(Or(), left, right))
        x0 = b.add(x0, keys[(group + 1) % 3])
        x1 = b.add(b.add(x1, keys[(group + 2) % 3]), b.full(type, group + 1))
    return b.build(x0, x1)
