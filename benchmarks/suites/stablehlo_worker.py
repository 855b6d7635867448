"""Runs StableHLO's test data in one way, for stablehlo_suite.py: TREE WAY PATTERN FIRST. It may die of a test."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from stablehlo_cases import PATIENCE, Case, Program, difference, program_of, selected

import rematc
from rematc.compiler.api.jit import run_graph
from rematc.compiler.frontends.stablehlo.literals import array_of, elements
from rematc.compiler.frontends.stablehlo.reading import tensor_type
from rematc.ir.interpreter import evaluate
from rematc.lowering.validation import mlir_context


def interpreted(program: Program) -> Sequence[Any]:
    """The results by the interpreter in jaxlib."""
    found = []
    for attribute in stablehlo.eval_module(ir.Module.parse(program.text), []):
        array = elements(attribute)
        type = tensor_type(attribute.type, None)
        if array is None or array.dtype != type.dtype.numpy:
            array = array_of(f"{attribute}", type, lambda _: None, None)
        found.append(array.reshape(type.shape))
    return found


def by_reference(program: Program) -> Sequence[Any]:
    """The results by our importer and the reference interpreter."""
    return evaluate(rematc.from_stablehlo(program.text), [])


def by_xla(program: Program) -> Sequence[Any]:
    """The results by our importer, our lowering and XLA."""
    return [np.asarray(array) for array in run_graph(rematc.from_stablehlo(program.text), [])]


RUNNERS: dict[str, Callable[[Program], Sequence[Any]]] = {
    "interpreter": interpreted,
    "reference": by_reference,
    "xla": by_xla,
}


def outcome_of(case: Case, way: str) -> str:
    """passed, or what went wrong."""
    with mlir_context():
        try:
            program = program_of(case, ir)
        except (ir.MLIRError, ValueError) as error:
            return f"unread: {str(error).strip().splitlines()[0]}"
        try:
            results = list(RUNNERS[way](program))
        except Exception as error:  # whatever it is, it is this test's outcome
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    count = len(program.checks)
    if len(results) != 2 * count:
        return f"{len(results)} results where {2 * count} are expected"
    pairs = zip(program.checks, results[:count], results[count:], strict=True)
    return next((wrong for check, actual, wanted in pairs if (wrong := difference(check, actual, wanted))), "passed")


def apart(case: Case, way: str) -> str:
    """The outcome, found in a process of its own: StableHLO's interpreter aborts where it does not know a type."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        os.write(sending, outcome_of(case, way).encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as stream:
        outcome = stream.read().decode()
    _, status = os.waitpid(child, 0)
    return outcome if os.WIFEXITED(status) and not os.WEXITSTATUS(status) else "the process died"


def main() -> None:
    """Print the outcome of each case from the first on, a line each."""
    tree, way, only, first = sys.argv[1:]
    cases = selected(Path(tree), only)
    find = apart if way == "interpreter" else outcome_of
    for index in range(int(first), len(cases)):
        print(f"START {index}", flush=True)
        print(f"OUTCOME {json.dumps([index, find(cases[index], way)])}", flush=True)


if __name__ == "__main__":
    main()
