"""Losses out of packages that others wrote: rematc beside JAX, on the jax that is installed.

    python benchmarks/models.py [--only equinox,linen-vae] [--quick] [--second [WAYS]] [--x64] [--policies nothing,dots]
                                [--limit SECONDS] [--json FILE]

The losses are in benchmarks/losses/, one file a package; `pip install "rematc[models]"` installs the packages, and one
that is missing is skipped with a line that says so. A package's losses are measured in a process of their own. The
columns:

    equations   of the loss as JAX traces it, those of inner functions included
    imported    different primitives with a rule of rematc's; and those that came through JAX's own lowering
    value, gradients
                largest difference from JAX's, over the largest entry of the array
    second      the same of Hessian-vector products, in ways of benchmarks/second.py (with --second)
    lower       processor time from the function to StableHLO over that of jax.jit(jax.value_and_grad(loss)).lower(),
                from cold caches, in turns, medians
    run         run time without a policy over that of JAX's program, in turns, medians
    temporary   KiB of temporary memory, as XLA says (memory_analysis): JAX's without remat, then rematc's over it
                without a policy, and with a policy on the whole loss

With --quick nothing is timed. With --x64 all is computed in float64, where a loss can be. A loss that takes longer than
the limit is ended, and named as one that hangs.
"""

from __future__ import annotations

import argparse
import ast
import faulthandler
import functools
import gc
import importlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import numpy as np

import rematc
from rematc.compiler.reports.fallbacks import Fallbacks

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.losses import PACKAGES, Loss
from benchmarks.second import WAYS, products

POLICIES = ("nothing", "dots", "auto")
#: The largest difference that is a matter of rounding, over the largest entry of an array, by the width of the type.
TOLERANCES = {4: 2e-4, 8: 1e-9}
#: The same of second derivatives, where roundings of first ones are differentiated.
SECOND_TOLERANCES = {4: 5e-3, 8: 1e-7}
#: An array of gradients whose entries are this much smaller than the largest gradient's holds roundings alone.
NOISE = {4: 1e-2, 8: 1e-5}
CALLS_PER_SAMPLE = 0.02  # seconds: a faster program is called several times for one sample


@dataclass(slots=True)
class Row:
    """One loss. What was not measured is None; what failed is in `error`."""

    name: str
    about: str
    dtype: str = ""
    equations: int = 0
    native: int = 0
    fallbacks: list[str] = field(default_factory=list)
    value: float | None = None
    gradients: float | None = None
    second: dict[str, float] = field(default_factory=dict)
    tolerance: float = 0.0
    second_tolerance: float = 0.0
    lower_seconds: tuple[float, float] | None = None
    run_seconds: tuple[float, float] | None = None
    temporary: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


# -- one package, in a process of its own ----------------------------------------------------------------------------


def measure_package(options: argparse.Namespace, only: Sequence[str], policies: Sequence[str]) -> None:
    """Print a loss's name and then a line of JSON, for each of the package's losses that is not done."""
    package, done = options.package, options.done.split(",")
    jax.config.update("jax_enable_x64", options.x64)  # type: ignore[no-untyped-call]  # jax
    try:
        losses: tuple[Loss, ...] = importlib.import_module(f"benchmarks.losses.{package}").LOSSES
    except (ImportError, AttributeError, SyntaxError) as error:  # what packages for another jax, or Python, raise
        print(f"{package}: skipped, cannot be imported here: {error}", file=sys.stderr)
        return
    for loss in losses:
        if loss.name not in done and (not only or package in only or loss.name in only):
            print(loss.name, flush=True)
            faulthandler.dump_traceback_later(options.limit, exit=True)
            row = measure(loss, policies, options.rounds, options.x64, options.second)
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(asdict(row)), flush=True)


