"""Run the tests of the Python array API standard on rematc.numpy, every function traced and computed.

    git clone --recursive https://github.com/data-apis/array-api-tests
    pip install -r array-api-tests/requirements.txt
    python benchmarks/suites/array_api_suite.py array-api-tests

The adapter in `array_api_adapter/` makes array objects whose functions and operators go through rematc.
`array_api_expected.toml` lists what is known to fail, with the reason; any other failure, and a listed test that
passes, is an error. `--write` brings docs/conformance.md up to date; `--check` prints only what differs, for CI.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from suite_report import HERE, ROOT, Section, compare, outcomes_of, verify

SECTION = Section("array API", Path(__file__).name, HERE / "array_api_expected.toml", required_share=0.97)


def run_tests(tree: Path, engine: str, options: list[str]) -> dict[str, str]:
    """The outcome of each test: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "results.xml"
        environment = {
            **os.environ,
            "ARRAY_API_TESTS_MODULE": "rematc_array_api",
            "SUITE_ENGINE": engine,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(
                [str(HERE / "array_api_adapter"), str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
            ),
        }
        # Few examples, always the same ones, so that the list of failures is the same on every machine.
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "--max-examples=2"]
        command += [
            "--derandomize",
            "--disable-deadline",
            "--disable-data-dependent-shapes",
            f"--junitxml={log}",
            *options,
        ]
        done = subprocess.run([*command, "array_api_tests"], cwd=tree, env=environment, check=False)
        if not log.exists():
            raise SystemExit(f"the tests did not run: pytest ended with {done.returncode}; is {tree} a source tree?")
        return outcomes_of(log)


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog="What follows -- is passed on to pytest."
    )
    parser.add_argument("tree", type=Path, help="a source tree of array-api-tests, with its submodule array-api")
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
