"""What the command does: load the model, then print a report, a comparison or the program's text."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import rematc
from rematc.cli.alternatives import with_alternatives
from rematc.cli.check import require_all_kept, require_kept
from rematc.cli.checks import checked
from rematc.cli.comparison import Comparison, compare
from rematc.cli.emission import emitted_text, planned
from rematc.cli.measurement import Run, run_step
from rematc.cli.model import users_command_line
from rematc.cli.options import Options
from rematc.cli.output import check_writable, print_text, write_file
from rematc.cli.progress import Progress, interruptible
from rematc.cli.report import report_as_dict, report_tables
from rematc.cli.step import TrainingStep, load_step
from rematc.cli.tables import print_tables
from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.reports.report import Report
from rematc.ir.errors import CompileError
from rematc.ir.locations import relative
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import format_bytes
from rematc.lowering.jax_internals.plugins import leave_out_absent
from rematc.passes.policies import describe_policies


def execute(options: Options) -> None:
    """Do what the options ask for.

    Raises click.UsageError where the command line is wrong by itself, CompileError, and whatever the model raises.
    """
    options = checked(options)
    leave_out_absent()
    for file in (options.output, options.save_plan):
        if file is not None:
            check_writable(file, options.model)
    if options.output is not None:
        options = dataclasses.replace(options, output=options.output.absolute())  # wherever the model goes by os.chdir
    if options.save_plan is not None:
        options = dataclasses.replace(options, save_plan=options.save_plan.absolute())
    with users_command_line(options.model, options.model_args):
        step = load_step(options, Progress(options.quiet))
        if options.compare:
            _compare(step)
        elif options.pareto:
            _pareto(step)
        elif options.emit is not None:
            _emit(step, options.emit)
        else:
            _report(step)


def _emit(step: TrainingStep, stage: str) -> None:
    text = emitted_text(step, stage)
    if step.options.output is None:
        print_text(text)
    else:
        _write(step, step.options.output, text, stage)


def _write(step: TrainingStep, output: Path, text: str, what: str) -> None:
    size = write_file(output, text)
    if not step.options.quiet:
        print(f"remat-compile: wrote {what} to {relative(str(output))} ({format_bytes(size)})", file=sys.stderr)


# -- the report ------------------------------------------------------------------------------------------------------


def _report(step: TrainingStep) -> None:
    options = step.options
    compiled = step.executable()
    report = with_alternatives(step, compiled.report(_baseline(step)))
    run = _run(step, compiled) if options.run else None
    if options.output is not None:
        _write(step, options.output, compiled.lowered.stablehlo(), "stablehlo")
    if options.save_plan is not None:
        _write(step, options.save_plan, planned(compiled.lowered).to_json(), "the plan")
    if options.json:
        _print_json(report_as_dict(report, run, _facts(step) | {"policy": options.policy}))
    else:
        _print_report(step, report, run)
    if options.strict:
        require_kept(report.check)


def _baseline(step: TrainingStep) -> Compiled | None:
    """The step without a policy or a plan, for comparison; None where that is the same or nobody asks for it."""
    options = step.options
    if (options.policy == "none" and not options.is_planned) or (options.quiet and not options.strict):
        return None
    return step.compile(step.lower_baseline(), " without policy")


def _run(step: TrainingStep, compiled: Compiled) -> Run:
    with step.progress.phase("running"):
        return interruptible(lambda: run_step(compiled, step.entry.function, step.args, step.options.argnums))


def _print_report(step: TrainingStep, report: Report, run: Run | None) -> None:
    console = _terminal()
    is_complete = step.options.verbose or console is None
    budget, plan = step.options.budget, step.options.plan
    policy = step.options.policy if budget is None else f"{step.options.policy} within {budget}"
    if plan is not None:
        policy = f"{policy} with the plan {relative(str(plan))}"
    _show(report_tables(_subject(step), policy, report, run, is_complete=is_complete), console)


# -- the comparison --------------------------------------------------------------------------------------------------


def _compare(step: TrainingStep) -> None:
    comparison = compare(step, step.options.compare)
    if step.options.json:
        _print_json(comparison.as_dict(_facts(step)))
    else:
        _show([comparison.table(_subject(step))], _terminal())
    _fail_for(comparison)
    if step.options.strict:
        require_all_kept(comparison.checks())


def _fail_for(comparison: Comparison) -> None:
    """Raise CompileError if a policy could not be compiled: the others' figures have been printed."""
    failed = [row for row in comparison.rows if row.error is not None]
    if failed:
        raise CompileError("\n".join(f"policy {row.policy} has no figures: {row.error}" for row in failed))


# -- the curve -------------------------------------------------------------------------------------------------------


def _pareto(step: TrainingStep) -> None:
    curve = step.pareto()
    if step.options.output is not None:
        _write(step, step.options.output, curve.svg(_subject(step)), "the picture")
    if step.options.json:
        _print_json(_facts(step) | curve.as_dict())
    else:
        _show([curve.table(_subject(step))], _terminal())


# -- printing --------------------------------------------------------------------------------------------------------


def _subject(step: TrainingStep) -> str:
    return f"{step.file}: gradient of {step.entry.name} with respect to {step.differentiated}"


def _facts(step: TrainingStep) -> dict[str, object]:
    installed = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {
        "model": step.file,
        "entry": step.entry.name,
        "argnums": list(step.options.argnums),
        "versions": {"rematc": rematc.__version__, **installed},
    }


def _terminal() -> Console | None:
    """Standard output as a rich console if it is a terminal that understands more than text."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    console = Console(highlight=False)
    return None if console.is_dumb_terminal else console


def _show(tables: Sequence[Table], console: Console | None) -> None:
    if console is None:
        print_text(plain_text(tables))
    else:
        print_tables(console, tables)


def _print_json(document: dict[str, object]) -> None:
    print_text(json.dumps(_jsonable(document), indent=2, allow_nan=False))


def _jsonable(value: object) -> object:
    """JSON has no infinities and no NaN: they become the strings that Python's float() reads."""
    match value:
        case dict():
            return {key: _jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value


def list_policies() -> None:
    """Print the policies that `--policy` takes."""
    rows = [
        ("none", "", "No checkpoint: every value that the backward pass needs is saved."),
        *describe_policies(),
        ("FILE.py:FUNCTION", "", "A function of yours: (op, operand types, name) to True, False or an Offload."),
    ]
    table = Table("", ("policy", "in JAX", "what it does"), (False, False, False), tuple(rows), "combine with '+'")
    _show([table], _terminal())
