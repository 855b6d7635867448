"""Judge `rematc.from_jax` by the primitive harnesses that lie in JAX's own wheel.

    pip install absl-py
    python benchmarks/suites/jax_harnesses.py --part 1/4 --outcomes harnesses.json

Each harness is one use of one primitive: a function and its arguments, for every element type and many parameters. It
is traced by JAX, imported, lowered and run beside JAX's own function in one program, and the values are compared; then
its vector-Jacobian product, ours against `jax.vjp`. JAX has 5,594 harnesses, and 7,414 with 64-bit types (`--x64`).

Cases run in worker processes: one that dies, or computes for longer than a minute, is a failure of the case that it was
at. `--part I/N` runs every N-th case and adds the outcomes to a file, so that the whole can be run in parts; the report
is on all in the file. `jax_harnesses_expected.toml` lists what is known to differ, each with its reason; with `--check`
any other failure is an error, and so is a listed case that passes. `--write` brings docs/conformance.md up to date.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

from suite_report import HERE, ROOT, Section, write_section

#: Versions of jax with a section of their own in the report, each from where it begins; the first holds before, too.
VERSIONS = ("0.10", "0.12")
EXPECTED = HERE / "jax_harnesses_expected.toml"
REQUIRED_VALUES = 0.98
#: What an outcome says where everything agrees, and where there is nothing to compare.
PASSED, NONE = "passed", "none"
#: How many of the differentiable cases must agree in their gradient.
REQUIRED_GRADIENTS = 0.97
#: Seconds without a word after which a worker is given up.
PATIENCE = 90
#: A worker is replaced after so many cases: XLA keeps what it compiled.
CASES_PER_WORKER = 150

#: For each case: group, value, gradient, primitives without a rule of their own.
Outcomes = dict[str, dict[str, Any]]


# -- running -----------------------------------------------------------------------------------------------------------


def run(
    names: Sequence[tuple[str, str]], indices: Sequence[int], found: Outcomes, file: Path | None, *, x64: bool
) -> None:
    """Add the outcomes of these cases, and keep them in the file."""
    rest = list(indices)
    while rest:
        chunk = rest[:CASES_PER_WORKER]
        done = _run_in_worker(chunk, names, found, x64=x64)
        rest = rest[done:]
        if file is not None:
            file.write_text(json.dumps(found, indent=0))
        print(f"{len(indices) - len(rest)} of {len(indices)}", file=sys.stderr, flush=True)


def _environment(*, x64: bool) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    flags = {
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "HARNESS_X64": str(int(x64)),
        # Both sides are compiled alike, and compiling is most of the work.
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "--xla_backend_optimization_level=0"),
    }
    return {**os.environ, **flags, "PYTHONPATH": path}


def _run_in_worker(chunk: Sequence[int], names: Sequence[tuple[str, str]], found: Outcomes, *, x64: bool) -> int:
    """Run until the worker ends; how many cases are done."""
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "jax_harness_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(x64=x64),
    )
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write("".join([f"{index}\n" for index in chunk]))
    worker.stdin.close()
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_forward, args=(worker.stdout, lines), daemon=True).start()
    done, reason = 0, "the process died"
    while done < len(chunk):
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            reason = f"no result within {PATIENCE} s"
            break
        if line is None:
            break
        kind, _, payload = line.partition(" ")
        if kind == "OUTCOME":
            number, _, spelled = payload.partition(" ")
            value, gradient, fallbacks = json.loads(spelled)
            _enter(found, names[int(number)], value, gradient, fallbacks)
            done += 1
    worker.kill()
    worker.wait()
    if done < len(chunk):
        _enter(found, names[chunk[done]], reason, NONE, [])
        done += 1
    return done


def _enter(found: Outcomes, name: tuple[str, str], value: str, gradient: str, fallbacks: list[str]) -> None:
    found[name[1]] = {"group": name[0], "value": value, "gradient": gradient, "fallbacks": fallbacks}


def _forward(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def listed_names(*, x64: bool) -> list[tuple[str, str]]:
    """Group and name of each case, in the worker's order."""
    command = [sys.executable, str(HERE / "jax_harness_worker.py"), "--list"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment(x64=x64)).stdout
    return [(group, name) for group, name in json.loads(shown.splitlines()[-1])]


# -- what is expected --------------------------------------------------------------------------------------------------


def listed(table: Mapping[str, Any], heading: str, names: Sequence[str], *, always: bool = False) -> dict[str, str]:
    """The reason for each case under a heading; entries are patterns of names.

    Some hold for jax `before` a version alone, or `since` one; and some on `some_processors`, which are left out with
    `always`.
    """
    found: dict[str, str] = {}
    for entry in table.get(heading, []):
        if "before" in entry and _numbers(version("jax")) >= _numbers(entry["before"]):
            continue
        if "since" in entry and _numbers(version("jax")) < _numbers(entry["since"]):
            continue
        if always and entry.get("some_processors"):
            continue
        for pattern in entry["cases"]:
            found.update(dict.fromkeys(fnmatch.filter(names, pattern), entry["reason"]))
    return found


def _numbers(spelled: str) -> tuple[int, ...]:
    return tuple([int(part) for part in spelled.split(".")[:2]])


def section() -> Section:
    """The part of the report for the jax that is installed."""
    begun = [one for one in VERSIONS if _numbers(one) <= _numbers(version("jax"))]
    return Section(f"JAX harnesses, jax {(begun or VERSIONS[:1])[-1]}", Path(__file__).name, EXPECTED, REQUIRED_VALUES)


