"""Random programs over all ops against the laws, XLA and JAX: nightly, thousands of them.

    python benchmarks/fuzz.py --programs 10000 --seed 7
    python benchmarks/fuzz.py --functions 10000 --programs 0

Each program is a graph. It is printed and parsed, goes through every pass and random pipelines, is differentiated once
and twice under random policies, and is evaluated by the reference interpreter, by XLA and by JAX. A find is made small
and printed as a test for tests/regressions; exit 1 if there is one. What XLA does wrong by itself (it is right where it
fuses and simplifies nothing, or wrong in JAX's words, too) is printed apart.

Functions are Python, written in NumPy's and JAX's words, with loops, branches, checkpoints, solves and rules of the
user's; the second derivative of each is taken by several of our entries and by JAX.
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
from typing import Any

ROOT = Path(__file__).parents[1]
Find = dict[str, Any]
#: How many are judged in one process; functions more, as JAX compiles operations once for a process.
CHUNK, FUNCTIONS_CHUNK = 200, 1000
FUNCTIONS = "functions"
ALL_LAWS = (
    "text,passes,gradient-passes,policies,linearize,adjoint,difference,second,vmap,second-policies,second-stops,xla,jax"
)


def run(start: int, count: int, laws: str) -> tuple[list[Find], int]:
    """The finds among some programs, and how the process ended."""
    module = "tests.support.fuzzing.functions.judging" if laws == FUNCTIONS else "tests.support.fuzzing.finds"
    of_graphs = [] if laws == FUNCTIONS else ["--laws", laws]
    command = [sys.executable, "-m", module, str(start), str(count), *of_graphs]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode > 0:
        sys.exit(f"the fuzzer itself failed:\n{ran.stderr}")
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")], ran.returncode


def all_finds(start: int, count: int, laws: str) -> list[Find]:
    """The finds; where a program takes the process along, halves of the programs, down to that one."""
    finds, code = run(start, count, laws)
    if code == 0:
        return finds
    if count == 1:
        without_jax = ",".join(law for law in laws.split(",") if law != "jax")
        is_of_xla = laws != without_jax and run(start, count, without_jax)[1] == 0
        died = f"the process died of signal {-code}" + (", of JAX's words" if is_of_xla else "")
        return [*finds, {"law": laws, "seed": str(start), "error": died, "text": "", "is_of_xla": is_of_xla}]
    middle = count // 2
    return [*all_finds(start, middle, laws), *all_finds(start + middle, count - middle, laws)]


def show(find: Find) -> None:
    """Print a find as a regression test: a graph's text, or Python."""
    mark = "#" if is_function(find) else "//"
    whose = ["XLA's own"] if find.get("is_of_xla") else []
    said = [*whose, f"law: {find['law']}", f"seed: {find['seed']}", *find["error"].splitlines()[:6]]
    print("\n" + "\n".join(f"{mark} {line}" for line in said) + f"\n{find['text']}", flush=True)


def is_function(find: Find) -> bool:
    return find["text"].startswith("def ")


def kind(find: Find) -> str:
    """Finds of one kind have the same law and the same ops."""
    words = r"\bL\.([a-z_.]+)" if is_function(find) else r"= ([a-z_0-9]+)"
    ops = sorted(set(re.findall(words, find["text"])))
    return f"{find['law']}: {', '.join(ops) or find['error']}"


def judge(what: str, first: int, count: int, chunk: int, kinds: Counter[str], of_xla: Counter[str]) -> None:
    """Judge chunk by chunk, and show the first find of each kind."""
    start = time.perf_counter()
    for done in range(0, count, chunk):
        for find in all_finds(first + done, min(chunk, count - done), what):
            counted = of_xla if find.get("is_of_xla") else kinds
            counted[kind(find)] += 1
            if counted[kind(find)] == 1:
                show(find)
        seconds = time.perf_counter() - start
        name = FUNCTIONS if what == FUNCTIONS else "programs"
        judged = min(done + chunk, count)
        said = f"{sum(kinds.values())} finds, {sum(of_xla.values())} of XLA's own"
        print(f"{judged} {name} in {seconds:.0f} s, {said}", file=sys.stderr, flush=True)


def main() -> int:
    """Judge graphs, then functions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000, help="how many graphs")
    parser.add_argument("--functions", type=int, default=0, help="how many functions")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400, help="another for each day by default")
    parser.add_argument("--laws", default=ALL_LAWS)
    options = parser.parse_args()
    first, kinds, of_xla = options.seed * 1_000_000, Counter[str](), Counter[str]()
    judge(options.laws, first, options.programs, CHUNK, kinds, of_xla)
    judge(FUNCTIONS, first, options.functions, FUNCTIONS_CHUNK, kinds, of_xla)
    for name, count in kinds.most_common():
        print(f"{count} times {name}")
    for name, count in of_xla.most_common():
        print(f"XLA's own: {count} times {name}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
