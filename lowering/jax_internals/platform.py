"""The primitive `rematc_platform`: its operands, in a program that is lowered for one platform.

What was taken of a function for a platform stays with it where JAX lowers the program for another one: that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from rematc.lowering.jax_internals.calls import platforms_of
from rematc.lowering.program import PlatformChoice

#: What the primitive is called in a jaxpr.
NAME = "rematc_platform"
# Any: JAX types neither its primitives nor what their rules are given.
_platform_p: Any = Primitive(NAME)
_platform_p.multiple_results = True


def on_platform(choice: PlatformChoice | None, name: str, operands: Sequence[Any]) -> list[Any]:
    """The operands of a function called `name`, of which something was chosen for a platform; None is no choice."""
    if choice is None or not operands:
        return list(operands)
    results: list[Any] = _platform_p.bind(*operands, choice=choice, name=name)
    return results


def _lower(ctx: mlir.LoweringRuleContext, *operands: Any, choice: PlatformChoice, name: str) -> Sequence[Any]:
    choice.check(name, platforms_of(ctx))
    return operands


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    return _platform_p.bind(*primals, **params), list(tangents)


def _batch(operands: Sequence[Any], dimensions: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    return _platform_p.bind(*operands, **params), list(dimensions)


_platform_p.def_abstract_eval(lambda *operands, **_: list(operands))
_platform_p.def_impl(lambda *operands, **_: list(operands))
mlir.register_lowering(_platform_p, _lower)
ad.primitive_jvps[_platform_p] = _jvp
batching.primitive_batchers[_platform_p] = _batch
