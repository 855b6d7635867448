"""Pages of the reference: every public name with its docstring, in groups."""

import importlib
from collections.abc import Iterable, Mapping

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

#: The names of `rematc`, by what they are for.
OF_REMATC = {
    "Derivatives": (
        "grad",
        "value_and_grad",
        "vjp",
        "jvp",
        "linearize",
        "jacfwd",
        "jacrev",
        "hessian",
        "stop_gradient",
    ),
    "Rematerialization": (
        "checkpoint",
        "remat",
        "checkpoint_name",
        "saved_residuals",
        "print_saved_residuals",
        "print_fwd_bwd",
        "check_jax",
        "Budget",
        "Plan",
        "pareto",
    ),
    "Compiling": (
        "jit",
        "trace",
        "lower",
        "compile",
        "Lowered",
        "Compiled",
        "CompiledFunction",
        "load",
        "clear_caches",
    ),
    "Functions of JAX, and programs as text": ("from_jax", "from_stablehlo", "parse"),
    "Batches": ("vmap",),
    "Rules of your own": (
        "custom_jvp",
        "custom_vjp",
        "SymbolicZero",
        "custom_root",
        "custom_linear_solve",
        "closure_convert",
    ),
    "Calling Python": ("pure_callback", "io_callback"),
    "Errors": ("CompileError", "InternalError"),
}
#: The other modules, whose names follow from their `__all__`.
MODULES = ("jax", "policies", "targets", "lax", "ir")
#: Where a name is a variable, and the docstring is that of its value.
HOMES = {"rematc.ir.parse": "rematc.ir.parser.parse_graph", "rematc.ir.print": "rematc.ir.printer.print_graph"}
#: Classes that are shown with their public members.
CLASSES = {"Budget", "Builder", "Compiled", "CompiledFunction", "Equation", "Graph", "Location", "Lowered", "Plan"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    files.append(File.generated(config, "reference/rematc.md", content=page("rematc", OF_REMATC)))
    for name in MODULES:
        module = importlib.import_module(f"rematc.{name}")
        names = [one for one in module.__all__ if one not in ("ops", "types")]
        files.append(File.generated(config, f"reference/{name}.md", content=page(module.__name__, {"Names": names})))
    return files


def page(name: str, groups: Mapping[str, Iterable[str]]) -> str:
    """The page of a module as Markdown for mkdocstrings. Raises PluginError where a public name is in no group."""
    module = importlib.import_module(name)
    missing = {one for one in module.__all__ if not one.startswith("__")} - {
        one for of in groups.values() for one in of
    }
    modules = {one for one in missing if importlib.util.find_spec(f"{name}.{one}") is not None}
    if missing - modules:
        raise PluginError(f"docs/site/hooks/reference.py: in no group of the reference: {sorted(missing - modules)}")
    lines = [f"# {name}", "", (module.__doc__ or "").partition("\n\n")[0], ""]
    of_id: dict[int, str] = {}
    for heading, names in groups.items():
        lines += [f"## {heading}", ""]
        for one in names:
            value = getattr(module, one)
            known = of_id.setdefault(id(value), one)
            lines += [entry(name, one, value) if known == one else same(name, one, known)]
    return "\n".join(lines)


def entry(module: str, name: str, value: object) -> str:
    """What mkdocstrings is asked for one name."""
    full = f"{module}.{name}"
    home = str(getattr(value, "__module__", "rematc"))
    if not home.startswith("rematc"):
        return f"### {full}\n\nThat of JAX: `{home}.{name}`.\n"
    options = ["members: null", "inherited_members: true"] if name in CLASSES else ["members: false"]
    if full in HOMES:
        options += [f"heading: {full}", f"toc_label: {name}"]
    return "\n".join([f"::: {HOMES.get(full, full)}", "    options:", *[f"      {option}" for option in options], ""])


def same(module: str, name: str, other: str) -> str:
    """The entry of a second name of a thing."""
    return f"### {module}.{name}\n\nAnother name of [`{module}.{other}`][{module}.{other}].\n"
