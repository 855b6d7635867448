"""A program: a StableHLO module with what is needed to call it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rematc.ir.errors import CompileError, InternalError
from rematc.ir.facts import Effect
from rematc.ir.locations import Location
from rematc.ir.types import TensorType
from rematc.ir.values import Array
from rematc.lowering.target import CompilerOptions, Target, platform_of_kernel
from rematc.lowering.writer import Callback


@dataclass(frozen=True, slots=True)
class Module:
    """A StableHLO module and the facts of it: noted by what writes it, or read off others' by `lowering.reading`.

    Attributes:
        text: the module. Its public function is `main`.
        callbacks: the Python functions that it calls, by number.
        barriers: how many optimization barriers stand in it, which some versions of XLA keep only when told to.
        memories: in which kinds of memory it places values, besides the device's own ("pinned_host").
        calls: the functions of libraries that it calls by name, and the user's line of the first call of each.
        tuned_for: the platform for whose speed it is written, where others would do better with another text.
        meshes: the frontend's meshes of devices that its constraints name.
        partitions: over how many devices they spread it; 0 where there are none.
        constrained_at: the user's line of one of them.
    """

    text: str
    callbacks: tuple[Callback, ...] = ()
    barriers: int = 0
    memories: frozenset[str] = frozenset()
    calls: Mapping[str, Location | None] = field(default_factory=dict)
    tuned_for: str | None = None
    meshes: tuple[Any, ...] = ()
    partitions: int = 0
    constrained_at: Location | None = None

    @property
    def uses_host_memory(self) -> bool:
        """Whether it places values in the host's memory (offloaded residuals)."""
        return "pinned_host" in self.memories

    @property
    def kernel_platform(self) -> str | None:
        """The one platform that it runs on, cpu, cuda or rocm, if it calls kernels of jaxlib's (decompositions)."""
        found = map(platform_of_kernel, self.calls)
        return next((platform for platform in found if platform is not None), None)

    @property
    def platform(self) -> str | None:
        """The platform that the text is for; None where it is the same for all."""
        return self.kernel_platform or self.tuned_for


@dataclass(frozen=True, slots=True)
class PlatformChoice:
    """What was taken of a function for one platform, where it is another one elsewhere.

    Attributes:
        platform: for which.
        what: what differs from platform to platform: a primitive of JAX's.
        loc: the user's line of it.
    """

    platform: str
    what: str
    loc: Location | None

    def check(self, name: str, platforms: Iterable[str]) -> None:
        """Raise CompileError where the function called `name` is to run on another platform."""
        for platform in platforms:
            if platform != self.platform:
                raise CompileError(
                    f"'{name}' was traced for platform '{self.platform}', on which '{self.what}' is not what it is on "
                    f"'{platform}'; trace it for '{platform}': with arguments that lie there, under "
                    f"jax.default_device, or by rematc.compile(..., target='{platform}')",
                    self.loc,
                )


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A module with the types of its `main`. Two programs are equal only if they are the same object.

    Attributes:
        module: what is called.
        param_types: types of main's parameters.
        result_types: types of main's results.
        name: what errors, profiles and HLO call it.
        constants: arrays for the last parameters, which callers do not pass (large closed-over arrays).
        effect: what running it does besides giving results. With ordered effects main takes a token before its
            parameters, and gives one before its results.
        is_depth_first: whether XLA on the CPU is to run its kernels depth first, which is expected to hold less.
        choice: what makes it a program for one platform already in its graph; None where nothing does.
    """

    module: Module
    param_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    name: str
    constants: tuple[Array, ...] = ()
    effect: Effect = Effect.NONE
    is_depth_first: bool = False
    choice: PlatformChoice | None = None

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
    def text(self) -> str:
        """The module's text."""
        return self.module.text

    @property
    def platform(self) -> str | None:
        """The platform that it is for; None where it is the same for all."""
        return self.module.platform if self.choice is None else self.choice.platform

    def compile_options(self, target: Target, options: CompilerOptions | None = None) -> dict[str, str | bool | int]:
        """`options` with those that it is compiled with for a target."""
        has_barriers = self.module.barriers > 0
        is_depth_first = self.is_depth_first and not has_barriers
        return target.compile_options(options, has_barriers=has_barriers, is_depth_first=is_depth_first)
