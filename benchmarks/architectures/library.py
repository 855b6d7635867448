"""What models are written against: array functions, loops and names, of NumPy under rematc or of JAX.

A model is one body for both. Where JAX ships a function with a derivative of its own (`jax.nn.softmax`), JAX's side
uses it, as its users do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np

import rematc
from rematc.compiler.functions.calls import emit_op1
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions

# Any: arrays of either library, tracers of either library.
Function = Callable[..., Any]
Wrap = Callable[[Function], Function]


@dataclass(frozen=True, slots=True)
class Library:
    """One side's functions.

    Attributes:
        xp: the namespace of array functions.
        checkpoint_name: gives a value the name that policies ask for.
        scan: the loop over a first dimension.
        softmax: along the last dimension.
        gelu: its approximation by tanh.
        silu: x times its logistic function.
        logsumexp: along the last dimension.
        convolution: (images [batch, height, width, in], kernel [taps, taps, in, out], stride, groups), zeros outside,
            so that stride 1 keeps the size.
    """

    xp: Any
    checkpoint_name: Callable[[Any, str], Any]
    scan: Function
    softmax: Callable[[Any], Any]
    gelu: Callable[[Any], Any]
    silu: Callable[[Any], Any]
    logsumexp: Callable[[Any], Any]
    convolution: Function


def _softmax(x: Any) -> Any:
    weights = np.exp(x - rematc.stop_gradient(np.max(x, axis=-1, keepdims=True)))  # as jax.nn.softmax
    return weights / np.sum(weights, axis=-1, keepdims=True)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def _silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def _logsumexp(x: Any) -> Any:
    largest = rematc.stop_gradient(np.max(x, axis=-1, keepdims=True))
    return np.log(np.sum(np.exp(x - largest), axis=-1)) + largest[..., 0]


def _jax_logsumexp(x: Any) -> Any:
    return jax.nn.logsumexp(x, axis=-1)


def _padding(size: int, taps: int, stride: int) -> tuple[int, int]:
    """Zeros before and after a dimension so that ceil(size / stride) windows fit, as JAX's SAME has them."""
    total = max((-(-size // stride) - 1) * stride + taps - size, 0)
    return total // 2, total - total // 2


def _convolution(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    """NumPy has no convolution: the op itself."""
    paddings = tuple(_padding(size, taps, stride) for size, taps in zip(x.shape[1:3], kernel.shape, strict=False))
    op = Convolution(
        window_strides=(stride, stride),
        padding=paddings,
        lhs_dilation=(1, 1),
        rhs_dilation=(1, 1),
        window_reversal=(False, False),
        dimensions=ConvolutionDimensions(input=(0, 3, 1, 2), kernel=(3, 2, 0, 1), output=(0, 3, 1, 2)),
        feature_group_count=groups,
    )
    return emit_op1(op, x, kernel)


def _jax_convolution(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


REMATC = Library(np, rematc.checkpoint_name, rematc.scan, _softmax, _gelu, _silu, _logsumexp, _convolution)
JAX = Library(
    jnp,
    jax.ad_checkpoint.checkpoint_name,
    jax.lax.scan,
    jax.nn.softmax,
    jax.nn.gelu,
    jax.nn.silu,
    _jax_logsumexp,
    _jax_convolution,
)


@dataclass(frozen=True, slots=True)
class Model:
    """A loss and its arguments.

    Attributes:
        name: what tables call it.
        about: one line.
        build: (library, wrap of a block, wrap of a group of blocks) to a loss; without wraps the model is as a user
            writes it who knows nothing of rematerialization.
        arguments: the loss's arguments, seeded; it is differentiated with respect to the first.
        names: names that the blocks give their values, for the policy that saves them.
        has_groups: whether the wrap of groups is used.
    """

    name: str
    about: str
    build: Callable[[Library, Wrap, Wrap], Function]
    arguments: Callable[[], tuple[Any, ...]]
    names: tuple[str, ...] = ()
    has_groups: bool = False


def unwrapped(function: Function) -> Function:
    """No checkpoint."""
    return function


class Draw:
    """Random float32 arrays from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
        """Independent normals."""
        return self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def weight(self, *shape: int) -> np.ndarray[Any, Any]:
        """A matrix, or a stack of them, that keeps the scale of what it multiplies."""
        return self.normal(*shape, scale=float(shape[-2]) ** -0.5)

    def kernel(self, taps: int, inputs: int, outputs: int) -> np.ndarray[Any, Any]:
        """A kernel of a convolution, [taps, taps, in, out]."""
        return self.normal(taps, taps, inputs, outputs, scale=float(taps * taps * inputs) ** -0.5)
