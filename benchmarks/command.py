"""The command on models that it has not met, with drawn flags: what crashes, hangs, or contradicts itself.

    python benchmarks/command.py [--runs 100] [--seed 7] [--only bijx,examples] [--limit 300]

The models are the examples and the losses of benchmarks/losses/ whose packages are installed, each in a file as users
have it. Each run is a process of its own. What is no fault: a report, or exit status 1 with an error that names what
was found (a policy that offloads where there is no host memory, `--strict` where XLA undid the plan). Faults:

    status      the exit status is none of those that docs/command.md lists for it, or a signal ended the process
    traceback   a traceback, or an error that says nothing
    output      `--json` is no JSON, `--emit` of the IR cannot be read back, `-o` left no file
    differs     the loss or the norm of the gradient is not that of another run of the model
    hang        longer than the limit
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, only this folder is on the path

POLICIES = (
    "none",
    "auto",
    "everything",
    "nothing",
    "dots",
    "dots-no-batch",
    "offload-dots-no-batch",
    "dots+except=a",
    "any-names-but=a,b",
)
STAGES = ("ir", "linear", "forward", "backward", "stablehlo", "hlo", "hlo-optimized")
BARRIERS = ("auto", "optimization_barrier", "call", "conditional", "none")
PIPELINES = ("simplify,cse,dce", "barriers,cse,dce", "barriers{strategy=none},simplify,cse,dce", "dce")
#: How far the figures of two runs of a model may be apart, over the larger: policies change roundings.
TOLERANCE = 1e-3
MODEL = '''"""A loss of benchmarks/losses/{package}.py."""

import jax

from benchmarks.losses.{package} import LOSSES

loss, _arguments = LOSSES[{index}].build()


def example_args():
    return jax.tree_util.tree_map(jax.numpy.asarray, _arguments)
'''


@dataclass(frozen=True, slots=True)
class Run:
    """A model's name and file, and the flags that were drawn for it."""

    model: str
    file: Path
    flags: tuple[str, ...]

    def follows(self, flag: str) -> str | None:
        """What stands behind a flag."""
        return self.flags[self.flags.index(flag) + 1] if flag in self.flags else None


@dataclass(slots=True)
class Outcome:
    """How a run ended: `fault` is empty where it ended well, `note` says what the command said."""

    status: int | None
    seconds: float
    fault: str = ""
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict)


def drawn_flags(rng: random.Random, output: Path) -> tuple[str, ...]:
    """Flags that may stand together."""
    mode = rng.choice(("report", "report", "compare", "emit"))
    flags: list[str] = []
    if mode == "compare":
        flags += ["--compare", ",".join(rng.sample(POLICIES, rng.randint(2, 3)))]
    else:
        flags += ["--policy", rng.choice(POLICIES)]
    if mode == "emit":
        flags += ["--emit", rng.choice(STAGES)]
    elif rng.random() < 0.5:
        flags.append("--json")
    if mode == "report" and rng.random() < 0.5:
        flags.append("--run")
    if mode != "compare" and rng.random() < 0.3:
        flags += ["-o", str(output)]
    chances = {
        "--time-passes": 0.15,
        "--print-between-passes": 0.1,
        "-q": 0.5,
        "--strict": 0.0 if mode == "emit" else 0.2,
    }
    flags += [flag for flag, chance in chances.items() if rng.random() < chance]
    kind = rng.random()
    if kind < 0.4:
        flags += ["--barrier", rng.choice(BARRIERS)]
    elif kind < 0.6:
        flags += ["--passes", rng.choice(PIPELINES)]
    return tuple(flags)


