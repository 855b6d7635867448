"""StableHLO's own test data as cases: programs without the checks, that return what is checked.

A test is a function that computes something and hands it to operations of a dialect `check`, which jaxlib does not
know. Here those become calls, then results: the values that were found, then those expected.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

#: ULPs and relative distance that the checks allow where they do not say (stablehlo/tests/CheckOps.td).
MAX_ULPS = 3
TOLERANCE = 1e-4
#: Seconds that a test may take.
PATIENCE = 60

_CONSTANT_CHECK = re.compile(
    r"check\.(expect_eq|expect_almost_eq)_const (%[\w#]+),\s*(dense<.*?>)(?:, tolerance = [\d.e-]+)? :\s*"
    r"(tensor<[^\n]*>)(?: \{tolerance = [\d.]+ : f64\})?",
    re.DOTALL,
)
_VALUE_CHECK = re.compile(
    r"check\.(expect_eq|expect_almost_eq|expect_close) (%[\w#]+), (%[\w#]+)"
    r"(?:, (?:tolerance|max_ulp_difference) = [\w.-]+)* : (tensor<[^\n]*?>)(?:, tensor<[^\n]*>)?\n"
)
_NAME = re.compile(r"func\.func (?:public |private )?@(\w+)")


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        name: folder, file and function: `interpret::abs::abs_op_test_si64`.
        text: the module, with the checks as calls.
    """

    name: str
    text: str


def cases_of(tree: Path) -> Iterator[Case]:
    """The cases of a source tree of StableHLO, in the order of their names."""
    for file in sorted((tree / "stablehlo" / "testdata").glob("*.mlir")):
        yield Case(f"testdata::{file.stem}", file.read_text())
    folder = tree / "stablehlo" / "tests" / "interpret"
    for file in sorted(folder.rglob("*.mlir")):
        stem = "/".join(file.relative_to(folder).with_suffix("").parts)
        seen: dict[str, int] = {}
        for chunk in file.read_text().split("// -----"):
            found = _NAME.search(chunk)
            if found is None or "check." not in chunk:
                continue
            count = seen[found[1]] = seen.get(found[1], 0) + 1
            name = found[1] if count == 1 else f"{found[1]}_{count}"
            yield Case(f"interpret::{stem}::{name}", _as_calls(chunk))


def selected(tree: Path, only: str) -> list[Case]:
    """The cases whose names match a pattern."""
    return [case for case in cases_of(tree) if fnmatch.fnmatch(case.name, only)]


def _as_calls(text: str) -> str:
    numbers = iter(range(10**6))

    def of_constant(found: re.Match[str]) -> str:
        name = f"%expected_{next(numbers)}"
        constant = f"{name} = stablehlo.constant {found[3]} : {found[4]}\n"
        return constant + _call(found[1], found[2], name, found[4])

    text = _CONSTANT_CHECK.sub(of_constant, text)
    return _VALUE_CHECK.sub(lambda found: _call(found[1], found[2], found[3], found[4]) + "\n", text)


def _call(check: str, actual: str, expected: str, type: str) -> str:
    signature = f"({type}, {type}) -> ()"
    return f"stablehlo.custom_call @check.{check}({actual}, {expected}) {{has_side_effect = true}} : {signature}"


@dataclass(frozen=True, slots=True)
class Program:
    """A case as a program.

    Attributes:
        text: the module; its function `main` returns the values found, then those expected.
        checks: for each value what compares it: expect_eq, expect_almost_eq or expect_close.
    """

    text: str
    checks: tuple[str, ...]


def program_of(case: Case, ir: Any) -> Program:
    """The case with what is checked as results of `main`; in the current MLIR context.

    Raises ValueError where nothing is checked, or more than one function checks.
    """
    module = ir.Module.parse(case.text)
    found = [(function, _checks_in(function)) for function in module.body.operations]
    found = [(function, calls) for function, calls in found if calls]
    if len(found) != 1:
        raise ValueError(f"{len(found)} functions check something")
    ((function, calls),) = found
    block = function.regions[0].blocks[0]
    values = [call.operands[side] for side in (0, 1) for call in calls]
    checks = tuple([call.attributes["call_target_name"].value.removeprefix("check.") for call in calls])
    with ir.Location.unknown():
        last = list(block.operations)[-1]
        last.operation.erase()
        ir.Operation.create("func.return", operands=values, ip=ir.InsertionPoint(block))
        types = [argument.type for argument in block.arguments], [value.type for value in values]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        for call in calls:
            call.operation.erase()
        if "res_attrs" in function.attributes:
            del function.attributes["res_attrs"]
        for other in list(module.body.operations):
            if other.operation != function.operation and other.attributes["sym_name"].value == "main":
                raise ValueError("another function is called main")
        function.attributes["sym_name"] = ir.StringAttr.get("main")
    module.operation.verify()
    return Program(str(module), checks)


def _checks_in(function: Any) -> list[Any]:
    if not function.regions or not function.regions[0].blocks:
        return []
    return [
        operation
        for operation in function.regions[0].blocks[0].operations
        if operation.operation.name == "stablehlo.custom_call"
        and operation.attributes["call_target_name"].value.startswith("check.")
    ]


# -- comparison --------------------------------------------------------------------------------------------------------


def difference(check: str, actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    """What is wrong, in words; nothing where the check holds."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} where {expected.dtype}{list(expected.shape)} is expected"
    if actual.dtype.kind == "c":
        return difference(check, actual.real, expected.real) or difference(check, actual.imag, expected.imag)
    x, y = actual.reshape(-1), expected.reshape(-1)
    holds = np.asarray(x == y) | (_is_nan(x) & _is_nan(y))
    if check == "expect_close":
        holds |= _ulps(x, y) <= MAX_ULPS
    elif check == "expect_almost_eq":
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(all="ignore"):
            holds |= np.abs(wide_x - wide_y) <= TOLERANCE * np.maximum(1, np.abs(wide_y))
    wrong = np.flatnonzero(~holds)
    if not wrong.size:
        return ""
    at = wrong[0]
    return f"{wrong.size} of {x.size} elements differ, the first {x[at]} where {y[at]} is expected"


def _is_nan(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.isnan(x.astype(np.float64))


def _ulps(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many floats lie between; of anything that is not finite, more than any bound."""
    try:
        ml_dtypes.finfo(x.dtype)
    except ValueError:
        return np.full(x.shape, np.inf)
    signed = np.dtype(f"i{x.dtype.itemsize}")
    lowest = np.iinfo(signed).min
    steps = []
    for array in (x, y):
        raw = np.ascontiguousarray(array).view(signed)
        steps.append(np.where(raw < 0, lowest - raw, raw).astype(np.float64))
    is_finite = np.isfinite(x.astype(np.float64)) & np.isfinite(y.astype(np.float64))
    # Exact enough: float64 counts differences as small as the bounds without error only below 2^53.
    close = _exact_difference(x, y, signed) if x.dtype.itemsize == 8 else np.abs(steps[0] - steps[1])
    return np.where(is_finite, close, np.inf)


def _exact_difference(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], signed: np.dtype[Any]) -> np.ndarray[Any, Any]:
    lowest = int(np.iinfo(signed).min)
    ordered = [[lowest - item if item < 0 else item for item in array.view(signed).tolist()] for array in (x, y)]
    return np.array([abs(a - b) for a, b in zip(*ordered, strict=True)], np.float64)
