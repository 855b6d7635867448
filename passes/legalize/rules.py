"""The registry of rules by which compound ops become graphs of plain ones.

A rule is a function of (builder, op, *operands) that emits equations and returns the op's results; None where a backend
has the op itself for operands of these types. Rules stand in modules of this folder by family, mirroring `ir/ops/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.types import TensorType
from rematc.ir.values import Value

Rule = Callable[..., Sequence[Value] | None]
RULES: dict[type[Op], Rule] = {}
#: An expansion of more equations is a function.
MOST_IN_PLACE = 16
#: Ops that some platforms have kernels for: those platforms.
NATIVE: dict[type[Op], frozenset[str]] = {}
_R = TypeVar("_R", bound=Rule)


def expands(*ops: type[Op], but_on: Sequence[str] = ()) -> Callable[[_R], _R]:
    """Decorator: this function expands these ops, but on platforms that have kernels for them."""

    def enter(rule: _R) -> _R:
        for op in ops:
            if op in RULES:
                raise ValueError(f"two rules expand '{op.name}'")
            RULES[op] = rule
            if but_on:
                NATIVE[op] = frozenset(but_on)
        return rule

    return enter


def expanded(op: Op, types: Sequence[TensorType], platform: str | None = None) -> Graph | None:
    """The graph of an op for operands of these types, one step of the way; None where it is plain.

    Without a platform what some have kernels for is plain.
    """
    rule, native = RULES.get(type(op)), NATIVE.get(type(op))
    if rule is None or (native is not None and (platform is None or platform in native)):
        return None
    b = Builder(op.name)
    results = rule(b, op, *[b.parameter(type) for type in types])
    return None if results is None else b.build(*results)