def drawn_runs(models: Sequence[tuple[str, Path]], count: int, seed: int, output: Path) -> Iterator[Run]:
    """So many runs, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        name, file = rng.choice(models)
        yield Run(name, file, drawn_flags(rng, output))


def models_in(folder: Path, only: Sequence[str]) -> list[tuple[str, Path]]:
    """The examples, and a file in the folder for each loss whose package is there."""
    from benchmarks.losses import PACKAGES  # noqa: PLC0415  # the judge of a run needs none of it
    from benchmarks.models import missing, names_in  # noqa: PLC0415

    found: list[tuple[str, Path]] = []
    if not only or "examples" in only:
        found += [(f"examples/{path.name}", path) for path in sorted((ROOT / "examples").glob("*.py"))]
    for package in PACKAGES:
        if missing(package):
            continue
        for index, name in enumerate(names_in(package)):
            if not only or package in only or name in only:
                path = folder / f"{name.replace('-', '_')}.py"
                path.write_text(MODEL.format(package=package, index=index), encoding="utf-8")
                found.append((name, path))
    return found


def carried_out(run: Run, limit: float) -> Outcome:
    """The command in a process of its own."""
    output = run.follows("-o")
    if output:
        Path(output).unlink(missing_ok=True)
    paths = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-W", "ignore", "-m", "rematc", str(run.file), *run.flags]
    start = time.perf_counter()
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=limit, check=False, cwd=run.file.parent
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, time.perf_counter() - start, "hang", f"longer than {limit:.0f} s")
    return judged(run, ended.returncode, time.perf_counter() - start, ended.stdout, ended.stderr)


def judged(run: Run, status: int, seconds: float, stdout: str, stderr: str) -> Outcome:
    """What a run's end says."""
    errors = [line for line in stderr.splitlines() if "error:" in line.lower()]
    outcome = Outcome(status, seconds, note=errors[-1].strip() if errors else "")
    if status not in (0, 1):
        outcome.fault, outcome.note = "status", outcome.note or stderr.strip()[-300:]
    elif "Traceback (most recent call last)" in stderr:
        outcome.fault, outcome.note = "traceback", stderr.strip().splitlines()[-1]
    elif status == 1 and not errors:
        outcome.fault, outcome.note = "traceback", stderr.strip()[-300:] or "exit status 1 without a word"
    elif status == 0:
        outcome.fault, outcome.note, outcome.figures = read_back(run, stdout)
    return outcome


def read_back(run: Run, stdout: str) -> tuple[str, str, dict[str, float]]:
    """What is at fault in the output of a run that ended well, and its figures."""
    output, stage = run.follows("-o"), run.follows("--emit")
    if output and (not Path(output).exists() or not Path(output).stat().st_size):
        return "output", "-o left no file, or an empty one", {}
    text = Path(output).read_text(encoding="utf-8") if output and stage else stdout
    if "--json" in run.flags:
        try:
            report = json.loads(stdout)
        except ValueError as error:
            return "output", f"no JSON: {error}", {}
        return "", verdict_of(report), figures_of(report)
    if not text.strip():
        return "output", "nothing printed", {}
    if stage in ("ir", "linear", "forward", "backward"):
        import rematc  # noqa: PLC0415  # takes a second

        try:
            rematc.parse(text)
        except rematc.CompileError as error:
            return "output", f"cannot be read back: {error}", {}
    return "", "", {}


def verdict_of(report: dict[str, Any]) -> str:
    """The verdict of a report's check."""
    return str((report.get("check") or {}).get("verdict", ""))


def figures_of(report: dict[str, Any]) -> dict[str, float]:
    """The figures that every run of a model has alike."""
    run = report.get("run") or {}
    return {name: run[name] for name in ("loss", "gradient_norm") if isinstance(run.get(name), float)}


def differing(known: dict[str, float], found: dict[str, float]) -> str:
    """Which figures are not those that are known."""
    apart = [
        f"{name} {value:.6g}, was {known[name]:.6g}"
        for name, value in found.items()
        if name in known and abs(value - known[name]) > TOLERANCE * max(abs(value), abs(known[name]))
    ]
    return ", ".join(apart)


def main() -> int:
    """Draw, run, judge and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400, help="another for each day by default")
    parser.add_argument("--only", default="", help="packages, losses or 'examples', separated by commas")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a run may take")
    options = parser.parse_args()
    ends, known = Counter[str](), dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory() as folder:
        models = models_in(Path(folder), [name for name in options.only.split(",") if name])
        if not models:
            parser.error("there is no such model, or its package is not installed")
        print(f"seed {options.seed}, {len(models)} models", flush=True)
        for run in drawn_runs(models, options.runs, options.seed, Path(folder) / "out.txt"):
            outcome = carried_out(run, options.limit)
            if apart := differing(known.setdefault(run.model, {}), outcome.figures):
                outcome.fault, outcome.note = "differs", apart
            known[run.model] = {**outcome.figures, **known[run.model]}
            end = outcome.fault or ("refused" if outcome.status else "done")
            ends[end] += 1
            flags = " ".join(flag.replace(folder, "FOLDER") for flag in run.flags)
            print(f"{end:9} {outcome.seconds:6.1f} s  {run.model} {flags}  {outcome.note}", flush=True)
    print("\n" + ", ".join(f"{count} {end}" for end, count in ends.most_common()))
    return 1 if ends.keys() - {"done", "refused"} else 0


if __name__ == "__main__":
    sys.exit(main())
