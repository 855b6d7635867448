"""Programs drawn, judged, and made small where something is wrong.

    python -m tests.support.fuzzing.finds START COUNT [--laws text,xla]

prints a line of JSON for each find. XLA may take its process along, so benchmarks/fuzz.py runs this in a process of its
own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import FrameType
from typing import NoReturn

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.printer import print_graph
from tests.support.fuzzing.judges import JUDGES, FaultOfXLAError, verdicts
from tests.support.fuzzing.laws import LAWS as FIRST
from tests.support.fuzzing.laws import Case
from tests.support.fuzzing.reduction import reduced
from tests.support.fuzzing.second_order import SECOND
from tests.support.random_graphs import seeded_program

#: How many programs XLA and JAX compile together.
BATCH = 50
#: How long a smaller program may take to be judged.
SECONDS = 20.0
LAWS = {**FIRST, **SECOND}
ALL = (*LAWS, *JUDGES)


@dataclass(frozen=True, slots=True)
class Find:
    """A law that does not hold for a program.

    Attributes:
        law: its name.
        seed: of the program and of its arguments.
        error: what is wrong.
        text: the smallest program found for which something of the kind is.
        is_of_xla: whether XLA breaks the law by itself.
    """

    law: str
    seed: int
    error: str
    text: str
    is_of_xla: bool = False


def broken(case: Case, law: str) -> Exception | None:
    """What is wrong with a program by this law."""
    if law in JUDGES:
        return verdicts([case], JUDGES[law])[0]
    try:
        LAWS[law](case)
    except Exception as error:  # noqa: BLE001, RUF100  # whatever the compiler raises is a find
        return error
    return None


def finds(seeds: Sequence[int], laws: Sequence[str] = ALL) -> Iterator[Find]:
    """All that is wrong with the programs of these seeds."""
    cases = [Case(seeded_program(seed), seed) for seed in seeds]
    for law in laws:
        if law in JUDGES:
            for at in range(0, len(cases), BATCH):
                batch = cases[at : at + BATCH]
                for case, error in zip(batch, verdicts(batch, JUDGES[law]), strict=True):
                    if error is not None:
                        yield minimal(case, law, error)
            continue
        for case in cases:
            error = broken(case, law)
            if error is not None:
                yield minimal(case, law, error)


def minimal(case: Case, law: str, error: Exception) -> Find:
    """The find with the smallest program that fails in the same way, in time: with an exception of the same type."""

    def fails(graph: Graph) -> bool:
        with contextlib.suppress(_OutOfTimeError), _at_most(SECONDS):
            return type(broken(Case(graph, case.seed), law)) is type(error)
        return False

    return find(case, law, error, fails)


class _OutOfTimeError(BaseException):
    """A smaller program runs for too long, as where its loop counts to another number. No law may catch it."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise _OutOfTimeError once so much time has passed, where Python runs in the main thread."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def find(case: Case, law: str, error: Exception, fails: Callable[[Graph], bool]) -> Find:
    """The find of a program, made as small as it still fails."""
    graph = reduced(case.graph, fails) if fails(case.graph) else case.graph
    last = broken(Case(graph, case.seed), law) or error
    said = f"{type(last).__name__}: {last}"
    return Find(law, case.seed, said, print_graph(graph, locations=False), isinstance(last, FaultOfXLAError))


def header(found: Find) -> str:
    """The first lines of a regression test (tests/regressions)."""
    return f"// law: {found.law}\n// seed: {found.seed}\n"


def read(text: str) -> tuple[Case, str]:
    """The case and the law of a regression test."""
    said = dict(line[3:].split(": ", 1) for line in text.splitlines() if line.startswith("// ") and ": " in line)
    return Case(parse(text), int(said["seed"])), said["law"]


def main() -> None:
    """Print the finds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("start", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--laws", default=",".join(ALL))
    options = parser.parse_args()
    for found in finds(range(options.start, options.start + options.count), options.laws.split(",")):
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
