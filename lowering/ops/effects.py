"""Lowering of Python functions to calls of `rematc_callback`, which `rematc.lowering.jax_internals.calls` replaces by
what the platform calls Python with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.facts import Effect
from rematc.ir.ops.effects import CallForResults, DebugCallback, DebugEffect, DebugPrint, IoCallback, PureCallback
from rematc.ir.types import F64, U32, TensorType
from rematc.ir.values import Array, Value
from rematc.lowering.writer import CALLBACK, Callback, Writer, lowers


@lowers(DebugPrint, DebugCallback)
def debug_effect(w: Writer, eqn: Equation) -> None:
    """`stablehlo.custom_call @rematc_callback(%x) {has_side_effect = true}`; an ordered one passes a token on."""
    op = eqn.op
    assert isinstance(op, DebugEffect)
    effect = op.effect
    given = [*w.tokens(effect), *[w.name(value) for value in eqn.operands]]
    types = [*w.token_types(effect), *[w.type(value.type) for value in eqn.operands]]

    def call(*arrays: Array) -> tuple[()]:
        try:
            op.reference(arrays)
        except CompileError as error:
            error.loc = error.loc or eqn.loc
            raise
        return ()

    number = _number(w, Callback(call, eqn.operand_types, (), effect is Effect.ORDERED, has_effect=True))
    defined = w.define_all((), effect)
    returned = "".join(w.token_types(effect)) or "()"
    attributes = f'{{backend_config = "{number}", has_side_effect = true}}'
    signature = f"({', '.join(types)}) -> {returned}"
    w.line(f"{defined}stablehlo.custom_call @{CALLBACK}({', '.join(given)}) {attributes} : {signature}", eqn.loc)


@lowers(PureCallback, IoCallback)
def call_for_results(w: Writer, eqn: Equation) -> None:
    """`%r:2 = stablehlo.custom_call @rematc_callback(%x)`; one with an effect says so.

    An ordered one passes a token on. What has 64-bit parts comes back as pairs of words: JAX narrows 64-bit results in
    threads where its 64-bit types are off, which those of a GPU's callbacks are.
    """
    op = eqn.op
    assert isinstance(op, CallForResults)
    effect, words = op.effect, [Value(_words(value.type) or value.type) for value in eqn.results]
    given = [*w.tokens(effect), *[w.name(value) for value in eqn.operands]]
    types = [*w.token_types(effect), *[w.type(value.type) for value in eqn.operands]]
    returned = [*w.token_types(effect), *[w.type(value.type) for value in words]]
    callback = Callback(
        _in_words(op),
        eqn.operand_types,
        tuple([value.type for value in words]),
        effect is Effect.ORDERED,
        has_effect=effect is not Effect.NONE,
    )
    told = ", has_side_effect = true" if callback.has_effect else ""
    attributes = f'{{backend_config = "{_number(w, callback)}"{told}}}'
    defined = w.define_all(words, effect)
    listed = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    signature = f"({', '.join(types)}) -> {listed}"
    w.line(f"{defined}stablehlo.custom_call @{CALLBACK}({', '.join(given)}) {attributes} : {signature}", eqn.loc)
    for value, taken in zip(eqn.results, words, strict=True):
        w.bind(value, _from_words(w, eqn, w.name(taken), taken.type, value.type))


def _number(w: Writer, callback: Callback) -> int:
    w.callbacks.append(callback)
    return len(w.callbacks) - 1


def _words(type: TensorType) -> TensorType | None:
    """The type of the words of an array whose elements have 64-bit parts; None for others."""
    if type.dtype.bits < 64 or (type.dtype.bits == 64 and type.dtype.is_complex):
        return None
    return TensorType(U32, (*type.shape, *((2, 2) if type.dtype.is_complex else (2,))))


def _in_words(op: CallForResults) -> Callable[..., Sequence[Array]]:
    def call(*arrays: Array) -> Sequence[Array]:
        rows = zip(op.results(arrays), op.types, strict=True)
        return [array if (words := _words(type)) is None else _split(array, words) for array, type in rows]

    return call


def _split(array: Array, words: TensorType) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32).reshape(words.shape)


def _from_words(w: Writer, eqn: Equation, name: str, words: TensorType, type: TensorType) -> str:
    """The name of the array that these words are."""
    if words == type:
        return name
    part = TensorType(F64, (*type.shape, 2)) if type.dtype.is_complex else type
    joined = w.fresh()
    w.line(f"{joined} = stablehlo.bitcast_convert {name} : ({w.type(words)}) -> {w.type(part)}", eqn.loc)
    if not type.dtype.is_complex:
        return joined
    parts = []
    for index in (0, 1):
        bounds = ", ".join([*[f"0:{size}" for size in type.shape], f"{index}:{index + 1}"])
        row, flat = TensorType(F64, (*type.shape, 1)), TensorType(F64, type.shape)
        cut, parted = w.fresh(), w.fresh()
        w.line(f"{cut} = stablehlo.slice {joined} [{bounds}] : ({w.type(part)}) -> {w.type(row)}", eqn.loc)
        w.line(f"{parted} = stablehlo.reshape {cut} : ({w.type(row)}) -> {w.type(flat)}", eqn.loc)
        parts.append(parted)
    whole, half = w.fresh(), w.type(TensorType(F64, type.shape))
    w.line(f"{whole} = stablehlo.complex {parts[0]}, {parts[1]} : ({half}, {half}) -> {w.type(type)}", eqn.loc)
    return whole
