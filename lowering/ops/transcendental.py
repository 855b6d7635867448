"""Lowering of transcendental functions and roots: each is one StableHLO op of the same name."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import transcendental
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import Writer, lowers

_HIGHEST = "{result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>}"

lowers(
    transcendental.ExponentialMinusOne,
    transcendental.Log,
    transcendental.LogPlusOne,
    transcendental.Logistic,
    transcendental.Sine,
    transcendental.Cosine,
    transcendental.Tan,
    transcendental.Tanh,
    transcendental.Sqrt,
    transcendental.Rsqrt,
    transcendental.Cbrt,
)(elementwise.one_type)


@lowers(transcendental.Exponential)
def exponential(w: Writer, eqn: Equation) -> None:
    """As the others, with the accuracy that is asked for."""
    (result,) = eqn.results
    assert isinstance(eqn.op, transcendental.Exponential)
    asked = f" {_HIGHEST}" if eqn.op.is_accurate else ""
    w.line(
        f"{w.define(result)} = stablehlo.exponential {w.names(eqn.operands)}{asked} : {w.type(result.type)}", eqn.loc
    )
