"""np.einsum gives NumPy's values for any subscripts, and the products that the subscripts are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tracing import assert_as_numpy, traced

SIZES = dict(zip("abcdefgh", [2, 3, 4, 2, 3, 2, 3, 2], strict=True))
RNG = np.random.default_rng(3)


def _array(labels: str, dtype: type = np.float64) -> Any:
    return RNG.normal(size=[SIZES[label] for label in labels]).astype(dtype)


@pytest.mark.parametrize(
    "subscripts",
    [
        *("ab->ba", "ab->", "ab->a", "aa->a", "aa", "aba->ab", "aab->b", "aaa->a", "ab", "ba"),
        *("ab,bc->ac", "ab,bc", "ab,bc->ca", "ab,bc->abc", "ab,cb->", "ab,ab->ab", "a,b->ab", "a,a->a", "a,a"),
        *("abc,abd->abcd", "abc,adc->abd", "abcd,aecd->abec", "abc,cd->abd", "abc,bcd->da", "ab,cd->", "a,->a"),
        *("ab,bc,cd->ad", "ab,bc,ca->", "a,b,c->cba", "ab,a,b->", "abc,ad,be,cf->def", "ab,bc,cd,de,ef->af"),
        *("aab,bc->ac", "ab,bb->a", "ab,cd,ef->", " a b , b c -> a c "),
    ],
)
def test_as_numpy(subscripts: str) -> None:
    operands = [_array(term) for term in subscripts.replace(" ", "").partition("->")[0].split(",")]
    assert_as_numpy(lambda *xs: np.einsum(subscripts, *xs), *operands)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...ij,...jk", [(5, 1, 2, 3), (6, 3, 4)]),
        ("...i->...", [(2, 3, 4)]),
        ("i...->...i", [(2, 3, 4)]),
        ("...,...", [(2, 3), (3,)]),
        ("i...j,j->...i", [(2, 5, 3), (3,)]),
        ("ij,jk", [(1, 3), (3, 2)]),
        ("ij,ij->ij", [(1, 3), (4, 3)]),
        ("...ii->...i", [(2, 3, 3)]),
    ],
)
def test_ellipsis_and_broadcasting(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    assert_as_numpy(lambda *xs: np.einsum(subscripts, *xs), *[RNG.normal(size=shape) for shape in shapes])


def test_other_spellings() -> None:
    x, y = _array("ab"), _array("bc")
    assert_as_numpy(lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [2, 0]), x, y)
    assert_as_numpy(lambda x, y: np.einsum(x, [0, 1], y, [1, 2]), x, y)
    assert_as_numpy(lambda x, y: np.einsum(x, [0, 1], y, [1, ...]), x, y)
    assert_as_numpy(lambda x, y: np.einsum("ab,bc->ac", x, y, optimize=True), x, y)
    assert_as_numpy(lambda x, y: np.einsum("ab,bc->ac", x, y, dtype=np.float64), x.astype("f4"), y.astype("f4"))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8, np.bool_])
def test_dtypes(dtype: type) -> None:
    x: Any = (_array("ab") * 3).astype(dtype)
    y: Any = (_array("bc") * 3).astype(dtype)
    assert_as_numpy(lambda x, y: np.einsum("ab,bc->ac", x, y), x, y)
    assert_as_numpy(lambda x: np.einsum("ab->b", x), x)
    assert_as_numpy(lambda x, y: np.einsum("ab,bc->ac", x, y), x, _array("bc"))


@settings(max_examples=150)
@given(st.data())
def test_any_subscripts(data: st.DataObject) -> None:
    terms = data.draw(st.lists(st.text("abcde", max_size=4), min_size=1, max_size=4))
    used = sorted({label for term in terms for label in term})
    output = data.draw(st.permutations(used).flatmap(lambda order: st.integers(0, len(order)).map(lambda n: order[:n])))
    subscripts = f"{','.join(terms)}->{''.join(output)}"
    operands = [RNG.integers(-3, 4, [SIZES[label] for label in term]).astype(np.float64) for term in terms]
    assert_as_numpy(lambda *xs: np.einsum(subscripts, *xs), *operands)


def _ops(subscripts: str) -> list[str]:
    operands = [_array(term) for term in subscripts.partition("->")[0].split(",")]
    return [eqn.op.name for eqn in traced(lambda *xs: np.einsum(subscripts, *xs), *operands).graph.equations]


def test_products_need_one_op() -> None:
    assert _ops("ab,bc->ac") == ["dot_general"]
    assert _ops("abc,cd->abd") == ["dot_general"]
    assert _ops("abcd,abed->abce") == ["dot_general"]
    assert _ops("abcd,aecd->acbe") == ["dot_general"]
    assert _ops("abcd,aecd->bace") == ["dot_general", "transpose"]


def test_what_sums_nothing_is_no_matrix_product() -> None:
    for subscripts in ("ab,ab->ab", "a,b->ab", "ab,a->ab"):
        assert "dot_general" not in _ops(subscripts)


def test_labels_of_one_operand_are_summed_first() -> None:
    assert _ops("abc,bd->ad")[:1] == ["reduce_sum"]


def test_chains_follow_the_cheap_order() -> None:
    """A matrix chain that ends in a vector multiplies from the right: no product of two matrices."""
    n = 6
    matrices = [np.ones((n, n))] * 3
    graph = traced(lambda v, *ms: np.einsum("ab,bc,cd,d->a", *ms, v), np.ones(n), *matrices).graph
    assert max(len(eqn.results[0].type.shape) for eqn in graph.equations) == 1
