"""Lowering of special functions: each is one CHLO op of the same name."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import special
from rematc.ir.types import F32
from rematc.lowering.ops import elementwise
from rematc.lowering.ops.values import converted
from rematc.lowering.writer import Writer, lowers

lowers(
    special.Erf,
    special.ErfInv,
    special.Lgamma,
    special.Digamma,
    special.Polygamma,
    special.Zeta,
)(elementwise.chlo)


@lowers(special.Erfc)
def erfc(w: Writer, eqn: Equation) -> None:
    """`chlo.erfc`, which XLA expands for floats of 16 bits and more; of fewer it is that of the same numbers in f32."""
    (x,), (result,) = eqn.operands, eqn.results
    if x.type.dtype.bits > 8:
        elementwise.chlo(w, eqn)
        return
    wide, found = x.type.with_dtype(F32), w.fresh()
    operand = converted(w, w.name(x), x.type, F32, eqn.loc)
    w.line(f"{found} = chlo.erfc {operand} : {w.type(wide)} -> {w.type(wide)}", eqn.loc)
    w.bind(result, converted(w, found, wide, x.type.dtype, eqn.loc))
