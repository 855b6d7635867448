"""From operators on functions of one argument to operators that choose one or several arguments by position."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Any]


def get_name(fun: Function) -> str:
    """The function's name."""
    return getattr(fun, "__name__", "[unknown name]")


def unary_to_nary(operator: Function) -> Function:
    """`operator(fun, x)` as `operator(fun, argnum)(*args)`; several positions make x a tuple."""

    @functools.wraps(operator)
    def chosen(fun: Function, argnum: int | Sequence[int] = 0, *options: Any, **named: Any) -> Function:
        positions = (argnum,) if isinstance(argnum, int) else tuple(argnum)

        def apply(*args: Any, **kwargs: Any) -> Any:
            def of_chosen(x: Any) -> Any:
                values = (x,) if isinstance(argnum, int) else x
                full = list(args)
                for position, value in zip(positions, values, strict=True):
                    full[position] = value
                return fun(*full, **kwargs)

            of_chosen.__name__ = get_name(fun)
            x = args[argnum] if isinstance(argnum, int) else tuple([args[position] for position in positions])
            return operator(of_chosen, x, *options, **named)

        with contextlib.suppress(AttributeError):
            apply.__name__ = f"{get_name(operator)}_of_{get_name(fun)}_wrt_argnum_{argnum}"
            apply.__doc__ = (
                f"    {get_name(operator)} of function {get_name(fun)} with respect to argument number {argnum}."
            )
        return apply

    return chosen
