"""Functions that XLA has compiled: called, saved, read again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.tree_util

from rematc.compiler.reports.buffers import Buffers, buffers_of
from rematc.compiler.reports.figures import Figures
from rematc.compiler.reports.profile import Profile, profile_of
from rematc.compiler.tracing.arguments import CallArguments, is_array_like
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.lowering.artifact import Artifact, load_artifact, save_artifact
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.profiling import trace_runs
from rematc.lowering.runtime import Executable, Memory, compile_program
from rematc.lowering.signature import Owners
from rematc.lowering.targeting import target_of


@dataclass(frozen=True, slots=True)
class _Accepted:
    """Arguments of a call that were found to fit.

    Attributes:
        tree: the structure of (positional arguments, keyword arguments).
        arrays: which of its leaves are arrays.
        others: which are not, and what they are.
    """

    tree: jax.tree_util.PyTreeDef
    arrays: tuple[int, ...]
    others: tuple[tuple[int, object], ...]

    def arrays_of(self, leaves: Sequence[object], tree: jax.tree_util.PyTreeDef) -> Sequence[object] | None:
        """The arrays of arguments of the same structure; None where it is another one. Types are not looked at."""
        if tree != self.tree:
            return None
        if not self.others:
            return leaves
        if not all(is_same(leaves[index], value) for index, value in self.others):
            return None
        return [leaves[index] for index in self.arrays]


@dataclass(frozen=True)
class CompiledFunction:
    """A function that XLA has compiled: call it with arguments of the structure and types it was compiled for.

    Attributes:
        artifact: its program, and the structure of its arguments and results.
        executable: what XLA made of the program.
    """

    artifact: Artifact
    executable: Executable
    #: What the last call was given. The check of the arguments, which names them, is not made again for the same.
    _accepted: list[_Accepted] = field(default_factory=list, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        program = self.artifact.program
        return (
            f"{type(self).__name__}({program.name!r}, {len(program.leaf_types)} leaves, {self.executable.target.name})"
        )

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run it. Raises CompileError where the arguments differ from those it was compiled for."""
        if self.executable.is_shared:
            try:
                return self.executable.apply(args, kwargs)
            except (CompileError, TypeError):
                self._checked(args, kwargs)  # which argument it is
                raise
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        arrays = self._accepted[0].arrays_of(leaves, tree) if self._accepted else None
        if arrays is None:
            arrays = self._checked(args, kwargs)
            self._remember(leaves, tree, arrays)
            results = self.executable(*arrays)
        else:
            try:
                results = self.executable(*arrays)
            except (CompileError, TypeError):
                self._checked(args, kwargs)  # which argument it is
                raise
        return jax.tree_util.tree_unflatten(self.artifact.out_tree, results)

    def _checked(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """The arrays of a call. Raises CompileError, with its name, for one of another type."""
        artifact, program = self.artifact, self.artifact.program
        call = CallArguments.of(
            None, args, kwargs, Owners(frozenset(artifact.static_positions), frozenset(artifact.static_names))
        )
        if call.array_tree() != self.artifact.in_tree:
            raise CompileError(
                f"'{program.name}' was compiled for arguments of the structure {self.artifact.in_tree}, "
                f"got {call.array_tree()}",
                user_location(),
            )
        for name, found, expected in zip(call.names, call.types, program.leaf_types, strict=True):
            if found != expected:
                message = f"'{program.name}' was compiled for {expected} as {name}, got {found}"
                raise CompileError(message, user_location())
        self._check_fixed(call)
        return call.arrays

    def _check_fixed(self, call: CallArguments) -> None:
        """What a file does not hold cannot be compared."""

    def _remember(self, leaves: Sequence[object], tree: jax.tree_util.PyTreeDef, arrays: Sequence[object]) -> None:
        """Take the next arguments of this structure as they come: where arrays are leaves, and not words of keys."""
        places = [index for index, leaf in enumerate(leaves) if is_array_like(leaf)]
        if len(places) == len(arrays) and all(leaves[place] is one for place, one in zip(places, arrays, strict=True)):
            others = sorted(set(range(len(leaves))).difference(places))
            self._accepted[:] = [_Accepted(tree, tuple(places), tuple([(index, leaves[index]) for index in others]))]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its program, which is compiled again for the same platform where it is read: as `save` and `load`.

        Raises CompileError for a program that calls Python functions, or is spread over several devices.
        """
        self._check_on_one_device()
        target = self.executable.target
        return _compiled_artifact, (self.artifact, target.platform if target.is_here else None)

    def _check_on_one_device(self) -> None:
        """Where its arguments lie is no part of a file."""
        count = self.executable.target.devices
        if count > 1:
            raise CompileError(
                f"'{self.artifact.program.name}' is compiled for {count} devices, and neither saved nor pickled; "
                "compile it where it is to run",
                user_location(),
            )

    def __copy__(self) -> CompiledFunction:
        return self  # it never changes

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledFunction:
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write its StableHLO and constants to a file that `rematc.load` reads, with other versions of jaxlib too.

        What was compiled for a device that is not here is loaded where such a device is.

        Raises CompileError where the file cannot be written, for arguments or results in other containers than tuples,
        lists, dicts and None, and for a program on several devices.
        """
        self._check_on_one_device()
        save_artifact(self.artifact, path)

    def stablehlo(self) -> str:
        """The StableHLO module."""
        return self.artifact.program.text

    def hlo(self) -> str:
        """XLA's module before its passes."""
        return self.executable.hlo()

    def hlo_optimized(self) -> str:
        """XLA's module as it runs."""
        return self.executable.hlo_optimized()

    def buffers(self) -> Buffers:
        """Where in memory XLA puts each value, and from when to when; `print` shows it.

        Raises CompileError where XLA does not say for this target.
        """
        assignment = self.executable.buffer_assignment()
        name, target = self.artifact.program.name, self.executable.target.name
        if assignment is None:
            raise CompileError(f"XLA does not say where it puts the buffers of '{name}' on '{target}'", user_location())
        return buffers_of(name, parse_hlo(self.hlo_optimized()), assignment)

    def profile(
        self, *args: object, directory: str | os.PathLike[str] | None = None, runs: int = 5, **kwargs: object
    ) -> Profile:
        """Run it under `jax.profiler`: what the forward pass, recomputation, the backward pass and each line take.

        Args:
            args: the arguments of a call.
            directory: where to keep the trace, for xprof and Perfetto.
            runs: how often it runs, after one run that is not counted.
            kwargs: arguments by name.

        Raises CompileError as a call does, and where the trace cannot be written.
        """
        module, name = parse_hlo(self.hlo_optimized()), self.artifact.program.name
        folder = None if directory is None else Path(directory)

        def run() -> None:
            given = jax.tree_util.tree_map(_copied, (args, kwargs)) if self.artifact.donated else (args, kwargs)
            jax.block_until_ready(self(*given[0], **given[1]))  # type: ignore[no-untyped-call]  # jax's

        run()
        try:
            trace = trace_runs(run, max(runs, 1), module, folder)
        except OSError as error:
            raise CompileError(
                f"cannot write a trace to {folder}: {error.strerror or error}", user_location()
            ) from error
        return profile_of(name, module, trace)

    def memory(self) -> Memory:
        """Memory in bytes, as XLA reports it."""
        return self.executable.memory()

    def flops(self) -> float:
        """Floating-point operations as XLA counts them: the body of a loop once."""
        return self.executable.flops()

    def figures(self) -> Figures:
        """Memory, work and compile time together."""
        return Figures(self.memory().temp_bytes, self.flops(), self.executable.compile_seconds)


def _copied(leaf: object) -> object:
    """What a call may take over in the place of an argument that is needed again."""
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf


def is_same(one: object, other: object) -> bool:
    """Whether a flag or a static argument has the value that was compiled for. Types are told apart: True is not 1."""
    return one is other or (type(one) is type(other) and bool(one == other))


def load(path: str | os.PathLike[str], target: str | None = None) -> CompiledFunction:
    """Read what `CompiledFunction.save` wrote, and compile it for a target (by default what jax would take).

    Raises CompileError for a file that is not there, damaged, or written by a newer version; for a program that calls
    libraries of another platform than the target's; and for one that was compiled for a device that was not there, as
    `target="h100"`, where JAX would take another kind of device, unless a target is named.
    """
    return _compiled_artifact(load_artifact(path), target)


def _compiled_artifact(artifact: Artifact, name: str | None) -> CompiledFunction:
    target = target_of((), name)
    if name is None:
        artifact.check_device(target)
    executable = compile_program(
        artifact.program,
        target,
        compiler_options=dict(artifact.compiler_options),
        donated=artifact.donated,
    )
    return CompiledFunction(artifact, executable)
