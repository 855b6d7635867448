"""Run autograd's own tests (HIPS) on NumPy traced by rematc.

    git clone https://github.com/HIPS/autograd
    python benchmarks/suites/autograd_suite.py autograd

The tests import `autograd` and get the package in `autograd_shim/`: autograd's interface, written anew on rematc.
Nothing of autograd itself is imported. `autograd_expected.toml` lists what does not apply, and what is known to fail;
any other failure, and a listed test that passes, is an error. `--write` brings docs/conformance.md up to date, and
`--check` prints only what differs from the list and from that page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from suite_report import HERE, ROOT, Section, compare, outcomes_of, verify

SECTION = Section("autograd", Path(__file__).name, HERE / "autograd_expected.toml", required_share=0.95)


def run_tests(tree: Path, engine: str, options: Sequence[str]) -> dict[str, str]:
    """The outcome of each test: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-q", "--tb=line", "-p", "no:cacheprovider"]
        environment = {
            **os.environ,
            "SUITE_ENGINE": engine,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE / "autograd_shim"), str(HERE), str(ROOT / "src")]),
        }
        subprocess.run([*command, f"--junitxml={log}", *options, str(tree / "tests")], env=environment, check=False)
        return outcomes_of(log)


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog="What follows -- is passed on to pytest."
    )
    parser.add_argument("tree", type=Path, help="a source tree of autograd")
    parser.add_argument("--engine", choices=["reference", "xla"], default="reference", help="what runs the graphs")
    purpose = parser.add_mutually_exclusive_group()
    purpose.add_argument("--write", action="store_true", help="bring docs/conformance.md up to date")
    purpose.add_argument("--check", action="store_true", help="print only what differs from the list and the page")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, options = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    outcomes = run_tests(given.tree.resolve(), given.engine, options)
    return verify(outcomes, SECTION) if given.check else compare(outcomes, SECTION, write=given.write)


if __name__ == "__main__":
    raise SystemExit(main())
