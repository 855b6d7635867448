"""What `remat-compile diff` compares: plans and reports of files, and programs that are compiled for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rematc.cli.checks import checked
from rematc.cli.logs import logging_to_stderr
from rematc.cli.main import main
from rematc.cli.model import users_command_line
from rematc.cli.options import Options
from rematc.cli.printing import facts, print_json, show, terminal
from rematc.cli.progress import Progress
from rematc.cli.report import report_as_dict
from rematc.cli.step import load_step
from rematc.compiler.reports.decisions import decisions
from rematc.compiler.reports.difference import ReportDiff
from rematc.ir.errors import CompileError
from rematc.lowering.jax_internals.plugins import leave_out_absent
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.plan_json import FORMAT

_BUDGET = "budget="
#: Options of a report that are about more than one program, or about files.
_REFUSED = ("compare", "pareto", "emit", "output", "html", "run", "save_plan", "strict", "dump", "profile")


def compare_operands(first: str, second: str, given: Sequence[str]) -> None:
    """Print what the second operand does differently from the first, under options that hold for both.

    Raises click.UsageError, CompileError for what is neither a program nor a report, and whatever models raise.
    """
    leave_out_absent()
    is_json = "--json" in given
    plans = [_plan_of(operand) for operand in (first, second)]
    if plans[0] is not None and plans[1] is not None and not is_json:
        try:
            difference = plans[0].diff(plans[1])
        except CompileError:  # of different programs, or loops
            pass
        else:
            show(difference.tables(), terminal())
            return
    documents = [
        _of_plan(plan) if plan is not None else _document(operand, given)
        for plan, operand in zip(plans, (first, second), strict=True)
    ]
    found = ReportDiff((first, second), (documents[0], documents[1]))
    if is_json:
        print_json(found.as_dict())
    else:
        show(found.tables(), terminal())


def _plan_of(operand: str) -> Plan | None:
    """The plan of a file that holds one."""
    if not operand.endswith(".json"):
        return None
    return Plan.read(operand) if _read(operand).get("format") == FORMAT else None


def _read(path: str) -> Mapping[str, Any]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CompileError(f"cannot read {path}: {error}") from None
    if not isinstance(document, dict):
        raise CompileError(f"cannot read {path}: it holds no plan and no report")
    return document


def _of_plan(plan: Plan) -> Mapping[str, Any]:
    """A plan as a report that nothing was compiled for."""
    found = [one.as_dict() for one in decisions((), plan)]
    return {"decisions": found, "xla": {"temp_bytes": None, "predicted_bytes": plan.peak, "flops": None}}


def _document(operand: str, given: Sequence[str]) -> Mapping[str, Any]:
    """The report of a file, or of a program that is compiled for it."""
    if operand.endswith(".json"):
        return _read(operand)
    model, chosen = _split(operand)
    with main.make_context("remat-compile diff", [model, *given, *chosen]) as context:
        options = Options(**context.params)
        for name in _REFUSED:
            if getattr(options, name) not in (None, False, ()):
                option = "-o" if name == "output" else f"--{name.replace('_', '-')}"
                raise click.UsageError(f"diff compares two reports; leave out {option}", context)
        options = checked(options)
    with logging_to_stderr(quiet=options.quiet), users_command_line(options.model, options.model_args):
        step = load_step(options, Progress(options.quiet))
        report = step.executable().report()
        return report_as_dict(report, None, facts(step) | {"policy": options.policy})


def _split(operand: str) -> tuple[str, list[str]]:
    """The model, and the options that the part behind `@` stands for: a policy, or a budget."""
    model, at, choice = operand.rpartition("@")
    if not at or Path(operand).is_file():
        return operand, []
    if choice.startswith(_BUDGET):
        return model, ["--budget", choice.removeprefix(_BUDGET)]
    return model, ["--policy", choice]