def measure(loss: Loss, policies: Sequence[str], rounds: int, is_double: bool, ways: int = 0) -> Row:
    """Everything about one loss, both sides in this process."""
    row = Row(loss.name, loss.about)
    with attempt(row, "build"):
        function, arguments = loss.build()
        arguments = in_type(np.float64 if is_double and not loss.is_single else np.float32, arguments)
    if row.errors:
        return row
    finfo: Any = jax.numpy.finfo
    width = max(finfo(leaf.dtype).bits // 8 for leaf in jax.tree_util.tree_leaves(arguments[0]))
    row.dtype, row.tolerance = f"float{8 * width}", loss.tolerance or TOLERANCES[width]
    compare(row, function, arguments, policies, rounds, NOISE[width])
    if ways and not row.errors:
        row.second_tolerance = loss.second_tolerance or SECOND_TOLERANCES[width]
        compare_second(row, function, arguments, NOISE[width], ways)
    return row


def compare_second(
    row: Row, function: Callable[..., Any], arguments: tuple[Any, ...], noise: float, count: int
) -> None:
    """Fill in the second derivatives of the row, in as many ways, drawn by the loss's name."""
    ways = random.Random(row.name).sample(WAYS, min(count, len(WAYS)))
    with attempt(row, "second"):
        for way, compute, expected in products(fresh(function), arguments, ways):
            with attempt(row, way):
                row.second[way] = difference(expected, compute(), noise)


def compare(
    row: Row,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    policies: Sequence[str],
    rounds: int,
    noise: float,
) -> None:
    """Fill in the row."""
    expected: Any = None
    with attempt(row, "JAX"):
        counts = primitives_of(jax.make_jaxpr(fresh(function))(*arguments).jaxpr)
        row.equations = sum(counts.values())
        theirs: Any = jax.jit(jax.value_and_grad(fresh(function))).lower(*arguments).compile()
        row.temporary["JAX"] = theirs.memory_analysis().temp_size_in_bytes
        expected = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(theirs(*arguments))]
    ours: Any = None
    with attempt(row, "rematc"):
        lowered = rematc.lower(ours_of(function), *arguments)
        row.fallbacks = fallbacks_of(lowered)
        row.native = len(counts.keys() - set(row.fallbacks))
        ours = lowered.compile()
        row.temporary["none"] = ours.memory().temp_bytes
    if expected is None or ours is None:
        return
    with attempt(row, "comparison"):
        found = ours(*arguments)
        row.value = difference([expected[0]], [found[0]], noise)
        row.gradients = difference(expected[1:], jax.tree_util.tree_leaves(found[1]), noise)
    for policy in policies:
        with attempt(row, policy):
            compiled = rematc.compile(ours_of(function, policy), *arguments)
            row.temporary[policy] = compiled.memory().temp_bytes
            again = jax.tree_util.tree_leaves(compiled(*arguments))
            if not difference(expected, again, noise) <= row.tolerance:
                raise ArithmeticError("gradients are not those without a policy")
    if rounds:
        with attempt(row, "timing"):
            row.run_seconds = run_times(function, arguments, 3 * rounds)
            row.lower_seconds = lower_times(function, arguments, rounds)


class attempt:  # noqa: N801  # reads as a statement
    """Whatever others' code raises in the block ends the block, and is noted in the row."""

    def __init__(self, row: Row, step: str) -> None:
        self.row, self.step = row, step

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self.row.errors[self.step] = f"{type(error).__name__}: {error}"
        if os.environ.get("MODELS_TRACEBACK"):
            sys.excepthook(type(error), error, trace)
        return True


def in_type(dtype: Any, tree: Any) -> Any:
    """The arrays of a pytree; those of float32 and float64 are of `dtype`, complex ones of two of it."""
    pair = np.result_type(dtype, np.complex64)

    def cast(leaf: Any) -> Any:
        own = getattr(leaf, "dtype", None)
        if own in (np.complex64, np.complex128):
            return leaf.astype(pair)
        return leaf.astype(dtype) if own in (np.float32, np.float64) else leaf

    return jax.tree_util.tree_map(cast, tree)


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, not seen by any cache."""

    def call(*args: Any) -> Any:
        return function(*args)

    return functools.wraps(function)(call)


def ours_of(function: Callable[..., Any], policy: str | None = None) -> Callable[..., Any]:
    """The loss's value and gradients by rematc."""
    return rematc.value_and_grad(rematc.from_jax(fresh(function)), policy=policy)


def fallbacks_of(lowered: Any) -> list[str]:
    """The primitives that came in through JAX's own lowering."""
    return sorted({name for note in lowered.records if isinstance(note, Fallbacks) for name in note.primitives})


def primitives_of(jaxpr: Any) -> Counter[str]:
    """How often each primitive stands in a jaxpr and in the functions in it."""
    counts: Counter[str] = Counter()
    open_jaxprs = [jaxpr]
    while open_jaxprs:
        for eqn in open_jaxprs.pop().eqns:
            counts[eqn.primitive.name] += 1
            for leaf in jax.tree_util.tree_leaves(
                list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
            ):
                inner = getattr(leaf, "jaxpr", leaf)
                if hasattr(inner, "eqns"):
                    open_jaxprs.append(inner)
    return counts


