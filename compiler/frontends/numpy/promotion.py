"""Which dtype NumPy computes in, with Python scalars as weak operands (NEP 50).

The answers are NumPy's own (`ufunc.resolve_dtypes`, `np.result_type`), except for `ml_dtypes`' floats, to which
NumPy does not apply NEP 50: there `bfloat16 * 2.0` stays bfloat16, and so does a function without a bfloat16 loop.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from rematc.compiler.tracing.trace import Tracer
from rematc.ir.types import DType, dtype_of_numpy

NumpyDType = np.dtype[np.generic]
#: What promotion sees of an operand: its dtype, or for a Python scalar its type.
Kind = NumpyDType | type

_BOOL = np.dtype(np.bool_)
_FLOAT32 = np.dtype(np.float32)
_WEAK_TYPES: dict[str, type] = {"i": int, "f": float, "c": complex}


def kind_of(x: object) -> Kind:
    """What promotion sees of a tracer, an array or a Python scalar."""
    if isinstance(x, Tracer):
        dtype = x.value.type.dtype.numpy
        return _WEAK_TYPES.get(dtype.kind, dtype) if x.weak else dtype
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype
    if isinstance(x, bool):
        return _BOOL
    if isinstance(x, (int, float, complex)):
        return type(x)
    own: object = getattr(x, "dtype", None)
    return own if isinstance(own, np.dtype) else np.asarray(x).dtype


@cache
def resolve(
    ufunc: np.ufunc, kinds: tuple[Kind, ...], wanted: NumpyDType | None = None
) -> tuple[tuple[NumpyDType, ...], tuple[NumpyDType, ...]]:
    """The dtypes that `ufunc` computes in and those of its results, which `wanted` asks for (the option `dtype`).

    Raises TypeError where it has no loop for them.
    """
    settled = _without_weak_ml_dtypes(kinds)
    if all(kind is int for kind in kinds):
        # Comparisons of Python integers alone are of objects to NumPy.
        settled = (np.dtype(int),) * len(kinds)
    if wanted is not None:
        signature = (*[None] * ufunc.nin, *[wanted] * ufunc.nout)
        resolved = ufunc.resolve_dtypes((*settled, *[None] * ufunc.nout), signature=signature)
        return resolved[: ufunc.nin], resolved[ufunc.nin :]
    resolved = ufunc.resolve_dtypes((*settled, *[None] * ufunc.nout))
    common = settled[0]
    if is_ml_float(common) and all(kind == common for kind in settled):
        # No loop of its own: NumPy goes through float32.
        resolved = tuple([common if dtype == _FLOAT32 else dtype for dtype in resolved])
    return resolved[: ufunc.nin], resolved[ufunc.nin :]


@cache
def result_dtype(*kinds: Kind) -> NumpyDType:
    """The dtype that holds all operands, as `np.concatenate` and `np.where` have it."""
    settled = _without_weak_ml_dtypes(kinds)
    if any(is_ml_float(kind) for kind in settled):
        dtype = settled[0]
        for other in settled[1:]:
            dtype = dtype if dtype == other else np.add.resolve_dtypes((dtype, other, None))[2]
        return dtype
    samples = [kind(0) if isinstance(kind, type) else kind for kind in settled]
    return np.result_type(*samples)


def is_ml_float(kind: Kind) -> bool:
    """Whether this is a float of the package `ml_dtypes` (bfloat16, the 8-bit floats)."""
    if isinstance(kind, type):
        return False
    dtype = dtype_of_numpy(kind)
    return dtype is not None and dtype.is_float and not np.issubdtype(kind, np.floating)


def _without_weak_ml_dtypes(kinds: tuple[Kind, ...]) -> tuple[NumpyDType, ...]:
    narrow = next((kind for kind in kinds if is_ml_float(kind)), None)
    if narrow is None:
        return kinds  # type: ignore[return-value]  # NumPy takes Python types among the dtypes
    return tuple([narrow if kind is int or kind is float else kind for kind in kinds])  # type: ignore[misc]  # as above


def ir_dtype(dtype: NumpyDType) -> DType:
    """The IR's element type of a NumPy dtype. Raises TypeError where there is none."""
    found = dtype_of_numpy(dtype)
    if found is None:
        raise TypeError(f"NumPy dtype {dtype} cannot be compiled")
    return found


def default_dtype(kind: Kind) -> NumpyDType:
    """The dtype of an operand on its own: a Python scalar's is int64, float64 or complex128."""
    return np.dtype(kind)
