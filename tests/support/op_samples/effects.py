"""Rows for ir/ops/effects.py. What is printed and called is judged in tests/compiler/api/debugging."""

from __future__ import annotations

import numpy as np
from jax import numpy as jnp

from rematc.ir.host_functions import HostFunction
from rematc.ir.ops.effects import DebugCallback, DebugPrint, IoCallback, PureCallback
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.types import BF16, C128, F32, F64, I64, TensorType
from rematc.ir.values import Array
from tests.support.samples import Sample, integers, normal


def ignore(*arrays: Array) -> None:
    """A callback that does nothing."""


def doubled(*arrays: Numeric) -> list[Array]:
    return [np.asarray(array + array) for array in arrays]


IGNORE, DOUBLED = HostFunction(ignore, "ignore"), HostFunction(doubled, "doubled")

SAMPLES = (
    Sample(DebugPrint("x"), ()),
    Sample(DebugPrint("{0.shape} {y.dtype}", ("y",)), (normal(F32, 2, 3), integers(I64, 0, 9))),
    Sample(DebugPrint("{0.ndim}", is_ordered=True), (normal(F32, 3),)),
    Sample(DebugCallback(IGNORE), (normal(F32, 3), normal(F64, 2, 2))),
    Sample(DebugCallback(IGNORE, is_ordered=True), (normal(BF16, 3),)),
    *(
        Sample(PureCallback(DOUBLED, (TensorType(dtype, (3,)),)), (make(dtype, 3),), jax=lambda x: (2 * x,))
        for dtype, make in ((F32, normal), (F64, normal), (C128, normal), (BF16, normal))
    ),
    Sample(
        PureCallback(DOUBLED, (TensorType(I64, (2,)), TensorType(F32, ()))),
        (integers(I64, -9, 9, 2), normal(F32)),
        jax=lambda x, y: (2 * x, 2 * y),
        label="two",
    ),
    *(
        Sample(
            PureCallback(DOUBLED, (TensorType(F32, (2, 2)),), vmap_method),
            (normal(F32, 2, 2),),
            jax=lambda x: (jnp.asarray(2) * x,),
            label=vmap_method,
        )
        for vmap_method in ("expand_dims", "broadcast_all")
    ),
    *(
        Sample(
            IoCallback(DOUBLED, (TensorType(dtype, (3,)),), is_ordered),
            (make(dtype, 3),),
            jax=lambda x: (2 * x,),
            label="ordered" if is_ordered else "",
        )
        for dtype, make in ((F32, normal), (F64, normal), (C128, normal))
        for is_ordered in (False, True)
    ),
    Sample(
        IoCallback(DOUBLED, (TensorType(I64, (2,)), TensorType(F32, ())), is_ordered=True),
        (integers(I64, -9, 9, 2), normal(F32)),
        jax=lambda x, y: (2 * x, 2 * y),
        label="two",
    ),
)
