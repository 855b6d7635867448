"""The command `remat-compile`: its options. What it does is in `rematc.cli.command`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

import rematc
from rematc.cli.defaults import defaults_for
from rematc.cli.diff import diff, is_diff
from rematc.cli.options import BARRIERS, DOCUMENTS, EMITTED, FRONTENDS, Options
from rematc.ir.spelling import suggestion

HELP = """Differentiate a NumPy or JAX function, rematerialize under a policy, compile with XLA, and report.

\b
remat-compile model.py --policy dots            report what is saved, recomputed, and used by XLA
remat-compile model.py --policy dots -o m.mlir  ... and write the training step as StableHLO
remat-compile model.py --emit backward          print the backward graph instead
remat-compile model.py --compare none,dots      one table over policies, run times measured in turns
remat-compile model.py --target h100            what it takes on a GPU that need not be here (also v5e, ...)
remat-compile step.mlir --budget 12GiB -o s.mlir  a whole step that any framework wrote as StableHLO, in less memory
remat-compile diff model.py@none model.py@dots  what two programs, plans or reports do differently

The function is --entry, else `loss`, else the only public function of the file; its arguments are what the file's
example_args() returns, or arrays of the types given with --arg. What stands behind -- is the model's own command line.
"""
PROGRAM, SHELLS = "remat-compile", ("bash", "zsh", "fish")
EXIT_CODES = (
    """Exit code: 0 done, 1 an error in the model, 2 in the command line, 3 in remat-compile itself, 130 interrupted."""
)


def _parse_argnums(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"'{text}' is no list of positions; write 0 or 0,1") from None


def _list_policies(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        importlib.import_module("rematc.cli.command").list_policies()
        context.exit()


def _print_schema(context: click.Context, _: click.Parameter, document: str | None) -> None:
    if document is not None and not context.resilient_parsing:
        schema = importlib.import_module("rematc.cli.json_schema").schema_of(document)
        click.echo(json.dumps(schema, indent=2))
        context.exit()


def _print_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        click.echo(f"remat-compile, version {rematc.__version__}")
        for line in importlib.import_module("rematc.cli.versions").version_lines():
            click.echo(line)
        context.exit()


def _print_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None and not context.resilient_parsing:
        found = get_completion_class(shell)
        assert found is not None, "click knows these shells"
        click.echo(found(context.command, {}, PROGRAM, f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE").source())
        context.exit()


def _complete_policy(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    names = importlib.import_module("rematc.passes.policies").describe_policies()
    return [name for name in ["none", *(row[0] for row in names)] if name.startswith(typed)]


def _complete_target(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    names = importlib.import_module("rematc.lowering.described").MODELS
    return [name for name in ["cpu", "cuda", "rocm", "tpu", *names] if name.startswith(typed)]


def _with_profile(args: list[str]) -> list[str]:
    """The arguments with `--profile` as `--profile=` where no directory follows: another option, or the model."""
    end = args.index("--") if "--" in args else len(args)
    found = []
    for at, arg in enumerate(args):
        following = args[at + 1] if at + 1 < end else "-"
        is_alone = arg == "--profile" and at < end and (following.startswith("-") or Path(following).is_file())
        found.append("--profile=" if is_alone else arg)
    return found


class _Choice(click.Choice[str]):
    """One of several words; one that is nearly so is asked about."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            message = f"{error.message.removesuffix('.')}{suggestion(str(value), list(self.choices))}"
            raise click.BadParameter(message, ctx, param) from None


class _Command(click.Command):
    """A command whose model has arguments of its own, behind `--`, unless it is `diff`."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *others: Any, **named: Any) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if is_diff(given):
            return diff.main(given[1:], f"{prog_name or 'remat-compile'} diff", *others, **named)
        return super().main(given, prog_name, *others, **named)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = _with_profile(args)
        if not ctx.resilient_parsing:
            ctx.default_map = self._defaults(ctx, args)
        count = len(args) - args.index("--") - 1 if "--" in args else 0
        left = super().parse_args(ctx, args)
        extra = ctx.params.get("model_args", ())
        if len(extra) > count and not ctx.resilient_parsing:
            unexpected = " ".join(extra[: len(extra) - count])
            raise click.UsageError(f"Got unexpected extra arguments ({unexpected}); the model's own go behind --", ctx)
        return left

    def _defaults(self, ctx: click.Context, args: list[str]) -> dict[str, object]:
        """Those of the model's pyproject.toml; what is wrong with the command line itself is said when it is read."""
        try:
            given, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return {}
        model = given.get("model")
        is_help = any(name in args for name in ctx.help_option_names) or "version" in given or "completion" in given
        if is_help or not isinstance(model, str) or not Path(model).is_file():
            return {}
        return defaults_for(Path(model), given)


