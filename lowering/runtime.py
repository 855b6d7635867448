"""The runtime: programs compiled ahead of time, and what is particular to platforms.

Functions that compile when they are called stand in `rematc.lowering.dispatch`. Everything runs with 64-bit types on,
for this thread and this call only.
"""

from __future__ import annotations

import builtins
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from rematc.ir.errors import CompileError
from rematc.ir.types import TensorType
from rematc.lowering.described import described_devices
from rematc.lowering.dispatch import Dispatcher, LoweredFunction
from rematc.lowering.hlo.allocations import Assignment
from rematc.lowering.jax_internals.assignments import assignment_of
from rematc.lowering.jax_internals.callbacks import settle
from rematc.lowering.jax_internals.calls import apply_program, host_memory_error
from rematc.lowering.jax_internals.costs import cost_of
from rematc.lowering.jax_internals.settings import is_device_here, platform_of_device, restore_x64, swap_x64
from rematc.lowering.jax_internals.shardings import replicated
from rematc.lowering.program import Program
from rematc.lowering.target import CompilerOptions, Target
from rematc.lowering.targeting import current_target, default_device, device_of_platform, targeting
from rematc.lowering.xla_errors import explain_xla

__all__ = [
    "CompilerOptions",
    "Dispatcher",
    "Executable",
    "LoweredFunction",
    "Memory",
    "Program",
    "Target",
    "call_program",
    "compile_program",
]

_LOGGER = logging.getLogger("rematc.compile")


def call_program(program: Program, leaves: Sequence[Any]) -> list[Any]:
    """Apply a program to JAX values, its constants among them. Inside a JAX trace this is one equation."""
    return apply_program(program, leaves)


@dataclass(frozen=True, slots=True)
class Memory:
    """What XLA says a program needs, in bytes.

    Attributes:
        temp_bytes: intermediate values, at their peak.
        argument_bytes: arguments.
        output_bytes: results.
        alias_bytes: results that lie in donated arguments.
        generated_code_bytes: machine code.
        host_temp_bytes: intermediate values in the host's memory (offloaded residuals).
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    generated_code_bytes: int
    host_temp_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Executable:
    """A compiled program.

    Attributes:
        program: what was compiled.
        target: for what. Of a program that is spread over several devices, what XLA says is for one.
        compile_seconds: how long XLA took.
    """

    program: Program
    target: Target
    compile_seconds: float
    _lowered: jax.stages.Lowered = field(repr=False)
    _compiled: jax.stages.Compiled = field(repr=False)
    _constants: tuple[Any, ...] = field(repr=False)
    _in_tree: jax.tree_util.PyTreeDef | None = field(default=None, repr=False)

    @property
    def is_shared(self) -> bool:
        """Whether calls of the function itself run it, too. Then it can be called as the function is, by `apply`."""
        return self._in_tree is not None

    def __call__(self, *leaves: Any) -> list[jax.Array]:
        """Run the program on its leaves.

        Raises:
            CompileError: for arguments of other types than the program's, or that lie on other devices, when memory
                runs out, where a function of the user's raises (`CallbackError`), or for a target that is not here.
        """
        if self._in_tree is None:
            results: list[jax.Array] = self.apply(leaves, {})
            return results
        self._check_count(leaves)
        return jax.tree_util.tree_leaves(self.apply(*self._in_tree.unflatten(leaves)))

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function returns where `is_shared`; else `args` are leaves. Raises as a call with leaves does."""
        if not self.target.is_here:
            raise _not_here(self.program, self.target)
        operands = (*self._constants, *args) if self.is_shared else (*args, *self._constants)
        previous = swap_x64(True)
        try:
            results = self._compiled(*operands, **kwargs)
            if self.program.module.callbacks:
                settle(results)
        except (jax.errors.JaxRuntimeError, TypeError, ValueError) as error:
            self._explain(error, args, kwargs)
            raise
        finally:
            restore_x64(previous)
        return results

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise CompileError if the user can act on what JAX says of a call."""
        leaves = jax.tree_util.tree_leaves((args, kwargs)) if self.is_shared else args
        if isinstance(error, jax.errors.JaxRuntimeError):
            explain_xla(error, self.program.name, [self.program])
        elif isinstance(error, TypeError):
            self._check(leaves)
        else:
            self._check_shardings(leaves)

    def _check_count(self, leaves: Sequence[Any]) -> None:
        expected = len(self.program.leaf_types)
        if len(leaves) != expected:
            raise CompileError(f"'{self.program.name}' takes {expected} arrays, got {len(leaves)}")

    def _check(self, leaves: Sequence[Any]) -> None:
        self._check_count(leaves)
        expected = self.program.leaf_types
        for index, (leaf, type) in enumerate(zip(leaves, expected, strict=True)):
            try:
                aval = jax.typeof(leaf)
            except TypeError:
                found = builtins.type(leaf).__name__
                raise CompileError(f"'{self.program.name}' takes {type} as array {index}, got a {found}") from None
            if (aval.shape, aval.dtype) != (type.shape, type.dtype.numpy):
                found = aval.str_short(short_dtypes=True)
                raise CompileError(f"'{self.program.name}' was compiled for {type} as array {index}, got {found}")

    def _check_shardings(self, leaves: Sequence[Any]) -> None:
        expected = jax.tree_util.tree_leaves(self._compiled.input_shardings)
        if self.is_shared:
            expected = expected[len(jax.tree_util.tree_leaves(self._constants)) :]
        for index, (leaf, wanted) in enumerate(zip(leaves, expected, strict=False)):
            found = getattr(leaf, "sharding", None)
            if found is not None and not found.is_equivalent_to(wanted, np.ndim(leaf)):
                raise CompileError(
                    f"'{self.program.name}' was compiled for array {index} on {_described(wanted)}, got one on "
                    f"{_described(found)}; compile it at arrays, or jax.ShapeDtypeStructs, of the shardings that it is "
                    "to be called with, or move the array there with jax.device_put"
                )

    def memory(self) -> Memory:
        """The memory that it needs besides its constants, on one device."""
        analysis: Any = self._compiled.memory_analysis()
        return Memory(
            temp_bytes=analysis.temp_size_in_bytes,
            argument_bytes=analysis.argument_size_in_bytes,
            output_bytes=analysis.output_size_in_bytes,
            alias_bytes=analysis.alias_size_in_bytes,
            generated_code_bytes=analysis.generated_code_size_in_bytes,
            host_temp_bytes=analysis.host_temp_size_in_bytes,
        )

    def cost(self) -> Mapping[str, float]:
        """XLA's estimates by name (`flops`, `bytes accessed`, ...). Loop bodies count once."""
        return dict(cost_of(self._lowered, self._compiled))

    def flops(self) -> float:
        """Floating-point operations by XLA's estimate."""
        return self.cost().get("flops", 0.0)

    def hlo(self) -> str:
        """The HLO that XLA starts from."""
        return self._lowered.as_text(dialect="hlo")

    def hlo_with_lines(self) -> str:
        """The HLO that XLA starts from, with the user's line of each instruction."""
        return self._lowered.as_text(dialect="hlo", debug_info=True)

    def hlo_optimized(self) -> str:
        """The HLO that runs."""
        text = self._compiled.as_text()
        assert text is not None, "XLA shows no HLO for this platform"
        return text

    def buffer_assignment(self) -> Assignment | None:
        """Where in memory XLA puts each value; None where it does not say for this platform."""
        return assignment_of(self._compiled)


