"""Every public function of NumPy: it gives NumPy's value and the right derivative, or a refusal that names it.

The law is stated once and holds for all: `SUPPORTED` has a call of each function that can be traced, `REFUSED` one of
each that cannot, with words of the reason. A function that NumPy adds is in neither, and the walk fails.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.frontends.numpy.dispatch import qualified_name
from rematc.compiler.frontends.numpy.namespace import supported
from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, run, traced

RNG = np.random.default_rng(11)
A = RNG.normal(size=(3, 4))
P: Any = np.abs(A) + 0.4
U = RNG.uniform(-0.8, 0.8, (3, 4))
V = RNG.normal(size=5)
S = RNG.normal(size=(3, 3)) + 4 * np.eye(3)
T = RNG.normal(size=(2, 3, 4))
N = np.where(A > 0.7, np.nan, A)
I = RNG.integers(1, 9, (3, 4))  # noqa: E741  # integers
B = A > 0

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Refusal = tuple[Callable[[Any], Any], str]


MODULES = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft, "np.emath": np.emath}


def _call(function: Callable[..., Any], *arguments: Any) -> Call:
    return function, arguments


def _plainly(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _each(module: str, names: str, *arguments: Any, through: Callable[..., Any] = _plainly) -> dict[str, Call]:
    """A call of every one of these functions of a module, through a function that takes it and the arguments."""
    return {f"{module}.{name}": (partial(through, getattr(MODULES[module], name)), arguments) for name in names.split()}


def _refused(module: str, names: str, reason: str, through: Callable[..., Any] = _plainly) -> dict[str, Refusal]:
    """That these functions of a module are refused for a reason, in which {name} is the function's."""
    return {
        f"{module}.{name}": (partial(through, getattr(MODULES[module], name)), reason.format(name=name))
        for name in names.split()
    }


def _copied(x: Any) -> Any:
    target = np.zeros_like(x)
    np.copyto(target, x, where=B)
    return target


#: Ufuncs of one operand take A, of two A and P; these take others.
UFUNC_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["arccos", "arcsin", "arctanh"], (U,)),
    **dict.fromkeys(["arccosh"], (P + 1,)),
    **dict.fromkeys(["log", "log10", "log2", "sqrt", "cbrt", "reciprocal"], (P,)),
    "log1p": (U,),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"], (I, I.T.reshape(3, 4))),
    **dict.fromkeys(["left_shift", "right_shift"], (I, I % 3)),
    **dict.fromkeys(["invert", "bitwise_count"], (I,)),
    **dict.fromkeys(["power", "float_power"], (P, A)),
    "ldexp": (A, I),
    **dict.fromkeys(["matmul", "matvec", "vecdot", "vecmat"], (S, S)),
}
REFUSED_UFUNCS = {"isnat": "not supported"}

