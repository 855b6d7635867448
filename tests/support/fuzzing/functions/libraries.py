"""What random functions are written with: one vocabulary, said by rematc and by JAX.

    def f(x, w, i):
        v0 = L.np.sin(x) * L.stop(x)
        return L.np.sum(v0)

with `L = in_numpy()` is a function of rematc's NumPy frontend; with `L = in_jax(rematc.jax.checkpoint,
rematc.jax.grad)` one of JAX with rematc's checkpoints; with `L = plain()` JAX itself.
"""

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
import rematc.jax
import rematc.numpy
import rematc.random

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Library:
    """The words of a program. Bodies take and return flat tuples.

    Attributes:
        np: the NumPy namespace.
        api: `vmap`, `jit`, `custom_jvp`, `custom_vjp`.
        control: `scan`, `cond`, `switch`, `while_loop`, `fori_loop`, `map`, `custom_linear_solve`, `custom_root`.
        random: `normal`, `bernoulli`, `fold_in`, `key`.
        stop: stops gradients.
        name: names a value.
        checkpoint: of a function and a policy; what it is for JAX by itself, nothing.
        grad: gradients inside of the program.
        add_at: an array with some of its elements added to.
        set_at: an array with some of its elements replaced.
        symbolic_zero: the type of zeros in rules that ask for them.
    """

    np: Any
    api: Any
    control: Any
    random: Any
    stop: Function
    name: Function
    checkpoint: Function
    grad: Function
    add_at: Function
    set_at: Function
    symbolic_zero: type[Any]

    # -- loops and branches --------------------------------------------------------------------------------------------

    def scan(self, body: Function, carry: Any, xs: Any, reverse: bool = False) -> Any:
        """(*carries, rows) of `body(*carries, x) -> (*carries, row)`."""

        def step(carries: Any, x: Any) -> Any:
            results = body(*carries, x)
            return tuple(results[:-1]), results[-1]

        last, rows = self.control.scan(step, carry, xs, reverse=reverse)
        return (*last, rows)

    def fori(self, body: Function, low: Any, high: Any, carry: Any) -> Any:
        """The carries after steps of `body(k, *carries)`."""
        return self.control.fori_loop(low, high, lambda k, c: tuple(body(k, *c)), carry)

    def repeat(self, body: Function, steps: Any, carry: Any) -> Any:
        """The same as a while_loop."""
        start = self.np.asarray(0)
        return self.control.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, *body(*c[1:])), (start, *carry))[1:]

    def until(self, body: Function, limit: float, carry: Any) -> Any:
        """Steps until the first carry's sum exceeds a limit, at most three."""

        def is_running(c: Any) -> Any:
            return self.np.sum(c[0]) < limit

        if self.control is rematc:
            return rematc.bounded_while_loop(is_running, lambda c: tuple(body(*c)), carry, max_steps=3)

        def step(c: Any, _: Any) -> Any:
            return self.control.cond(is_running(c), lambda c: tuple(body(*c)), lambda c: c, c), None

        return self.control.scan(step, carry, None, length=3)[0]

    def cond(self, pred: Any, yes: Function, no: Function, *operands: Any) -> Any:
        return self.control.cond(pred, yes, no, *operands)

    def switch(self, index: Any, branches: Any, *operands: Any) -> Any:
        return self.control.switch(index, branches, *operands)

    def map(self, body: Function, xs: Any) -> Any:
        return self.control.map(lambda x: body(x)[0], xs)

    def vmap(self, body: Function, in_axes: Any = 0, out_axes: int = 0) -> Any:
        return self.api.vmap(lambda *args: body(*args)[0], in_axes=in_axes, out_axes=out_axes)

    def jit(self, body: Function) -> Any:
        return self.api.jit(body)

    def slope(self, body: Function, x: Any) -> Any:
        """The gradient of the sum of the body's result."""
        return self.grad(lambda x: self.np.sum(body(x)[0]))(x)

    def weak(self) -> Any:
        """A Python number's gradient, which promotes like a Python number."""
        return self.grad(lambda a: a * a)(0.75)

    # -- rules of the user's -------------------------------------------------------------------------------------------

    def with_jvp(self, body: Function, slope: Function, zeros: bool = False) -> Any:
        """`body(x, y)` with the derivative `slope(x, y)` in x and twice y's sine in y."""

        @self.api.custom_jvp
        def f(x: Any, y: Any) -> Any:
            return body(x, y)[0]

        def rule(primals: Any, tangents: Any) -> Any:
            x, y = primals
            total = self.np.zeros_like(x)
            for tangent, factor in zip(tangents, (slope(x, y)[0], 2 * self.np.sin(y)), strict=True):
                if not isinstance(tangent, self.symbolic_zero):
                    total = total + tangent * factor
            return f(x, y), total

        f.defjvp(rule, symbolic_zeros=zeros)
        return f

    def with_vjp(self, body: Function, slope: Function, kind: str = "") -> Any:
        """The same as a backward rule; `kind` says how it is written."""
        if kind == "nondiff":
            return self._with_nondiff_vjp(body, slope)

        @self.api.custom_vjp
        def f(x: Any, y: Any) -> Any:
            return body(x, y)[0]

        def forward(x: Any, y: Any) -> Any:
            if kind == "zeros":
                x, y = x.value, y.value
            value = body(x, y)[0] if kind == "inlined" else f(x, y)
            return value, (x, y)

        def backward(residuals: Any, ct: Any) -> Any:
            x, y = residuals
            if isinstance(ct, self.symbolic_zero):
                return None, None
            return ct * slope(x, y)[0], 2 * ct * self.np.sin(y)

        f.defvjp(forward, backward, symbolic_zeros=kind == "zeros")
        return f

    def _with_nondiff_vjp(self, body: Function, slope: Function) -> Function:
        @functools.partial(self.api.custom_vjp, nondiff_argnums=(0, 2))
        def f(function: Function, x: Any, factor: float) -> Any:
            return function(x, x)[0] * factor

        def forward(function: Function, x: Any, factor: float) -> Any:
            return f(function, x, factor), x

        def backward(function: Function, factor: float, x: Any, ct: Any) -> Any:
            return (factor * ct * slope(x, function(x, x)[0])[0],)

        f.defvjp(forward, backward)
        return lambda x, y: f(body, x + y, 0.5)

    # -- solves --------------------------------------------------------------------------------------------------------

    def regular(self, m: Any) -> Any:
        """A matrix that can be solved with."""
        return 3 * self.np.eye(3) + 0.5 * self.np.sin(m)

    def definite(self, m: Any) -> Any:
        """A symmetric one with positive eigenvalues."""
        s = self.np.sin(m)
        return 3 * self.np.eye(3) + s @ s.T / 3

    def linear_solve(self, a: Any, b: Any, is_symmetric: bool = False) -> Any:
        def solve(matvec: Function, b: Any) -> Any:
            return self.np.linalg.solve(self.stop(a), b)

        def transpose_solve(vecmat: Function, b: Any) -> Any:
            return self.np.linalg.solve(self.stop(a).T, b)

        if is_symmetric:
            return self.control.custom_linear_solve(lambda v: a @ v, b, solve, symmetric=True)
        return self.control.custom_linear_solve(lambda v: a @ v, b, solve, transpose_solve)

    def root(self, v: Any) -> Any:
        """Of z + sin(z) / 4 = v, by Newton's method."""

        def f(z: Any) -> Any:
            return z + self.np.sin(z) / 4 - v

        def solve(f: Function, z: Any) -> Any:
            def step(_: Any, z: Any) -> Any:
                return z - f(z) / (1 + self.np.cos(z) / 4)

            return self.control.fori_loop(0, 6, step, z)

        def tangent_solve(g: Function, y: Any) -> Any:
            return y / g(self.np.ones_like(y))

        return self.control.custom_root(f, self.np.zeros_like(v), solve, tangent_solve)

    def cho_solve(self, a: Any, b: Any) -> Any:
        if self.np is jnp:
            return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b)
        factor = self.np.linalg.cholesky(a)
        return self.np.linalg.solve(factor.T, self.np.linalg.solve(factor, b))

    # -- random numbers ------------------------------------------------------------------------------------------------

    def dropout(self, x: Any, seed: Any) -> Any:
        key = self.random.fold_in(self.key(), seed)
        return self.np.where(self.random.bernoulli(key, np.float32(0.5), x.shape), 2 * x, 0 * x)

    def noise(self, x: Any, seed: Any) -> Any:
        return x * self.random.normal(self.random.fold_in(self.key(), seed), x.shape, np.float32)

    def key(self) -> Any:
        return jax.random.PRNGKey(3) if self.random is jax.random else self.random.key(3)


def _no_checkpoint(function: Function, policy: object = None, prevent_cse: object = True) -> Function:
    return function


def plain() -> Library:
    """JAX itself, without checkpoints, which change no value."""
    return in_jax(_no_checkpoint, jax.grad)


def in_jax(checkpoint: Function, grad: Function) -> Library:
    """JAX with these checkpoints and inner gradients."""
    return Library(
        jnp,
        jax,
        lax,
        jax.random,
        lax.stop_gradient,
        checkpoint_name,
        checkpoint,
        grad,
        lambda x, i, y: x.at[i].add(y),
        lambda x, i, y: x.at[i].set(y),
        jax.custom_derivatives.SymbolicZero,
    )


def in_numpy() -> Library:
    """The NumPy frontend."""
    return Library(
        np,
        rematc,
        rematc,
        rematc.random,
        rematc.stop_gradient,
        rematc.checkpoint_name,
        rematc.checkpoint,
        rematc.grad,
        rematc.numpy.at_add,
        rematc.numpy.at_set,
        rematc.SymbolicZero,
    )
