"""Derivatives as functions of functions, each from `make_vjp` or `make_jvp`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import rematc
from autograd import core
from autograd.core import vspace
from autograd.wrap_util import unary_to_nary

Function = Callable[..., Any]
make_vjp = unary_to_nary(core.make_vjp)
make_jvp = unary_to_nary(core.make_jvp)
checkpoint = rematc.checkpoint


def _scalar_product(fun: Function, x: Any) -> tuple[Any, Any]:
    pull_back, value = core.make_vjp(fun, x)
    if vspace(value).size != 1:
        raise TypeError("the gradient is that of a real scalar; use jacobian, elementwise_grad or holomorphic_grad")
    return value, pull_back(vspace(value).ones())


@unary_to_nary
def grad(fun: Function, x: Any) -> Any:
    """The gradient of `fun`, whose value is one real number."""
    return _scalar_product(fun, x)[1]


@unary_to_nary
def value_and_grad(fun: Function, x: Any) -> tuple[Any, Any]:
    """The value of `fun`, one real number, and its gradient."""
    return _scalar_product(fun, x)


@unary_to_nary
def elementwise_grad(fun: Function, x: Any) -> Any:
    """The columns of the Jacobian, summed: its diagonal where it is diagonal."""
    pull_back, value = core.make_vjp(fun, x)
    if vspace(value).iscomplex:
        raise TypeError("elementwise_grad needs a real result")
    return pull_back(vspace(value).ones())


@unary_to_nary
def deriv(fun: Function, x: Any) -> Any:
    """The derivative along ones."""
    return core.make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def holomorphic_grad(fun: Function, x: Any) -> Any:
    """The derivative of a holomorphic function."""
    if not vspace(x).iscomplex:
        warnings.warn("the argument of holomorphic_grad is not complex", stacklevel=2)
    return _scalar_product(lambda x: np.real(fun(x)), x)[1]


@unary_to_nary
def jacobian(fun: Function, x: Any) -> Any:
    """All derivatives: the dimensions of the result, then those of the argument."""
    pull_back, value = core.make_vjp(fun, x)
    space = vspace(value)
    rows = [pull_back(basis) for basis in space.standard_basis()]
    return np.reshape(np.stack(rows), space.shape + vspace(x).shape)


@unary_to_nary
def hessian(fun: Function, x: Any) -> Any:
    """The second derivatives of a scalar function."""
    return jacobian(jacobian(fun))(x)


@unary_to_nary
def make_hvp(fun: Function, x: Any) -> tuple[Function, Any]:
    """The product of a vector with the Hessian, and the gradient."""
    return core.make_vjp(grad(fun), x)


@unary_to_nary
def grad_and_aux(fun: Function, x: Any) -> tuple[Any, Any]:
    """The gradient of the first of two results, and the second."""
    pull_back, (value, aux) = core.make_vjp(fun, x)
    return pull_back((vspace(value).ones(), vspace(aux).zeros())), aux


def grad_named(fun: Function, name: str) -> Function:
    """The gradient with respect to the argument of this name."""
    return grad(fun, list(inspect.signature(fun).parameters).index(name))


def hessian_tensor_product(fun: Function, argnum: int = 0) -> Function:
    """A function of the arguments and a tensor: the Hessian contracted with it."""

    def along(*args: Any, **kwargs: Any) -> Any:
        *given, tensor = args
        return np.tensordot(grad(fun, argnum)(*given, **kwargs), tensor, np.ndim(tensor))

    return grad(along, argnum)


def tensor_jacobian_product(fun: Function, argnum: int = 0) -> Function:
    """A function of the arguments and a tensor: the tensor contracted with the Jacobian."""

    def along(*args: Any, **kwargs: Any) -> Any:
        *given, tensor = args
        return np.tensordot(tensor, fun(*given, **kwargs), np.ndim(tensor))

    return jacobian(along, argnum)


hessian_vector_product, vector_jacobian_product = hessian_tensor_product, tensor_jacobian_product


def make_ggnvp(fun: Function, outer: Function = lambda y: 0.5 * np.sum(y**2, axis=-1), argnum: int = 0) -> Function:
    """The product with the generalized Gauss-Newton matrix J' H J, H the Hessian of `outer` at the result."""

    def product(inner: Function, x: Any) -> Function:
        pull_back, y = core.make_vjp(inner, x)
        times_hessian, _ = core.make_vjp(grad(outer), y)
        push_forward = core.make_jvp(inner, x)
        return lambda v: pull_back(times_hessian(push_forward(v)[1]))

    return unary_to_nary(product)(fun, argnum)
