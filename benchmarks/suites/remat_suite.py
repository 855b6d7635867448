"""Run JAX's tests of `jax.checkpoint` on `rematc.jax.checkpoint`.

    git clone --depth 1 --branch jax-v0.10.2 https://github.com/jax-ml/jax
    pip install absl-py
    python benchmarks/suites/remat_suite.py jax

The tree must be that of the installed version. Nothing of it is copied: the class `RematTest` of its tests/api_test.py
runs as it stands, with our function in the place of JAX's. `remat_expected.toml` lists the tests that assert on the
text of JAX's jaxprs or on its internals, each with our own test of the same behaviour; any other failure is an error,
and so is a listed test that passes. `--write` brings docs/conformance.md up to date, and `--check` prints only what
differs.
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

SECTION = Section("JAX's RematTest", Path(__file__).name, HERE / "remat_expected.toml", required_share=1.0)


def run_tests(tree: Path, options: Sequence[str]) -> dict[str, str]:
    """The outcome of each test: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-q", "--tb=short", "-p", "no:cacheprovider"]
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "src")]),
        }
        chosen = ["-p", "remat_plugin", "-k", "RematTest", str(tree / "tests" / "api_test.py")]
        subprocess.run([*command, f"--junitxml={log}", *options, *chosen], env=environment, check=False)
        return outcomes_of(log)


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog="What follows -- is passed on to pytest."
    )
    parser.add_argument("tree", type=Path, help="a source tree of JAX, of the installed version")
    purpose = parser.add_mutually_exclusive_group()
    purpose.add_argument("--write", action="store_true", help="bring docs/conformance.md up to date")
    purpose.add_argument("--check", action="store_true", help="print only what differs from the list and the page")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, options = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    outcomes = run_tests(given.tree.resolve(), options)
    return verify(outcomes, SECTION) if given.check else compare(outcomes, SECTION, write=given.write)


if __name__ == "__main__":
    raise SystemExit(main())
