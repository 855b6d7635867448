"""The arguments to compile for: `example_args()`, or `--arg` types filled with numbers."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence

import click
import numpy as np

from rematc.cli.model import EXAMPLE_ARGUMENTS, Entry, users_code
from rematc.ir.errors import CompileError
from rematc.ir.spelling import question
from rematc.ir.types import DTYPES, DType, Kind, TensorType
from rematc.ir.units import counted
from rematc.ir.values import Array

_TYPE = re.compile(r"(?P<dtype>complex<f\d+>|\w+)(?:\[(?P<shape>(?:\d+,)*\d*)\])?", re.ASCII)
#: Every spelling of an element type: the IR's, StableHLO's, NumPy's. In lower case.
_SPELLINGS: dict[str, DType] = {
    spelling.lower(): dtype
    for dtype in reversed(DTYPES.values())
    for spelling in (dtype.numpy.name, dtype.mlir, dtype.name)
}
SEED = 0
MAX_RANK = 64  # NumPy's limit


def parse_type(text: str) -> TensorType:
    """`f32[5,4]` as a type; `f32` is a scalar. `ui8[3]`, `i1[]`, `complex<f32>[2]` and `float32[5,4]` are read too.

    Raises click.BadParameter for what is no type.
    """
    match = _TYPE.fullmatch(re.sub(r"\s", "", text))
    if match is None:
        raise click.BadParameter(f"'{text}' is no array type; write f32[5,4], i32[8] or bool[]", param_hint="'--arg'")
    dtype = _SPELLINGS.get(match["dtype"].lower())
    if dtype is None:
        hint = question(match["dtype"], DTYPES) or f"known: {', '.join(DTYPES)}"
        raise click.BadParameter(f"unknown element type '{match['dtype']}' in '{text}'; {hint}", param_hint="'--arg'")
    sizes = [size for size in (match["shape"] or "").split(",") if size]
    if len(sizes) > MAX_RANK or max(map(len, sizes), default=0) > 19 or not _fits(dtype, list(map(int, sizes))):
        raise click.BadParameter(
            f"'{text[:80]}' is no array; expected at most {MAX_RANK} dimensions and less than 2**63 bytes",
            param_hint="'--arg'",
        )
    return TensorType(dtype, tuple(map(int, sizes)))


def _fits(dtype: DType, sizes: Sequence[int]) -> bool:
    """Whether there can be such an array; NumPy counts the strides of empty ones too."""
    return math.prod([max(size, 1) for size in sizes]) * dtype.numpy.itemsize < 2**63


def random_arrays(types: Sequence[TensorType]) -> tuple[Array, ...]:
    """Seeded arrays: unit normals for floats and complex numbers, coin flips for booleans, zeros for integers.

    Zeros, because integers are mostly indices and zero is always in range.
    """
    rng = np.random.default_rng(SEED)
    return tuple(_random_array(rng, type) for type in types)


def _random_array(rng: np.random.Generator, type: TensorType) -> Array:
    match type.dtype.kind:
        case Kind.FLOAT:
            return np.asarray(rng.standard_normal(type.shape)).astype(type.dtype.numpy)
        case Kind.COMPLEX:
            parts = rng.standard_normal((2, *type.shape))
            return np.asarray(parts[0] + 1j * parts[1]).astype(type.dtype.numpy)
        case Kind.BOOL:
            return np.asarray(rng.random(type.shape) < 0.5)
        case _:
            return np.zeros(type.shape, type.dtype.numpy)


def placeholders(types: Sequence[TensorType]) -> tuple[Array, ...]:
    """Arrays of these types without memory of their own: a model larger than this machine can be compiled."""
    return tuple(np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape) for type in types)


def find_arguments(
    entry: Entry, types: Sequence[TensorType], fill: Callable[[Sequence[TensorType]], tuple[Array, ...]]
) -> tuple[object, ...]:
    """The arguments to call the entry with: of these types if there are any, else what `example_args()` returns.

    `fill` makes arrays of types: `random_arrays` for a program that runs, `placeholders` for one that does not.
    Raises CompileError where there is neither, and where the entry does not take them.
    """
    args: tuple[object, ...]
    if types:
        source, args = "--arg", fill(types)
    elif hasattr(entry.module, EXAMPLE_ARGUMENTS):
        source, args = f"{EXAMPLE_ARGUMENTS}()", _example_arguments(entry)
    else:
        raise CompileError(
            f"the shapes of '{entry.name}{_signature(entry)}' are not known; define example_args() in the file to "
            "return its arguments as a tuple, or give each with --arg 'f32[5,4]'",
            entry.loc,
        )
    _check_count(entry, args, source)
    return args


def _example_arguments(entry: Entry) -> tuple[object, ...]:
    make = getattr(entry.module, EXAMPLE_ARGUMENTS)
    if not callable(make):
        raise CompileError(
            f"example_args is a {type(make).__name__}, expected a function: def example_args(): return (x,)"
        )
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise CompileError(
            f"example_args() is called without arguments: {error}; give its parameters defaults"
        ) from None
    except ValueError:  # a callable that does not say what it takes
        pass
    with users_code():
        args = make()
    if isinstance(args, (tuple, list)):
        return tuple(args)
    raise CompileError(f"example_args() returned a {type(args).__name__}, expected a tuple of arguments: return (x,)")


def _signature(entry: Entry) -> str:
    try:
        return str(inspect.signature(entry.function))
    except (TypeError, ValueError):
        return ""


def _check_count(entry: Entry, args: Sequence[object], source: str) -> None:
    try:
        signature = inspect.signature(entry.function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        raise CompileError(
            f"'{entry.name}{signature}' does not take the {counted(len(args), 'argument')} of {source}: {error}; "
            "give one for each of its parameters, in order",
            entry.loc,
        ) from None
