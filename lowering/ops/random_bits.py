"""Lowering of random bits from a state."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.random_bits import RngBitGenerator
from rematc.ir.types import DTYPES
from rematc.lowering.writer import Writer, lowers


@lowers(RngBitGenerator)
def rng_bit_generator(w: Writer, eqn: Equation) -> None:
    """`%s, %r = stablehlo.rng_bit_generator %state, algorithm = PHILOX : (...) -> (...)`.

    XLA gives unsigned integers whatever type is asked for, so signed ones are read from their bits.
    """
    assert isinstance(eqn.op, RngBitGenerator)
    (state, bits), type = eqn.results, eqn.op.type
    unsigned = type.with_dtype(DTYPES[f"u{type.dtype.bits}"])
    call = f"stablehlo.rng_bit_generator {w.names(eqn.operands)}, algorithm = {eqn.op.algorithm}"
    signature = f"({w.types(eqn.operands)}) -> ({w.type(state.type)}, {w.type(unsigned)})"
    # This op's results are a list of names, unlike those of all others.
    following, found = w.define(state), w.fresh()
    w.line(f"{following}, {found} = {call} : {signature}", eqn.loc)
    if unsigned == type:
        w.bind(bits, found)
        return
    w.line(f"{w.define(bits)} = stablehlo.bitcast_convert {found} : ({w.type(unsigned)}) -> {w.type(type)}", eqn.loc)
