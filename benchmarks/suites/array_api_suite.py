"""Run the tests of the Python array API standard on rematc.numpy, every function traced and computed.

    git clone --recursive https://github.com/data-apis/array-api-tests
    pip install -r array-api-tests/requirements.txt
    python benchmarks/suites/array_api_suite.py array-api-tests

The adapter in `array_api_adapter/` makes array objects whose functions and operators go through rematc.
`array_api_expected.toml` lists what is known to fail, with the reason; any other failure, and a listed test that
passes, is an error. `--write` brings docs/conformance.md up to date.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from suite_report import HERE, ROOT, Section, compare, outcomes_of

SECTION = Section("array API", Path(__file__).name, HERE / "array_api_expected.toml", required_share=0.9)


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
        command += ["--derandomize", "--disable-data-dependent-shapes", f"--junitxml={log}", *options]
        subprocess.run([*command, "array_api_tests"], cwd=tree, env=environment, check=False)
        return outcomes_of(log)


def main() -> int:
    """Run, compare, report; 0 where everything is as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", type=Path, help="a source tree of array-api-tests, with its submodule array-api")
    parser.add_argument("--engine", choices=["reference", "xla"], default="reference", help="what runs the graphs")
    parser.add_argument("--write", action="store_true", help="bring docs/conformance.md up to date")
    parser.add_argument("options", nargs="*", help="passed on to pytest, after --")
    given = parser.parse_args()
    return compare(run_tests(given.tree.resolve(), given.engine, given.options), SECTION, write=given.write)


if __name__ == "__main__":
    raise SystemExit(main())
