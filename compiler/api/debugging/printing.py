"""`print` for traced functions: the text is made where the program runs, of what its values are then."""

from __future__ import annotations

import builtins
import string
from collections.abc import Mapping, Sequence

import numpy as np

from rematc.compiler.api.debugging.calling import call_for_effect, is_operand
from rematc.compiler.functions.calls import emit_op
from rematc.compiler.tracing.arguments import leaf_type
from rematc.compiler.tracing.trace import current_trace
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.ir.ops.effects import DebugPrint


def print(fmt: str, *args: object, ordered: bool = False, **kwargs: object) -> None:
    """Print `fmt.format(*args, **kwargs)` when the program runs, with the values that it has then.

    It is printed as often as the line is executed: once for each step of a loop, for the branch that is taken, for
    each element of a batch. Differentiation prints it in the forward pass alone; what is recomputed is not printed
    again.

    Args:
        fmt: the text, with places for the arguments as in `str.format`. It is text, not an f-string.
        args: arrays, pytrees of arrays, or anything else, which is printed as it is.
        ordered: whether ordered prints and callbacks happen in the order of the program. Others may be printed in any.
        kwargs: the same, for places with names.

    Raises:
        CompileError: at the user's line, for a text whose places do not fit the arguments.
    """
    if not isinstance(fmt, str):
        raise CompileError(
            f"debug.print takes a text with a place for each value, got a {type(fmt).__name__}; "
            "write debug.print('{}', x)",
            user_location(),
        )
    _check(fmt, args, kwargs)
    if current_trace() is None:
        builtins.print(fmt.format(*args, **kwargs))
    elif all(is_operand(value) for value in (*args, *kwargs.values())):
        emit_op(DebugPrint(fmt, tuple(kwargs), ordered), *args, *kwargs.values())
    else:
        call_for_effect(
            lambda *given, **named: builtins.print(fmt.format(*given, **named)),
            f"debug.print of {fmt!r}",
            args,
            kwargs,
            ordered,
        )


class _Strict(string.Formatter):
    """A formatter that refuses arguments without a place."""

    def check_unused_args(
        self, used_args: set[int | str], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        for key in (*range(len(args)), *kwargs):
            if key not in used_args:
                raise ValueError(f"there is no place for argument {key!r}")


def _check(fmt: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Format stand-ins of the arguments, so that what is wrong with the text is found while tracing."""
    try:
        _Strict().vformat(fmt, [_stand_in(one) for one in args], {name: _stand_in(one) for name, one in kwargs.items()})
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        what = f"there is no argument {error}" if isinstance(error, KeyError) else str(error)
        raise CompileError(f"debug.print cannot format {fmt!r}: {what}", user_location()) from None


def _stand_in(value: object) -> object:
    """Zeros of the type of an array, which take no memory."""
    if not is_operand(value):
        return value
    type = leaf_type(value)[0]
    return np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape)
