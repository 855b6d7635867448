"""Defaults of options, out of the table [tool.rematc] of a pyproject.toml: that of the model's folder, or above it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

import click

from rematc.cli.options import MODULE, PLANNED
from rematc.ir.spelling import question

FILE = "pyproject.toml"
#: The options that may have defaults, by the names of the table, each with its parameter and what it takes.
KEYS: Mapping[str, tuple[str, str]] = {
    "entry": ("entry", "text"),
    "frontend": ("frontend", "text"),
    "arg": ("args", "a list of texts"),
    "argnums": ("argnums", "a list of integers"),
    "has-aux": ("has_aux", "true or false"),
    "policy": ("policy", "text"),
    "budget": ("budget", "text or bytes"),
    "keep": ("keep", "a list of texts"),
    "never-repeat": ("never_repeat", "a list of texts"),
    "plan-seconds": ("plan_seconds", "a number"),
    "slices": ("slices", "text or a number"),
    "target": ("target", "text"),
    "barrier": ("barrier", "text"),
    "passes": ("passes", "text"),
    "strict": ("strict", "true or false"),
    "quiet": ("quiet", "true or false"),
    "verbose": ("verbose", "true or false"),
}
#: A default gives way to these on the command line, which exclude it.
_PLANNING = ("plan", "compare", "pareto", "barrier", "passes")
_GIVES_WAY: Mapping[str, tuple[str, ...]] = {
    "policy": ("compare", "pareto"),
    "budget": _PLANNING,
    "keep": _PLANNING,
    "never_repeat": _PLANNING,
    "barrier": ("passes", "pareto", "budget", "plan"),
    "passes": ("barrier", "pareto", "budget", "plan"),
    "slices": ("pareto",),
    "strict": ("emit", "pareto"),
    "quiet": ("verbose",),
    "verbose": ("quiet",),
}
#: Options of a derivative, which a module has none of.
_OF_DERIVATIVES = ("entry", "frontend", "args", "argnums", "has_aux", "policy", "barrier", "passes")


def defaults_for(model: Path, given: Mapping[str, object]) -> dict[str, object]:
    """Values for parameters that the command line leaves open.

    Args:
        model: the file.
        given: what the command line says, by parameter.

    Raises click.UsageError for a table with unknown names, or values of other types.
    """
    file = _file_for(model)
    if file is None:
        return {}
    found = {}
    for key, value in _table(file).items():
        if key not in KEYS:
            hint = question(key, KEYS) or f"known: {', '.join(KEYS)}"
            raise click.UsageError(f"{file}: [tool.rematc] has no option '{key}'; {hint}")
        parameter, expected = KEYS[key]
        if not _fits(value, expected):
            raise click.UsageError(f"{file}: {key} of [tool.rematc] is {value!r}, expected {expected}")
        found[parameter] = _as_written(value, parameter)
    return {name: value for name, value in found.items() if not _is_excluded(name, model, given, found)}


def _file_for(model: Path) -> Path | None:
    """The nearest pyproject.toml that has the table."""
    for folder in model.absolute().parents:
        file = folder / FILE
        if file.is_file() and _table(file):
            return file
    return None


def _table(file: Path) -> Mapping[str, object]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # not UTF-8; no TOML
        raise click.UsageError(f"cannot read {file}: {error}") from None
    tool = document.get("tool", {})
    table = tool.get("rematc", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise click.UsageError(f"{file}: [tool.rematc] is {table!r}, expected a table")
    return table


def _fits(value: object, expected: str) -> bool:
    match expected:
        case "true or false":
            return isinstance(value, bool)
        case "a number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "text or bytes" | "text or a number":
            return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
        case "a list of texts":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "a list of integers":
            return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)
    return isinstance(value, str)


def _as_written(value: object, parameter: str) -> object:
    """A value as the command line has it: lists of names, and positions, with commas."""
    if isinstance(value, list) and parameter != "args":
        return ",".join(map(str, value))
    return str(value) if parameter in ("budget", "slices") else value


def _is_excluded(name: str, model: Path, given: Mapping[str, object], found: Collection[str]) -> bool:
    """Whether a default does not go together with the command line, or with what is compiled."""
    if model.suffix == MODULE and name in _OF_DERIVATIVES:
        return True
    if any(other in given for other in _GIVES_WAY.get(name, ())):
        return True
    if name in ("budget", "slices"):
        return "emit" in given and given["emit"] not in PLANNED
    if name in ("keep", "never_repeat", "plan_seconds"):
        has_budget = "budget" in given or ("budget" in found and not _is_excluded("budget", model, given, found))
        return not has_budget and not (name == "plan_seconds" and "pareto" in given)
    return False
