"""Functions with custom rules, written once for rematc and for JAX: the same program on both sides."""

# mypy: disable-error-code="untyped-decorator"
# The libraries are Any, and so are their decorators.

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import rematc


@dataclass(frozen=True, slots=True)
class Library:
    """What programs are written with.

    Attributes:
        np: the NumPy namespace.
        api: transformations: `grad`, `vmap`, `custom_jvp` and so on.
        control: `scan`, `cond`, `while_loop`.
        name: `checkpoint_name`.
    """

    np: Any
    api: Any
    control: Any
    name: Callable[[Any, str], Any]


class _Unrolled:
    """JAX's control flow, with loops unrolled: in a `lax.scan` differentiated twice, JAX forgets custom rules."""

    cond = staticmethod(lax.cond)
    while_loop = staticmethod(lax.while_loop)

    @staticmethod
    def scan(f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None = None) -> Any:
        carry, ys = init, []
        steps = length if length is not None else jax.tree.leaves(xs)[0].shape[0]
        for step in range(steps):
            carry, y = f(carry, jax.tree.map(lambda x, step=step: x[step], xs))
            ys.append(y)
        return carry, jax.tree.map(lambda *rows: jnp.stack(rows), *ys)


REMATC = Library(np, rematc, rematc, rematc.checkpoint_name)
JAX = Library(jnp, jax, _Unrolled, checkpoint_name)


@dataclass(frozen=True, slots=True)
class Program:
    """A function from one array to one array, which has a derivative.

    Attributes:
        make: makes it.
        is_forward: whether it has forward derivatives, too.
    """

    make: Callable[[Library], Callable[[Any], Any]]
    is_forward: bool = True


def scaled_sine(lib: Library) -> Callable[[Any], Any]:
    """The rule calls the function, and says twice the derivative."""

    @lib.api.custom_jvp
    def f(x: Any) -> Any:
        return lib.np.sin(x)

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return f(x), 2 * lib.np.cos(x) * t

    return lambda x: f(x) * x


def of_trees(lib: Library) -> Callable[[Any], Any]:
    """Arguments and outputs are trees; one argument has no tangent."""

    @lib.api.custom_jvp
    def f(both: Any, shift: Any) -> Any:
        return {"product": both["a"] * both["b"][0], "sum": (both["a"] + shift,)}

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (both, shift), (t, _) = primals, tangents
        product = 3 * t["a"] * both["b"][0] - both["a"] * t["b"][0]
        return f(both, shift), {"product": product, "sum": (5 * t["a"],)}

    def program(x: Any) -> Any:
        out = f({"a": x, "b": [lib.np.cos(x)]}, np.float32(0.5))
        return out["product"] * out["sum"][0]

    return program


def of_integers(lib: Library) -> Callable[[Any], Any]:
    """An integer argument and an integer output, whose tangents have no type."""

    @lib.api.custom_jvp
    def f(x: Any, n: Any) -> Any:
        return x * n, n + 1

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, n), (t, no_tangent) = primals, tangents
        assert no_tangent.dtype == jax.dtypes.float0
        return f(x, n), (4 * t * n, np.zeros((), jax.dtypes.float0))

    def program(x: Any) -> Any:
        y, n = f(x, np.int32(3))
        return y * n

    return program


def of_a_function(lib: Library) -> Callable[[Any], Any]:
    """`nondiff_argnums` are a function and an array."""

    @functools.partial(lib.api.custom_jvp, nondiff_argnums=(0, 2))
    def apply(function: Any, x: Any, scale: Any) -> Any:
        return scale * function(x)

    @apply.defjvp
    def apply_jvp(function: Any, scale: Any, primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return apply(function, x, scale), scale * 7 * t * function(x)

    return lambda x: apply(lib.np.sin, x, np.float32(2)) * x


def by_arguments(lib: Library) -> Callable[[Any], Any]:
    """`defjvps`, with an argument on which the output does not depend."""

    @lib.api.custom_jvp
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * lib.np.exp(y)

    f.defjvps(lambda t, out, x, y, z: t * lib.np.exp(y), lambda t, out, x, y, z: 2 * t * out, None)
    return lambda x: f(x, lib.np.sin(x), x)


def linear_in_itself(lib: Library) -> Callable[[Any], Any]:
    """A linear function, whose rule applies it to the tangent: it is transposed."""

    @lib.api.custom_jvp
    def total(x: Any) -> Any:
        return lib.np.sum(x, axis=0, keepdims=True)

    @total.defjvp
    def total_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return total(x), total(t)

    return lambda x: lib.np.sin(total(lib.np.sin(x))) * x


def by_keyword(lib: Library) -> Callable[[Any], Any]:
    """Keywords and defaults are found in the signature."""

    @lib.api.custom_jvp
    def f(x: Any, y: Any, power: Any = 2.0) -> Any:
        return x**power * y

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, y, power), (dx, dy, _) = primals, tangents
        return f(x, y, power), 3 * power * x * y * dx + x * dy

    return lambda x: f(y=lib.np.sin(x), x=x)


def mutual(lib: Library) -> Callable[[Any], Any]:
    """Rules of two functions call each other without end."""

    @lib.api.custom_jvp
    def sine(x: Any) -> Any:
        return lib.np.sin(x)

    @lib.api.custom_jvp
    def cosine(x: Any) -> Any:
        return lib.np.cos(x)

    sine.defjvp(lambda primals, tangents: (sine(*primals), 1.5 * cosine(*primals) * tangents[0]))
    cosine.defjvp(lambda primals, tangents: (cosine(*primals), -0.5 * sine(*primals) * tangents[0]))
    return lambda x: sine(x) * cosine(2 * x)


