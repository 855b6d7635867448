"""Every supported function of NumPy gives NumPy's values, shapes and dtypes, over its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.tracing import assert_as_numpy

RNG = np.random.default_rng(7)
A = RNG.normal(size=(3, 4))
F = A.astype(np.float32)
INTS = RNG.integers(-5, 6, (3, 4))
B = A > 0
T = RNG.normal(size=(2, 3, 4))
V = RNG.normal(size=5)
S = RNG.normal(size=(4, 4))
N = np.where(A > 0.8, np.nan, A)
ID = np.array([[2, 0, 1, 3], [1, 1, 0, 2], [3, 2, 2, 0]])

Case = tuple[Callable[..., Any], tuple[Any, ...]]
REDUCTIONS = [np.sum, np.prod, np.max, np.amax, np.min, np.amin, np.mean, np.var, np.std, np.all, np.any, np.ptp,
              np.count_nonzero]  # fmt: skip
NAN_REDUCTIONS = [np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin]


def _case(function: Callable[..., Any], *arguments: Any) -> Case:
    return function, arguments


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1,), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_axes(function: Callable[..., Any], axis: Any, keepdims: bool) -> None:
    if axis == () and function is np.ptp:
        axis = 1
    assert_as_numpy(lambda x: function(x, axis=axis, keepdims=keepdims), T)


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int32, np.uint8, np.bool_])
def test_reductions_of_dtypes(function: Callable[..., Any], dtype: type) -> None:
    if function is np.ptp and dtype is np.bool_:
        return
    x: Any = (T * 2).astype(dtype)
    assert_as_numpy(function, x)
    assert_as_numpy(lambda a: function(a, 1), x)


@pytest.mark.parametrize("function", NAN_REDUCTIONS, ids=lambda f: f.__name__)
def test_reductions_without_nan(function: Callable[..., Any]) -> None:
    for axis in (None, 0, 1):
        assert_as_numpy(lambda x, axis=axis: function(x, axis=axis), N)
        assert_as_numpy(lambda x, axis=axis: function(x, axis=axis, keepdims=True), F)
    assert_as_numpy(function, INTS)


@pytest.mark.parametrize("function", [np.argmax, np.argmin])
def test_indices_of_extrema(function: Callable[..., Any]) -> None:
    for axis in (None, 0, -1):
        for keepdims in (False, True):
            assert_as_numpy(lambda x, a=axis, k=keepdims: function(x, axis=a, keepdims=k), T)
    assert_as_numpy(function, INTS)
    assert_as_numpy(function, N)


CASES: list[Case] = [
    # reductions with more arguments
    _case(lambda x: np.sum(x, dtype=np.float32), A),
    _case(lambda x: np.sum(x, dtype=np.bool_), INTS),
    _case(lambda x: np.sum(x, 1, np.float32, None, True), A),
    _case(lambda x: np.sum(x, initial=2.0), A),
    _case(lambda x, m: np.sum(x, axis=1, where=m), A, B),
    _case(lambda x: np.prod(x, axis=0, initial=3.0), A),
    _case(lambda x: np.max(x, axis=1, initial=0.5), A),
    _case(lambda x, m: np.min(x, axis=1, initial=9.0, where=m), A, B),
    _case(lambda x, m: np.mean(x, axis=0, where=m), A, B),
    _case(lambda x: np.mean(x, dtype=np.float64), F),
    _case(lambda x, m: np.var(x, axis=1, where=m), A, np.ones((3, 4), bool)),
    _case(lambda x: np.var(x, axis=1, ddof=1), A),
    _case(lambda x: np.std(x, axis=0, ddof=1, keepdims=True), A),
    _case(lambda x, m: np.any(x, axis=1, where=m), B, B),
    _case(np.average, A),
    _case(lambda x, w: np.average(x, axis=1, weights=w), A, np.arange(1.0, 5.0)),
    _case(lambda x, w: np.average(x, weights=w), A, A**2),
    _case(lambda x, w: np.average(x, axis=0, weights=w, returned=True), A, A**2),
    # cumulative
    *[_case(lambda x, a=a: np.cumsum(x, axis=a), T) for a in (None, 0, -1)],
    *[_case(lambda x, a=a: np.cumprod(x, axis=a), T) for a in (None, 0, -1)],
    _case(np.cumsum, INTS.astype(np.int8)),
    _case(lambda x: [np.std(x, axis=1), np.var(x)], A[:1, :1]),
    _case(lambda x: np.cumsum(x, dtype=np.float32), A),
    _case(lambda x: np.cumulative_sum(x, axis=1, include_initial=True), A),
    _case(lambda x: np.cumulative_prod(x, axis=0), A),
    _case(np.diff, A),
    _case(lambda x: np.diff(x, n=2, axis=0), A),
    _case(np.diff, B),
    _case(lambda x: np.diff(x, prepend=0.0, append=x[:, :1]), A),
    *[_case(f, N) for f in (np.nancumsum, np.nancumprod)],
    _case(lambda x: np.nancumsum(x, axis=1), N),
    _case(np.ediff1d, A),
    _case(lambda x: np.ediff1d(x, to_begin=[1.0, 2.0], to_end=0.0), A),
    _case(np.polyval, V, A),
    _case(lambda x: np.polyval([1, 2, 3], x), F),
    _case(np.trapezoid, A),
    _case(lambda x: np.trapezoid(x, dx=0.5, axis=0), A),
    _case(np.trapezoid, A, np.array([0.0, 1.0, 3.0, 4.0])),
    # products
    *[_case(np.dot, x, y) for x, y in [(A, A.T), (V, V), (T, S), (T, V[:4]), (A, S), (2.0, A), (S, T.swapaxes(1, 2))]],
    _case(np.vdot, A, A),
    _case(np.inner, T, A),
    _case(np.inner, V, V),
    _case(np.outer, V, A),
    *[_case(lambda x, y, a=a: np.tensordot(x, y, a), T, T) for a in (0, 3, [[0, 1], [0, 1]], (2, 2), ((-1,), (-1,)))],
    _case(np.kron, A, V),
    _case(np.kron, S, A),
    _case(np.cross, T[..., :3], A[:, :3]),
    _case(lambda x, y: np.cross(x, y, axis=0), S[:3], S[1:]),
    *[
        _case(np.matmul, x, y)
        for x, y in [
            (A, S),
            (T, S),
            (T, T.swapaxes(1, 2)),
            (V, V),
            (V[:3], T),
            (T, V[:4]),
            (A, T.swapaxes(1, 2)),
            (T[:, None], T.swapaxes(1, 2)),
            (INTS, INTS.T),
            (B, B.T),
            (F, F.T),
            (F, A.T),
        ]
    ],
    _case(lambda x, y: x @ y, A, S),
    _case(np.vecdot, T, A),
    _case(np.linalg.vecdot, A, A),
    _case(np.matvec, T, V[:4]),
    _case(np.vecmat, V[:3], T),
    _case(lambda x, y: np.linalg.multi_dot([x, y, y]), A, S),
    *[_case(lambda x, n=n: np.linalg.matrix_power(x, n), S) for n in (0, 1, 2, 5)],
    _case(np.linalg.matmul, A, S),
    _case(lambda x, y: np.linalg.tensordot(x, y, axes=1), A, S),
    _case(np.linalg.outer, V, V),
    _case(np.linalg.cross, A[:, :3], A[:, 1:]),
    # norms
    *[_case(lambda x, o=o: np.linalg.norm(x, o), V) for o in (None, 1, 2, 3, np.inf, -np.inf, 0, 2.5, -1)],
    *[_case(lambda x, o=o: np.linalg.norm(x, o), A) for o in (None, "fro", 1, -1, np.inf, -np.inf)],
    _case(lambda x: np.linalg.norm(x, axis=1, keepdims=True), A),
    _case(lambda x: np.linalg.norm(x, axis=(0, 2), keepdims=True), T),
    _case(lambda x: np.linalg.norm(x, 1, axis=(2, 1)), T),
    _case(np.linalg.norm, INTS),
    _case(np.linalg.norm, F),
    _case(lambda x: np.linalg.vector_norm(x, axis=0), A),
    _case(lambda x: np.linalg.matrix_norm(x, keepdims=True), T),
    # shape
    *[_case(lambda x, s=s: np.reshape(x, s), T) for s in ((4, 6), -1, (2, -1), [3, 8])],
    *[_case(lambda x, s=s: x.reshape(*s), T) for s in ((4, 6), (-1,), ((2, -1),))],
    _case(np.ravel, T),
    _case(np.transpose, T),
    _case(lambda x: np.transpose(x, (1, -1, 0)), T),
    _case(np.matrix_transpose, T),
    _case(np.linalg.matrix_transpose, T),
    _case(lambda x: np.swapaxes(x, 0, -1), T),
    _case(lambda x: np.moveaxis(x, 0, -1), T),
    _case(lambda x: np.moveaxis(x, (0, 1), (-1, 0)), T),
    _case(lambda x: [np.rollaxis(x, 2), np.rollaxis(x, 0, 3), np.rollaxis(x, 1, -1)], T),
    _case(lambda x: [np.expand_dims(x, 0), np.expand_dims(x, -1), np.expand_dims(x, (0, 3))], A),
    _case(lambda x: [np.squeeze(x), np.squeeze(x, 0), np.squeeze(x, (0, -1))], A[None, :, :, None]),
    _case(lambda x: np.broadcast_to(x, (2, 3, 4)), A),
    _case(lambda x: np.broadcast_to(x, (2, 3, 4)), A[:, :1]),
    _case(np.broadcast_arrays, A, V[:4]),
    *[_case(f, x) for f in (np.atleast_1d, np.atleast_2d, np.atleast_3d) for x in (2.0, V, A, T)],
    _case(np.atleast_2d, V, A),
    *[_case(lambda x, a=a: np.flip(x, a), T) for a in (None, 0, (1, 2))],
    _case(np.fliplr, A),
    _case(np.flipud, A),
    *[_case(lambda x, k=k: np.rot90(x, k, (0, 2)), T) for k in range(-1, 5)],
    *[
        _case(lambda x, s=s, a=a: np.roll(x, s, a), T)
        for s, a in [(1, None), (-2, 1), (5, 0), ((1, 2), (0, 2)), (1, (1, 2)), ((1, 1), 2)]
    ],
    *[_case(lambda x, k=k: np.diagonal(x, k), A) for k in (0, 1, -1, 3, -2, 9, -9)],
    _case(lambda x: np.diagonal(x, 0, 2, 0), T),
    _case(np.linalg.diagonal, T),
    *[_case(lambda x, k=k: np.trace(x, k), A) for k in (0, 1, -1)],
    _case(np.trace, INTS.astype(np.int8)),
    _case(np.linalg.trace, T),
    *[_case(lambda x, k=k: np.diag(x, k), V) for k in (0, 1, -2)],
    *[_case(lambda x, k=k: np.diag(x, k), A) for k in (0, 1, -2)],
    _case(np.diagflat, A),
    *[_case(lambda x, f=f, k=k: f(x, k), T) for f in (np.tril, np.triu) for k in (0, 1, -2)],
    _case(np.tril, V),
    _case(np.copy, A),
    _case(lambda x: [np.astype(x, np.int32), np.astype(x, bool), x.astype("f4")], A),
    _case(lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1), A),
    _case(lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)), A),
    _case(lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3), axis=(-2, -1)), T),
    # joining
    *[_case(lambda x, y, a=a: np.concatenate([x, y, x], a), A, A * 2) for a in (0, 1, -1, None)],
    _case(lambda x, y: np.concatenate((x, y)), INTS, F),
    _case(lambda x, y: np.concatenate((x, y), dtype=np.float32), INTS, F),
    *[_case(lambda x, y, a=a: np.stack([x, y], a), A, F) for a in (0, 1, -1)],
    *[
        _case(lambda x, y, f=f: f([x, y]), u, u)
        for f in (np.vstack, np.hstack, np.dstack, np.column_stack)
        for u in (V, A)
    ],
    _case(np.hstack, T),
    _case(lambda x: np.append(x, [1.0, 2.0]), A),
    _case(lambda x, y: np.append(x, y, axis=0), A, A),
    _case(lambda x, y: np.block([[x, y], [y, x]]), S, S * 2),
    _case(lambda x: np.block([x, x]), V),
    *[_case(lambda x, n=n: np.split(x, n), V[:4]) for n in (2, 4, [1, 3], [0, 9])],
    *[_case(lambda x, n=n: np.array_split(x, n, axis=1), A) for n in (2, 3, 5)],
    _case(lambda x: [np.hsplit(x, 2), np.vsplit(x, 3)], A),
    _case(lambda x: np.hsplit(x, 5), V),
    _case(lambda x: np.dsplit(x, 2), T),
    _case(lambda x: np.unstack(x, axis=1), A),
    *[_case(lambda x, r=r: np.tile(x, r), A) for r in (2, (2, 1), (2, 1, 3), 0)],
    *[_case(lambda x, r=r, a=a: np.repeat(x, r, a), A) for r, a in [(2, None), (3, 0), ([1, 0, 2], 0), ([2], 1)]],
    *[
        _case(lambda x, y, i=i, s=s: np.meshgrid(x, y, x, indexing=i, sparse=s), V, V[:3])
        for i in ("xy", "ij")
        for s in (False, True)
    ],
    _case(np.vander, V),
    _case(lambda x: np.vander(x, 3, increasing=True), V),
    # padding
    *[_case(lambda x, w=w: np.pad(x, w), A) for w in (1, (1, 2), ((1, 2), (0, 3)), ((0, 0), (1, 1)))],
    _case(lambda x: np.pad(x, 1, constant_values=2.0), A),
    _case(lambda x: np.pad(x, ((1, 1), (2, 0)), constant_values=((1, 2), (3, 4))), A),
    *[
        _case(lambda x, m=m, w=w: np.pad(x, w, mode=m), A)
        for m in ("edge", "reflect", "symmetric", "wrap", "maximum", "minimum", "mean")
        for w in (1, ((2, 1), (0, 3)), ((5, 4), (7, 9)))
    ],
    *[
        _case(lambda x, y, m=m: np.convolve(x, y, m), x, y)
        for m in ("full", "same", "valid")
        for x, y in [(V, V[:3]), (V[:2], V), (V, V[:2])]
    ],
    *[
        _case(lambda x, y, m=m: np.correlate(x, y, m), x, y)
        for m in ("full", "same", "valid")
        for x, y in [(V, V[:3]), (V[:2], V), (V, V[:2])]
    ],
    # selection
    _case(np.where, B, A, A * 2),
    _case(lambda c, x: np.where(c, x, 0.0), B, F),
    _case(lambda c, x: np.where(c, 1, x), INTS, F),
    _case(lambda c, x: np.where(c[:, :1], x, np.float64(1)), B, F),
    _case(lambda c: np.where(c, 1.0, 0), B),
    _case(lambda x: np.select([x > 1, x > 0], [x, 2 * x], -1.0), A),
    *[_case(lambda x, a=a: np.clip(x, *a), A) for a in ((-0.5, 0.5), (None, 0.2), (0.1, None))],
    _case(lambda x: np.clip(x, 0, np.arange(4)), INTS),
    _case(lambda x: np.clip(x, min=0), F),
    *[_case(lambda x, d=d: np.round(x, d), A * 10) for d in (0, 1, 3, -1)],
    _case(lambda x: np.around(x, -1), INTS * 7),
    _case(np.fix, A * 3),
    _case(np.nan_to_num, np.array([np.nan, np.inf, -np.inf, 1.0])),
    _case(np.nan_to_num, np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)),
    _case(lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0), np.array([np.nan, np.inf, -np.inf])),
    _case(np.isclose, A, A + 1e-9),
    _case(lambda x, y: np.isclose(x, y, equal_nan=True), N, N),
    _case(np.allclose, A, A + 1e-9),
    _case(lambda x, y: [np.array_equal(x, y), np.array_equal(x, x), np.array_equal(x, y[0])], A, A + 1),
    _case(np.sinc, np.array([0.0, 0.5, 1.0, -2.5])),
    _case(lambda x, f: np.interp(x, [0.0, 1.0, 3.0], f), np.linspace(-1, 4, 9), np.array([1.0, 2.0, 0.0])),
    _case(lambda x, f: np.interp(x, [0.0, 1.0, 3.0], f, -5, 7), np.linspace(-1, 4, 9), np.array([1.0, 2.0, 0.0])),
    _case(lambda x: [np.isposinf(x), np.isneginf(x)], np.array([np.inf, -np.inf, np.nan, 0.0])),
    _case(lambda x: [np.real(x), np.imag(x), x.real, x.imag, x.conj()], A),
    # taking
    *[_case(lambda x, i, a=a: np.take(x, i, a), S, ID) for a in (None, 0, 1)],
    _case(lambda x: np.take(x, [0, -1], 1), A),
    _case(lambda x, i: [np.take(x, i + 3, 0, mode="wrap"), np.take(x, i - 2, 0, mode="clip")], S, ID),
    _case(lambda x, i: np.take_along_axis(x, i, 1), A, ID),
    _case(lambda x, i: np.take_along_axis(x, i, 0), S, ID % 3),
    _case(lambda x, i: np.take_along_axis(x, i, None), S, ID[0]),
    _case(lambda x, i: np.take_along_axis(x, i[:, None], axis=-1), A, np.array([0, -1, 2])),
    _case(lambda x: np.take_along_axis(x, ID[:, :2], 1), A),
    _case(lambda x: [np.delete(x, 1, 0), np.delete(x, [0, 2], 1), np.delete(x, 3)], A),
    _case(lambda x: np.compress([True, False, True], x, 0), A),
    *[_case(lambda x, p=p: np.insert(x, p, 9.5, 1), A) for p in (1, [0, 2], slice(1, 3), -1, [3, 1])],
    _case(lambda x, v: [np.insert(x, 1, v[:4], 0), np.insert(x, 1, v[:3], 1), np.insert(x, [1], v[:3, None], 1)], A, V),
    _case(lambda x, v: [np.insert(x, 3, v), np.insert(x, [0, 5], v[:2])], A, V),
    # calculus
    _case(lambda x: [np.gradient(x), np.gradient(x, 0.5), np.gradient(x, axis=1, edge_order=2)], A),
    _case(
        lambda x, v: [np.gradient(x, np.cumsum(v**2 + 1), axis=0), np.gradient(x, v[0], axis=(0, 1))],
        T[0].T @ T[0],
        V[:4],
    ),
    _case(lambda x: np.gradient(x, [0.0, 1.0, 3.0, 4.5], axis=1, edge_order=2), A),
    _case(np.gradient, INTS),
    _case(lambda x: [np.unwrap(x * 5), np.unwrap(x * 9, axis=0), np.unwrap(x, 3.0)], A),
    _case(lambda x: [np.unwrap(x, period=4), np.unwrap(x, period=5)], INTS * 3),
    _case(lambda x: np.apply_along_axis(np.sum, 1, x), T),
    _case(lambda x: np.apply_along_axis(lambda row: np.outer(row, row[:2]), 1, x), T),
    _case(lambda x: [np.apply_over_axes(np.sum, x, (0, 2)), np.apply_over_axes(np.max, x, 1)], T),
    _case(lambda x: np.piecewise(x, [x < 0, x >= 1], [lambda t: -t, np.exp, 0.5]), A),
    _case(lambda x: np.piecewise(x, x < 0, [lambda t: t * t]), V),
    _case(lambda x, y: np.choose([[1, 0, 1, 0]], [x, y]), A, -A),
    _case(lambda i, x: [np.choose(i, [x, -x, x * 2, x * 3]), np.choose(i - 9, [x, -x], mode="wrap")], ID, A),
    # counting and locating
    _case(lambda i: [np.isin(i, [1, 3]), np.isin(i, i[0, :2], invert=True)], ID),
    _case(lambda i, w: [np.bincount(i.ravel(), minlength=5), np.bincount(i[0], w, minlength=4)], ID, V[:4]),
    _case(lambda x: [np.histogram(x, 5), np.histogram(x, 4, (-1, 1)), np.histogram(x, [-1.0, 0.0, 0.5])], A),
    _case(lambda x, w: [np.histogram(x, 3, weights=w), np.histogram(x, 3, density=True)], V, V**2),
    _case(np.histogram, INTS),
    _case(lambda i: [np.unravel_index(i, (3, 2, 2)), np.unravel_index(i, (3, 2, 2), order="F")], ID),
    _case(lambda i: np.ravel_multi_index((i, i % 2), (4, 2)) + np.ravel_multi_index((i, i), (3, 2), mode="wrap"), ID),
    _case(lambda i: np.ravel_multi_index((i, i), (3, 2), mode=("clip", "wrap"), order="F"), ID),
    _case(lambda x: [np.cov(x), np.cov(x, rowvar=False), np.cov(x, x * 2, bias=True), np.cov(x[0])], A),
    _case(lambda x: [np.corrcoef(x), np.corrcoef(x[0]), np.corrcoef(x, x[::-1], rowvar=False)], A),
    _case(lambda x: [np.array_equiv(x, x[0]), np.array_equiv(x, x), np.array_equiv(x, x[:, :3])], A),
    _case(lambda x: np.extract(B, x), A),
    # polynomials
    _case(lambda p, q: [np.polyadd(p, q), np.polysub(p, q), np.polymul(p, q), np.polyadd(p, 2.0)], V, V[:3]),
    _case(np.polydiv, V, V[:3]),
    _case(lambda p: [np.polyder(p), np.polyder(p, 2), np.polyint(p), np.polyint(p, 2, [1.0, 2.0]), np.poly(p)], V),
    # creation
    _case(lambda x: [np.zeros_like(x), np.ones_like(x), np.full_like(x, 3), np.zeros_like(x, dtype=int)], F),
    _case(lambda x: [np.zeros_like(x, shape=(2, 2)), np.full_like(x, np.inf, dtype=float, shape=3)], INTS),
    _case(np.full_like, F, 0.5),
    _case(lambda x: np.empty_like(x) * 0, A),
    _case(lambda x, y: np.linspace(x, y, 5), 1.0, 3.0),
    _case(lambda x, y: np.linspace(x, y, 4, endpoint=False, axis=1), V, V * 2),
    _case(lambda x: np.linspace(x, 3, 4, retstep=True), np.float32(1)),
    _case(lambda x: np.linspace(0, x, 1), 3),
    # questions that need no elements
    _case(lambda x: x * np.shape(x)[0] + np.ndim(x) + np.size(x) + np.size(x, 1), A),
    _case(lambda x: x.astype(np.result_type(x, np.float32, 1.0)), INTS.astype(np.int8)),
    _case(lambda x: x * np.iscomplexobj(x) + np.isrealobj(x), A),
    _case(lambda x: x + np.can_cast(x, np.float32), A),
    _case(lambda x: x.astype(np.common_type(x, x)), F),
    _case(lambda x: x[np.diag_indices_from(x)], S),
    _case(lambda x: [x[np.tril_indices_from(x)], x[np.triu_indices_from(x, 1)]], S),
    # methods and properties
    _case(lambda x: [x.sum(), x.sum(0), x.mean(1, keepdims=True), x.var(ddof=1), x.std(0), x.max(1), x.min()], A),
    _case(lambda x: [x.prod(0), x.cumsum(), x.cumprod(1), x.argmax(), x.argmin(0), x.all(), x.any(1)], A),
    _case(lambda x: [x.T, x.mT, x.ravel(), x.flatten(), x.swapaxes(0, 1), x.transpose(), x.transpose(1, 0)], A),
    _case(lambda x: [x.dot(x.T), x.clip(-1, 1), x.round(1), x.repeat(2, 0), x.take([1, 0], 1), x.copy()], A),
    _case(lambda x: [x.squeeze(), x.diagonal(), x.trace(), x.compress([True, False, True], 0)], A),
    _case(lambda x: x * len(x) + x.size + x.ndim + x.nbytes + x.itemsize, A),
    _case(lambda x: [row * 2 for row in x], A),
    _case(lambda x: sum(x.flat), A),
]


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
@pytest.mark.parametrize("case", range(len(CASES)))
def test_as_numpy(case: int) -> None:
    function, arguments = CASES[case]
    assert_as_numpy(function, *arguments)