def difference(expected: Sequence[Any], found: Sequence[Any], noise: float) -> float:
    """The largest difference over the largest entry of its array; infinite where one is no number and the other is.

    Of arrays whose entries are below `noise` times the largest entry of all, as the gradient of what is invariant,
    roundings alone are left: they count over that bound.
    """
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(expected, found, strict=True) if one.size]
    scales = [float(np.nanmax(np.abs(one), initial=0.0)) for one, _ in pairs]
    least = max(max(scales, default=0.0) * noise, sys.float_info.min)
    worst = 0.0
    for (one, other), scale in zip(pairs, scales, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or not np.array_equal(np.isnan(one), np.isnan(other)):
            return math.inf
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        with np.errstate(invalid="ignore"):  # of infinities that are equal
            distance = np.where(one == other, 0.0, np.abs(one.astype(wide) - other.astype(wide)))
        worst = max(worst, float(np.nanmax(distance, initial=0.0)) / max(scale, least))
    return worst


def lower_times(function: Callable[..., Any], arguments: tuple[Any, ...], rounds: int) -> tuple[float, float]:
    """Seconds that the process computes from the function to StableHLO: rematc's, and JAX's."""

    def ours() -> None:
        rematc.lower(ours_of(function), *arguments).stablehlo()

    def theirs() -> None:
        jax.jit(jax.value_and_grad(fresh(function))).lower(*arguments)

    samples: dict[Callable[[], None], list[float]] = {ours: [], theirs: []}
    for index in range(rounds):
        for side in (ours, theirs) if index % 2 else (theirs, ours):
            jax.clear_caches()  # type: ignore[no-untyped-call]  # jax
            gc.collect()
            start = time.process_time()
            side()
            samples[side].append(time.process_time() - start)
    return statistics.median(samples[ours]), statistics.median(samples[theirs])


def run_times(function: Callable[..., Any], arguments: tuple[Any, ...], rounds: int) -> tuple[float, float]:
    """Seconds of a call as users call it: rematc's, and JAX's."""
    wait: Callable[[Any], Any] = jax.block_until_ready
    ours, theirs = ours_of(function), jax.jit(jax.value_and_grad(fresh(function)))
    wait(ours(*arguments))
    wait(theirs(*arguments))
    start = time.perf_counter()
    wait(theirs(*arguments))
    calls = max(1, round(CALLS_PER_SAMPLE / (time.perf_counter() - start)))
    samples: tuple[list[float], list[float]] = ([], [])
    for index in range(rounds):
        for side in (0, 1) if index % 2 else (1, 0):
            start = time.perf_counter()
            for _ in range(calls):
                wait((ours, theirs)[side](*arguments))
            samples[side].append((time.perf_counter() - start) / calls)
    return statistics.median(samples[0]), statistics.median(samples[1])


# -- all packages ----------------------------------------------------------------------------------------------------


def rows_of(package: str, options: argparse.Namespace) -> Iterator[Row]:
    """The losses of one package, measured by another process as they come; by a further one after one that ended it."""
    command = [sys.executable, __file__, "--package", package, "--rounds", str(options.rounds)]
    command += ["--policies", options.policies, "--limit", str(options.limit)]
    command += ["--only", options.only] if options.only else []
    command += ["--second", str(options.second)] if options.second else []
    command += ["--x64"] if options.x64 else []
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done: list[str] = []
    while True:
        begun, start = "", time.perf_counter()
        with subprocess.Popen(
            [*command, "--done", ",".join(done)], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield Row(**json.loads(line))
                    begun = ""
                elif is_name_of(line.strip(), package):
                    begun, start = line.strip(), time.perf_counter()
                    done.append(begun)
        if not begun:
            break
        hung = time.perf_counter() - start >= options.limit
        end = f"longer than {options.limit:.0f} s" if hung else f"ended the process: {process.returncode}"
        yield Row(begun, "", errors={"hang" if hung else "crash": end})
    if process.returncode:
        print(f"{package}: exit status {process.returncode}", file=sys.stderr)


def missing(package: str) -> str:
    """The module that a package's losses need and that is not installed; none, as nothing is imported, is empty."""
    source = (Path(__file__).parent / "losses" / f"{package}.py").read_text(encoding="utf-8")
    modules = {
        line.split()[1].partition(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))
    }
    absent = [name for name in sorted(modules) if name != "benchmarks" and importlib.util.find_spec(name) is None]
    return ", ".join(absent)


def header(policies: Sequence[str], with_second: bool) -> str:
    """The table's first two lines."""
    names = [
        "loss",
        "type",
        "equations",
        "imported",
        "through JAX",
        "value",
        "gradients",
        *(["second"] if with_second else []),
        "lower",
        "run",
        "JAX KiB",
        "none",
    ]
    texts = ("loss", "type", "through JAX")
    names += policies
    return f"| {' | '.join(names)} |\n|{''.join('---|' if name in texts else '--:|' for name in names)}"


def line_of(row: Row, policies: Sequence[str], with_second: bool) -> str:
    """A row of the table."""

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.0e}"

    def ratio(pair: tuple[float, float] | None) -> str:
        return "" if pair is None else f"{pair[0] / pair[1]:.2f}"

    theirs = row.temporary.get("JAX")
    cells = [row.name, row.dtype, str(row.equations), str(row.native), " ".join(row.fallbacks)]
    cells += [number(row.value), number(row.gradients)]
    cells += [number(max(row.second.values(), default=None))] if with_second else []
    cells += [ratio(row.lower_seconds), ratio(row.run_seconds)]
    cells.append("" if theirs is None else f"{theirs / 1024:.0f}")
    for placement in ("none", *policies):
        found = row.temporary.get(placement)
        cells.append("" if found is None or not theirs else f"{found / theirs:.2f}")
    return f"| {' | '.join(cells)} |"


