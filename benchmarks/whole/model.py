"""What a whole model is: a loss in JAX, with a place for `jax.checkpoint` around each layer, and shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import Language
from benchmarks.architectures.library import JAX, Function, Wrap, unwrapped


@dataclass(frozen=True, slots=True)
class Whole:
    """A model.

    Attributes:
        name: what tables call it.
        build: the wrap of a layer to a loss; `unwrapped` gives the model of a user who knows no rematerialization.
        shapes: of the loss's arguments; it is differentiated with respect to the first.
        is_scanned: whether layers are the steps of a scan.
    """

    name: str
    build: Callable[[Wrap], Function]
    shapes: Callable[[], tuple[Any, ...]]
    is_scanned: bool = False


def of_language(name: str, language: Language) -> Whole:
    """A model of benchmarks/architectures, which is written for both libraries, on JAX's side."""
    return Whole(name, lambda block: language.build(JAX, block, unwrapped), language.shapes, language.is_scanned)


def integers(*shape: int) -> Any:
    """Int32 of a shape."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)  # type: ignore[no-untyped-call]  # jax


def reals(*shape: int) -> Any:
    """Float32 of a shape."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]  # jax
