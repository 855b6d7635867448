"""JAX's typed random keys as arguments and results: in programs they are arrays of words.

A key and its words are told apart by a node of the tree of arguments, so that everything else sees an ordinary array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.tree_util

from rematc.lowering.jax_internals.keys import is_key, key_layout, key_words, keys_of_words, words_aval


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """Typed keys of JAX's while a function is traced.

    Attributes:
        words: array or tracer u32[..., n], the words of each key along the last dimension.
        key_dtype: JAX's element type, which says of which generator the keys are.
    """

    words: Any
    key_dtype: Any


@dataclass(frozen=True, slots=True)
class _Words:
    """Where the words of a key are in it: the path to the words is that to the key."""

    def __str__(self) -> str:
        return ""


def _unflatten(key_dtype: Any, children: Any) -> Any:
    """Where JAX's own arrays come back, so does the typed key."""
    (words,) = children
    if isinstance(words, jax.Array) and words.dtype == key_layout(key_dtype)[0]:
        return keys_of_words(words, key_dtype)
    return Key(words, key_dtype)


jax.tree_util.register_pytree_with_keys(
    Key,
    lambda key: (((_Words(), key.words),), key.key_dtype),
    _unflatten,
    lambda key: ((key.words,), key.key_dtype),
)


def is_typed_key(leaf: object) -> bool:
    """Whether a leaf is JAX's array of typed keys, a tracer or a description of one."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) and is_key(dtype)


def words_of(leaf: Any) -> Any:
    """The words of typed keys: of a description of keys its description."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        words: Any = words_aval(leaf)
        struct: Any = jax.ShapeDtypeStruct
        return struct(words.shape, words.dtype)
    return key_words(leaf)


def with_words(tree: Any) -> Any:
    """The tree with a `Key` for each leaf that is an array of typed keys; itself if there is none."""
    if not any(is_typed_key(leaf) for leaf in jax.tree_util.tree_leaves(tree)):
        return tree
    return jax.tree_util.tree_map(lambda leaf: Key(words_of(leaf), leaf.dtype) if is_typed_key(leaf) else leaf, tree)
