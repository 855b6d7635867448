"""`__array_function__`: from NumPy's functions to their traced meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from rematc.compiler.frontends.numpy import (
    calculus,
    creation,
    cumulative,
    decompositions,
    einsum,
    float_bits,
    fourier,
    indexing,
    joining,
    linear_algebra,
    padding,
    polynomials,
    products,
    quantiles,
    reductions,
    selection,
    sets,
    shaping,
    solving,
    sorting,
    statistics,
    ufuncs,
)
from rematc.compiler.frontends.numpy.operands import fail
from rematc.compiler.frontends.numpy.outputs import check_target, write
from rematc.compiler.tracing.trace import Tracer

#: NumPy's function, and the function that traces it.
FUNCTIONS: Mapping[Callable[..., object], Callable[..., object]] = {
    **reductions.FUNCTIONS,
    **statistics.FUNCTIONS,
    **cumulative.FUNCTIONS,
    **sorting.FUNCTIONS,
    **quantiles.FUNCTIONS,
    **products.FUNCTIONS,
    **einsum.FUNCTIONS,
    **linear_algebra.FUNCTIONS,
    **decompositions.FUNCTIONS,
    **fourier.FUNCTIONS,
    **solving.FUNCTIONS,
    **shaping.FUNCTIONS,
    **joining.FUNCTIONS,
    **padding.FUNCTIONS,
    **selection.FUNCTIONS,
    **indexing.FUNCTIONS,
    **creation.FUNCTIONS,
    **calculus.FUNCTIONS,
    **polynomials.FUNCTIONS,
    **sets.FUNCTIONS,
    **float_bits.FUNCTIONS,
    **ufuncs.FUNCTIONS,
}
_SIZED = "its result has a shape that depends on data; name its size: rematc.numpy.{name}(..., size=n, fill_value=...)"
_IN_PLACE = "write x[index] = value, or use rematc.numpy.at_set(x, index, value)"
_FUNCTIONAL = "rematc.numpy.{name} returns the new array: x[...] = rematc.numpy.{name}(x, ...)"
_TEXT = "it needs the elements, which a traced array has only when compiled; return the array and use its result"
_DTYPE = "its result has a dtype that depends on data; convert with astype(complex) and use the function of np"
_ADVICE = {
    **{name: _SIZED.format(name=name) for name in ("nonzero", "flatnonzero", "argwhere", "unique")},
    **{name: _SIZED.format(name=name) for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d")},
    **dict.fromkeys(["unique_all", "unique_counts", "unique_inverse", "unique_values"], _SIZED.format(name="unique")),
    "trim_zeros": "its result has a shape that depends on data; use rematc.numpy.compress(mask, x, size=n)",
    "roots": "how many roots there are depends on data; use np.linalg.eigvals of the companion matrix",
    "fill_diagonal": _FUNCTIONAL.format(name="fill_diagonal"),
    "put_along_axis": _FUNCTIONAL.format(name="put_along_axis"),
    **dict.fromkeys(["put", "putmask", "place"], _IN_PLACE),
    **dict.fromkeys(["array_repr", "array_str", "array2string", "save", "savez", "savez_compressed"], _TEXT),
    **dict.fromkeys(["savetxt", "min_scalar_type"], _TEXT),
    **dict.fromkeys(["may_share_memory", "shares_memory"], "traced arrays have no memory of their own"),
    "einsum_path": "give the shapes: np.einsum_path(subscripts, np.empty(x.shape), ...)",
}
#: Of the functions of np.emath, whose names np has too.
_EXTENDED_MODULE = "numpy.lib.scimath"
_GENERAL = "write it with supported functions (rematc.numpy.supported() lists them)"


def call_function(
    function: Callable[..., object], arguments: Sequence[object], options: Mapping[str, object]
) -> object:
    """What `__array_function__` answers in the innermost open trace."""
    rule = FUNCTIONS.get(function)
    if rule is None:
        fail(f"{qualified_name(function)} is not supported on traced arrays: {_advice(function)}")
    positional, named = _split_positional(function, arguments)
    if not named and not options:
        return rule(*positional)
    given = {**named, **options}
    out = given.pop("out", None)
    if out is None or out is np._NoValue:
        return rule(*positional, **_accepted_options(function, rule, given))
    name = qualified_name(function)
    target = check_target(out[0] if isinstance(out, tuple) and len(out) == 1 else out, name)
    result = rule(*positional, **_accepted_options(function, rule, given))
    assert isinstance(result, Tracer)
    return write(result, target, name)


def _advice(function: Callable[..., object]) -> str:
    return _DTYPE if function.__module__ == _EXTENDED_MODULE else _ADVICE.get(function.__name__, _GENERAL)


def qualified_name(function: Callable[..., object]) -> str:
    """The function's name as users write it: np.sum, np.linalg.norm."""
    module = (function.__module__ or "numpy").replace("numpy", "np", 1)
    return f"{module}.{function.__name__}"


def _split_positional(
    function: Callable[..., object], arguments: Sequence[object]
) -> tuple[Sequence[object], dict[str, object]]:
    """The first two arguments, and the others under the names that NumPy gives them.

    NumPy's order of parameters has `out` between those that a traced function has.
    """
    names = _parameter_names(function) if len(arguments) > 2 else ()
    if len(names) < len(arguments):
        return arguments, {}
    return arguments[:2], dict(zip(names[2:], arguments[2:], strict=False))


@cache
def _parameter_names(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of positional parameters; none where NumPy does not tell, or takes the later ones without names."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    has_names = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in positional[2:])
    return tuple([p.name for p in positional]) if has_names else ()


def _accepted_options(
    function: Callable[..., object], rule: Callable[..., object], options: Mapping[str, object]
) -> dict[str, object]:
    accepted, name = _accepted(rule), qualified_name(function)
    kept = {}
    for key, given in options.items():
        if given is np._NoValue:
            continue
        if key in accepted or accepted is _EVERYTHING:
            kept[key] = given
        elif given is not None:
            fail(f"{name}(..., {key}=...) on a traced array is not supported; leave {key} out")
    return kept


_EVERYTHING: frozenset[str] = frozenset({"*"})


@cache
def _accepted(rule: Callable[..., object]) -> frozenset[str]:
    parameters = inspect.signature(rule).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return _EVERYTHING
    return frozenset(parameter.name for parameter in parameters)
