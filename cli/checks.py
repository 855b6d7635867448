"""What is wrong with a command line by itself, before any model is loaded: usage errors, exit code 2."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from rematc.cli.arguments import parse_type
from rematc.cli.budgets import budget_of
from rematc.cli.comparison import split_policies
from rematc.cli.options import OF_MODULES, PLANNED, Options
from rematc.cli.output import is_standard_output
from rematc.ir.errors import CompileError
from rematc.lowering.described import is_described
from rematc.lowering.slicing import is_cut, slices_of
from rematc.passes.manager import parse_pipeline
from rematc.passes.planning.plan import Plan
from rematc.passes.policies import parse_policy


def checked(options: Options) -> Options:
    """The options, with one entry in `compare` for each policy.

    Raises click.UsageError for options that exclude each other, and for policies, passes and types that do not exist.
    """
    _check_combination(options)
    if options.is_module:
        _check_module(options)
    policies = split_policies(options.compare)
    if options.compare and not policies:
        raise _bad_value("--compare", "no policy is named; write none,dots")
    _check_policy("--policy", options.policy)
    for policy in policies:
        _check_policy("--compare", policy)
    _check_plan(options)
    _check_slices(options)
    if options.target is not None:
        _check_target(options.target, options)
    if options.pareto:
        _check_pareto(options)
    if options.passes is not None:
        try:
            parse_pipeline(options.passes)
        except CompileError as error:
            raise _bad_value("--passes", error.message) from None
    if options.barrier != "auto" and options.passes is not None:
        raise _usage("--barrier is about the default passes; leave out --passes, or write 'barriers{strategy=...}'")
    for text in options.args:
        parse_type(text)
    return dataclasses.replace(options, compare=policies, output=_file_to_write(options), plan=_absolute(options.plan))


def _absolute(path: Path | None) -> Path | None:
    """A path that means the same wherever the model goes by os.chdir."""
    return None if path is None else path.absolute()


def _file_to_write(options: Options) -> Path | None:
    """The file of `-o`; None where that is standard output, which `--emit` prints to by itself."""
    output = options.output
    if output is None or str(output) == os.devnull or not is_standard_output(output):
        return output
    if options.emit is None:
        raise _usage(f"-o {output} would mix the program with the report; add --emit stablehlo, or name a file")
    return None


def _check_combination(options: Options) -> None:
    if options.quiet and options.verbose:
        raise _usage("-q and -v exclude each other")
    if options.emit is not None:
        for name, is_set in (
            ("--run", options.run),
            ("--profile", options.profile is not None),
            ("--json", options.json),
            ("--compare", bool(options.compare)),
        ):
            if is_set:
                raise _usage(f"--emit prints the program and nothing else; leave out --emit or {name}")
    if options.compare and options.policy != "none":
        raise _usage("--compare says which policies; leave out --policy, or add it to the list")
    if options.strict and options.emit is not None:
        raise _usage("--strict is about what XLA made of the program; leave it out beside --emit")
    if options.compare and options.output is not None:
        raise _usage("--compare compiles several programs and -o writes one; leave out one of them")
    if options.profile is not None and options.compare:
        raise _usage("--compare measures run times itself; leave out --compare or --profile")
    if options.dump is not None:
        for name, is_set in (
            ("--emit", options.emit is not None),
            ("--compare", bool(options.compare)),
            ("--pareto", options.pareto),
        ):
            if is_set:
                raise _usage(f"--dump writes one program at every stage; leave out --dump or {name}")
    if options.html is not None:
        if options.emit is not None or options.compare:
            other = "--compare" if options.compare else "--emit"
            raise _usage(f"--html is the report on one program, and {other} prints another; leave out one of them")
        if is_standard_output(options.html):
            raise _usage(f"--html {options.html} would mix the page with the report; name a file")


def _check_module(options: Options) -> None:
    """A module is a whole step: there is nothing to differentiate, and it says its arguments itself."""
    stage = f"--emit {options.emit}"
    for name, is_set in (
        ("--policy", options.policy != "none"),
        ("--compare", bool(options.compare)),
        ("--pareto", options.pareto),
        ("--argnums", options.argnums != (0,)),
        ("--has-aux", options.has_aux),
        ("--frontend", options.frontend != "auto"),
        ("--arg", bool(options.args)),
        ("--run", options.run),
        ("--profile", options.profile is not None),
        (stage, options.emit is not None and options.emit not in OF_MODULES),
        ("arguments behind --", bool(options.model_args)),
    ):
        if is_set:
            raise _usage(f"{options.model.name} is a whole step, which is planned as it is; leave out {name}")


def _check_plan(options: Options) -> None:
    if options.budget is not None and options.plan is not None:
        raise _usage("--plan is for a budget already; leave out --budget or --plan")
    if options.plan_seconds is not None and options.budget is None and not options.pareto:
        raise _usage("--plan-seconds is about planning; add --budget or --pareto")
    for name, text in (("--keep", options.keep), ("--never-repeat", options.never_repeat)):
        if text is not None and options.budget is None:
            raise _usage(f"{name} is about the plan for a budget; add --budget")
    option = "--budget" if options.budget is not None else "--plan"
    stage = f"--emit {options.emit}"
    if not options.is_planned:
        for name, is_set in ((stage, options.emit in ("plan", "plan-json")), ("--save-plan", bool(options.save_plan))):
            if is_set:
                raise _usage(f"{name} is about a plan, and there is none; add --budget or --plan")
        return
    for name, is_set in (
        ("--compare", bool(options.compare)),
        (stage, options.emit is not None and options.emit not in PLANNED),
        ("--passes", options.passes is not None),
        ("--barrier", options.barrier != "auto"),
    ):
        if is_set:
            raise _usage(f"{option} plans and compiles by itself; leave out {option} or {name}")
    if options.save_plan is not None and options.emit is not None:
        raise _usage("--emit prints the program and nothing else; leave out --save-plan, or write --emit plan-json -o")
    if options.save_plan is not None and is_standard_output(options.save_plan):
        raise _usage(f"--save-plan {options.save_plan} would mix the plan with the report; write --emit plan-json")
    try:
        if options.budget is not None:
            budget_of(options)
        if options.plan is not None:
            Plan.read(options.plan)
    except CompileError as error:
        raise _bad_value(option, error.message) from None


def _check_slices(options: Options) -> None:
    try:
        slices = slices_of(options.slices)
    except CompileError as error:
        raise _bad_value("--slices", error.message) from None
    if is_cut(slices) and options.emit is not None and options.emit not in PLANNED:
        raise _usage(f"--emit {options.emit} comes before slices; leave out --slices, or --emit stablehlo")


def _check_target(target: str, options: Options) -> None:
    try:
        is_elsewhere = is_described(target)
    except CompileError as error:
        raise _bad_value("--target", error.message) from None
    for name, is_set in (("--run", options.run), ("--profile", options.profile is not None)):
        if is_elsewhere and is_set:
            raise _usage(f"nothing runs on '{target}', which need not be here; leave out {name}, or --target")


def _check_pareto(options: Options) -> None:
    for name, is_set in (
        ("--policy", options.policy != "none"),
        ("--budget", options.budget is not None),
        ("--plan", options.plan is not None),
        ("--compare", bool(options.compare)),
        ("--emit", options.emit is not None),
        ("--run", options.run),
        ("--profile", options.profile is not None),
        ("--strict", options.strict),
        ("--passes", options.passes is not None),
        ("--barrier", options.barrier != "auto"),
    ):
        if is_set:
            raise _usage(f"--pareto plans for budgets of its own, beside policies; leave out --pareto or {name}")


def _check_policy(option: str, policy: str) -> None:
    if policy == "none":
        return
    try:
        parse_policy(policy)
    except CompileError as error:
        raise _bad_value(option, error.message) from None


def _usage(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context(silent=True))


def _bad_value(option: str, message: str) -> click.BadParameter:
    return click.BadParameter(message, click.get_current_context(silent=True), param_hint=f"'{option}'")
