"""Lowering of scans to `stablehlo.while`: the loop counts its steps and writes its ys in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.locations import Location
from rematc.ir.ops.scan.op import Scan
from rematc.ir.types import C64, F32, F64, I32, I64, TensorType
from rematc.ir.values import Value
from rematc.lowering.ops.values import literal
from rematc.lowering.writer import UNKNOWN, Writer, ints, lowers


@lowers(Scan)
def scan(w: Writer, eqn: Equation) -> None:
    """`%r:3 = stablehlo.while(%i = %zero, %c = %init, %ys = %empty) : ... cond { ... } do { ... }`."""
    assert isinstance(eqn.op, Scan)
    op = eqn.op
    consts, carry, xs = op.parts(eqn.operands)
    names = [w.name(value) for value in carry]
    stacks = [_unwritten(w, value.type, eqn) for value in eqn.results[op.carry :]]
    loop = _Loop(w, op, [w.name(value) for value in consts], [(w.name(x), x.type) for x in xs], eqn)
    rounds, rest = divmod(op.length, op.unroll)
    if not op.is_unrolled:
        names, stacks = loop.write(rounds, names, stacks)
        first = rounds * op.unroll
    else:
        first, rest = 0, op.length
    for step in range(first, first + rest):
        names, stacks = loop.step(loop.integer(step), names, stacks)
    for value, name in zip(eqn.results, (*names, *stacks), strict=True):
        w.bind(value, name)


class _Loop:
    """One scan that is being written."""

    def __init__(
        self, w: Writer, op: Scan, consts: Sequence[str], xs: Sequence[tuple[str, TensorType]], eqn: Equation
    ) -> None:
        self.w, self.op, self.consts, self.xs, self.loc = w, op, consts, xs, eqn.loc
        self.types = [value.type for value in eqn.results]
        self.index = TensorType(I32 if op.length < 2**31 else I64, ())

    def integer(self, value: int) -> str:
        """Write an index."""
        return literal(self.w, np.asarray(value, self.index.dtype.numpy), self.loc)

    def write(self, rounds: int, carry: list[str], stacks: list[str]) -> tuple[list[str], list[str]]:
        """The loop of whole rounds; carries and stacks after it."""
        w, unroll = self.w, self.op.unroll
        zero, limit, stride = self.integer(0), self.integer(rounds * unroll), self.integer(unroll)
        effect = self.op.effect
        tokens = w.tokens(effect)
        values = [zero, *carry, *stacks, *tokens]
        types = ", ".join([w.type(self.index), *[w.type(type) for type in self.types], *w.token_types(effect)])
        args = [w.fresh() for _ in values]
        result = w.fresh()
        heads = ", ".join([f"{arg} = {value}" for arg, value in zip(args, values, strict=True)])
        count = f":{len(values)}" if len(values) > 1 else ""
        w.raw(f"{result}{count} = stablehlo.while({heads}) : {types}")
        w.raw("cond {")
        less = w.fresh()
        signature = f"({w.type(self.index)}, {w.type(self.index)}) -> tensor<i1>"
        w.line(f"{less} = stablehlo.compare LT, {args[0]}, {limit}, SIGNED : {signature}", self.loc)
        w.raw(f"stablehlo.return {less} : tensor<i1> {UNKNOWN}")
        w.raw("} do {")
        inner_carry = args[1 : 1 + len(carry)]
        inner_stacks = args[1 + len(carry) : 1 + len(carry) + len(stacks)]
        if tokens:
            w.token = args[-1]
        for offset in range(unroll):
            step = args[0] if offset == 0 else self._binary("add", args[0], self.integer(offset))
            inner_carry, inner_stacks = self.step(step, inner_carry, inner_stacks)
        following = self._binary("add", args[0], stride)
        returned = ", ".join([following, *inner_carry, *inner_stacks, *w.tokens(effect)])
        w.raw(f"stablehlo.return {returned} : {types} {UNKNOWN}")
        w.raw(f"}} {w.loc(self.loc)}")
        if tokens:
            w.token = f"{result}#{len(values) - 1}"
        names = [f"{result}#{index}" for index in range(1, len(values))]
        return names[: len(carry)], names[len(carry) : len(carry) + len(stacks)]

    def step(self, step: str, carry: Sequence[str], stacks: Sequence[str]) -> tuple[list[str], list[str]]:
        """One step; carries and stacks after it."""
        w, body = self.w, self.op.body
        if self.op.is_reversed:
            step = self._binary("subtract", self.integer(self.op.length - 1), step)
        zero = self.integer(0)
        slices = [self._slice(name, type, step, zero) for name, type in self.xs]
        with w.scope(is_inside=not self.op.is_unrolled):
            for param, name in zip(body.params, (*self.consts, *carry, *slices), strict=True):
                w.bind(param, name)
            w.body(body)
            results = [w.name(value) for value in body.results]
        updates = zip(stacks, results[self.op.carry :], body.results[self.op.carry :], strict=True)
        written = [self._update(stack, name, value, step, zero) for stack, name, value in updates]
        return results[: self.op.carry], written

    def _binary(self, op: str, x: str, y: str) -> str:
        name = self.w.fresh()
        self.w.line(f"{name} = stablehlo.{op} {x}, {y} : {self.w.type(self.index)}", self.loc)
        return name

    def _slice(self, name: str, type: TensorType, step: str, zero: str) -> str:
        w = self.w
        window = TensorType(type.dtype, (1, *type.shape[1:]))
        starts = ", ".join([step, *[zero] * (type.rank - 1)])
        signature = ", ".join([w.type(type), *[w.type(self.index)] * type.rank])
        row, slice_ = w.fresh(), w.fresh()
        call = f"stablehlo.dynamic_slice {name}, {starts}, sizes = {ints(window.shape)}"
        w.line(f"{row} = {call} : ({signature}) -> {w.type(window)}", self.loc)
        dropped = f"({w.type(window)}) -> {w.type(TensorType(type.dtype, type.shape[1:]))}"
        w.line(f"{slice_} = stablehlo.reshape {row} : {dropped}", self.loc)
        return slice_

    def _update(self, stack: str, name: str, value: Value, step: str, zero: str) -> str:
        w, type = self.w, value.type
        window = TensorType(type.dtype, (1, *type.shape))
        full = TensorType(type.dtype, (self.op.length, *type.shape))
        row, updated = w.fresh(), w.fresh()
        w.line(f"{row} = stablehlo.reshape {name} : ({w.type(type)}) -> {w.type(window)}", self.loc)
        starts = ", ".join([step, *[zero] * type.rank])
        signature = ", ".join([w.type(full), w.type(window), *[w.type(self.index)] * full.rank])
        call = f"stablehlo.dynamic_update_slice {stack}, {row}, {starts}"
        w.line(f"{updated} = {call} : ({signature}) -> {w.type(full)}", self.loc)
        return updated


def _unwritten(w: Writer, type: TensorType, eqn: Equation) -> str:
    """A stack before the first step. Every row is written before it is read, so that anything may stand there.

    XLA makes constants whenever it likes: of zeros, the stacks of all loops of a program would lie in memory from its
    beginning. An element of what the loop reads is there only when the loop may begin.
    """
    latest = w.latest([value for value in eqn.operands if value.type.size and not value.type.on_host])
    if latest is None or not type.size:
        return _filled(w, type, literal(w, np.zeros((), type.dtype.numpy), eqn.loc), eqn.loc)
    return _filled(w, type, _element(w, latest, type, eqn.loc), eqn.loc)


def _element(w: Writer, value: Value, like: TensorType, loc: Location | None) -> str:
    """The first element of a value, converted to the element type of `like`."""
    name, type = w.name(value), value.type
    if type.shape:
        bounds = ", ".join(["0:1"] * type.rank)
        window, scalar = type.with_shape((1,) * type.rank), type.with_shape(())
        row, element = w.fresh(), w.fresh()
        w.line(f"{row} = stablehlo.slice {name} [{bounds}] : ({w.type(type)}) -> {w.type(window)}", loc)
        w.line(f"{element} = stablehlo.reshape {row} : ({w.type(window)}) -> {w.type(scalar)}", loc)
        name, type = element, scalar
    if type.dtype.is_complex and not like.dtype.is_complex:
        real, scalar = w.fresh(), TensorType(F32 if type.dtype is C64 else F64, ())
        w.line(f"{real} = stablehlo.real {name} : ({w.type(type)}) -> {w.type(scalar)}", loc)
        name, type = real, scalar
    if type.dtype is not like.dtype:
        converted, scalar = w.fresh(), type.with_dtype(like.dtype)
        w.line(f"{converted} = stablehlo.convert {name} : ({w.type(type)}) -> {w.type(scalar)}", loc)
        name = converted
    return name


def _filled(w: Writer, type: TensorType, scalar: str, loc: Location | None) -> str:
    if not type.shape:
        return scalar
    name = w.fresh()
    signature = f"({w.type(TensorType(type.dtype, ()))}) -> {w.type(type)}"
    w.line(f"{name} = stablehlo.broadcast_in_dim {scalar}, dims = [] : {signature}", loc)
    return name
