"""Typed random keys as the words that they are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.random import prng as _prng

from rematc.lowering.jax_internals.jaxprs import apply_equation

# Any: JAX leaves the functions that keys are made by without annotations.
_keys: Any = _prng


@functools.lru_cache(maxsize=256)
def is_key(dtype: Any) -> bool:
    """Whether an element type is that of typed random keys."""
    return bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


def key_layout(dtype: Any) -> tuple[Any, tuple[int, ...]]:
    """What a typed key is made of: the element type of its words, and their shape."""
    element = dtype._rules.physical_element_aval(dtype)
    return element.dtype, tuple(element.shape)


def key_words(keys: Any) -> Any:
    """The words of an array of typed keys, along new last dimensions."""
    return jax.random.key_data(keys)


def key_generator(dtype: Any) -> str:
    """The name of the generator of typed keys, as `jax.random.key_impl` gives it."""
    name: str = dtype._impl.name
    return name


def keys_of_words(words: Any, dtype: Any) -> Any:
    """The array of typed keys that words are."""
    return _keys.random_wrap(words, impl=dtype._impl)


def words_aval(aval: Any) -> jax.core.ShapedArray:
    """The abstract value of an array, or of the words of an array of typed keys."""
    if not is_key(aval.dtype):
        return jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
    element, words = key_layout(aval.dtype)
    return jax.core.ShapedArray((*aval.shape, *words), element)


def as_words(value: Any) -> Any:
    """An array, or the words of one of typed keys."""
    dtype = getattr(value, "dtype", None)
    return value if dtype is None or not is_key(dtype) else key_words(value)


def apply_to_words(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """As `apply_equation`, with the words of typed keys in their place."""
    given = [
        _keys.random_wrap(value, impl=atom.aval.dtype._impl) if is_key(atom.aval.dtype) else value
        for atom, value in zip(eqn.invars, operands, strict=True)
    ]
    return [
        key_words(value) if is_key(variable.aval.dtype) else value
        for variable, value in zip(eqn.outvars, apply_equation(eqn, given), strict=True)
    ]


def key_function(eqn: Any) -> Callable[..., Any]:
    """What an equation that makes keys, or bits of them, computes: a function of words, in other primitives."""
    params = eqn.params
    aval = eqn.invars[0].aval
    rank = len(aval.shape)

    def function(*operands: Any) -> Any:
        with eqn.ctx.manager:
            match eqn.primitive.name:
                case "random_seed":
                    return _keys.random_seed_impl_base(*operands, impl=params["impl"])
                case "random_split":
                    return _keys.random_split_impl_base(aval.dtype._impl, *operands, rank, shape=params["shape"])
                case "random_fold_in":
                    return _keys.random_fold_in_impl_base(aval.dtype._impl, *operands, aval.shape)
                case _:
                    return _keys.random_bits_impl_base(aval.dtype._impl, *operands, rank, **params)

    return function