@click.command(
    "remat-compile",
    cls=_Command,
    help=HELP,
    context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]},
)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="MODEL.py")
@click.argument("model_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARG...]")
@click.option("--entry", metavar="NAME", help="The function to differentiate.")
@click.option(
    "--frontend",
    type=_Choice(FRONTENDS),
    default="auto",
    help="What the function is written in; default: jax where the file imports jax or a library of it.",
)
@click.option(
    "--arg", "args", multiple=True, metavar="TYPE", help="Type of an argument, as f32[5,4]; one each, in order."
)
@click.option(
    "--argnums",
    default="0",
    metavar="N,...",
    callback=_parse_argnums,
    help="Positions of the arguments to differentiate with respect to; default 0.",
)
@click.option("--has-aux", is_flag=True, help="The function returns (value, auxiliary data).")
@click.option(
    "--policy",
    default="none",
    metavar="POLICY",
    shell_complete=_complete_policy,
    help="What may be saved: see --list-policies; default none.",
)
@click.option(
    "--budget",
    metavar="BYTES",
    help="Recompute so that XLA takes no more temporary memory: 2GiB, 50%, device.",
)
@click.option("--keep", metavar="NAME,...", help="Values named so are kept by the plan for --budget.")
@click.option("--never-repeat", metavar="OP,...", help="Ops that the plan for --budget never runs again.")
@click.option(
    "--plan-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Improve no plan for --budget or --pareto any more after S seconds.",
)
@click.option(
    "--plan",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Recompute as a plan says that was saved for this program.",
)
@click.option(
    "--save-plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the plan for --budget to FILE, as JSON.",
)
@click.option(
    "--slices",
    default="needed",
    metavar="N",
    help="Run the stage around the largest value, a model's head, in N slices, auto, off, or, by default, as needed.",
)
@click.option("--compare", multiple=True, metavar="POLICY,...", help="Print one table over these policies instead.")
@click.option("--pareto", is_flag=True, help="Print memory and time of plans for many budgets, and of policies.")
@click.option("--emit", type=_Choice(EMITTED), help="Print this text to standard output, and nothing else.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what --emit names to FILE, by default StableHLO; with --pareto its picture, as SVG.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE as a page with pictures, too; needs rematc[html].",
)
@click.option(
    "--dump",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the program at every stage, and the report, to a new directory with an index.html, too.",
)
@click.option("--run", is_flag=True, help="Run it too: loss, gradient norms, median run time.")
@click.option(
    "--profile",
    metavar="[DIR]",
    help="Run it under jax.profiler: time by phase and line; the trace stays in DIR, for Perfetto and xprof.",
)
@click.option(
    "--target",
    metavar="DEVICE",
    shell_complete=_complete_target,
    help="What to compile for: h100, v5e, h100:8, ..., here or not, or cpu, cuda, tpu; default: what jax takes.",
)
@click.option(
    "--barrier",
    type=_Choice(BARRIERS),
    default="auto",
    help="How to keep XLA from undoing recomputation; call and conditional hold in any XLA.",
)
@click.option("--passes", metavar="PIPELINE", help="Passes instead of the default ones, as 'simplify,cse,dce'.")
@click.option("--print-between-passes", is_flag=True, help="Print the IR after each pass, on standard error.")
@click.option("--time-passes", is_flag=True, help="Print what each pass took, on standard error.")
@click.option("--strict", is_flag=True, help="Fail where XLA undid some of the recomputation.")
@click.option("--json", is_flag=True, help="Print the report or comparison as one JSON document.")
@click.option(
    "--list-policies",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_policies,
    help="List the policies.",
)
@click.option("--traceback", is_flag=True, help="Print Python's traceback of an error too.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, and no comparison with the program without policy.")
@click.option("-v", "--verbose", is_flag=True, help="Leave nothing out on a terminal.")
@click.option(
    "--completion",
    type=_Choice(SHELLS),
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Print a script that completes this command's options in a shell.",
)
@click.option(
    "--json-schema",
    type=_Choice(DOCUMENTS),
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of a document that this command prints.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions of rematc, jax and Python, and the devices.",
)
@click.pass_context
def main(context: click.Context, /, **values: object) -> None:
    """Differentiate, compile and report."""
    # Not imported above: NumPy and JAX take a second to import, and --help needs neither.
    errors = importlib.import_module("rematc.cli.errors")

    def act() -> None:
        options = Options(**values)  # type: ignore[arg-type]  # one for each option above
        importlib.import_module("rematc.cli.command").execute(options)

    context.exit(errors.guarded(act, show_traceback=bool(values["traceback"])))
