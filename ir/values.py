"""Values, what stands for them in rules, and the shapes of what rules take and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.errors import CompileError
from rematc.ir.types import TensorType

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Types = Sequence[TensorType]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA name with its type. Two values are equal only if they are the same object.

    Attributes:
        type: element type and shape.
        name: a hint for printing and reports ("params['w']"); it has no meaning.
    """

    type: TensorType
    name: str | None = None


@dataclass(frozen=True, slots=True)
class LinearOperand:
    """Stands in a transpose rule for an operand in which the op is linear: it has a type but no value."""

    type: TensorType


# What rules take and return; None is a symbolic zero.
Primals = Sequence[Value]
Tangents = Sequence[Value | None]
Operands = Sequence[Value | LinearOperand]
Derivatives = tuple[Value | None, ...]


def known(operand: Value | LinearOperand, law: str) -> Value:
    """The operand, in which an op is not linear.

    Raises CompileError, with the law as its reason, where a tangent stands: no derivative of an op brings it there, but
    a custom rule of the user's may.
    """
    if isinstance(operand, LinearOperand):
        raise CompileError(f"{law}; a custom_jvp rule whose derivative is taken backwards is linear in its tangents")
    return operand
