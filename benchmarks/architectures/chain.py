"""A chain of residual layers x + gelu(gelu(x @ w0) @ w1)."""

from __future__ import annotations

from typing import Any

from benchmarks.architectures.library import Draw, Function, Library, Model, Wrap

LAYERS, WIDTH, BATCH, GROUP = 12, 512, 2048, 4


def build(lib: Library, block: Wrap, group: Wrap) -> Function:
    """The mean square of the chain's result."""

    def layer(weights: Any, x: Any) -> Any:
        first, second = weights
        return x + lib.gelu(lib.gelu(x @ first) @ second)

    wrapped_layer = block(layer)

    def some_layers(weights: Any, x: Any) -> Any:
        for one in weights:
            x = wrapped_layer(one, x)
        return x

    wrapped_group = group(some_layers)

    def loss(weights: Any, x: Any) -> Any:
        for start in range(0, len(weights), GROUP):
            x = wrapped_group(weights[start : start + GROUP], x)
        return lib.xp.mean(x * x)

    return loss


def arguments(batch: int = BATCH) -> tuple[Any, ...]:
    """Weights as pairs of matrices, and the input."""
    draw = Draw()
    return [(draw.weight(WIDTH, WIDTH), draw.weight(WIDTH, WIDTH)) for _ in range(LAYERS)], draw.normal(batch, WIDTH)


CHAIN = Model("chain", "12 residual layers of width 512, batch 2048", build, arguments, has_groups=True)
