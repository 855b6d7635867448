"""Tables of the documentation that follow from the code."""

from __future__ import annotations

import ast
import dataclasses
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import rematc
import rematc.ir.ops  # registers the ops
from rematc.ir.core import Op
from rematc.ir.registry import OPS
from rematc.ir.types import DTYPES
from rematc.ir.verifier import DEFINED_RESULTS, LAWS, UNIQUE_PARAMS
from rematc.lowering.described import MODELS
from rematc.numpy import supported
from rematc.passes.policies import describe_policies

ROOT = Path(__file__).parents[2]


def ops_table() -> str:
    """A table for each family of ops: name, parameters, what it computes."""
    families: dict[str, list[type[Op]]] = {}
    for op in OPS.values():
        families.setdefault(family_of(op), []).append(op)
    parts = []
    for family, ops in sorted(families.items()):
        rows = [(f"`{op.name}`", _parameters(op), _summary(op)) for op in ops]
        parts.append(f"### {family}\n\n{_table(('op', 'parameters', 'result'), rows)}")
    return "\n" + "\n".join(parts) + "\n"


def family_of(op: type[Op]) -> str:
    """The file in `ir/ops/` that an op stands in, or the folder there."""
    return op.__module__.removeprefix("rematc.ir.ops.").partition(".")[0].rstrip("_")


def types_table() -> str:
    """The element types: in the IR, in StableHLO, in NumPy."""
    rows = [(f"`{one.name}`", f"`{one.mlir}`", f"`{one.numpy}`", one.kind.value) for one in DTYPES.values()]
    return "\n" + _table(("IR", "StableHLO", "NumPy", "kind"), rows) + "\n"


def laws_list() -> str:
    """What the verifier checks."""
    laws = [UNIQUE_PARAMS, *(law.text for law in LAWS), DEFINED_RESULTS]
    return "\n" + "".join(f"{number}. {law[0].upper()}{law[1:]}.\n" for number, law in enumerate(laws, 1)) + "\n"


def policies_table() -> str:
    """The built-in policies."""
    rows = [(f"`{short}`", f"`{jax}`", what) for short, jax, what in describe_policies()]
    return "\n" + _table(("as text", "in `rematc.policies`, JAX's names", "meaning"), rows) + "\n"


def names_table() -> str:
    """The public names, by the first line of their docstrings."""
    rows = []
    found = {f"rematc.{name}": getattr(rematc, name) for name in rematc.__all__ if not name.startswith("_")}
    found |= {f"rematc.lax.{name}": getattr(rematc.lax, name) for name in rematc.lax.__all__}
    for name in sorted(found, key=str.lower):
        summary = (found[name].__doc__ or "").strip().partition("\n")[0].replace("|", "\\|")
        rows.append((f"`{name}`", summary))
    return "\n" + _table(("name", "what it is"), rows) + "\n"


def numpy_list() -> str:
    """The functions of NumPy that can be traced, by module."""
    modules: dict[str, list[str]] = {}
    for name in supported():
        module, _, function = name.rpartition(".")
        if not module.startswith("scipy"):
            modules.setdefault(module, []).append(f"`{function}`")
    parts = [
        textwrap.fill(f"- `{module}`: {', '.join(names)}", 120, subsequent_indent="  ", break_on_hyphens=False)
        for module, names in sorted(modules.items())
    ]
    return "\n" + "\n".join(parts) + "\n\n"


def folders_table() -> str:
    """The packages, in the order in which they may import each other, by the first line of their docstrings."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {one["containers"][0]: one["layers"] for one in contracts if one["type"] == "layers"}
    return "\n" + _table(("folder", "holds"), _folders("rematc", layers)) + "\n"


def _folders(package: str, layers: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """The packages in a package and theirs; those whose order is not fixed by name."""
    folder = ROOT.joinpath("src", *package.split("."))
    order = [name for layer in reversed(layers.get(package, ())) for name in layer.split(" | ")]
    present = sorted(file.parent.name for file in folder.glob("*/__init__.py"))
    for name in sorted(present, key=lambda one: order.index(one) if one in order else 0):
        summary = ast.get_docstring(ast.parse((folder / name / "__init__.py").read_text())) or ""
        inner = f"{package}.{name}"
        yield f"`{'/'.join(inner.split('.')[1:])}/`", summary.partition("\n")[0]
        yield from _folders(inner, layers)


def targets_table() -> str:
    """The devices that need not be here, as XLA's compilers call them, with their memory."""
    rows = [
        (f"`{name}`, `{model.example}`", f"`{model.device.kinds[0]}`", f"{model.device.memory:,}", f"`{model.extra}`")
        for name, model in MODELS.items()
    ]
    return _table(("one, several", "JAX's `device_kind`", "bytes", "extra"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "folders": folders_table,
    "ops": ops_table,
    "types": types_table,
    "laws": laws_list,
    "policies": policies_table,
    "names": names_table,
    "numpy": numpy_list,
    "targets": targets_table,
}


def _parameters(op: type[Op]) -> str:
    fields = dataclasses.fields(op)  # type: ignore[arg-type]  # every op is a dataclass
    return ", ".join(f"`{field.name}`" for field in fields if field.init)


def _summary(op: type[Op]) -> str:
    """The first paragraph of the docstring, with bars escaped for the table."""
    return " ".join((op.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
