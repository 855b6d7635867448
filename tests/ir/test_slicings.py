"""How ops act along dimensions: what a rule says of parts is checked on the sample operands of every op."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from rematc.ir.core import Op
from rematc.ir.errors import MissingRuleError
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.elementwise import Elementwise, Numeric
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.sorting import Sort
from rematc.ir.ops.structural import Iota
from rematc.ir.registry import OPS
from rematc.ir.slicings import SAME, Slicing, kept_by_reshape, sum_dtype
from rematc.ir.types import BF16, F32, F64, TensorType
from rematc.ir.values import Array
from rematc.passes.vmap import vmap
from tests.support.parts import added_up, in_parts, ways
from tests.support.samples import Sample, assert_close, epsilon, families, graph_of, rows, tolerance_of, type_of

ROWS = rows()


def sample_of(key: str) -> Sample:
    family, index = ROWS[key]
    return families()[family][index]


def check_parts(sample: Sample, op: Op, arrays: Sequence[Array], slicing: Slicing, count: int) -> None:
    """Bit for bit where parts lie one after another; to rounding where they are added up."""
    whole = op.reference(arrays)
    parts = in_parts(op, slicing, count, arrays)
    for place, (d, expected) in enumerate(zip(slicing.results, whole, strict=True)):
        pieces = [part[place] for part in parts]
        if d == SAME:
            for piece in pieces:
                assert_same(sample, piece, expected)
        elif d is not None:
            assert_same(sample, np.concatenate(pieces, d), expected)
        elif slicing.into_of(place) is not None:
            assert_close(pieces[-1], expected, tolerance_of(sample, expected))
        else:
            assert {piece.dtype for piece in pieces} == {sum_dtype(type_of(expected).dtype).numpy}
            assert_close(np.asarray(added_up(pieces)).astype(expected.dtype), expected, tolerance_of(sample, expected))


def assert_same(sample: Sample, actual: Array, expected: Array) -> None:
    """Equal bits; to the tolerance where NumPy and its libraries choose how to add up, or to round, by the shape."""
    is_exact = sample.op.is_exact or not isinstance(sample.op, (Elementwise, ReduceSum))
    if sample.op.is_product or not is_exact:
        assert_close(actual, expected, tolerance_of(sample, expected))
    else:
        assert type_of(actual) == type_of(expected)
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("key", ROWS)
def test_parts_are_the_whole(key: str) -> None:
    sample = sample_of(key)
    arrays = sample.arrays()
    for slicing, count in ways(sample.op, arrays):
        check_parts(sample, sample.op, arrays, slicing, count)


@pytest.mark.parametrize("key", ROWS)
def test_a_dimension_has_one_slicing_an_operand(key: str) -> None:
    """Else it would be open what a cut operand does to the others."""
    sample = sample_of(key)
    results = sample.op.infer(sample.types)
    slicings = sample.op.slicings(sample.types, results)
    for slicing in slicings:
        assert len(slicing.operands) == len(sample.types)
        assert len(slicing.results) == len(results)
        assert len(slicing.into) in (0, len(results))
        assert all(one is None or slicing.operands[one] is None for one in slicing.into)
        assert all(d is None for one, d in zip(slicing.into, slicing.results, strict=False) if one is not None)
        for type, d in zip((*sample.types, *results), (*slicing.operands, *slicing.results), strict=True):
            assert d is None or d == SAME or 0 <= d < type.rank
    for slicing, other in itertools.combinations(slicings, 2):
        shared = [one == two and one is not None for one, two in zip(slicing.operands, other.operands, strict=True)]
        assert not any(shared), f"{slicing} and {other} cut one operand alike"


#: What takes its operands as they are, and why.
WHOLE_IN_A_BATCH = {
    "custom_call": "a kernel takes what it is given",
    "debug_callback": "the user sees how often it is called",
    "debug_print": "the user sees how often it is called",
    "io_callback": "the user sees how often it is called",
    "optimization_barrier": "what it holds together comes as a whole",
    "placement": "where a whole array lies says nothing of its parts",
    "pure_callback": "Python takes what it is given",
    "rng_bit_generator": "a state numbers all bits",
}


def in_batch(sample: Sample) -> Op | None:
    """The op that a batch of two makes of this one, if it is one op, and of all operands."""
    if sample.op.name in WHOLE_IN_A_BATCH or not sample.operands or not all(type.size for type in sample.types):
        return None
    try:
        batched = vmap(graph_of(sample.op, sample.types), [True] * len(sample.types), 2).graph
    except MissingRuleError:
        return None
    return batched.equations[0].op if len(batched.equations) == 1 else None


@pytest.mark.parametrize("key", ROWS)
def test_a_batch_can_be_cut(key: str) -> None:
    """The batching rule read backwards: what vmap makes of an op can run in parts along the batch."""
    sample = sample_of(key)
    op = in_batch(sample)
    if op is None:
        return
    arrays = [np.stack([array, array]) for array in sample.arrays()]
    results = op.infer([type_of(array) for array in arrays])
    along_batch = Slicing((0,) * len(arrays), (0,) * len(results))
    assert along_batch in op.slicings([type_of(array) for array in arrays], results)
    check_parts(sample, op, arrays, along_batch, 2)


#: Of which nothing is known along any dimension, and why.
NEEDS_ALL_WHOLE = {
    **dict.fromkeys(("axis_gather", "axis_index", "axis_max", "axis_min", "axis_sum"), "a collective of a batch"),
    **dict.fromkeys(
        [f"device_{what}" for what in ("exchange", "gather", "permute", "scatter", "map")],
        "a collective of devices",
    ),
    **dict.fromkeys(("full_to_shard", "manual_computation", "shard_to_full"), "devices cut what they have alike"),
    **dict.fromkeys(("custom_jvp", "custom_vjp"), "inlined before programs are cut"),
    "constant": "its elements are its own; what reads it reads parts of it",
    "custom_call": "a kernel takes what it is given",
    "custom_linear": "the user's function takes what it is given",
    **dict.fromkeys(("debug_callback", "debug_print"), "the user sees how often it is called"),
    **dict.fromkeys(("io_callback", "pure_callback"), "the user sees how often it is called"),
    "optimization_barrier": "what it holds together comes as a whole",
    "placement": "where a whole array lies says nothing of its parts",
    "rng_bit_generator": "a state numbers all bits",
    "to_memory": "what is moved to the host is not cut",
}


@pytest.mark.each_case
def test_every_op_has_a_rule_or_a_reason() -> None:
    silent = {
        name
        for name, cls in OPS.items()
        if (cls.slicings is Op.slicings and not cls.is_elementwise) or name in ("placement", "to_memory")
    }
    assert silent == set(NEEDS_ALL_WHOLE)


@pytest.mark.each_case
def test_the_rows_cut_every_op_that_can_be() -> None:
    samples = [sample_of(key) for key in ROWS]
    cut = {sample.op.name for sample in samples if in_batch(sample) or ways(sample.op, sample.arrays())}
    of_graphs = {"call", "case", "checkpoint", "scan", "while"}  # tests/ir/test_body_slicings.py
    assert set(OPS) - cut - set(NEEDS_ALL_WHOLE) - of_graphs == {"device_extremum", "device_sum", "device_vary"}


# -- single rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ((8, 1024, 768), (8192, 768), ((0, 0), (2, 1))),
        ((8192, 768), (8, 1024, 768), ((0, 0), (1, 2))),
        ((8, 1024, 768), (8, 1024, 12, 64), ((0, 0), (1, 1), (2, 2))),
        ((6, 4), (8, 3), ((0, 0),)),
        ((1, 6, 1, 4), (6, 4, 1), ((1, 0), (3, 1))),
        ((2, 3, 4, 5), (6, 20), ((0, 0), (2, 1))),
        ((0, 3), (3, 0), ()),
        ((), (1, 1), ()),
    ],
)
def test_a_reshape_keeps_equal_and_major_dimensions(
    before: tuple[int, ...], after: tuple[int, ...], pairs: tuple[tuple[int, int], ...]
) -> None:
    assert kept_by_reshape(TensorType(F32, before), TensorType(F32, after)) == pairs
    found = Reshape(after).slicings([TensorType(F32, before)], [TensorType(F32, after)])
    assert found == tuple(Slicing((d,), (place,)) for d, place in pairs)


def test_a_product_of_matrices_says_rows_columns_and_sum() -> None:
    op = DotGeneral(((2,), (0,)), ((), ()))
    x, w = TensorType(F32, (8, 16, 4)), TensorType(F32, (4, 10))
    assert op.slicings([x, w], op.infer([x, w])) == (
        Slicing((0, None), (0,)),
        Slicing((1, None), (1,)),
        Slicing((None, 1), (2,)),
        Slicing((2, 0), (None,)),
    )


@pytest.mark.parametrize(
    ("op", "shapes"),
    [(DotGeneral(((0,), (0,)), ((), ())), ((8, 3), (8, 5))), (ReduceSum((0,)), ((8, 3),))],
    ids=["dot_general", "reduce_sum"],
)
def test_narrow_sums_are_added_up_in_float32(op: Op, shapes: Sequence[tuple[int, ...]]) -> None:
    """Else each part would be rounded to 8 bits on its own."""
    operands = [np.random.default_rng(i).standard_normal(shape).astype(BF16.numpy) for i, shape in enumerate(shapes)]
    types = [type_of(array) for array in operands]
    slicing = next(slicing for slicing in op.slicings(types, op.infer(types)) if slicing.is_sum)
    parts = in_parts(op, slicing, 4, operands)
    assert {result.dtype for part in parts for result in part} == {F32.numpy}
    exact: Numeric = op.reference([array.astype(np.float64) for array in operands])[0]
    np.testing.assert_allclose(added_up([part[0] for part in parts]), exact, atol=64 * epsilon(F32))


def test_numbers_along_a_cut_dimension_go_on() -> None:
    """In bf16 257 is 256: a part's numbers are not those of the first one plus its place."""
    op = Iota(TensorType(BF16, (1024,)), 0)
    parts = in_parts(op, Slicing((), (0,)), 8, [])
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), op.reference([])[0])


def test_a_sort_is_cut_along_other_dimensions_alone() -> None:
    x = TensorType(F64, (4, 6, 2))
    assert Sort(1, 2).slicings([x, x], [x, x]) == (Slicing((0, 0), (0, 0)), Slicing((2, 2), (2, 2)))


def test_groups_of_features_need_their_kernel_whole() -> None:
    sample = next(
        sample
        for sample in families()["convolution"]
        if isinstance(sample.op, Convolution) and sample.op.feature_group_count > 1
    )
    found = sample.op.slicings(sample.types, sample.op.infer(sample.types))
    assert [slicing.operands[1] for slicing in found] == [None]