#: A call of each function, by the name that `rematc.numpy.supported` gives it.
SUPPORTED: dict[str, Call] = {
    # reductions
    **_each("np", "sum prod max amax min amin all any ptp argmax argmin count_nonzero mean var std average", A),
    **_each("np", "nansum nanprod nanmean nanvar nanstd nanmax nanmin nanargmax nanargmin nanmedian", N),
    "np.nanquantile": _call(lambda x: np.nanquantile(x, [0.2, 0.5], axis=0), N),
    "np.nanpercentile": _call(lambda x: np.nanpercentile(x, 30), N),
    "np.median": _call(lambda x: np.median(x, axis=1), A),
    "np.quantile": _call(lambda x: np.quantile(x, 0.3, axis=1), A),
    "np.percentile": _call(lambda x: np.percentile(x, [10, 60]), A),
    # cumulative
    **_each("np", "cumsum cumprod diff ediff1d trapezoid", A),
    **_each("np", "nancumsum nancumprod", N),
    **_each("np", "cumulative_sum cumulative_prod", V),
    "np.gradient": _call(lambda x: np.gradient(x, axis=1), A),
    # sorting and searching
    **_each("np", "sort argsort sort_complex", A),
    "np.partition": _call(lambda x: np.partition(x, 1)[..., 1], A),
    "np.argpartition": _call(lambda x: np.argpartition(x, 1)[..., 1], A),
    "np.lexsort": _call(lambda x: np.lexsort((x, x[::-1])), A),
    "np.searchsorted": _call(lambda x, y: np.searchsorted(np.sort(x), y, "right"), V, A),
    "np.digitize": _call(lambda x: np.digitize(x, [-1.0, 0.0, 0.5]), A),
    "np.isin": _call(lambda x: np.isin(x, [1, 2, 5]), I),
    # products
    **_each("np", "dot vdot inner outer kron", S, S.T),
    "np.tensordot": _call(np.tensordot, S, S),
    "np.cross": _call(np.cross, S, S[::-1]),
    "np.einsum": _call(lambda x, y: np.einsum("ij,jk->ki", x, y), S, S),
    "np.convolve": _call(np.convolve, V, V[:3]),
    "np.correlate": _call(np.correlate, V, V[:3]),
    **_each("np.linalg", "det inv pinv cond norm trace diagonal matrix_transpose", S),
    **_each("np.linalg", "matrix_norm vector_norm svdvals", S),
    "np.linalg.matrix_rank": _call(np.linalg.matrix_rank, S),
    "np.linalg.slogdet": _call(lambda x: np.linalg.slogdet(x)[1], S),
    "np.linalg.cholesky": _call(lambda x: np.linalg.cholesky(x @ x.T), S),
    "np.linalg.qr": _call(lambda x: np.abs(np.linalg.qr(x)[1]), S),
    "np.linalg.svd": _call(lambda x: np.linalg.svd(x)[1], S),
    "np.linalg.eigh": _call(lambda x: np.linalg.eigh(x + x.T)[0], S),
    "np.linalg.eigvalsh": _call(lambda x: np.linalg.eigvalsh(x + x.T), S),
    "np.linalg.eig": _call(lambda x: np.sort(np.abs(np.linalg.eig(x)[0])), S),
    "np.linalg.eigvals": _call(lambda x: np.sort(np.abs(np.linalg.eigvals(x))), S),
    "np.linalg.solve": _call(np.linalg.solve, S, S[0]),
    "np.linalg.lstsq": _call(lambda x, y: np.linalg.lstsq(x, y, 1e-9)[0], A.T, A[0]),
    "np.linalg.tensorsolve": _call(np.linalg.tensorsolve, S, S[0]),
    "np.linalg.tensorinv": _call(lambda x: np.linalg.tensorinv(x, 1), S),
    "np.linalg.matrix_power": _call(lambda x: np.linalg.matrix_power(x, 3), S),
    "np.linalg.multi_dot": _call(lambda x, y: np.linalg.multi_dot([x, y, x]), S, S),
    "np.linalg.cross": _call(np.linalg.cross, S, S[::-1]),
    "np.linalg.outer": _call(np.linalg.outer, V, V),
    "np.linalg.matmul": _call(np.linalg.matmul, S, S),
    "np.linalg.vecdot": _call(np.linalg.vecdot, S, S),
    "np.linalg.tensordot": _call(np.linalg.tensordot, S, S),
    # Fourier transforms
    **_each("np.fft", "fft ifft fft2 ifft2 fftn ifftn rfft rfft2 rfftn", A, through=lambda f, x: np.abs(f(x))),
    **_each("np.fft", "irfft irfft2 irfftn hfft ihfft fftshift ifftshift", A, through=lambda f, x: np.abs(f(x))),
    # shapes
    **_each("np", "ravel transpose matrix_transpose atleast_1d atleast_2d atleast_3d copy squeeze", A),
    **_each("np", "flip fliplr flipud rot90 trace diagonal diag diagflat tril triu broadcast_arrays unstack", A),
    "np.reshape": _call(lambda x: np.reshape(x, (2, 6)), A),
    "np.resize": _call(lambda x: np.resize(x, (5, 3)), A),
    "np.swapaxes": _call(lambda x: np.swapaxes(x, 0, 1), T),
    "np.moveaxis": _call(lambda x: np.moveaxis(x, 0, -1), T),
    "np.rollaxis": _call(lambda x: np.rollaxis(x, 2), T),
    "np.roll": _call(lambda x: np.roll(x, 2, 1), A),
    "np.expand_dims": _call(lambda x: np.expand_dims(x, 1), A),
    "np.broadcast_to": _call(lambda x: np.broadcast_to(x, (2, 3, 4)), A),
    "np.astype": _call(lambda x: np.astype(x, np.float64), A),
    "np.lib.stride_tricks.sliding_window_view": _call(lambda x: np.lib.stride_tricks.sliding_window_view(x, 3), V),
    # joining
    **_each("np", "concatenate stack block vstack hstack dstack column_stack", A, through=lambda f, x: f([x, x])),
    "np.append": _call(np.append, A, A),
    **_each("np", "split array_split hsplit", V[:4], through=lambda f, x: f(x, 2)),
    "np.vsplit": _call(lambda x: np.vsplit(x, 3), A),
    "np.dsplit": _call(lambda x: np.dsplit(x, 2), T),
    "np.tile": _call(lambda x: np.tile(x, (2, 1)), A),
    "np.repeat": _call(lambda x: np.repeat(x, [1, 0, 2], 0), A),
    "np.meshgrid": _call(np.meshgrid, V, V[:3]),
    "np.vander": _call(np.vander, V),
    "np.pad": _call(lambda x: np.pad(x, 2, "linear_ramp"), A),
    "np.insert": _call(lambda x: np.insert(x, 1, x[0], 0), A),
    "np.delete": _call(lambda x: np.delete(x, 1, 0), A),
    # selection
    "np.where": _call(lambda x, y: np.where(B, x, y), A, P),
    "np.select": _call(lambda x: np.select([x > 1, x > 0], [x * x, 2 * x]), A),
    "np.choose": _call(lambda x: np.choose(I % 2, [x, x * x]), A),
    "np.piecewise": _call(lambda x: np.piecewise(x, [x > 0], [np.sin, np.exp]), A),
    "np.clip": _call(lambda x: np.clip(x, -0.5, 0.5), A),
    **_each("np", "round around fix nan_to_num sinc real imag angle isreal iscomplex", A),
    **_each("np", "isposinf isneginf real_if_close unwrap i0", A),
    **_each("np", "isclose allclose array_equal array_equiv", A, P),
    "np.interp": _call(lambda x, y: np.interp(x, [-2.0, 0.0, 1.0, 3.0], y), A, V[:4]),
    "np.take": _call(lambda x: np.take(x, [2, 0], 1), A),
    "np.take_along_axis": _call(lambda x: np.take_along_axis(x, I % 4, 1), A),
    "np.compress": _call(lambda x: np.compress([True, False, True], x, 0), A),
    "np.extract": _call(lambda x: np.extract(B, x), A),
    "np.ix_": _call(lambda x, i: x[np.ix_(i, [0, 2])], S, np.array([1, 2])),
    # counting
    "np.bincount": _call(lambda i, w: np.bincount(i, w, 9), I[0], A[0]),
    "np.histogram": _call(lambda x, w: np.histogram(x, [-1.0, 0.0, 2.0], weights=w)[0], A, P),
    "np.histogram_bin_edges": _call(lambda x: np.histogram_bin_edges(x, 4), A),
    "np.histogram2d": _call(lambda x, y: np.histogram2d(x, y, 3), V, V**2),
    "np.histogramdd": _call(lambda x: np.histogramdd(x, [3, 2, 4])[0], A.T),
    "np.unravel_index": _call(lambda i: np.unravel_index(i, (3, 4)), I),
    "np.ravel_multi_index": _call(lambda i: np.ravel_multi_index((i % 3, i % 4), (3, 4)), I),
    "np.cov": _call(lambda x, w: np.cov(x, aweights=w), A, P[0]),
    "np.corrcoef": _call(np.corrcoef, A),
    "np.packbits": _call(lambda i: np.packbits(i % 2, axis=1), I),
    "np.unpackbits": _call(lambda i: np.unpackbits(i.astype(np.uint8)), I),
    # polynomials
    **_each("np", "polyadd polysub polymul", V, V[:3]),
    "np.polydiv": _call(lambda x, y: np.polydiv(x, y)[0], V, V[:3]),
    "np.polyval": _call(np.polyval, V, A),
    **_each("np", "polyder polyint poly", V),
    "np.polyfit": _call(lambda x, y: np.polyfit(x, y, 2), V, V**3),
    # creation
    **_each("np", "zeros_like ones_like", A),
    "np.empty_like": _call(lambda x: np.empty_like(x) * 0, A),
    "np.copyto": _call(_copied, A),
    "np.full_like": _call(lambda x: np.full_like(x, 2.5), A),
    "np.linspace": _call(lambda x, y: np.linspace(x, y, 5), A, P),
    "np.logspace": _call(lambda x, y: np.logspace(x, y, 5, base=2.0), A, P),
    "np.geomspace": _call(lambda x, y: np.geomspace(x, y, 5), P, P * 3),
    **_each("np", "array asarray asanyarray ascontiguousarray", A, through=lambda f, x: f(x[:1], like=x)),
    "np.apply_along_axis": _call(lambda x: np.apply_along_axis(np.cumsum, 1, x), A),
    "np.apply_over_axes": _call(lambda x: np.apply_over_axes(np.sum, x, (0, 2)), T),
    # questions that need no elements
    **_each("np", "ndim size isrealobj iscomplexobj", A, through=lambda f, x: x * f(x)),
    "np.shape": _call(lambda x: x * np.shape(x)[0], A),
    "np.result_type": _call(lambda x: x.astype(np.result_type(x, 1.0)), A),
    "np.can_cast": _call(lambda x: x * np.can_cast(x, np.float32), A),
    "np.common_type": _call(lambda x: x.astype(np.common_type(x)), A),
    "np.diag_indices_from": _call(lambda x: x[np.diag_indices_from(x)], S),
    "np.tril_indices_from": _call(lambda x: x[np.tril_indices_from(x)], S),
    "np.triu_indices_from": _call(lambda x: x[np.triu_indices_from(x)], S),
}

