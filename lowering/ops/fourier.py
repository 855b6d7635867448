"""Lowering of Fourier transforms."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.fourier import Fft
from rematc.lowering.writer import Writer, ints, lowers


@lowers(Fft)
def fft(w: Writer, eqn: Equation) -> None:
    """`stablehlo.fft %x, type = RFFT, length = [8]`."""
    assert isinstance(eqn.op, Fft)
    (operand,), (result,) = eqn.operands, eqn.results
    call = f"stablehlo.fft {w.name(operand)}, type = {eqn.op.kind}, length = {ints(eqn.op.lengths)}"
    w.line(f"{w.define(result)} = {call} : ({w.type(operand.type)}) -> {w.type(result.type)}", eqn.loc)