def report(found: Outcomes, table: Mapping[str, Any]) -> tuple[str, list[str], bool]:
    """The report as Markdown, what is not as expected, and whether enough agrees."""
    names = list(found)
    problems: list[str] = []
    shares = []
    lines = [f"{len(found)} harnesses in {len({row['group'] for row in found.values()})} groups.", ""]
    for kind, required in (("value", REQUIRED_VALUES), ("gradient", REQUIRED_GRADIENTS)):
        applicable = {name: row[kind] for name, row in found.items() if not row[kind].startswith(NONE)}
        failing = listed(table, f"failing_{kind}", names)
        always = listed(table, f"failing_{kind}", names, always=True)
        passed = sum(outcome == PASSED for outcome in applicable.values())
        shares.append(passed >= required * len(applicable))
        share = 100 * passed / max(len(applicable), 1)
        lines.append(f"- {kind}: {passed} of {len(applicable)} agree ({share:.2f} %; required {100 * required:.0f} %)")
        for name, outcome in applicable.items():
            if outcome != PASSED and name not in failing:
                problems.append(f"{kind} of {name}: {outcome}")
            if outcome == PASSED and name in always:
                problems.append(f"{kind} of {name} agrees: take it off the list")
    lines += ["", *_fallbacks(found), "", *_groups(found), ""]
    for kind in ("value", "gradient"):
        differing = [name for name in names if found[name][kind] != PASSED]
        lines += _reasons(kind, listed(table, f"failing_{kind}", differing), found)
    return "\n".join(lines), problems, all(shares)


def _fallbacks(found: Outcomes) -> list[str]:
    counts = Counter(name for row in found.values() for name in row["fallbacks"])
    if not counts:
        return ["Every primitive has an import rule."]
    told = ", ".join(f"`{name}` {count}" for name, count in sorted(counts.items()))
    return [f"Primitives without an import rule, by number of harnesses: {told}."]


def _groups(found: Outcomes) -> list[str]:
    """A row for each group in which something differs."""
    rows = []
    for group in sorted({row["group"] for row in found.values()}):
        mine = [row for row in found.values() if row["group"] == group]
        cells = []
        for kind in ("value", "gradient"):
            applicable = [row[kind] for row in mine if not row[kind].startswith(NONE)]
            cells.append((sum(outcome == PASSED for outcome in applicable), len(applicable)))
        if any(passed != count for passed, count in cells):
            rows.append(f"| {group} | " + " | ".join([f"{passed} of {count}" for passed, count in cells]) + " |")
    if not rows:
        return ["All groups agree wholly."]
    return ["Groups in which something differs:", "", "| group | value | gradient |", "|---|---|---|", *rows]


def _reasons(kind: str, reasons: Mapping[str, str], found: Outcomes) -> list[str]:
    lines = [f"Differing in {kind}:", ""]
    for reason in dict.fromkeys(reasons.values()):
        groups = Counter(found[name]["group"] for name, given in reasons.items() if given == reason)
        lines.append(f"- {reason}: " + ", ".join(f"`{group}` {count}" for group, count in sorted(groups.items())))
    return [*lines, ""] if reasons else []


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", default="1/1", help="I/N: run every N-th case, from the I-th on")
    parser.add_argument("--only", default="*", help="a pattern of names (fnmatch)")
    parser.add_argument("--skip", nargs="*", default=(), help="patterns of names that are left out")
    parser.add_argument("--per-group", type=int, default=0, help="at most so many cases of each group, spread evenly")
    parser.add_argument("--x64", action="store_true", help="with 64-bit types")
    parser.add_argument("--outcomes", type=Path, help="add the outcomes to this file, and report all in it")
    parser.add_argument("--again", action="store_true", help="run only the cases that differ in the file")
    parser.add_argument("--report", action="store_true", help="run nothing: report what is in the file")
    parser.add_argument("--check", action="store_true", help="fail where anything is not as listed")
    parser.add_argument("--write", action="store_true", help="bring docs/conformance.md up to date")
    given = parser.parse_args()
    found: Outcomes = json.loads(given.outcomes.read_text()) if given.outcomes and given.outcomes.exists() else {}
    if not given.report:
        names = listed_names(x64=given.x64)
        chosen = _chosen(names, given)
        if given.again:
            chosen = [index for index in chosen if _differs(found.get(names[index][1]))]
        run(names, chosen, found, given.outcomes, x64=given.x64)
    text, problems, is_enough = report(found, tomllib.loads(EXPECTED.read_text()))
    print(text)
    if given.write:
        write_section(text, section())
    print("\n".join(problems))
    return int((given.check and bool(problems)) or not is_enough)


def _differs(row: Mapping[str, Any] | None) -> bool:
    if row is None:
        return False
    return any(row[kind] != PASSED and not row[kind].startswith(NONE) for kind in ("value", "gradient"))


def _chosen(names: Sequence[tuple[str, str]], given: argparse.Namespace) -> list[int]:
    part, _, parts = given.part.partition("/")
    chosen = [
        index
        for index, (_, name) in enumerate(names)
        if fnmatch.fnmatch(name, given.only) and not any(fnmatch.fnmatch(name, pattern) for pattern in given.skip)
    ]
    if given.per_group:
        by_group: dict[str, list[int]] = {}
        for index in chosen:
            by_group.setdefault(names[index][0], []).append(index)
        chosen = [index for members in by_group.values() for index in _spread(members, given.per_group)]
    return chosen[int(part) - 1 :: int(parts)]


def _spread(members: Sequence[int], count: int) -> list[int]:
    if len(members) <= count:
        return list(members)
    return [members[number * len(members) // count] for number in range(count)]


if __name__ == "__main__":
    raise SystemExit(main())