def compile_program(
    program: Program,
    target: Target | None = None,
    *,
    compiler_options: CompilerOptions | None = None,
    donated: Sequence[int] = (),
    shardings: Sequence[Sharding | None] = (),
) -> Executable:
    """Compile a program for one device, or for those that its arguments lie on.

    Args:
        program: what to compile.
        target: for what; by default the current one. The device is the one that an argument lies on, if it is the
            target's, or the first of the platform.
        compiler_options: options of XLA, before those of `Program.compile_options`.
        donated: indices of the leaves whose memory the results may take over.
        shardings: of the leaves. Where one is spread over several devices, so is the program: XLA partitions it.

    Raises:
        CompileError: where there is no such platform, it lacks a memory that the program uses, its arguments lie on
            another one, it is a GPU that is not here and the program calls Python, or XLA runs out of memory.
    """
    target = target or current_target()
    spread = [sharding for sharding in shardings if sharding is not None and len(sharding.device_set) > 1]
    spread = spread or [replicated(mesh) for mesh in program.module.meshes if mesh.size > 1]
    _check_spread(program, target, bool(spread))
    device = _device_of(spread, target) if spread else _one_device(shardings, target)
    if program.module.callbacks and not target.is_here and target.platform != "tpu":
        raise CompileError(
            f"'{program.name}' calls Python functions (debug.print, debug.callback, pure_callback), which JAX compiles "
            f"for a GPU that is here alone, and '{target.name}' is not; leave them out, or compile it there"
        )
    if program.module.uses_host_memory and not target.has_host_memory:
        raise host_memory_error(program, target.platform)

    def run(*operands: Any) -> list[Any]:
        return call_program(program, operands)

    run.__name__ = program.name
    placements: dict[str, Any] = {}
    if spread:
        given = [*shardings, *[None] * (len(program.param_types) - len(shardings))]
        in_shapes = [_spread_placeholder(*row) for row in zip(program.param_types, given, strict=True)]
    else:
        in_shapes = [_placeholder(type, device) for type in program.param_types]
        placements["out_shardings"] = [_placement(type, device) for type in program.result_types]
    options: dict[str, Any] = program.compile_options(target, compiler_options)
    with jax.enable_x64(True):
        jitted = jax.jit(run, donate_argnums=tuple(donated), keep_unused=True, **placements)
        lowered = jitted.lower(*in_shapes)
        start = time.perf_counter()
        try:
            compiled = lowered.compile(compiler_options=options or None)
        except jax.errors.JaxRuntimeError as error:
            explain_xla(error, program.name, [program])
            raise
        seconds = time.perf_counter() - start
        constants: tuple[Any, ...] = program.constants
        if target.is_here:
            with jax.ensure_compile_time_eval():
                constants = tuple([jax.device_put(array, None if spread else device) for array in constants])
    log_compiled(program, target, seconds)
    target = replace(target, devices=len(spread[0].device_set) if spread else 1)
    return Executable(program, target, seconds, lowered, compiled, constants)


