"""Ordinary differential equations."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Steps between two times.
STEPS = 8


def odeint(function: Callable[..., Any], y0: Any, t: Any, args: Sequence[Any] = (), **options: Any) -> Any:
    """The solution of y' = function(y, t, *args) at the times t, with y0 at the first.

    SciPy's solver chooses its steps by the values; this one takes steps of one length, by Runge and Kutta's method of
    order 4, so that it can be traced. It takes none of the solver's options.
    """
    if options:
        raise NotImplementedError(f"odeint with {', '.join(options)}")
    found = [y0]
    for index in range(np.shape(t)[0] - 1):
        y, step = found[-1], (t[index + 1] - t[index]) / STEPS
        for count in range(STEPS):
            y = _step(lambda y, t: function(y, t, *args), y, t[index] + count * step, step)
        found.append(y)
    return np.stack(found)


def _step(function: Callable[[Any, Any], Any], y: Any, t: Any, step: Any) -> Any:
    first = function(y, t)
    second = function(y + step / 2 * first, t + step / 2)
    third = function(y + step / 2 * second, t + step / 2)
    last = function(y + step * third, t + step)
    return y + step / 6 * (first + 2 * second + 2 * third + last)
