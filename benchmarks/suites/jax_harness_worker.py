"""Runs JAX's primitive harnesses, for jax_harnesses.py: the numbers of cases come in, outcomes go out, a line each."""

from __future__ import annotations

import json
import os
import signal
import sys

import jax

jax.config.update("jax_enable_x64", os.environ.get("HARNESS_X64") == "1")

from jax_harness_cases import Outcome, cases, outcome_of  # noqa: E402  # after the flag: harnesses are made on import

#: Seconds that a case may take.
PATIENCE = int(os.environ.get("HARNESS_PATIENCE", "60"))


class _OutOfTimeError(BaseException):
    """The case takes too long."""


def _stop(*_: object) -> None:
    raise _OutOfTimeError


def main() -> None:
    """Print START and OUTCOME for each number on the standard input."""
    known = cases()
    if sys.argv[1:] == ["--list"]:
        print(json.dumps([(case.group, case.name) for case in known]))
        return
    signal.signal(signal.SIGALRM, _stop)
    for count, line in enumerate(sys.stdin):
        index = int(line)
        print(f"START {index}", flush=True)
        signal.alarm(PATIENCE)
        try:
            outcome = outcome_of(known[index])
        except _OutOfTimeError:
            outcome = Outcome(f"no result within {PATIENCE} s", "none")
        except Exception as error:  # whatever it is, it is this case's outcome
            outcome = Outcome(f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}", "none")
        signal.alarm(0)
        print(f"OUTCOME {index} {outcome.as_json()}", flush=True)
        if count % 100 == 99:
            jax.clear_caches()


if __name__ == "__main__":
    main()
