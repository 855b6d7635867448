"""What XLA's kernels took while a program ran, from the trace that `jax.profiler` writes.

The trace says of each kernel which instruction of which module it is. Loops, branches and calls are no kernels: what
runs inside of them has events of its own. Kernels that run at one time, on several threads, count each.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from rematc.lowering.hlo.module import HloModule, Instruction

_FLOW = ("while", "conditional", "call")
#: Where a session's files stand below the directory that is given to TensorBoard, and to xprof.
_SESSIONS = Path("plugins/profile")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What an instruction took: seconds of all its executions, and how many these are."""

    instruction: Instruction
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What was traced.

    Attributes:
        kernels: the instructions that ran, in the order in which they first did.
        seconds: of each run, as the clock on the wall says.
        files: the trace's files, where they were kept.
    """

    kernels: tuple[KernelTime, ...]
    seconds: tuple[float, ...]
    files: tuple[Path, ...]


def trace_runs(run: Callable[[], object], runs: int, module: HloModule, directory: Path | None) -> Trace:
    """Run a program under `jax.profiler`.

    Args:
        run: runs it once, and waits for it.
        runs: how often.
        module: the module that runs, optimized.
        directory: where to keep the trace; None for nowhere.

    Raises OSError where the trace cannot be written.
    """
    # Beside the directory, so that nothing of a run that fails is in it.
    above = None if directory is None else _existing(directory)
    with tempfile.TemporaryDirectory(prefix=".rematc-trace-", dir=above) as folder:
        seconds = []
        with _tracing(folder):
            for _ in range(runs):
                start = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - start)
        kernels = tuple(_kernels(Path(folder), module))
        files = () if directory is None else tuple(_kept(Path(folder), directory))
    return Trace(kernels, tuple(seconds), files)


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that is there."""
    return next(path for path in (directory, *directory.absolute().parents) if path.is_dir())


@contextmanager
def _tracing(folder: str) -> Iterator[None]:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # what Python does takes longer under a tracer, and is not asked for
    with jax.profiler.trace(folder, profiler_options=options):
        yield


def _kept(folder: Path, directory: Path) -> Iterator[Path]:
    """Move a session's files; there may be those of others."""
    for session in sorted((folder / _SESSIONS).iterdir()):
        # Sessions are called by the second in which they began.
        names = (session.name + (f"_{number}" if number else "") for number in itertools.count())
        target = next(path for path in (directory / _SESSIONS / name for name in names) if not path.exists())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(session, target)
        yield from sorted(target.iterdir())


def _kernels(folder: Path, module: HloModule) -> Iterator[KernelTime]:
    of = {
        instruction.name: instruction
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
    }
    times: dict[str, list[float]] = {}
    for name, seconds in _events(folder, module.name):
        if name in of and of[name].opcode not in _FLOW:
            times.setdefault(name, []).append(seconds)
    for name, found in times.items():
        yield KernelTime(of[name], sum(found), len(found))


def _events(folder: Path, module: str) -> list[tuple[str, float]]:
    """The instructions of a module that ran, and the seconds that each took; of devices, where there are others."""
    found: dict[bool, list[tuple[float, str, float]]] = {True: [], False: []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # jaxlib's, of how its types are made
        for file in sorted(folder.glob(f"{_SESSIONS}/*/*.xplane.pb")):
            data: Any = jax.profiler.ProfileData.from_file(str(file))
            for plane in data.planes:
                found[plane.name.startswith("/device:")] += _events_of(plane, module)
    return [(name, seconds) for _, name, seconds in sorted(found[True] or found[False])]


def _events_of(plane: Any, module: str) -> Iterator[tuple[float, str, float]]:
    for line in plane.lines:
        for event in line.events:
            facts = dict(event.stats)
            if facts.get("hlo_module") == module and (name := facts.get("hlo_op")) is not None:
                yield event.start_ns, str(name), event.duration_ns / 1e9
