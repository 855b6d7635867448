"""Primitives that are calls of libraries: their values, JAX's derivatives of them, batches, and what is an error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas

import rematc
from rematc.ir.errors import CompileError
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
grad: Any = rematc.grad
vmap: Any = rematc.vmap
numbers = np.random.default_rng(5)
A = jnp.asarray(numbers.standard_normal((4, 4)), jnp.float32)
TALL = A[:, :3]
BANDS = jnp.asarray(numbers.uniform(1, 2, (3, 4)), jnp.float32) + jnp.asarray([[0.0], [4.0], [0.0]], jnp.float32)


def schur(a: Any) -> Any:
    return lax.linalg.schur(a, sort_eig_vals=False)


def left_vectors(a: Any) -> Any:
    return lax.linalg.eig(a, compute_left_eigenvectors=True)


def leaves(found: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


ALONE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hessenberg": (lax.linalg.hessenberg, (A,)),
    "schur": (schur, (A,)),
    "tridiagonal": (lambda a: lax.linalg.tridiagonal(a, lower=True), (A + A.T,)),
    "householder_product": (lax.linalg.householder_product, (TALL, TALL[0])),
    "eig": (left_vectors, (A,)),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_jax_calls_lapack_for_has_the_same_value_alone_and_in_batches(name: str) -> None:
    function, arguments = ALONE[name]
    batch = [jnp.stack([argument, argument + 1]) for argument in arguments]

    def both(map: Any, wrap: Any) -> Any:
        return wrap(function)(*arguments), map(wrap(function))(*batch)

    def plain(function: Any) -> Any:
        return function

    found = leaves(rematc.jit(lambda: both(rematc.vmap, from_jax))())
    for row, wanted in zip(found, leaves(both(jax.vmap, plain)), strict=True):
        np.testing.assert_allclose(row, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ALONE)
def test_where_jax_has_no_derivative_it_is_an_error_at_the_line(name: str) -> None:
    function, arguments = ALONE[name]

    def total(*arguments: Any) -> Any:
        return sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(function(*arguments)))

    with pytest.raises(CompileError, match=f"'{name}' is differentiated, .*jax.custom_jvp or jax.custom_vjp") as caught:
        grad(from_jax(total))(*arguments)
    assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_the_derivative_of_a_call_is_that_of_jax() -> None:
    solve: Any = lax.linalg.tridiagonal_solve
    assert_like_jax(lambda bands: solve(*bands, TALL), BANDS)


def test_the_derivative_of_a_pivoted_qr_is_that_of_jax_under_a_policy() -> None:
    def loss(a: Any) -> Any:
        q, r, _ = lax.linalg.qr(jnp.sin(a), pivoting=True, full_matrices=False)
        return jnp.sum(q * q[::-1]) + jnp.sum(r**3)

    np.testing.assert_allclose(grad(from_jax(loss), policy="auto")(TALL), jax.grad(loss)(TALL), 1e-4, 1e-4)


def test_auto_saves_what_a_library_gives_and_the_report_says_which_primitives_came_so() -> None:
    def loss(a: Any) -> Any:
        return jnp.sum(jnp.sin(lax.linalg.hessenberg(jax.lax.stop_gradient(a))[0]) * jnp.cos(a))

    compiled = rematc.compile(grad(from_jax(loss), policy="auto"), A)
    assert compiled.stablehlo().count("@lapack_sgehrd_ffi") == 1
    assert [str(row).partition(" ")[0] for row in compiled.report().foreign] == ["hessenberg"]


# -- functions that users register -------------------------------------------------------------------------------------


def registered(x: Any, target: str = "lapack_sgehrd_ffi") -> Any:
    struct: Any = jax.ShapeDtypeStruct
    results = [struct((4, 4), np.float32), struct((3,), np.float32), struct((), np.int32)]
    call: Any = jax.ffi.ffi_call(
        target, results, input_layouts=[(0, 1)], output_layouts=[(0, 1), None, None], vmap_method="sequential"
    )
    return call(x, low=np.int32(1), high=np.int32(4))[0]


@jax.custom_vjp
def straight_through(x: Any) -> Any:
    return registered(x)


straight_through.defvjp(lambda x: (registered(x), None), lambda _, ct: (3 * ct,))


def test_a_registered_function_is_called_and_has_the_derivative_that_its_user_gives() -> None:
    np.testing.assert_allclose(from_jax(registered)(A), registered(A), rtol=1e-6)
    stacked = jnp.stack([A, A.T])
    np.testing.assert_allclose(vmap(from_jax(registered))(stacked), jax.vmap(registered)(stacked), rtol=1e-6)

    def loss(x: Any) -> Any:
        return jnp.sum(straight_through(jnp.sin(x)) ** 2)

    np.testing.assert_allclose(grad(from_jax(loss), policy="nothing")(A), jax.grad(loss)(A), rtol=1e-4, atol=1e-5)


def test_without_one_its_derivative_is_an_error_and_so_is_a_function_that_is_not_registered() -> None:
    with pytest.raises(CompileError, match="`lapack_sgehrd_ffi` cannot be differentiated"):
        grad(from_jax(lambda x: jnp.sum(registered(x))))(A)
    with pytest.raises(CompileError, match=r"calls 'nobodys'.*register_ffi_target") as caught:
        from_jax(lambda x: registered(x, "nobodys"))(A)
    assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_a_function_that_calls_a_library_goes_back_into_jax() -> None:
    def plain(x: Any) -> Any:
        return jnp.sum(jnp.sin(registered(jax.lax.stop_gradient(x))) * x)

    function: Any = rematc.jax.checkpoint(plain)
    np.testing.assert_allclose(jax.jit(jax.grad(function))(A), jax.grad(plain)(A), rtol=1e-5)
    batch = jnp.stack([A, A.T])
    np.testing.assert_allclose(jax.vmap(function)(batch), jax.vmap(plain)(batch), rtol=1e-5)


# -- Pallas ------------------------------------------------------------------------------------------------------------


def kernel(x: Any, y: Any, out: Any) -> None:
    out[...] = jnp.sin(x[...]) * y[...]


def product(x: Any, y: Any, *, interpret: bool = True) -> Any:
    struct: Any = jax.ShapeDtypeStruct
    call: Any = pallas.pallas_call(kernel, out_shape=struct(x.shape, x.dtype), interpret=interpret)
    return call(x, y)


@jax.custom_jvp
def product_with_rule(x: Any, y: Any) -> Any:
    return product(x, y)


product_with_rule.defjvps(lambda t, _, x, y: t * jnp.cos(x) * y, lambda t, _, x, y: t * jnp.sin(x))


def test_an_interpreted_kernel_of_pallas_is_a_function_with_a_forward_derivative() -> None:
    np.testing.assert_allclose(from_jax(product)(A, A.T), product(A, A.T), rtol=1e-6)
    given: Any = ((A, A.T), (A + 1, A - 1))
    pushed: Any = rematc.jvp(from_jax(product), *given)
    for found, wanted in zip(pushed, jax.jvp(product, *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_an_interpreted_kernel_of_pallas_has_the_backward_derivative_that_its_user_gives() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(product_with_rule(x, jnp.tanh(x)))

    np.testing.assert_allclose(grad(from_jax(loss))(A), jax.grad(loss)(A), rtol=1e-5, atol=1e-6)
    with pytest.raises(CompileError, match=r"no backward derivative of 'pallas_call'.*jax.custom_vjp") as caught:
        grad(from_jax(lambda x: jnp.sum(product(x, x))))(A)
    assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_a_kernel_of_pallas_that_is_not_interpreted_is_an_error_on_a_cpu() -> None:
    with pytest.raises(CompileError, match=r"'pallas_call' .*[Oo]nly interpret mode is supported on CPU") as caught:
        from_jax(lambda x: product(x, x, interpret=False))(A)
    assert caught.value.loc is not None and caught.value.loc.file == __file__