def is_wrong(row: Row) -> bool:
    """Whether the value, the gradients or the second derivatives are not JAX's."""
    is_first = any(found is not None and not found <= row.tolerance for found in (row.value, row.gradients))
    return is_first or bool(wrong_ways(row))


def wrong_ways(row: Row) -> list[str]:
    """The ways to second derivatives that do not give JAX's."""
    return [way for way, found in row.second.items() if not found <= row.second_tolerance]


def summary(rows: Sequence[Row]) -> str:
    """What the table comes to."""
    agreeing = [row for row in rows if row.gradients is not None and not is_wrong(row) and not row.errors]
    lines = [f"{len(agreeing)} of {len(rows)} losses agree with JAX"]
    lines += [
        f"wrong: {row.name}: value {row.value:.1e}, gradients {row.gradients:.1e}"
        + "".join(f", {way} {row.second[way]:.1e}" for way in wrong_ways(row))
        for row in rows
        if is_wrong(row)
    ]
    lines += [f"failed: {row.name}: {step}: {text}" for row in rows for step, text in row.errors.items()]
    for name, pairs in (
        ("lower", [row.lower_seconds for row in rows if row.lower_seconds]),
        ("run", [row.run_seconds for row in rows if row.run_seconds]),
        ("temporary, none", [(row.temporary["none"], row.temporary["JAX"]) for row in rows if "none" in row.temporary]),
    ):
        ratios = [one / other for one, other in pairs if one and other]
        if ratios:
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            lines.append(
                f"{name}: geometric mean {statistics.geometric_mean(ratios):.3f} ({spread}, {len(ratios)} losses)"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="packages or losses, separated by commas")
    parser.add_argument("--quick", action="store_true", help="time nothing")
    parser.add_argument("--x64", action="store_true", help="compute in float64")
    parser.add_argument("--policies", default=",".join(POLICIES), help="on whole losses, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing")
    parser.add_argument("--json", type=Path, help="a file for the rows as JSON")
    parser.add_argument(
        "--second", type=int, nargs="?", const=len(WAYS), default=0, help="compare second derivatives, in so many ways"
    )
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that a loss may take")
    parser.add_argument("--package", help=argparse.SUPPRESS)
    parser.add_argument("--done", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    policies = [name for name in options.policies.split(",") if name]
    if options.package:
        measure_package(options, only, policies)
        return
    if options.quick:
        options.rounds = 0

    print(f"jax {jax.__version__}, jaxlib {jaxlib.version.__version__} on {jax.default_backend()}\n", flush=True)
    print(header(policies, bool(options.second)), flush=True)
    rows: list[Row] = []
    for package in PACKAGES:
        if only and not any(name == package or is_name_of(name, package) for name in only):
            continue
        if absent := missing(package):
            print(f"{package}: skipped, not installed: {absent}", file=sys.stderr, flush=True)
            continue
        for row in rows_of(package, options):
            print(line_of(row, policies, bool(options.second)), flush=True)
            rows.append(row)
    print(f"\n{summary(rows)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if any(is_wrong(row) or row.errors for row in rows) else 0)


def is_name_of(name: str, package: str) -> bool:
    """Whether a loss of this name is in the package's file."""
    return name in names_in(package)


def names_in(package: str) -> list[str]:
    """The names of the losses in the package's file, in order, without importing it."""
    tree = ast.parse(source_of(package))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Loss"]
    calls.sort(key=lambda call: call.lineno)
    return [str(argument.value) for call in calls if isinstance(argument := call.args[0], ast.Constant)]


def source_of(package: str) -> str:
    """The text of the file of a package's losses."""
    return (Path(__file__).parent / "losses" / f"{package}.py").read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
