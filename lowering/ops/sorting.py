"""Lowering of sorts and of the greatest elements."""

from __future__ import annotations

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.locations import Location
from rematc.ir.ops.complex_parts import part_dtype
from rematc.ir.ops.sorting import Sort, TopK
from rematc.ir.types import BOOL, DTYPES, DType, Kind, TensorType
from rematc.lowering.ops.values import COMPARE_TYPES, converted, literal
from rematc.lowering.writer import Writer, lowers


@lowers(Sort)
def sort(w: Writer, eqn: Equation) -> None:
    """`"stablehlo.sort"(%x, %y)` with a region that tells whether a pair of keys is in order."""
    op = eqn.op
    assert isinstance(op, Sort)
    head = f'"stablehlo.sort"({w.names(eqn.operands)}) <{{dimension = {op.dimension} : i64, is_stable = true}}> ({{'
    w.raw(f"{w.define_all(eqn.results)}{head}")
    pairs = [(w.fresh(), w.fresh()) for _ in eqn.operands]
    scalars = [w.type(operand.type.with_shape(())) for operand in eqn.operands]
    listed = [f"{name}: {type}" for pair, type in zip(pairs, scalars, strict=True) for name in pair]
    w.raw(f"^bb0({', '.join(listed)}):")
    region = _Comparator(w, eqn.loc)
    keys = [
        part
        for operand, pair in list(zip(eqn.operands, pairs, strict=True))[: op.num_keys]
        for part in region.parts(pair, operand.type.dtype)
    ]
    in_order = region.lexicographic(keys, "GT" if op.descending else "LT")
    w.line(f"  stablehlo.return {in_order} : {region.truth}", eqn.loc)
    w.line(f"}}) : ({w.types(eqn.operands)}) -> ({w.types(eqn.results)})", eqn.loc)


class _Comparator:
    """The region of a sort: it compares scalars.

    Floats are compared in their total order, after all zeros were made 0.0 and all NaNs one NaN. XLA recognizes this
    and takes a radix sort where the device has one.
    """

    def __init__(self, w: Writer, loc: Location | None) -> None:
        self.truth = w.type(TensorType(BOOL, ()))
        self._w = w
        self._loc = loc
        self._constants: dict[DType, tuple[str, str]] = {}

    def parts(self, pair: tuple[str, str], dtype: DType) -> list[tuple[tuple[str, str], DType]]:
        """The pairs of reals to compare for a pair of elements."""
        if not dtype.is_complex:
            x, y = pair
            return [((self._canonical(x, dtype), self._canonical(y, dtype)), dtype)]
        found, part = [], part_dtype(dtype)
        signature = f"({self._scalar(dtype)}) -> {self._scalar(part)}"
        for name in ("real", "imag"):
            x, y = [self._write(f"{name} {element}", signature) for element in pair]
            found += self.parts((x, y), part)
        return found

    def lexicographic(self, keys: list[tuple[tuple[str, str], DType]], direction: str) -> str:
        """Whether the first pair that differs compares so."""
        *earlier, (pair, dtype) = keys
        result = self._compare(direction, pair, dtype)
        for pair, dtype in reversed(earlier):
            is_tie = self._write(f"and {self._compare('EQ', pair, dtype)}, {result}", self.truth)
            result = self._write(f"or {self._compare(direction, pair, dtype)}, {is_tie}", self.truth)
        return result

    def _canonical(self, x: str, dtype: DType) -> str:
        if dtype.kind is not Kind.FLOAT:
            return x
        zero, nan = self._zero_and_nan(dtype)
        type = self._scalar(dtype)
        signature = f"({type}, {type}) -> {self.truth}"
        is_zero = self._write(f"compare EQ, {x}, {zero}, FLOAT", signature)
        is_nan = self._write(f"compare NE, {x}, {x}, FLOAT", signature)
        number = self._write(f"select {is_zero}, {zero}, {x}", f"{self.truth}, {type}")
        return self._write(f"select {is_nan}, {nan}, {number}", f"{self.truth}, {type}")

    def _zero_and_nan(self, dtype: DType) -> tuple[str, str]:
        found = self._constants.get(dtype)
        if found is None:
            zero, nan = [literal(self._w, np.asarray(value).astype(dtype.numpy), self._loc) for value in (0, np.nan)]
            found = self._constants[dtype] = (zero, nan)
        return found

    def _compare(self, direction: str, pair: tuple[str, str], dtype: DType) -> str:
        kind = "TOTALORDER" if dtype.is_float else COMPARE_TYPES[dtype.kind]
        type = self._scalar(dtype)
        return self._write(f"compare {direction}, {', '.join(pair)}, {kind}", f"({type}, {type}) -> {self.truth}")

    def _scalar(self, dtype: DType) -> str:
        return self._w.type(TensorType(dtype, ()))

    def _write(self, text: str, type: str) -> str:
        name = self._w.fresh()
        self._w.line(f"  {name} = stablehlo.{text} : {type}", self._loc)
        return name


@lowers(TopK)
def top_k(w: Writer, eqn: Equation) -> None:
    """`chlo.top_k(%x, k = 3)`, to which a NaN with a minus sign would be the least.

    Of fewer than 8 bits XLA sorts pairs that it cannot lay out: these are widened. To 32 bits, as in 8 XLA takes the
    products of integers of 4 bits as they are before they are cut to 4.
    """
    assert isinstance(eqn.op, TopK)
    (operand,), (values, indices) = eqn.operands, eqn.results
    if operand.type.dtype.bits < 8 and not operand.type.dtype.is_bool:
        wide = DTYPES["f32" if operand.type.dtype.is_float else "i32"]
        x = converted(w, w.name(operand), operand.type, wide, eqn.loc)
        types = [w.type(one) for one in (operand.type.with_dtype(wide), values.type.with_dtype(wide), indices.type)]
        found = w.fresh()
        w.line(f"{found}:2 = chlo.top_k({x}, k = {eqn.op.k}) : {types[0]} -> ({types[1]}, {types[2]})", eqn.loc)
        w.bind(values, converted(w, f"{found}#0", values.type.with_dtype(wide), values.type.dtype, eqn.loc))
        w.bind(indices, f"{found}#1")
        return
    type, dtype = w.type(operand.type), operand.type.dtype
    x = w.name(operand)
    if dtype.is_float:
        nan = literal(w, np.full(operand.type.shape, np.nan).astype(dtype.numpy), eqn.loc)
        is_nan, number, truth = w.fresh(), w.fresh(), w.type(operand.type.with_dtype(BOOL))
        w.line(f"{is_nan} = stablehlo.compare NE, {x}, {x}, FLOAT : ({type}, {type}) -> {truth}", eqn.loc)
        w.line(f"{number} = stablehlo.select {is_nan}, {nan}, {x} : {truth}, {type}", eqn.loc)
        x = number
    call = f"chlo.top_k({x}, k = {eqn.op.k}) : {type} -> ({w.types(eqn.results)})"
    w.line(f"{w.define_all(eqn.results)}{call}", eqn.loc)
