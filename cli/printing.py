"""What the command prints: tables on a terminal or in a pipe, JSON documents, and what these say of the command."""

from __future__ import annotations

import importlib.metadata
import json
import math
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

import rematc
from rematc.cli.output import print_text
from rematc.cli.step import TrainingStep
from rematc.cli.tables import print_tables
from rematc.ir.tables import Table, plain_text


def subject(step: TrainingStep) -> str:
    """What a report is about."""
    if step.options.is_module:
        return f"{step.file}: {step.entry.name}"
    return f"{step.file}: gradient of {step.entry.name} with respect to {step.differentiated}"


def facts(step: TrainingStep) -> dict[str, object]:
    """What a document says of the command that made it."""
    installed = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {
        "model": step.file,
        "entry": step.entry.name,
        "argnums": list(step.options.argnums),
        "versions": {"rematc": rematc.__version__, **installed},
    }


def terminal() -> Console | None:
    """Standard output as a rich console if it is a terminal that understands more than text."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    console = Console(highlight=False)
    return None if console.is_dumb_terminal else console


def show(tables: Sequence[Table], console: Console | None) -> None:
    """The tables on a terminal, or as plain text."""
    if console is None:
        print_text(plain_text(tables))
    else:
        print_tables(console, tables)


def print_json(document: Mapping[str, object]) -> None:
    """A document on standard output."""
    print_text(json_text(document))


def json_text(document: Mapping[str, object]) -> str:
    """A document as text."""
    return json.dumps(_jsonable(document), indent=2, allow_nan=False)


def _jsonable(value: object) -> object:
    """JSON has no infinities and no NaN: they become the strings that Python's float() reads."""
    match value:
        case Mapping():
            return {key: _jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value
