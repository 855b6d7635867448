"""Run JAX's tests of `jax.checkpoint` on `rematc.jax.checkpoint`.

    git clone --depth 1 --branch jax-v0.10.2 https://github.com/jax-ml/jax
    pip install absl-py
    python benchmarks/suites/remat_suite.py jax

The tree must be that of the installed version. Nothing of it is copied: of every file of its tests, those run as they
stand whose source says `remat` or `checkpoint`, with our function in the place of JAX's. Tests in which no function of
ours is called are not counted. `remat_expected.toml` lists the tests that assert on the text of JAX's jaxprs or on its
internals, each with our own test of the same behaviour; any other failure is an error, and so is a listed test that
passes. `--write` brings docs/conformance.md up to date, and `--check` prints only what differs. `--own` runs the tests
with JAX's own function: what fails then does not depend on ours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remat_selection import files_of
from suite_report import HERE, ROOT, Section, compare, outcome_of, verify

SECTION = Section("JAX's tests of checkpoint", Path(__file__).name, HERE / "remat_expected.toml", required_share=1.0)


@dataclass(frozen=True, slots=True)
class Case:
    """What became of a test: passed, failed or skipped; and why it was skipped, in JAX's words."""

    outcome: str
    reason: str = ""


def run_tests(tree: Path, files: Sequence[Path], options: Sequence[str], *, own: bool) -> dict[str, Case]:
    """The tests by name. Each file has a process: they change JAX's settings."""
    cases: dict[str, Case] = {}
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "results.xml"
            _run_file(tree, file, log, options, own=own)
            cases.update(_cases(file.stem, log, own=own))
    return cases


def _run_file(tree: Path, file: Path, log: Path, options: Sequence[str], *, own: bool) -> None:
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-q", "--tb=short", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "src")]),
        "REMAT_SUITE_TREE": str(tree),
        "REMAT_SUITE_OWN": "1" if own else "",
    }
    chosen = ["-p", "remat_plugin", f"--rootdir={tree}", f"--junitxml={log}", *options, str(file)]
    print(file.relative_to(tree), flush=True)
    subprocess.run([*command, *chosen], env=environment, check=False)


def _cases(file: str, log: Path, *, own: bool) -> dict[str, Case]:
    """By `file::Class.test`. Of a file that cannot be imported there is one entry, which failed."""
    if not log.exists():
        return {f"{file}::import": Case("failed")}
    found = {}
    for case in ET.parse(log).getroot().iter("testcase"):
        outcome = outcome_of(case)
        calls = next((one.get("value") for one in case.iter("property") if one.get("name") == "calls"), "0")
        if own or outcome != "passed" or calls != "0":
            cls = (case.get("classname") or "").split(".")[-1]
            skipped = case.find("skipped")
            reason = "" if skipped is None else (skipped.get("message") or "").partition("\n")[0].rstrip(".")
            found[f"{file}::{cls}.{case.get('name')}"] = Case(outcome, reason)
    return found


def skipped_tests(cases: Mapping[str, Case]) -> str:
    """The tests that do not run here by their own conditions, as Markdown."""
    reasons: dict[str, list[str]] = {}
    for name, case in sorted(cases.items()):
        if case.outcome == "skipped":
            reasons.setdefault(case.reason, []).append(f"`{name}`")
    lines = [f"- {reason or 'no reason given'}: {', '.join(names)}" for reason, names in sorted(reasons.items())]
    return "\n".join(["Skipped by JAX's own conditions:", "", *lines, ""])


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog="What follows -- is passed on to pytest."
    )
    parser.add_argument("tree", type=Path, help="a source tree of JAX, of the installed version")
    parser.add_argument("--only", action="append", help="the name of a file of tests; by default all")
    parser.add_argument("--own", action="store_true", help="run JAX's own function, and only print what fails")
    purpose = parser.add_mutually_exclusive_group()
    purpose.add_argument("--write", action="store_true", help="bring docs/conformance.md up to date")
    purpose.add_argument("--check", action="store_true", help="print only what differs from the list and the page")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, options = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    tree = given.tree.resolve()
    files = [file for file in files_of(tree) if not given.only or file.stem in given.only]
    cases = run_tests(tree, files, options, own=given.own)
    outcomes = {name: case.outcome for name, case in cases.items()}
    if given.own or given.only:
        print("\n".join([f"{outcome}: {name}" for name, outcome in sorted(outcomes.items()) if outcome == "failed"]))
        return 0
    more = f"\n{skipped_tests(cases)}"
    return verify(outcomes, SECTION, more) if given.check else compare(outcomes, SECTION, more, write=given.write)


if __name__ == "__main__":
    raise SystemExit(main())
