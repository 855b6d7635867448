"""Matrix products: element types of results and cotangents, precision, cost, what they refuse."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from rematc.ir.core import Graph
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.types import BF16, F16, F32, F64, I8, I32, DType, TensorType
from rematc.passes.linearize import vjp
from tests.support.samples import graph_of, in_double, normal

MATRICES = (((1,), (0,)), ((), ()))
X, Y = TensorType(F32, (2, 3)), TensorType(F32, (3, 4))


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (DotGeneral(*MATRICES, None), [X, X], r"contract dimensions \[1\] and \[0\] have sizes \[3\] and \[2\]"),
        (DotGeneral(((1,), (0,)), ((0,), (1,)), None), [X, Y], "batch dimensions .* have sizes"),
        (DotGeneral(((1, 0), (0,)), ((), ()), None), [X, Y], "contract dimensions .* have sizes"),
        (DotGeneral(((1,), (0,)), ((1,), (1,)), None), [X, Y], "distinct contract and batch dimensions"),
        (DotGeneral(*MATRICES, None), [X, Y.with_dtype(BF16)], "convert one, or state the result's"),
        (DotGeneral(*MATRICES, BF16), [X, Y], "cannot give bf16"),
        (DotGeneral(*MATRICES, I32), [X, Y], "cannot give i32"),
        (DotGeneral(*MATRICES, None, "EXACT"), [X, Y], "precision DEFAULT, HIGH, HIGHEST"),
        (DotGeneral(*MATRICES, None), [X], "takes 2 operands"),
    ],
)
def test_what_does_not_fit_is_refused(op: DotGeneral, operands: list[TensorType], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        op.infer(operands)


def test_flops_are_two_for_each_term_of_each_sum() -> None:
    op = DotGeneral(((2,), (1,)), ((0,), (0,)), None)
    operands = [TensorType(F32, (5, 2, 3)), TensorType(F32, (5, 3, 4))]
    assert op.flops(operands, op.infer(operands)) == 2 * 5 * 2 * 3 * 4


def products(graph: Graph) -> list[DotGeneral]:
    return [eqn.op for eqn in graph.equations if isinstance(eqn.op, DotGeneral)]


def test_precision_goes_through_differentiation() -> None:
    pair = vjp(graph_of(DotGeneral(*MATRICES, None, "HIGHEST"), [X, Y]), [True, True])
    assert [op.precision for op in products(pair.forward) + products(pair.backward)] == ["HIGHEST"] * 3


def test_the_residuals_of_a_product_are_its_operands() -> None:
    pair = vjp(graph_of(DotGeneral(*MATRICES, None), [X, Y]), [True, True])
    assert {residual.value.type for residual in pair.residuals} == {X, Y}
    assert len(pair.residuals) == 2


@pytest.mark.parametrize(("x", "y", "result"), [(BF16, BF16, F32), (F16, F16, F32), (F32, BF16, F32), (F32, F32, F64)])
def test_cotangents_have_their_operands_types_and_jaxs_values(x: DType, y: DType, result: DType) -> None:
    """Summed in the result's element type, rounded to the operand's at the end."""
    random = np.random.default_rng(0)
    arrays = [normal(x, 2, 30)(random), normal(y, 30, 4)(random)]
    ct = normal(result, 2, 4)(random)
    op = DotGeneral(*MATRICES, result)
    pair = vjp(graph_of(op, [TensorType(x, (2, 30)), TensorType(y, (30, 4))]), [True, True])
    _, *residuals = evaluate(pair.forward, arrays)
    actual = evaluate(pair.backward, [*residuals, ct])
    with jax.enable_x64(True):
        _, pull = jax.vjp(lambda a, b: lax.dot_general(a, b, MATRICES, None, result.numpy), *arrays)
        expected = [np.asarray(array) for array in pull(ct)]
    for found, wanted in zip(actual, expected, strict=True):
        assert found.dtype == wanted.dtype
        unit = float(ml_dtypes.finfo(wanted.dtype).eps)  # type: ignore[no-untyped-call]  # left unannotated
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=4 * unit, atol=4 * unit)


def test_narrow_integers_are_summed_in_the_result_type() -> None:
    x = np.full((1, 1000), 100, np.int8)
    op = DotGeneral(*MATRICES, I32)
    assert op.infer([TensorType(I8, (1, 1000)), TensorType(I8, (1000, 1))]) == (TensorType(I32, (1, 1)),)
    assert op.reference([x, x.T])[0] == 10_000_000


@st.composite
def geometries(draw: st.DrawFn) -> tuple[DotGeneral, tuple[int, ...], tuple[int, ...]]:
    """A product with its operands' shapes: dimensions of each kind in any order."""
    kinds = draw(st.tuples(*[st.integers(0, 2)] * 4))
    sizes = st.integers(1, 3)
    batch, contract, free_x, free_y = (draw(st.lists(sizes, min_size=n, max_size=n)) for n in kinds)
    labelled_x = [("b", i) for i in range(kinds[0])] + [("k", i) for i in range(kinds[1])]
    labelled_y = labelled_x + [("y", i) for i in range(kinds[3])]
    labelled_x = labelled_x + [("x", i) for i in range(kinds[2])]
    x, y = draw(st.permutations(labelled_x)), draw(st.permutations(labelled_y))
    size = {"b": batch, "k": contract, "x": free_x, "y": free_y}

    def places(kind: str, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (
            tuple(x.index((kind, i)) for i in range(count)),
            tuple(y.index((kind, i)) for i in range(count)),
        )

    op = DotGeneral(places("k", kinds[1]), places("b", kinds[0]), None)
    return op, tuple(size[kind][i] for kind, i in x), tuple(size[kind][i] for kind, i in y)


@given(geometries())
def test_value_and_adjoint_of_any_geometry(case: tuple[DotGeneral, tuple[int, ...], tuple[int, ...]]) -> None:
    op, x_shape, y_shape = case
    random = np.random.default_rng(1)
    # Small whole numbers, so that every sum is exact.
    x, y = (random.integers(-3, 4, shape).astype(np.float64) for shape in (x_shape, y_shape))
    pair = vjp(graph_of(op, [TensorType(F64, x_shape), TensorType(F64, y_shape)]), [True, True])
    result, *residuals = evaluate(pair.forward, [x, y])
    np.testing.assert_array_equal(result, with_einsum(op, x, y))
    ct = random.integers(-3, 4, result.shape).astype(np.float64)
    ct_x, ct_y = (in_double(array) for array in evaluate(pair.backward, [*residuals, ct]))
    # The form is bilinear, so that <ct, x y> = <ct_x, x> = <ct_y, y> for the operands themselves.
    assert np.sum(ct_x * x) == np.sum(ct * in_double(result)) == np.sum(ct_y * y)
    dx, dy = (random.integers(-3, 4, shape).astype(np.float64) for shape in (x_shape, y_shape))
    assert np.sum(ct_x * dx) == np.sum(ct * with_einsum(op, dx, y))
    assert np.sum(ct_y * dy) == np.sum(ct * with_einsum(op, x, dy))


def with_einsum(op: DotGeneral, x: Numeric, y: Numeric) -> Numeric:
    """The product by numpy.einsum on numbered subscripts."""
    of_x = list(range(x.ndim))
    of_y = list(range(x.ndim, x.ndim + y.ndim))
    for left, right in (op.contract, op.batch):
        for i, j in zip(left, right, strict=True):
            of_y[j] = of_x[i]
    rest_x = [i for d, i in enumerate(of_x) if d not in op.contract[0] + op.batch[0]]
    rest_y = [i for d, i in enumerate(of_y) if d not in op.contract[1] + op.batch[1]]
    found: Numeric = np.einsum(x, of_x, y, of_y, [of_x[d] for d in op.batch[0]] + rest_x + rest_y)
    return found