def with_control(lib: Library) -> Callable[[Any], Any]:
    """A rule with a scan, a cond and a jit in it."""

    @lib.api.custom_jvp
    def f(x: Any) -> Any:
        return lib.np.sin(x)

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        value, slope = lib.api.jit(lambda x: (lib.np.sin(x), lib.np.cos(x)))(x)
        pushed, _ = lib.control.scan(lambda c, _: (c * slope, None), t, None, length=2)
        return value, lib.control.cond(True, lambda p: p, lambda p: 3 * p, pushed)

    return lambda x: f(x) + f(-2 * x)


def clipped(lib: Library) -> Callable[[Any], Any]:
    """The backward rule is not linear in the cotangent."""

    @lib.api.custom_vjp
    def clip(limit: Any, x: Any) -> Any:
        return x

    clip.defvjp(lambda limit, x: (x, limit), lambda limit, ct: (None, lib.np.clip(ct, -limit, limit)))
    return lambda x: lib.np.sin(clip(np.float32(0.6), 2 * x) * x)


def of_trees_backwards(lib: Library) -> Callable[[Any], Any]:
    """Trees, an integer argument, zeros for a subtree, an integer output."""

    @lib.api.custom_vjp
    def f(both: Any, n: Any, unused: Any) -> Any:
        return {"y": both["a"] * n + both["b"][0], "n": n}

    def forward(both: Any, n: Any, unused: Any) -> Any:
        return f(both, n, unused), {"a": both["a"], "n": n, "kept": (both["b"],)}

    def backward(residuals: Any, cts: Any) -> Any:
        assert cts["n"].dtype == jax.dtypes.float0
        return (
            {"a": 2 * cts["y"] * residuals["n"] * residuals["a"], "b": [residuals["kept"][0][0] * cts["y"]]},
            None,
            None,
        )

    f.defvjp(forward, backward)

    def program(x: Any) -> Any:
        out = f({"a": x, "b": [lib.np.cos(x)]}, np.int32(3), (x, [2 * x]))
        return out["y"] * out["n"]

    return program


def of_a_function_backwards(lib: Library) -> Callable[[Any], Any]:
    """The backward rule of a `nondiff_argnums` function differentiates it."""

    @functools.partial(lib.api.custom_vjp, nondiff_argnums=(0,))
    def apply(function: Any, x: Any) -> Any:
        return function(x)

    def backward(function: Any, x: Any, ct: Any) -> Any:
        _, pull = lib.api.vjp(function, x)
        return (2 * pull(ct)[0],)

    apply.defvjp(lambda function, x: (apply(function, x), x), backward)
    return lambda x: apply(lambda z: lib.np.sin(z) * z, x) * x


def nested(lib: Library) -> Callable[[Any], Any]:
    """A rule for a function that has a rule, and rules that call functions with rules."""
    inner = scaled_sine(lib)

    @lib.api.custom_vjp
    def f(x: Any) -> Any:
        return inner(x) * 2

    def forward(x: Any) -> Any:
        return f(x), (inner(x), x)

    f.defvjp(forward, lambda residuals, ct: (ct * (residuals[0] + inner(2 * residuals[1])),))

    @lib.api.custom_jvp
    def g(x: Any) -> Any:
        return f(x) + 1

    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * f(primals[0])))
    return lambda x: g(x) * x


def in_scan(lib: Library) -> Callable[[Any], Any]:
    """Both kinds of rules in the body of a loop."""
    one, other = scaled_sine(lib), clipped(lib)

    def step(carry: Any, row: Any) -> Any:
        carry = one(carry) + other(row)
        return carry, other(carry)

    def program(x: Any) -> Any:
        last, rows = lib.control.scan(step, x, lib.np.stack([x, 2 * x, 3 * x]))
        return last + rows.sum(0)

    return program


def in_cond(lib: Library) -> Callable[[Any], Any]:
    """Both kinds of rules in branches."""
    one, other = scaled_sine(lib), clipped(lib)
    return lambda x: lib.control.cond(x.sum() > 0, one, other, x) * lib.control.cond(x.sum() < 0, one, other, x)


def closing_over_constants(lib: Library) -> Callable[[Any], Any]:
    """Function and rule close over arrays: a small one, and one too large for a literal."""
    small, large = np.asarray([1, 2], np.float32), np.linspace(0, 1, 200, dtype=np.float32)

    @lib.api.custom_jvp
    def f(x: Any) -> Any:
        return x * lib.np.sum(large) * small[1]

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * lib.np.max(large[:150]) * small[0]))
    return lambda x: f(x) * x


FORWARD = (
    scaled_sine,
    of_trees,
    of_integers,
    of_a_function,
    by_arguments,
    linear_in_itself,
    by_keyword,
    mutual,
    with_control,
    closing_over_constants,
)
BACKWARD = (clipped, of_trees_backwards, of_a_function_backwards, nested, in_scan, in_cond)
PROGRAMS = {
    **{make.__name__: Program(make) for make in FORWARD},
    **{make.__name__: Program(make, is_forward=False) for make in BACKWARD},
}


def assert_agree(found: Any, expected: Any, relative: float = 2e-5) -> None:
    """The same leaves; both sides round differently, a few units in each of some ten operations."""
    ours, theirs = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        scale = float(np.max(np.abs(other), initial=0.0))
        np.testing.assert_allclose(one, other, rtol=relative, atol=relative * scale)
