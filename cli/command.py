"""What the command does: load the model, then print a report, a comparison or the program's text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rematc.cli.alternatives import with_alternatives
from rematc.cli.check import require_all_kept, require_kept
from rematc.cli.checks import checked
from rematc.cli.comparison import Comparison, compare
from rematc.cli.dump import Measured, write_dump
from rematc.cli.emission import emitted_text, planned, stablehlo_text
from rematc.cli.folders import INDEX, check_folder, check_trace_folder
from rematc.cli.logs import LOGGER, logging_to_stderr
from rematc.cli.measurement import Run, run_step
from rematc.cli.model import users_command_line
from rematc.cli.options import Options
from rematc.cli.output import check_writable, print_text, write_file
from rematc.cli.printing import facts, print_json, show, subject, terminal
from rematc.cli.progress import Progress, interruptible
from rematc.cli.report import report_as_dict, report_tables, terminal_tables
from rematc.cli.step import TrainingStep, load_step
from rematc.cli.tables import has_blocks
from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.reports.html.vega import require_library
from rematc.compiler.reports.pareto import Pareto
from rematc.compiler.reports.profile import Profile
from rematc.compiler.reports.report import Report
from rematc.ir.errors import CompileError
from rematc.ir.locations import relative
from rematc.ir.tables import Table
from rematc.ir.units import counted, format_bytes
from rematc.lowering.jax_internals.plugins import leave_out_absent
from rematc.passes.policies import describe_policies


def execute(options: Options) -> None:
    """Do what the options ask for.

    Raises click.UsageError where the command line is wrong by itself, CompileError, and whatever the model raises.
    """
    options = checked(options)
    leave_out_absent()
    if options.html is not None:
        require_library()
    for name in ("output", "save_plan", "html"):
        file = getattr(options, name)
        if file is not None:
            check_writable(file, options.model)
            options = dataclasses.replace(options, **{name: file.absolute()})  # wherever the model goes by os.chdir
    if options.dump is not None:
        check_folder(options.dump)
        options = dataclasses.replace(options, dump=options.dump.absolute())
    if options.profile:
        check_trace_folder(Path(options.profile))
        options = dataclasses.replace(options, profile=str(Path(options.profile).absolute()))
    with logging_to_stderr(quiet=options.quiet), users_command_line(options.model, options.model_args):
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
    if stage == "buffers" and step.options.output is None:
        console, buffers = terminal(), step.executable().buffers()
        is_narrow = console is not None and not step.options.verbose
        show(buffers.narrow_tables() if is_narrow else buffers.tables(), console)
        return
    text = emitted_text(step, stage)
    if step.options.output is None:
        print_text(text)
    else:
        _write(step, step.options.output, text, stage)


def _write(step: TrainingStep, output: Path, text: str, what: str) -> None:
    size = write_file(output, text)
    LOGGER.info("wrote %s to %s (%s)", what, relative(str(output)), format_bytes(size))


# -- the report ------------------------------------------------------------------------------------------------------


def _report(step: TrainingStep) -> None:
    options = step.options
    compiled = step.executable()
    report = with_alternatives(step, compiled.report(_baseline(step)))
    run = _run(step, compiled) if options.run else None
    profile = _profile(step, compiled) if options.profile is not None else None
    if options.output is not None:
        _write(step, options.output, stablehlo_text(step, compiled.lowered), "stablehlo")
    if options.save_plan is not None:
        _write(step, options.save_plan, planned(compiled.lowered).to_json(), "the plan")
    if options.html is not None:
        _write_page(step, options.html, report, step.predicted_curve() if options.budget is not None else None)
    if options.dump is not None:
        _dump(step, options.dump, Measured(compiled, report, run, profile))
    if options.json:
        print_json(report_as_dict(report, run, facts(step) | {"policy": options.policy}, profile))
    else:
        _print_report(step, report, run, profile)
    if options.strict:
        require_kept(report.check)


def _write_page(step: TrainingStep, file: Path, report: Report, curve: Pareto | None) -> None:
    with step.progress.phase(f"writing {relative(str(file))}"):
        page = report.to_html(subject(step), _policy(step), curve)
    _write(step, file, page, "the report")


def _dump(step: TrainingStep, folder: Path, measured: Measured) -> None:
    with step.progress.phase(f"writing {relative(str(folder))}"):
        written = write_dump(step, folder, measured, _policy(step))
    what, shown = counted(written.files, "file"), relative(str(folder))
    LOGGER.info("wrote %s to %s (%s); see %s", what, shown, format_bytes(written.size), relative(str(folder / INDEX)))


def _baseline(step: TrainingStep) -> Compiled | None:
    """The step without a policy or a plan, for comparison; None where that is the same or nobody asks for it."""
    options = step.options
    if (options.policy == "none" and not options.is_planned) or (options.quiet and not options.strict):
        return None
    return step.compile(step.lower_baseline(), " without policy")


def _run(step: TrainingStep, compiled: Compiled) -> Run:
    with step.progress.phase("running"):
        return interruptible(lambda: run_step(compiled, step.entry.function, step.args, step.options.argnums))


def _profile(step: TrainingStep, compiled: Compiled) -> Profile:
    folder = Path(step.options.profile) if step.options.profile else None
    with step.progress.phase("profiling"):
        # Not in a thread of its own: on Ctrl-C what was traced must go.
        return compiled.profile(*step.args, directory=folder)


def _print_report(step: TrainingStep, report: Report, run: Run | None, profile: Profile | None) -> None:
    console = terminal()
    if console is None:
        show(report_tables(subject(step), _policy(step), report, run, profile), None)
        return
    is_complete = step.options.verbose
    show(
        terminal_tables(
            subject(step), _policy(step), report, run, profile, is_complete=is_complete, has_blocks=has_blocks(console)
        ),
        console,
    )


def _policy(step: TrainingStep) -> str:
    """What decides what is kept, in words."""
    budget, plan = step.options.budget, step.options.plan
    policy = step.options.policy if budget is None else f"{step.options.policy} within {budget}"
    return policy if plan is None else f"{policy} with the plan {relative(str(plan))}"


# -- the comparison --------------------------------------------------------------------------------------------------


def _compare(step: TrainingStep) -> None:
    comparison = compare(step, step.options.compare)
    if step.options.json:
        print_json(comparison.as_dict(facts(step)))
    else:
        show([comparison.table(subject(step))], terminal())
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
        _write(step, step.options.output, curve.svg(subject(step)), "the picture")
    if step.options.html is not None:
        _write_page(step, step.options.html, step.executable().report(), curve)
    if step.options.json:
        print_json(facts(step) | curve.as_dict())
    else:
        show([curve.table(subject(step))], terminal())


# -- policies ----------------------------------------------------------------------------------------------------------


def list_policies() -> None:
    """Print the policies that `--policy` takes."""
    rows = [
        ("none", "", "No checkpoint: every value that the backward pass needs is saved."),
        *describe_policies(),
        ("FILE.py:FUNCTION", "", "A function of yours: (op, operand types, name) to True, False or an Offload."),
    ]
    table = Table("", ("policy", "in JAX", "what it does"), (False, False, False), tuple(rows), "combine with '+'")
    show([table], terminal())
