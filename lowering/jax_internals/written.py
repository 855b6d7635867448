"""StableHLO that JAX writes of a function of its own, as functions of a module of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax

from rematc.ir.types import TensorType

_DEFINED = re.compile(r"^\s*(?:func\.func (?:public |private )?|sdy\.mesh )@(\w+)", re.MULTILINE)
_INFO = re.compile(r' \{jax\.result_info = "[^"]*"\}')


def written_function(
    function: Callable[..., Sequence[Any]], types: Sequence[TensorType], platform: str, symbol: str
) -> list[str]:
    """The lines of what JAX lowers a function of arrays of these types to: private functions, and the meshes they name.

    Args:
        function: of JAX's values.
        types: of its arguments.
        platform: what it is lowered for.
        symbol: what its function is called; all others are called so, with more behind.
    """
    struct: Any = jax.ShapeDtypeStruct
    is_wide = any(type.dtype.bits > (64 if type.dtype.is_complex else 32) for type in types)
    with jax.enable_x64(True) if is_wide else nullcontext():
        traced = jax.jit(lambda *arrays: tuple(function(*arrays)), keep_unused=True).trace(
            *[struct(type.shape, type.dtype.numpy) for type in types]
        )
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    renamed = {name: symbol if name == "main" else f"{symbol}.{name}" for name in _DEFINED.findall(text)}
    text = re.sub(r"@(\w+)", lambda found: f"@{renamed.get(found[1], found[1])}", _INFO.sub("", text))
    text = text.replace(f"func.func public @{symbol}(", f"func.func private @{symbol}(")
    lines = text.rstrip().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("module "))
    return lines[start + 1 : -1]
