"""Lowering of functions with derivatives of the user's: their bodies in place."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.custom_vjp import CustomLinear, CustomVjp
from rematc.lowering.ops.regions import in_place
from rematc.lowering.writer import Writer, lowers


@lowers(CustomJvp, CustomVjp)
def custom(w: Writer, eqn: Equation) -> None:
    """The body's equations."""
    assert isinstance(eqn.op, (CustomJvp, CustomVjp))
    in_place(w, eqn.op.body, eqn)


@lowers(CustomLinear)
def custom_linear(w: Writer, eqn: Equation) -> None:
    """Tangents that only a transposition can use have no lowering: the user's error, at the line of the call."""
    assert isinstance(eqn.op, CustomLinear)
    error = eqn.op.forward_mode()
    error.loc = eqn.loc
    raise error