#: Of each function that cannot be traced, a call and a word of the reason.
REFUSED: dict[str, Refusal] = {
    **_refused("np", "nonzero flatnonzero argwhere unique", "size: rematc.numpy.{name}("),
    **_refused("np", "unique_all unique_counts unique_inverse unique_values", "size: rematc.numpy.unique("),
    **_refused("np", "union1d intersect1d setdiff1d setxor1d", "size: rematc.numpy.{name}(", lambda f, x: f(x, x)),
    "np.trim_zeros": (np.trim_zeros, "depends on data"),
    "np.roots": (lambda x: np.roots(x[0]), "how many roots"),
    "np.put": (lambda x: np.put(x, [0], 1.0), "at_set"),
    "np.putmask": (lambda x: np.putmask(x, B, 1.0), "at_set"),
    "np.place": (lambda x: np.place(x, B, [1.0]), "at_set"),
    "np.put_along_axis": (lambda x: np.put_along_axis(x, I % 4, 1.0, 1), "rematc.numpy.put_along_axis"),
    "np.fill_diagonal": (lambda x: np.fill_diagonal(x, 1.0), "rematc.numpy.fill_diagonal"),
    **_refused("np", "array_repr array_str array2string min_scalar_type", "elements"),
    **_refused("np", "save savetxt savez", "elements", lambda f, x: f("x", x)),
    "np.savez_compressed": (lambda x: np.savez_compressed("x", x=x), "elements"),
    **_refused("np", "may_share_memory shares_memory", "no memory", lambda f, x: f(x, x)),
    "np.einsum_path": (lambda x: np.einsum_path("ij,jk", x, x), "np.empty(x.shape)"),
    **_refused("np.emath", "arccos arcsin arctanh log log10 log2 sqrt", "dtype that depends on data"),
    **_refused("np.emath", "logn power", "dtype that depends on data", lambda f, x: f(x, x)),
    # dates
    **_refused("np", "busday_count busday_offset", "not supported", lambda f, x: f(x, x)),
    **_refused("np", "is_busday datetime_as_string", "not supported"),
}


