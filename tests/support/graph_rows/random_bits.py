"""Rows for random bits from a state, of any type that programs draw integers of."""

from __future__ import annotations

import numpy as np

from rematc.ir.ops.random_bits import ALGORITHMS, RngBitGenerator
from rematc.ir.ops.structural import Constant
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from tests.support.drawing import SHAPES, Drawing, Row


def _bits(d: Drawing) -> tuple[Value, ...]:
    dtypes = [dtype for dtype in d.dtypes if dtype.is_integer and dtype.bits >= 8]
    if not dtypes:
        return ()
    state = d.b.emit1(Constant.of(np.array([d.integer(0, 2**64 - 1), d.integer(0, 2**64 - 1)], np.uint64)))
    bits = RngBitGenerator(TensorType(d.one_of(dtypes), d.one_of(SHAPES)), d.one_of(ALGORITHMS))
    return d.emit(bits, state)[1:]


ROWS = (Row((RngBitGenerator,), _bits),)
