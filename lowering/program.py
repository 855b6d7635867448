"""A program: StableHLO text with what is needed to call it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rematc.ir.core import Array, Effect
from rematc.ir.errors import InternalError
from rematc.ir.locations import Location
from rematc.ir.types import TensorType
from rematc.lowering.validation import read_location
from rematc.lowering.writer import Callback

#: The platform of a kernel of jaxlib's, by how the kernel's name begins.
_PLATFORMS = {"lapack": "cpu", "cusolver": "cuda", "cu": "cuda", "hipsolver": "rocm", "hip": "rocm"}

_KERNEL = re.compile(rf"@({'|'.join(_PLATFORMS)})_")
# What a program does is read off its ops. A user's names stand in the text too, in locations and in strings, where
# MLIR escapes quotes and line ends: so an op is looked for where a line begins, and a string with its quotes.
_LINE_START = re.compile(r" *(?:%[^\"=]*= )?\"?")
_BARRIER, _CALL = "stablehlo.optimization_barrier", "stablehlo.custom_call "
_ON_HOST = re.compile(r"\b(?:mhlo\.memory_kind|_xla_buffer_placement) = \"pinned_host\"")


def _ops(text: str, op: str) -> Iterator[int]:
    """Where the name of each op of this kind ends."""
    at = text.find(op)
    while at >= 0:
        if _LINE_START.fullmatch(text, text.rfind("\n", 0, at) + 1, at):
            yield at + len(op)
        at = text.find(op, at + len(op))


def count_barriers(text: str) -> int:
    """How many optimization barriers a module has, in StableHLO text."""
    return sum(1 for _ in _ops(text, _BARRIER))


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A StableHLO module whose public function is `main`. Two programs are equal only if they are the same object.

    Attributes:
        text: the module, as `rematc.lowering.module.stablehlo_text` writes it.
        param_types: types of main's parameters.
        result_types: types of main's results.
        name: what errors, profiles and HLO call it.
        constants: arrays for the last parameters, which callers do not pass (large closed-over arrays).
        callbacks: the Python functions that it calls, by number.
        effect: what running it does besides giving results. With ordered effects main takes a token before its
            parameters, and gives one before its results.
        tuned_for: the platform for whose speed its text is written, where others would do better with another text.
        is_depth_first: whether XLA on the CPU is to run its kernels depth first, which is expected to hold less.
        meshes: JAX's meshes of devices that its constraints name.
        partitions: over how many devices its constraints spread it; 0 where it has none.
        constrained_at: the user's line of one of them.
    """

    text: str
    param_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    name: str
    constants: tuple[Array, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    effect: Effect = Effect.NONE
    tuned_for: str | None = None
    is_depth_first: bool = False
    meshes: tuple[Any, ...] = ()
    partitions: int = 0
    constrained_at: Location | None = None

    def __post_init__(self) -> None:
        hidden = self.param_types[len(self.leaf_types) :]
        given = [(array.shape, array.dtype) for array in self.constants]
        if given != [(type.shape, type.dtype.numpy) for type in hidden]:
            raise InternalError(f"program '{self.name}': its constants do not fit its last parameters")

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {len(self.leaf_types)} leaves, {len(self.constants)} constants)"

    @property
    def leaf_types(self) -> tuple[TensorType, ...]:
        """Types of the parameters that callers pass."""
        return self.param_types[: len(self.param_types) - len(self.constants)]

    @property
    def uses_host_memory(self) -> bool:
        """Whether it places values in the host's memory (offloaded residuals)."""
        return "pinned_host" in self.text and _ON_HOST.search(self.text) is not None

    @property
    def has_barriers(self) -> bool:
        """Whether it has optimization barriers, which some versions of XLA keep only when told to."""
        return any(True for _ in _ops(self.text, _BARRIER))

    @property
    def kernel_platform(self) -> str | None:
        """The one platform that it runs on, cpu, cuda or rocm, if it calls kernels of jaxlib's (decompositions)."""
        for at in _ops(self.text, _CALL):
            if found := _KERNEL.match(self.text, at):
                return _PLATFORMS[found[1]]
        return None

    @property
    def platform(self) -> str | None:
        """The platform that its text is for; None where it is the same for all."""
        return self.kernel_platform or self.tuned_for

    def location_of_call(self, target: str) -> Location | None:
        """The user's line of the first `custom_call` of a function of this name; None where the text has no line."""
        pattern = re.compile(rf"@\"?{re.escape(target)}\"?\(.*loc\((#loc\d+)\)$", re.MULTILINE)
        call = next((found for at in _ops(self.text, _CALL) if (found := pattern.match(self.text, at))), None)
        place = call and re.search(rf"^{call[1]} = loc\((.*)\)$", self.text, re.MULTILINE)
        return read_location(place[1]) if place else None
