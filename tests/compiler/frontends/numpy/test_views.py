"""What is written into an array shows in its views and the arrays that it is a view of, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, run, traced

A = np.arange(6.0).reshape(3, 2) + 1


def _slice(y: Any) -> Any:
    v = y[:2]
    v *= 2
    return y, v


def _reshape(y: Any) -> Any:
    line = y[:, 0].reshape(3, 1)
    line *= 2
    dense = y.copy().reshape(-1)
    dense[0] = 9
    return y, dense


def _of_a_copy(y: Any) -> Any:
    z = y.copy()
    line = z.reshape(-1)
    line += 1
    z[0] = 4
    return line, z, z.ravel()


def _rows(y: Any) -> Any:
    for row in y:
        row *= 2  # noqa: PLW2901  # in place
    y[0][1] = 3
    return y


def _out(y: Any) -> Any:
    v, w = y.T[1], y[::2][::-1]
    np.add(v, 1, out=v)
    np.sin(w, out=w)
    return y, v, w


def _base_written(y: Any) -> Any:
    v, row, element, diagonal = y.T, y[0], y[0, 0], np.diagonal(y)
    y[0] = 7
    y += 1
    return v, row, element, diagonal, np.broadcast_to(row, (2, 2))


def _pieces(y: Any) -> Any:
    first, second = np.split(y, [1])
    first -= 1
    np.swapaxes(second, 0, 1)[0] = 5
    np.copyto(y[2], [8, 9])
    return y, first, second


def _without_dimensions(y: Any) -> Any:
    v = y[0, 0, ...]
    v += 5
    total = y.sum()
    before = total
    total += 1
    zero = np.zeros_like(y[0, 0])
    same = zero
    zero += total
    return y, v, before, total, same


def _fancy(y: Any) -> Any:
    y[[0, 2]] *= 3
    y[y > 5] = -1
    taken = y[[1]]
    taken += 100
    y[np.array([True, False, True])] += 1
    y[1:] += y[:-1]
    y[0] = np.ones((1, 2))
    return y


def _integers(y: Any) -> Any:
    i = y.astype(int)
    i[0] = 1.7
    i[1] = y[1] / 2
    i //= 2
    return i


def _complex(y: Any) -> Any:
    z = y + 1j
    z.real[0] = 5
    z.imag *= 2
    z.imag = z.imag[::-1]
    np.conjugate(z, out=z)
    return z, z.real, y.conj() is y, y.real is y


def _methods(y: Any) -> Any:
    y[0].fill(3)
    y[:, 1].sort()
    y.flat[3] = 9
    y.T.flat[[0, 1]] = [5, 6]
    y[2].partition(1)
    z = np.where(y > 5, np.nan, y)
    np.nan_to_num(z, copy=False, nan=-2.0)
    return y, z, y.flat[1:3]


def _exchanged(y: Any) -> Any:
    y[0], y[1] = y[1].copy(), y[0].copy()
    y[:, 0], y[:, 1] = y[:, 1], y[:, 0]
    return y


CASES = [
    *(_slice, _reshape, _of_a_copy, _rows, _out, _base_written, _pieces, _without_dimensions, _fancy, _integers),
    *(_complex, _methods, _exchanged),
]


@pytest.mark.parametrize("case", CASES)
def test_as_in_numpy(case: Callable[[Any], Any]) -> None:
    # Each on an array of the function's own.
    assert_as_numpy(lambda x: case(x * 1), A)


def test_an_argument_is_written_for_the_function_alone() -> None:
    x = A.copy()
    found = run(_slice, x)
    np.testing.assert_array_equal(found[0], [[2, 4], [6, 8], [5, 6]])
    np.testing.assert_array_equal(x, A)


def test_the_graph_of_what_nobody_writes_has_no_trace_of_it() -> None:
    graph = traced(lambda x: (x.T[0] + x[:, 0], x.reshape(-1)[::2]), A).graph
    assert [eqn.op.name for eqn in graph.equations] == [
        *("transpose", "slice", "reshape", "slice", "reshape", "add", "reshape", "slice"),
    ]


def test_an_update_at_an_index_is_one_write() -> None:
    def function(x: Any) -> Any:
        x[1] += 1
        return x

    names = [eqn.op.name for eqn in traced(function, A).graph.equations]
    assert names.count("dynamic_update_slice") == 1


# -- in loops, under derivatives ---------------------------------------------------------------------------------------


def _step(carry: Any, t: Any) -> tuple[Any, Any]:
    carry = carry * 1
    tail = carry[1:]
    tail *= t
    carry[0] += tail[0]
    return carry, tail.sum()


def _loop(x: Any, ts: Any) -> Any:
    sums = []
    for t in ts:
        x, total = _step(x, t)
        sums.append(total)
    return x, np.stack(sums)


def test_in_a_scan() -> None:
    ts = np.array([1.0, 2.0, 3.0])
    found = run(lambda x, ts: rematc.scan(_step, x, ts), A, ts)
    for got, want in zip(found, _loop(A, ts), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_view_from_outside_is_read_inside_as_it_is() -> None:
    def function(x: Any) -> Any:
        y = x * 1
        v = y[:2]
        y *= 3
        total, _ = rematc.scan(lambda carry, t: (carry + v.sum() * t, None), 0.0, np.array([1.0, 2.0]))
        y[0] = 0
        return total, rematc.checkpoint(lambda z: z * v)(y[:2]), v

    total, product, v = run(function, A)
    assert total == 3 * 3 * A[:2].sum()
    np.testing.assert_array_equal(v, [[0, 0], [9, 12]])
    np.testing.assert_array_equal(product, v * v)


def _loss(x: Any) -> Any:
    y = x * 1
    v = y.T
    v[0] *= x[:, 1]
    y[1] = y[0] ** 2
    w = y[::2]
    w += x[:2]
    np.sin(w, out=w)
    return (y * v.T).sum()


def _pure(x: Any) -> Any:
    y = np.stack([x[:, 0] * x[:, 1], x[:, 1]], 1)
    y = np.stack([np.sin(y[0] + x[0]), y[0] ** 2, np.sin(y[2] + x[1])])
    return (y * y).sum()


def test_derivatives() -> None:
    for transform in (rematc.grad, rematc.hessian, lambda f: rematc.grad(rematc.checkpoint(f))):
        np.testing.assert_allclose(run(transform(_loss), A), run(transform(_pure), A), rtol=1e-12)
    batch = np.stack([A, A / 2])
    found, expected = (run(rematc.vmap(rematc.grad(f)), batch) for f in (_loss, _pure))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# -- order -------------------------------------------------------------------------------------------------------------


def test_the_order_of_memory_is_refused_where_it_matters() -> None:
    for function in (
        lambda x: x.T.ravel(order="K"),
        lambda x: x.flatten("A"),
        lambda x: np.reshape(x, (6,), order="A"),
        lambda x: np.ravel(x, "K"),
    ):
        with pytest.raises(CompileError, match="order='C'"):
            traced(function, A)
    assert_as_numpy(lambda x: (x[0].ravel("K"), x[:, :1].flatten("A"), x.ravel("F"), x.T.flatten("F")), A)


def test_array_takes_an_order() -> None:
    def function(x: Any) -> Any:
        y = np.array(x, order="C", like=x)
        line = y.reshape(-1)
        line[0] = 7
        return y

    assert_as_numpy(function, A)
