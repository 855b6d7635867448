"""Where JAX's meaning is not the op's of the same name, the import gives JAX's value and JAX's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rematc.compiler.frontends.jax.importing import graph_of_jaxpr
from rematc.compiler.tracing.derivative_order import differentiated
from rematc.ir.interpreter import evaluate
from rematc.passes.linearize import vjp

V = np.array([1.5, -2.0, 0.5, 3.0], np.float32)
ZEROS = np.array([0.0, -0.0, np.nan, -np.inf, np.inf, 1.0], np.float32)
M = np.arange(12, dtype=np.float32).reshape(3, 4) / 7 - 0.6
INTEGERS = np.array([7, -7, 5, 0], np.int32)
OUTSIDE = np.array([1, 5, -2, -9], np.int32)
PAIR = (np.array([1 + 2j, 1 - 2j, np.inf + 1j], np.complex64), np.array([1 + 3j, 1 - 2j, 2 + 1j], np.complex64))

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    "gather that fills": (lambda x: jnp.take(x, OUTSIDE, axis=0), (V,)),
    "gather that fills with a number": (lambda x: jnp.take(x, OUTSIDE, axis=0, fill_value=7), (V,)),
    "gather of integers that fills": (lambda x: jnp.take(x, OUTSIDE, axis=0), (INTEGERS,)),
    "gather of bytes that fills": (lambda x: jnp.take(x, OUTSIDE, axis=0), (INTEGERS.astype(np.uint8),)),
    "gather that clips": (lambda x: jnp.take(x, OUTSIDE, axis=0, mode="clip"), (M,)),
    "gather that wraps": (lambda x: jnp.take(x, OUTSIDE, axis=0, mode="wrap"), (M,)),
    "scatter that drops": (lambda x, u: jnp.asarray(x).at[OUTSIDE].set(u), (V, M[0])),
    "scatter that clips": (lambda x, u: jnp.asarray(x).at[OUTSIDE].add(u, mode="clip"), (V, M[0])),
    "scatter on one place": (lambda x, u: jnp.asarray(x).at[np.array([1, 1, 0, 1])].set(u), (V, M[0])),
    "scatter of a minimum": (lambda x, u: jnp.asarray(x).at[np.array([1, 1, 0, 3])].min(u), (V, M[0])),
    "scatter that subtracts": (lambda x, u: jnp.asarray(x).at[np.array([1, 1, 0, 3])].add(-u), (V, M[0])),
    "scatter into all of an array": (lambda x, u: jnp.asarray(x).at[...].set(u), (M, M * 2)),
    "sums and products with all of an array": (
        lambda x, u: (jnp.asarray(x).at[:].add(u), jnp.asarray(x).at[...].subtract(u), jnp.asarray(x).at[:].mul(u)),
        (M, M * 2),
    ),
    "maximum with all of an array": (lambda x, u: jnp.asarray(x).at[...].max(u), (M, M[::-1].copy())),
    "scatter into a scalar": (lambda x, u: jnp.asarray(x[0]).at[()].add(u[1]), (V, V)),
    "sum of many into the start": (
        lambda x, u: lax.scatter_add(x, np.zeros((3, 0), np.int32), u, lax.ScatterDimensionNumbers((1,), (), ())),
        (V, M[:, :2].copy()),
    ),
    "gather of the start many times": (
        lambda x: lax.gather(x, np.zeros((5, 0), np.int32), lax.GatherDimensionNumbers((1,), (0,), ()), (1, 3)),
        (M,),
    ),
    "maximum of equals": (lambda x: jnp.maximum(x, x[::-1]), (ZEROS[:2],)),
    "maximum of NaN": (lambda x: jnp.maximum(x, 0), (ZEROS,)),
    "relu at zero": (jax.nn.relu, (ZEROS[[0, 1, 5]],)),
    "maximum of complex numbers": (lambda x, y: lax.max(*lax.stop_gradient((x, y))), PAIR),
    "argmax of NaN": (jnp.argmax, (ZEROS,)),
    "argmin of NaN": (jnp.argmin, (ZEROS,)),
    "sort of zeros and NaN": (lambda x: lax.sort((x, jnp.arange(6)), num_keys=1), (ZEROS,)),
    "top_k along another dimension": (lambda x: lax.top_k(x.T, 2, axis=0), (M,)),
    "quotient of integers": (lambda x: lax.div(x, INTEGERS[::-1]), (INTEGERS,)),
    "remainder of integers": (lambda x: lax.rem(x, INTEGERS[::-1]), (INTEGERS,)),
    "remainder": (lax.rem, (V, V[::-1].copy())),
    "modulo": (lambda x: x % 0.7, (V,)),
    "power zero": (lambda x: x**0 + lax.integer_pow(x, 0), (ZEROS[:2],)),
    "power one and two": (lambda x: lax.integer_pow(x, 1) + lax.integer_pow(x, 2), (ZEROS[:2],)),
    "negative power": (lambda x: lax.integer_pow(x, -3), (V,)),
    "power by integers": (lambda x: lax.pow(x, INTEGERS), (np.abs(V),)),
    "select by an index": (lambda x: lax.select_n(np.array([0, 2, 1, 2], np.int32), x, 2 * x, 3 * x), (V,)),
    "select by an index outside": (
        lambda x: lax.select_n(np.array([-1, 2, 1, 5], np.int32), x, 2 * x, 3 * x),
        (INTEGERS,),
    ),
    "sign of unsigned integers": (lax.sign, (np.array([0, 3], np.uint8),)),
    "sign of complex numbers": (lax.sign, (PAIR[1],)),
    "bits of floats": (lambda x: lax.bitcast_convert_type(x, jnp.int32), (V,)),
    "bits of wider numbers": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), (V,)),
    "complex to real": (lambda x: lax.convert_element_type(x, np.float32), (PAIR[1],)),
    "float to integer": (lambda x: x.astype(jnp.int32), (V,)),
    "rounding to even and away": (lambda x: jnp.stack([lax.round(x, m) for m in lax.RoundingMethod]), (V + 1,)),
    "product in a wider type": (
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=np.float32),
        (M.astype(np.float16), M.T.astype(np.float16)),
    ),
    "product of different types": (lambda x: lax.dot_general(x, INTEGERS, (((1,), (0,)), ((), ()))), (M,)),
    "product by an algorithm": (
        lambda x: lax.dot(x, x.T, precision=lax.DotAlgorithmPreset.F32_F32_F32, preferred_element_type=np.float32),
        (M,),
    ),
    "bitwise fold": (lambda x: lax.reduce_xor(x, axes=(0,)), (INTEGERS,)),
    "fold by a function": (lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + a, (1,)), (M,)),
    "window by a function": (
        lambda x: lax.reduce_window(x, np.int32(1), lambda a, b: a * b + a, (2, 2), (1, 1), "VALID"),
        (INTEGERS.reshape(2, 2),),
    ),
    "padding with gaps and cuts": (lambda x: lax.pad(x, np.float32(2), ((-1, 2, 1),)), (V,)),
    "tiles": (lambda x: jnp.tile(x, (2, 1, 3)), (M,)),
    "stack and unstack": (lambda x: jnp.stack(jnp.unstack(x, axis=1)[::-1], axis=2 - 1), (M,)),
    "split": (lambda x: jnp.split(x, [1, 3], axis=1), (M,)),
    "reversed running maximum": (lambda x: lax.cummax(x, axis=1, reverse=True), (M,)),
    "reduced precision": (lambda x: lax.reduce_precision(x, 5, 3), (V,)),
    "scalars among arrays": (lambda x: x * 2 + lax.max(x, np.float32(0.25)), (V,)),
    "branch by platform": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), (V,)),
    "solution of a conjugated system": (
        lambda a, b: lax.linalg.triangular_solve(a, b, lower=True, left_side=True, conjugate_a=True),
        ((np.tril(np.ones((2, 2))) * (1 + 1j)).astype(np.complex64), np.ones((2, 1), np.complex64)),
    ),
    "Cholesky factor of what is not made symmetric": (
        lambda a: lax.linalg.cholesky(a, symmetrize_input=False),
        (np.array([[4, 1], [1, 3]], np.float32),),
    ),
}


def flat(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda *arrays: list(jax.tree_util.tree_leaves(function(*arrays)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_value_and_gradient_are_those_of_jax(name: str) -> None:
    function, arrays = flat(CASES[name][0]), CASES[name][1]
    jaxpr = jax.make_jaxpr(function)(*arrays)
    with differentiated():
        imported = graph_of_jaxpr(jaxpr)
    graph = imported.graph
    expected = function(*arrays)
    found: list[Any] = list(evaluate(graph, arrays))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=2e-5, atol=1e-6)
        assert one.dtype == other.dtype
    wrt = [np.issubdtype(array.dtype, np.inexact) for array in arrays]
    of = [np.issubdtype(other.dtype, np.inexact) for other in expected]
    if not any(wrt) or not any(of):
        return
    cts = [
        np.linspace(1, 2, o.size).reshape(o.shape).astype(o.dtype)
        for o, is_set in zip(expected, of, strict=True)
        if is_set
    ]
    pulled = vjp(graph, wrt, of)
    _, pull = jax.vjp(lambda *x: [one for one, is_set in zip(function(*x), of, strict=True) if is_set], *arrays)
    residuals = evaluate(pulled.forward, arrays)[len(expected) :]
    moving = [has for has, is_set in zip(pulled.has_tangent, of, strict=True) if is_set]
    given = iter(evaluate(pulled.backward, [*residuals, *[ct for ct, has in zip(cts, moving, strict=True) if has]]))
    for has, array, other in zip(pulled.has_ct, arrays, pull(cts), strict=True):
        ct: Any = next(given) if has else np.zeros_like(array)
        np.testing.assert_allclose(ct, np.asarray(other), rtol=2e-5, atol=1e-6)
