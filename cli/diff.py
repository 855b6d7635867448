"""`remat-compile diff A B`: what two programs, plans or reports do differently."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

DIFF_HELP = """What B does differently from A: what is kept and computed again, memory, products.

\b
remat-compile diff model.py@none model.py@dots          one program under two policies
remat-compile diff model.py@budget=2GiB model.py@auto   a plan for a budget beside a policy
remat-compile diff old.py new.py --policy dots          two programs
remat-compile diff before.json after.json               two reports of --json, or two plans of --save-plan

What stands behind A and B are options of remat-compile, which hold for both; --json prints one document.
"""


@click.command(
    "diff",
    help=DIFF_HELP,
    options_metavar="",
    context_settings={
        "max_content_width": 110,
        "help_option_names": ["-h", "--help"],
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
@click.pass_context
def diff(context: click.Context, first: str, second: str, options: tuple[str, ...]) -> None:
    """Compare two programs, plans or reports."""
    for operand in (first, second):
        if operand.startswith("-"):
            raise click.UsageError(f"{operand} stands before A and B; options come behind them", context)
    errors = importlib.import_module("rematc.cli.errors")

    def act() -> None:
        importlib.import_module("rematc.cli.differing").compare_operands(first, second, options)

    context.exit(errors.guarded(act, show_traceback="--traceback" in options))


def is_diff(args: list[str]) -> bool:
    """Whether a command line is one of `diff`. Where a file is called so, it is the model."""
    return args[:1] == ["diff"] and not Path("diff").is_file()
