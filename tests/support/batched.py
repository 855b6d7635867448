"""All rows of a family evaluated at once by XLA and by JAX, so that a family costs one compilation each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.values import Array
from rematc.lowering.pipeline import make_program
from rematc.lowering.runtime import compile_program
from tests.support.samples import Sample, families
from tests.support.xla import run_stablehlo


@cache
def xla_results(family: str) -> list[list[Array]]:
    """For each row the results of its op's StableHLO."""
    b = Builder(family)
    groups = [b.emit(sample.op, *[b.parameter(type) for type in sample.types]) for sample in families()[family]]
    arguments = [array for sample in families()[family] for array in sample.arrays()]
    program = make_program(b.build(*[value for group in groups for value in group]), ())
    if program.module.callbacks:
        # Nothing but the runtime of rematc puts Python functions into what XLA runs.
        results = iter([np.asarray(result) for result in compile_program(program)(*arguments)])
    else:
        results = iter(run_stablehlo(program.text, arguments))
    return [[next(results) for _ in group] for group in groups]


def tangents_of(sample: Sample, arrays: Sequence[Array]) -> list[Array]:
    """A random tangent for each differentiable operand."""
    return [random_like(arrays[index], seed=index) for index in sample.differentiable]


def random_like(array: Array, seed: int) -> Array:
    """Numbers around 0 of the array's shape and element type."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(array.shape)
    if array.dtype.kind == "c":
        return np.asarray(values + 1j * random.standard_normal(array.shape)).astype(array.dtype)
    return np.asarray(values).astype(array.dtype)


@cache
def jax_results(family: str) -> list[tuple[list[Array], list[Array | None]] | None]:
    """For each row JAX's results and their tangents (None for results that have none); None for rows without JAX."""
    samples = families()[family]
    arrays = [sample.arrays() for sample in samples]
    tangents = [tangents_of(sample, given) for sample, given in zip(samples, arrays, strict=True)]
    with jax.enable_x64(True):
        evaluated = jax.jit(lambda a, t: [_evaluate(*row) for row in zip(samples, a, t, strict=True)])(arrays, tangents)
    return [None if sample.jax is None else row for sample, row in zip(samples, evaluated, strict=True)]


def _evaluate(sample: Sample, arrays: list[Any], tangents: list[Any]) -> Any:
    if sample.jax is None:
        return None
    try:
        return _differentiate(
            _in_differentiable(sample, sample.jax, arrays), [arrays[i] for i in sample.differentiable], tangents
        )
    except Exception as error:
        error.add_note(f"in the row {sample.id}")
        raise


def _differentiate(function: Callable[..., tuple[Any, ...]], primals: list[Any], tangents: list[Any]) -> Any:
    if not primals:
        results = function()
        return list(results), [None] * len(results)
    results, outgoing = jax.jvp(function, primals, tangents)
    return list(results), [None if tangent.dtype == jax.dtypes.float0 else tangent for tangent in outgoing]


def _in_differentiable(
    sample: Sample, function: Callable[..., Any], arrays: list[Any]
) -> Callable[..., tuple[Any, ...]]:
    """JAX's function of the differentiable operands alone."""

    def of_differentiable(*given: Any) -> tuple[Any, ...]:
        operands = list(arrays)
        for index, value in zip(sample.differentiable, given, strict=True):
            operands[index] = value
        results = function(*operands)
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    return of_differentiable
