"""Random programs over all ops against the laws, XLA and JAX: nightly, thousands of them.

    python benchmarks/fuzz.py --programs 10000 --seed 7

Each program is printed and parsed, goes through every pass and random pipelines, is differentiated once and twice
under random policies, and is evaluated by the reference interpreter, by XLA and by JAX. A find is made small and
printed as a test for tests/regressions; exit 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHUNK = 200


def run(start: int, count: int, laws: str) -> tuple[list[dict[str, str]], int]:
    """The finds among some programs, and how the process ended."""
    command = [sys.executable, "-m", "tests.support.fuzzing.finds", str(start), str(count), "--laws", laws]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode > 0:
        sys.exit(f"the fuzzer itself failed:\n{ran.stderr}")
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")], ran.returncode


def all_finds(start: int, count: int, laws: str) -> list[dict[str, str]]:
    """The finds; where a program takes the process along, halves of the programs, down to that one."""
    finds, code = run(start, count, laws)
    if code == 0:
        return finds
    if count == 1:
        return [*finds, {"law": laws, "seed": str(start), "error": f"the process died of signal {-code}", "text": ""}]
    middle = count // 2
    return [*all_finds(start, middle, laws), *all_finds(start + middle, count - middle, laws)]


def show(find: dict[str, str]) -> None:
    """Print a find as a regression test."""
    error = "\n".join(f"// {line}" for line in find["error"].splitlines()[:6])
    print(f"\n// law: {find['law']}\n// seed: {find['seed']}\n{error}\n{find['text']}", flush=True)


def kind(find: dict[str, str]) -> str:
    """Finds of one kind have the same law and the same ops."""
    ops = sorted(set(re.findall(r"= ([a-z_0-9]+)", find["text"])))
    return f"{find['law']}: {', '.join(ops) or find['error']}"


def main() -> int:
    """Judge the programs chunk by chunk."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400, help="another for each day by default")
    parser.add_argument(
        "--laws", default="text,passes,gradient-passes,policies,linearize,adjoint,difference,second,vmap,xla,jax"
    )
    options = parser.parse_args()
    first, kinds = options.seed * 1_000_000, Counter[str]()
    start = time.perf_counter()
    for done in range(0, options.programs, CHUNK):
        for find in all_finds(first + done, min(CHUNK, options.programs - done), options.laws):
            kinds[kind(find)] += 1
            if kinds[kind(find)] == 1:
                show(find)
        seconds = time.perf_counter() - start
        print(f"{done + CHUNK} programs in {seconds:.0f} s, {sum(kinds.values())} finds", file=sys.stderr, flush=True)
    for name, count in kinds.most_common():
        print(f"{count} times {name}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
