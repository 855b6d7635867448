"""Export of ops that compute nothing: names, barriers, memories, and what happens besides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from rematc.ir.core import Equation
from rematc.ir.ops import effects, placement, structural
from rematc.lowering.jax_export.evaluating import exports, lax
from rematc.lowering.jax_export.opaque import opaque

_named: Any = checkpoint_name
_struct: Any = jax.ShapeDtypeStruct


@exports(structural.Name)
def name(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`checkpoint_name`; the labels of our own passes are no names of the user's."""
    assert isinstance(eqn.op, structural.Name)
    (x,) = operands
    return (x if eqn.op.label.startswith("@") else _named(x, eqn.op.label),)


@exports(structural.StopGradient)
def stop_gradient(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.stop_gradient`."""
    return (lax.stop_gradient(operands[0]),)


@exports(structural.OptimizationBarrier)
def optimization_barrier(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.optimization_barrier`."""
    found: Sequence[Any] = lax.optimization_barrier(tuple(operands)) if operands else ()
    return found


@exports(structural.ToMemory)
def to_memory(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`jax.device_put` to a memory space."""
    assert isinstance(eqn.op, structural.ToMemory)
    space = jax.memory.Space.Host if eqn.op.on_host else jax.memory.Space.Device
    return (jax.device_put(operands[0], space),)


@exports(placement.Placement)
def place(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """What JAX said it by; of what was read from text, one opaque equation."""
    assert isinstance(eqn.op, placement.Placement)
    return opaque(eqn, operands) if eqn.op.source is None else (eqn.op.source(operands[0]),)


@exports(effects.DebugPrint, effects.DebugCallback)
def debug_effect(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`jax.debug.callback`."""
    assert isinstance(eqn.op, effects.DebugEffect)
    jax.debug.callback(functools.partial(_on_arrays, eqn.op.host_function()), *operands, ordered=eqn.op.is_ordered)
    return ()


@exports(effects.PureCallback)
def pure_callback(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`jax.pure_callback`."""
    op = eqn.op
    assert isinstance(op, effects.PureCallback)
    shapes = tuple([_struct(type.shape, type.dtype.numpy) for type in op.types])
    ranks = tuple([type.rank for type in eqn.operand_types])
    results: Sequence[Any] = jax.pure_callback(
        functools.partial(_results_of_batch, op, ranks), shapes, *operands, vmap_method=op.vmap_method
    )
    return results


@exports(effects.IoCallback)
def io_callback(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`io_callback`."""
    op = eqn.op
    assert isinstance(op, effects.IoCallback)
    shapes = tuple([_struct(type.shape, type.dtype.numpy) for type in op.types])
    results: Sequence[Any] = jax.experimental.io_callback(
        functools.partial(_results, op), shapes, *operands, ordered=op.is_ordered
    )
    return results


def _on_arrays(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call the function with NumPy's arrays, as it expects."""
    return function(*[np.asarray(array) for array in arrays])


def _results_of_batch(op: effects.PureCallback, ranks: Sequence[int], *arrays: Any) -> Any:
    """What the function gives; for a batch, if JAX calls it with one, whose dimensions are in front."""
    fronts = [np.shape(array)[: np.ndim(array) - rank] for array, rank in zip(arrays, ranks, strict=True)]
    batch = np.broadcast_shapes(*fronts)
    types = tuple([type.with_shape((*batch, *type.shape)) for type in op.types])
    return _results(replace(op, types=types) if batch else op, *arrays)


def _results(op: effects.CallForResults, *arrays: Any) -> Any:
    return op.results([np.asarray(array) for array in arrays])
