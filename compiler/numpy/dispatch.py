"""`__array_function__`: from NumPy's functions to their traced meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from rematc.compiler.numpy import (
    calculus,
    creation,
    cumulative,
    decompositions,
    einsum,
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
)
from rematc.compiler.numpy.operands import fail

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
}
_DATA_SHAPE = "its result has a shape that depends on data; use np.where(condition, x, y) or a mask that multiplies"
_SIZED = "its result has a shape that depends on data; name its size: rematc.numpy.{name}(x, size=n, fill_value=...)"
_IN_PLACE = "it writes into an array, which a traced function cannot; use rematc.numpy.at_set(x, index, value)"
_ADVICE = {
    **dict.fromkeys(["compress", "extract", "delete"], _DATA_SHAPE),
    **{name: _SIZED.format(name=name) for name in ("nonzero", "flatnonzero", "argwhere", "unique")},
    **dict.fromkeys(["union1d", "intersect1d", "setdiff1d", "trim_zeros", "bincount", "histogram"], _DATA_SHAPE),
    **dict.fromkeys(["copyto", "put", "putmask", "place", "put_along_axis", "fill_diagonal"], _IN_PLACE),
}
_GENERAL = "write it with supported functions (rematc.numpy.supported() lists them)"


def call_function(
    function: Callable[..., object], arguments: Sequence[object], options: Mapping[str, object]
) -> object:
    """What `__array_function__` answers in the innermost open trace."""
    rule = FUNCTIONS.get(function)
    if rule is None:
        name = function.__name__
        fail(f"{qualified_name(function)} is not supported on traced arrays: {_ADVICE.get(name, _GENERAL)}")
    positional, named = _split_positional(function, arguments)
    if named or options:
        return rule(*positional, **_accepted_options(function, rule, {**named, **options}))
    return rule(*positional)


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
        elif key == "out" and given is not None:
            fail(
                f"{name}(..., out=...) writes into an array, which a traced function cannot; "
                f"use the result: x = {name}(...)"
            )
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