def log_compiled(program: Program, target: Target, seconds: float) -> None:
    """Log a compilation, to `rematc.compile`."""
    _LOGGER.info("compiled '%s' for %s in %.3g s", program.name, target.name, seconds)


def compile_function(
    dispatcher: Dispatcher,
    target: Target,
    function: LoweredFunction,
    in_tree: jax.tree_util.PyTreeDef,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Executable | None:
    """Compile what a call of a function runs: a call that follows finds it compiled, and so does this after a call.

    Args:
        dispatcher: the function.
        target: for what.
        function: what it compiles to for these arguments.
        in_tree: how `(args, kwargs)` make up the program's leaves.
        args: arrays, or `jax.ShapeDtypeStruct`s.
        kwargs: the same by name.

    Returns:
        None where the call would look at its arguments first, or runs on several devices.

    Raises:
        CompileError: where XLA refuses, or runs out of memory.
    """
    with targeting(target):
        found = dispatcher.lower_program(function, args, kwargs)
    if found is None:
        return None
    lowered, constants = found
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        explain_xla(error, function.program.name, [function.program])
        raise
    seconds = time.perf_counter() - start
    log_compiled(function.program, target, seconds)
    shardings = jax.tree_util.tree_leaves(compiled.input_shardings)
    if any(len(sharding.device_set) > 1 for sharding in shardings):
        return None
    return Executable(function.program, target, seconds, lowered, compiled, constants, in_tree)


def _device_of(shardings: Sequence[Sharding], target: Target) -> jax.Device:
    """One of the devices that arrays are spread over; they must be the target's."""
    device: Any = min(shardings[0].device_set, key=_id)
    if not _is_of(device, target):
        raise CompileError(
            f"arguments lie on {_described(shardings[0])}, and the program is to run on '{target.name}'; leave out "
            "the target, or move the arguments there"
        )
    return device


def _is_of(device: Any, target: Target) -> bool:
    """Whether a device is one of the target's."""
    if target.described:
        return device in described_devices(target.described)
    return platform_of_device(device) == target.platform and is_device_here(device) == target.is_here


def _one_device(shardings: Sequence[Sharding | None], target: Target) -> jax.Device:
    """The target's device that an argument lies on; else the one where JAX puts arrays on that platform."""
    places: list[Any] = [device for one in shardings if one is not None for device in one.device_set]
    own = described_devices(target.described) if target.described else (default_device(),)
    for device in (*places, *own[:1]):
        if _is_of(device, target):
            return device
    return device_of_platform(target.platform)


def _check_spread(program: Program, target: Target, is_spread: bool) -> None:
    """Raise CompileError where a program of one device is to be compiled for many that are not here."""
    if is_spread or not target.described:
        return
    devices = described_devices(target.described)
    if len(devices) > 1:
        one = target.described.partition(":")[0]
        raise CompileError(
            f"nothing in '{program.name}' is spread over the {len(devices)} devices of '{target.described}'; give "
            f"arguments shardings over a mesh of rematc.targets.devices('{target.described}'), or compile for '{one}'"
        )


def _not_here(program: Program, target: Target) -> CompileError:
    return CompileError(
        f"'{program.name}' was compiled for '{target.name}' ({target.device_kind}), which is not here: it can be read "
        "(report, check, memory, HLO), not run. Save it, and load it where the device is, or compile it there"
    )


def _id(device: Any) -> int:
    return int(device.id)


def _described(sharding: Sharding) -> str:
    devices: list[Any] = sorted(sharding.device_set, key=_id)
    if len(devices) == 1:
        return f"the device {devices[0]}"
    spec = getattr(sharding, "spec", None)
    return f"{len(devices)} devices ({devices[0].platform}{'' if spec is None else f', {spec}'})"


def _placement(type: TensorType, device: jax.Device) -> SingleDeviceSharding:
    return SingleDeviceSharding(device, memory_kind="pinned_host" if type.on_host else None)


def _spread_placeholder(type: TensorType, sharding: Sharding | None) -> Any:
    """An argument of a program on several devices. XLA decides where one of a single device's goes."""
    shape: Any = jax.ShapeDtypeStruct
    is_spread = sharding is not None and len(sharding.device_set) > 1
    return shape(type.shape, type.dtype.numpy, sharding=sharding if is_spread else None)


def _placeholder(type: TensorType, device: jax.Device) -> Any:
    shape: Any = jax.ShapeDtypeStruct
    return shape(type.shape, type.dtype.numpy, sharding=_placement(type, device))
