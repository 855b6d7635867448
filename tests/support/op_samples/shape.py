"""Rows for ir/ops/shape.py."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.types import BF16, C64, F32, F64, I8, I32
from tests.support.samples import Sample, booleans, integers, literal, normal


def broadcast(shape: Sequence[int], dimensions: Sequence[int], *operand: int) -> Sample:
    return Sample(
        BroadcastInDim(tuple(shape), tuple(dimensions)),
        (normal(F32, *operand),),
        differentiable=(0,),
        jax=lambda x: lax.broadcast_in_dim(x, tuple(shape), tuple(dimensions)),
    )


def cut(start: Sequence[int], limit: Sequence[int], strides: Sequence[int], *operand: int) -> Sample:
    return Sample(
        Slice(tuple(start), tuple(limit), tuple(strides)),
        (normal(F32, *operand),),
        differentiable=(0,),
        jax=lambda x: lax.slice(x, start, limit, strides),
        label=f"{start}:{limit}:{strides}",
    )


def padded(edges: Sequence[tuple[int, int, int]], *operand: int, differentiable: tuple[int, ...] = (0, 1)) -> Sample:
    low, high, interior = zip(*edges, strict=True)
    return Sample(
        Pad(low, high, interior),
        (normal(F32, *operand), literal(F32, 0.5)),
        differentiable=differentiable,
        jax=lambda x, fill: lax.pad(x, fill, edges),
        label=str(edges),
    )


SAMPLES = (
    broadcast((2, 3, 4), (1,), 3),
    broadcast((2, 3, 4), (0, 2), 1, 4),
    broadcast((2, 1, 4), (0, 1), 2, 1),
    broadcast((2, 3), ()),
    broadcast((0, 3), (1,), 3),
    Sample(BroadcastInDim((2, 3), (1,)), (booleans(3),)),
    Sample(BroadcastInDim((2, 3), (0,)), (normal(C64, 2),), differentiable=(0,)),
    Sample(Reshape((6, 2)), (normal(F64, 3, 4),), differentiable=(0,), jax=lambda x: lax.reshape(x, (6, 2))),
    Sample(Reshape(()), (normal(BF16, 1, 1),), differentiable=(0,)),
    Sample(Reshape((0, 7)), (integers(I32, -9, 9, 3, 0),)),
    Sample(
        Transpose((1, 2, 0)), (normal(F32, 2, 3, 4),), differentiable=(0,), jax=lambda x: lax.transpose(x, (1, 2, 0))
    ),
    Sample(Transpose(()), (normal(F32),), differentiable=(0,)),
    Sample(Transpose((1, 0)), (integers(I8, -9, 9, 2, 3),)),
    Sample(Reverse((0, 2)), (normal(F32, 2, 3, 4),), differentiable=(0,), jax=lambda x: lax.rev(x, (0, 2))),
    Sample(Reverse((0,)), (booleans(5),)),
    Sample(
        Concatenate(1),
        (normal(F32, 2, 3), normal(F32, 2, 0), normal(F32, 2, 1)),
        differentiable=(0, 1, 2),
        jax=lambda *xs: lax.concatenate(xs, 1),
    ),
    Sample(
        Concatenate(0),
        (normal(F32, 2, 3), normal(F32, 1, 3)),
        differentiable=(1,),
        jax=lambda *xs: lax.concatenate(xs, 0),
        label="one tangent",
    ),
    Sample(Concatenate(0), (integers(I32, -9, 9, 2),)),
    cut((0, 1), (2, 4), (1, 1), 2, 5),
    cut((1, 0), (4, 5), (2, 3), 4, 5),
    cut((0,), (7,), (3,), 8),
    cut((2,), (2,), (3,), 4),
    cut((), (), ()),
    Sample(Slice((1,), (3,), (1,)), (booleans(4),)),
    padded([(1, 2, 0), (0, 1, 2)], 2, 3),
    padded([(0, 0, 0), (0, 1, 2)], 2, 3),
    padded([(-1, 2, 0)], 3),
    padded([(-1, -1, 1)], 4),
    padded([(-2, 0, 2)], 3),
    padded([(3, -4, 1)], 3),
    padded([(2, 2, 3)], 0),
    padded([(1, -2, 0)], 1),
    padded([(-1, -1, 0)], 2),
    padded([(1, 1, 1)], 3, differentiable=(0,)),
    padded([(1, 1, 1)], 3, differentiable=(1,)),
    Sample(Pad((1,), (0,), (1,)), (integers(I32, -9, 9, 3), literal(I32, 7))),
)
