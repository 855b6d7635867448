"""Import of batch normalization, as the arithmetic that StableHLO's specification gives for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.ir.builder import Builder
from rematc.ir.ops.shape import others
from rematc.ir.values import Value


class _Features:
    """Arithmetic between an array and numbers that each of its features has.

    x: any shape; features: the size of `feature`.
    """

    def __init__(self, b: Builder, x: Value, feature: int) -> None:
        self.b, self.type, self.feature = b, x.type, feature
        self.rest = others((feature,), x.type.rank)
        self.count = math.prod([x.type.shape[d] for d in self.rest])

    def spread(self, value: Value) -> Value:
        """Each feature's number at all places of the feature."""
        return self.b.broadcast_in_dim(value, self.type.shape, (self.feature,))

    def mean(self, x: Value) -> Value:
        total = self.b.reduce_sum(x, self.rest)
        return self.b.divide(total, self.b.full(total.type, self.count))

    def deviation(self, variance: Value, epsilon: float) -> Value:
        """The square root of the variance and epsilon, at all places."""
        b = self.b
        return self.spread(b.sqrt(b.add(variance, b.full(variance.type, epsilon))))


@imports("stablehlo.batch_norm_inference")
def batch_norm_inference(block: Block, operation: Any) -> Sequence[Value]:
    """scale (x - mean) / sqrt(variance + epsilon) + offset."""
    x, scale, offset, mean, variance = block.operands(operation)
    found, b = attributes(operation), block.b
    of = _Features(b, x, found.integer("feature_index"))
    return [_normalized(b, of, x, scale, offset, mean, variance, found.number("epsilon"))]


def _normalized(
    b: Builder, of: _Features, x: Value, scale: Value, offset: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    normal = b.divide(b.subtract(x, of.spread(mean)), of.deviation(variance, epsilon))
    return b.add(b.multiply(of.spread(scale), normal), of.spread(offset))


@imports("stablehlo.batch_norm_training")
def batch_norm_training(block: Block, operation: Any) -> Sequence[Value]:
    """The same with the batch's own mean and variance, which are results too."""
    x, scale, offset = block.operands(operation)
    found, b = attributes(operation), block.b
    of = _Features(b, x, found.integer("feature_index"))
    mean = of.mean(x)
    centered = b.subtract(x, of.spread(mean))
    variance = of.mean(b.multiply(centered, centered))
    return [_normalized(b, of, x, scale, offset, mean, variance, found.number("epsilon")), mean, variance]


@imports("stablehlo.batch_norm_grad")
def batch_norm_grad(block: Block, operation: Any) -> Sequence[Value]:
    """Cotangents of x, scale and offset, for that of the normalized x."""
    x, scale, mean, variance, ct = block.operands(operation)
    found, b = attributes(operation), block.b
    of = _Features(b, x, found.integer("feature_index"))
    deviation = of.deviation(variance, found.number("epsilon"))
    normal = b.divide(b.subtract(x, of.spread(mean)), deviation)
    ct_scale, ct_offset = b.reduce_sum(b.multiply(ct, normal), of.rest), b.reduce_sum(ct, of.rest)
    shared = b.add(b.multiply(normal, of.spread(ct_scale)), of.spread(ct_offset))
    inner = b.subtract(ct, b.divide(shared, b.full(x.type, of.count)))
    return [b.multiply(b.divide(of.spread(scale), deviation), inner), ct_scale, ct_offset]
