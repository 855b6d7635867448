"""Derivatives checked against differences, forwards and backwards, to any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from autograd.core import make_jvp, make_vjp, vspace
from autograd.wrap_util import get_name, unary_to_nary

Function = Callable[..., Any]
#: A central difference over this width has an error near 1e-9 where the third derivatives are of order one.
WIDTH = 1e-6
TOLERANCE = 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Whether two numbers agree to six decimals, or to six digits."""
    return bool(abs(a - b) < TOLERANCE or abs(a - b) < TOLERANCE * abs(a + b))


def _difference(fun: Function, x: Any, tangent: Any) -> Any:
    at, space = vspace(x), vspace(fun(x))
    ahead = fun(at.add(x, at.scalar_mul(tangent, WIDTH / 2)))
    behind = fun(at.add(x, at.scalar_mul(tangent, -WIDTH / 2)))
    return space.scalar_mul(space.add(ahead, space.scalar_mul(behind, -1.0)), 1 / WIDTH)


def check_equivalent(x: Any, y: Any) -> None:
    """Whether two values lie in one space and have the same product with a random one."""
    assert vspace(x) == vspace(y), f"{vspace(x)} is not {vspace(y)}"
    probe = vspace(x).randn()
    assert scalar_close(vspace(x).inner_prod(x, probe), vspace(x).inner_prod(y, probe)), f"{x} is not {y}"


def check_vjp(fun: Function, x: Any) -> None:
    """<u, J v> with the Jacobian applied from the left against a difference along v."""
    pull_back, y = make_vjp(fun, x)
    at, space = vspace(x), vspace(y)
    tangent, ct = at.randn(), space.randn()
    pulled = at.covector(pull_back(space.covector(ct)))
    assert vspace(pulled) == at, f"the cotangent lies in {vspace(pulled)}, the argument in {at}"
    found, expected = at.inner_prod(tangent, pulled), space.inner_prod(ct, _difference(fun, x, tangent))
    assert scalar_close(found, expected), (
        f"Derivative (VJP) check of {get_name(fun)} failed at {x}: {found}, by difference {expected}"
    )


def check_jvp(fun: Function, x: Any) -> None:
    """J v against a difference along v."""
    tangent = vspace(x).randn()
    check_equivalent(make_jvp(fun, x)(tangent)[1], _difference(fun, x, tangent))


def _check(fun: Function, x: Any, modes: Sequence[str] | None = None, order: int = 2) -> None:
    modes = ["fwd", "rev"] if modes is None else modes
    if "fwd" in modes:
        check_jvp(fun, x)
        if order > 1:
            _check_again(fun, x, "jvp", modes=modes, order=order)
    if "rev" in modes:
        check_vjp(fun, x)
        if order > 1:
            _check_again(fun, x, "vjp", modes=modes, order=order)


def _check_again(fun: Function, x: Any, mode: str, *, modes: Sequence[str], order: int) -> None:
    def derivative(pair: Any) -> Any:
        at, v = pair
        return make_jvp(fun, at)(v)[1] if mode == "jvp" else make_vjp(fun, at)[0](v)

    derivative.__name__ = f"{mode}_{get_name(fun)}"
    space = vspace(x) if mode == "jvp" else vspace(fun(x))
    _check(derivative, (x, space.randn()), modes, order - 1)


check_grads = unary_to_nary(_check)


def combo_check(fun: Function, argnum: int | Sequence[int] = 0, **check_options: Any) -> Function:
    """`check_grads` for every combination of the arguments and options given as lists."""

    def check(*choices: Any, **option_choices: Any) -> None:
        for args in itertools.product(*choices):
            for values in itertools.product(*option_choices.values()):
                options = dict(zip(option_choices, values, strict=True))
                check_grads(fun, argnum, **check_options)(*args, **options)

    return check
