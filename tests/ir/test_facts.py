"""The facts of each op are true, on sample operands."""

from __future__ import annotations

import numpy as np
import pytest

from rematc.ir.core import Op
from rematc.ir.facts import Storage, Weight
from rematc.ir.registry import OPS
from rematc.ir.values import Array
from tests.support.samples import Sample, families, rows

ROWS = rows()


def sample_of(key: str) -> Sample:
    family, index = ROWS[key]
    return families()[family][index]


def keys(holds: str) -> list[str]:
    return [key for key in ROWS if getattr(sample_of(key).op, holds)]


def in_one_row(arrays: list[Array]) -> list[Array]:
    return [array.reshape(-1) if array.ndim else array for array in arrays]


def part(arrays: list[Array], begin: int, end: int) -> list[Array]:
    return [array[begin:end] if array.ndim else array for array in arrays]


@pytest.mark.parametrize("key", keys("is_elementwise"))
def test_an_element_depends_on_those_at_its_place_alone(key: str) -> None:
    op, arrays = sample_of(key).op, in_one_row(sample_of(key).arrays())
    (whole,) = op.reference(arrays)
    for begin in range(0, whole.size if whole.ndim else 0, 3):
        (found,) = op.reference(part(arrays, begin, begin + 3))
        if op.is_exact and whole.dtype.kind != "c":
            assert found.tobytes() == whole[begin : begin + 3].tobytes()
        else:
            one, other = found.astype(np.complex128), whole[begin : begin + 3].astype(np.complex128)
            np.testing.assert_allclose(one, other, rtol=1e-6, err_msg="NumPy's vector units round otherwise")


@pytest.mark.parametrize("key", [key for key in ROWS if sample_of(key).op.commutes(sample_of(key).types)])
def test_operands_that_commute_may_be_exchanged(key: str) -> None:
    op, (x, y) = sample_of(key).op, sample_of(key).arrays()
    np.testing.assert_array_equal(op.reference((x, y)), op.reference((y, x)))


@pytest.mark.parametrize("key", keys("is_identity"))
def test_identities_give_their_operands(key: str) -> None:
    arrays = sample_of(key).arrays()
    for result, operand in zip(sample_of(key).op.reference(arrays), arrays, strict=True):
        np.testing.assert_array_equal(result, operand)


@pytest.mark.parametrize("key", [key for key in ROWS if sample_of(key).op.storage is Storage.BITCAST])
def test_a_bitcast_leaves_the_bytes(key: str) -> None:
    (operand,) = sample_of(key).arrays()
    (result,) = sample_of(key).op.reference([operand])
    assert result.tobytes() == operand.tobytes()


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_what_is_light_is_fused(op: type[Op]) -> None:
    assert op.weight is not Weight.LIGHT or op.storage is not Storage.WRITTEN


@pytest.mark.parametrize("name", ["and", "or", "xor", "not", "shift_left", "is_finite", "floor", "real", "complex"])
def test_ops_of_one_kind_weigh_the_same(name: str) -> None:
    assert OPS[name].weight is Weight.LIGHT