def _functions() -> Iterator[tuple[str, Any]]:
    """NumPy's functions that ask their arguments what to do."""
    for prefix, module in {**MODULES, "np.lib.stride_tricks": np.lib.stride_tricks}.items():
        for name in sorted(dir(module)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                found = getattr(module, name)
            if not name.startswith("_") and hasattr(found, "_implementation"):
                yield f"{prefix}.{name}", found


FUNCTIONS = dict(_functions())
UFUNCS = {name: found for name in sorted(dir(np)) if isinstance(found := getattr(np, name), np.ufunc)}


def test_every_function_is_supported_or_refused() -> None:
    stated = {*SUPPORTED, *REFUSED}
    missing = sorted({name for name, found in FUNCTIONS.items() if not _names(name, found) & stated})
    assert not missing, "state what becomes of these functions of NumPy"
    assert not set(SUPPORTED) & set(REFUSED)
    listed = {name for name in supported() if not name.startswith("scipy.") and name.split(".")[-1] not in UFUNCS}
    assert listed <= set(SUPPORTED), "supported, but no call here shows it"


def _names(name: str, found: Any) -> set[str]:
    """The names of a function: its own, and the one that it has in the module where it lies."""
    return {name, qualified_name(found)}


def _ufunc_call(ufunc: np.ufunc) -> Call:
    return ufunc, UFUNC_ARGUMENTS.get(ufunc.__name__, (A, P)[: ufunc.nin])


CALLS = {
    **SUPPORTED,
    **{f"np.{name}": _ufunc_call(found) for name, found in UFUNCS.items() if name not in REFUSED_UFUNCS},
}
# Of eigenvalues, singular values and least squares: iterations, whose last digits differ.
LOOSE = {"np.linalg.lstsq", "np.polyfit", "np.linalg.pinv", "np.linalg.cond"}


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
@pytest.mark.parametrize("name", CALLS)
def test_gives_numpy_s_value(name: str) -> None:
    function, arguments = CALLS[name]
    assert_as_numpy(function, *arguments, tolerance=1e-9 if name in LOOSE else None)


def _as_float32(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def _as_integers(x: Any) -> Any:
    return np.round(np.nan_to_num(x) * 3).astype(np.int32) if x.dtype.kind == "f" else x


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
@pytest.mark.parametrize("name", CALLS)
def test_gives_numpy_s_dtype_of_other_numbers(name: str) -> None:
    function, arguments = CALLS[name]
    assert_as_numpy(function, *[_as_float32(x) for x in arguments], tolerance=3e-4)
    integers = [_as_integers(x) for x in arguments]
    try:
        with np.errstate(all="ignore"):
            function(*integers)
    except (TypeError, ValueError, np.linalg.LinAlgError):
        return
    if name != "np.reciprocal":  # integers divided by zero
        assert_as_numpy(function, *integers, tolerance=1e-6)


def _float_sum(result: Any, weights: list[Any]) -> Any:
    """The weighted sum of all floats in a result."""
    leaves = list(result) if isinstance(result, (list, tuple)) else [result]
    terms = [np.sum(np.real(x) * w) for x, w in zip(leaves, weights, strict=True) if np.dtype(x.dtype).kind in "fc"]
    return sum(terms, np.float64(0.0))


def _slope(loss: Callable[..., Any], arguments: tuple[Any, ...], place: int, step: float = 1e-6) -> Any:
    x = arguments[place]
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        sides = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            sides.append(loss(*arguments[:place], moved, *arguments[place + 1 :]))
        found[index] = (sides[0] - sides[1]) / (2 * step)
    return found


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
@pytest.mark.parametrize("name", CALLS)
def test_has_the_right_derivative(name: str) -> None:
    function, arguments = CALLS[name]
    with np.errstate(all="ignore"):
        result = function(*arguments)
    leaves = list(result) if isinstance(result, (list, tuple)) else [result]
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=np.shape(leaf)) for leaf in leaves]
    places = tuple(i for i, x in enumerate(arguments) if x.dtype.kind == "f")
    if not places or not any(np.asarray(leaf).dtype.kind in "fc" for leaf in leaves):
        return

    def loss(*given: Any) -> Any:
        with np.errstate(all="ignore"):
            found = function(*given)
        return _float_sum(found if not isinstance(found, (float, int)) else np.asarray(found), weights)

    gradients = run(rematc.grad(loss, places), *arguments)
    for place, gradient in zip(places, gradients, strict=True):
        slope = _slope(loss, arguments, place)
        # NaN stands in the arguments of the functions that leave it out: it has no neighbours.
        slope = np.where(np.isnan(arguments[place]), gradient, slope)
        # The error of central differences: the step squared, and rounding divided by the step.
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=2e-6 * (1 + np.abs(slope).max()))


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name_at_the_user_s_line(name: str) -> None:
    function, reason = REFUSED[name]

    def model(x: Any) -> Any:
        return function(x)

    with pytest.raises(CompileError) as caught:
        traced(model, A)
    named = {name, *(_names(name, FUNCTIONS[name]) if name in FUNCTIONS else ())}
    assert any(each in caught.value.message for each in named)
    assert reason in caught.value.message
    assert caught.value.loc is not None and caught.value.loc.file == __file__


@pytest.mark.parametrize("name", REFUSED_UFUNCS)
def test_ufuncs_are_refused_by_name(name: str) -> None:
    with pytest.raises(CompileError, match=f"{name}.*{REFUSED_UFUNCS[name]}"):
        traced(getattr(np, name), A)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_the_walk_sees_numpy(module: types.ModuleType) -> None:
    """The walk is over what NumPy has, not over what the tables have."""
    assert any(found is getattr(module, name.split(".")[-1], None) for name, found in FUNCTIONS.items())
