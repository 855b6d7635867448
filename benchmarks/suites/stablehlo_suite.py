"""Run StableHLO's own test data in three ways.

    git clone https://github.com/openxla/stablehlo
    python benchmarks/suites/stablehlo_suite.py stablehlo

Each test is a program without arguments and the values that it must give. It is run

- by StableHLO's own interpreter, which jaxlib ships: that tells whether the data and the reading of it are sound;
- by `rematc.from_stablehlo` and the reference interpreter;
- by `rematc.from_stablehlo`, written as StableHLO again by the lowering, and run by XLA.

`stablehlo_expected.toml` lists what does not apply, and what is known to fail; any other failure, and a listed test
that passes, is an error. `--write` brings docs/conformance.md up to date. A process that dies, or computes for longer
than a minute, is a failure of the test that it was at.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stablehlo_cases import PATIENCE, Case, selected
from suite_report import HERE, ROOT, Section, write_section

SECTION = Section("StableHLO", Path(__file__).name, HERE / "stablehlo_expected.toml", required_share=0.95)
WAYS = ("interpreter", "reference", "xla")


# -- around it ---------------------------------------------------------------------------------------------------------


def run(tree: Path, cases: Sequence[Case], way: str, only: str) -> dict[str, str]:
    """The outcome of each case; a worker that dies is started again behind the case that it died of."""
    outcomes: dict[str, str] = {}
    first = 0
    while first < len(cases):
        first = _run_from(tree, cases, way, only, first, outcomes)
        print(f"{way}: {first} of {len(cases)}", file=sys.stderr, flush=True)
    return outcomes


def _run_from(tree: Path, cases: Sequence[Case], way: str, only: str, first: int, outcomes: dict[str, str]) -> int:
    """Run until the worker ends; the index of the next case."""
    command = [sys.executable, str(HERE / "stablehlo_worker.py"), str(tree), way, only, str(first)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "src")}
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, errors="replace"
    )
    assert worker.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_forward, args=(worker.stdout, lines), daemon=True).start()
    current, reason = first, "the process died"
    while True:
        try:
            line = lines.get(timeout=2 * PATIENCE)
        except queue.Empty:
            reason = f"no result within {2 * PATIENCE} s"
            break
        if line is None:
            break
        kind, _, rest = line.partition(" ")
        if kind == "START":
            current = int(rest)
        elif kind == "OUTCOME":
            index, outcome = json.loads(rest)
            if index % 500 == 499:
                print(f"{way}: {index + 1} of {len(cases)}", file=sys.stderr, flush=True)
            outcomes[cases[index].name] = outcome
    worker.kill()
    worker.wait()
    if cases[current].name not in outcomes:
        outcomes[cases[current].name] = reason
    return current + 1


def _forward(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


# -- what is expected --------------------------------------------------------------------------------------------------


def listed(table: Mapping[str, Any], heading: str, names: Sequence[str]) -> dict[str, str]:
    """The reason for each test under a heading; entries may be patterns of names."""
    found: dict[str, str] = {}
    for entry in table.get(heading, []):
        for pattern in entry["tests"]:
            found.update(dict.fromkeys(fnmatch.filter(names, pattern), entry["reason"]))
    return found


def compare(outcomes: Mapping[str, Mapping[str, str]], names: Sequence[str], *, write: bool) -> int:
    """Print the report and what is not as expected; 0 where everything is."""
    table = tomllib.loads(SECTION.expected.read_text())
    skipped = listed(table, "not_applicable", names)
    problems, rows, failures, shares = [], [], [], []
    for way in outcomes:
        failing = listed(table, f"failing_{way}", names)
        counts: Counter[tuple[str, bool]] = Counter()
        for name, outcome in outcomes[way].items():
            if name in skipped:
                continue
            is_passed = outcome == "passed"
            counts[name.partition("::")[0], is_passed] += 1
            if not is_passed and name not in failing:
                problems.append(f"{way}: {name} fails, which is not expected: {outcome}")
            if is_passed and name in failing:
                problems.append(f"{way}: {name} passes: take it off the list of failures")
        shares.append(sum(counts[f, True] for f in ("testdata", "interpret")) / max(sum(counts.values()), 1))
        cells = [f"{counts[f, True]} of {counts[f, True] + counts[f, False]}" for f in ("testdata", "interpret")]
        rows.append(f"| {_TITLES[way]} | {' | '.join(cells)} | {100 * shares[-1]:.1f} % |")
        failures += _reasons(f"Failing, {_TITLES[way]}", failing)
    text = "\n".join(
        [
            f"{len(names)} tests, {len(names) - len(skipped)} of them applicable. Passing:",
            "",
            "| run by | testdata | tests/interpret | share |",
            "|---|---|---|---|",
            *rows,
            "",
            *failures,
            *_reasons("Not applicable", skipped),
        ]
    )
    print(text)
    if write:
        write_section(text, SECTION)
    print("\n".join(problems))
    return 1 if problems or shares[-1] < SECTION.required_share else 0


#: Longer lists are in stablehlo_expected.toml alone.
_TOLD = 60
_TITLES = {
    "interpreter": "StableHLO's interpreter in jaxlib",
    "reference": "our importer and reference",
    "xla": "our importer, our lowering and XLA",
}


def _reasons(heading: str, reasons: Mapping[str, str]) -> list[str]:
    lines = [f"{heading}:", ""]
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, given in reasons.items() if given == reason]
        told = ", ".join(f"`{name}`" for name in names) if len(names) <= _TOLD else f"{len(names)} tests"
        lines.append(f"- {reason}: {told}")
    return [*lines, ""] if reasons else []


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", type=Path, help="a source tree of StableHLO")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS, help="which of the three to run")
    parser.add_argument("--only", default="*", help="a pattern of names (fnmatch)")
    parser.add_argument("--write", action="store_true", help="bring docs/conformance.md up to date")
    parser.add_argument("--outcomes", type=Path, help="add the outcomes to this file, and report all in it")
    given = parser.parse_args()
    tree = given.tree.resolve()
    cases = selected(tree, given.only)
    outcomes = json.loads(given.outcomes.read_text()) if given.outcomes and given.outcomes.exists() else {}
    for way in given.ways:
        outcomes.setdefault(way, {}).update(run(tree, cases, way, given.only))
    if given.outcomes:
        given.outcomes.write_text(json.dumps(outcomes, indent=1))
    names = list(dict.fromkeys(name for found in outcomes.values() for name in found))
    return compare(outcomes, names, write=given.write)


if __name__ == "__main__":
    raise SystemExit(main())
