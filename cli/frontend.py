"""Which frontend a model is for: NumPy's protocols, or JAX."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import jax

from rematc.cli.model import Entry, users_code
from rematc.compiler.api.from_jax import from_jax
from rematc.compiler.frontends.jax.retracing import FAILURES

_OURS = ("jax", "jaxlib")
#: What NumPy models import, too, or what says nothing.
_NEUTRAL = frozenset({"numpy", "scipy", "rematc", "builtins", "__future__", *sys.stdlib_module_names})


def with_frontend(entry: Entry, args: tuple[object, ...], choice: str) -> Entry:
    """The entry as a function that rematc traces.

    Args:
        entry: the model's function.
        args: what it is called with.
        choice: `numpy`, `jax`, or `auto`: JAX for a model that imports JAX, or a library made of it, unless JAX cannot
            trace the function because it calls NumPy.
    """
    if choice == "numpy" or (choice == "auto" and not (_imports_jax(entry) and _traces_under_jax(entry, args))):
        return entry
    return dataclasses.replace(entry, function=from_jax(entry.function))


def _traces_under_jax(entry: Entry, args: tuple[object, ...]) -> bool:
    """Whether JAX can trace the function. What else is wrong with it is said when it is traced to be compiled."""
    if not any(_root(value) == "numpy" for value in _modules(entry.function)):
        return True
    try:
        with users_code():
            _traced(entry.function, args)
    except jax.errors.TracerArrayConversionError:
        return False
    except FAILURES:
        return True
    return True


def _traced(function: Callable[..., object], args: tuple[object, ...]) -> None:
    leaves, tree = jax.tree_util.tree_flatten(args)
    places = [place for place, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]

    def flat(*arrays: object) -> None:
        given = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        function(*jax.tree_util.tree_unflatten(tree, given))

    jax.eval_shape(flat, *[leaves[place] for place in places])


def _imports_jax(entry: Entry) -> bool:
    """Whether the model, or a module beside it that it imports, uses JAX or a library that depends on JAX."""
    if any(_root(value) == "rematc" for value in _modules(entry.function)):
        return False
    folder = _own_folder(entry.module)
    roots: dict[str, None] = {}
    waiting, seen = [_globals_of(entry.function), vars(entry.module)], {id(entry.module)}
    while waiting:
        for value in waiting.pop().values():
            module = (
                value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
            )
            if module is None or id(module) in seen:
                continue
            seen.add(id(module))
            if _lies_in(module, folder):
                waiting.append(vars(module))
            else:
                roots[_root(module)] = None
    if any(root in _OURS for root in roots):
        return True
    return any(map(_depends_on_jax, [root for root in roots if root not in _NEUTRAL]))


def _own_folder(model: ModuleType) -> Path:
    """The folder that the model's own modules lie in: that of its outermost package."""
    folder = Path(str(model.__file__)).parent
    inner = (model.__package__ or "").count(".")
    return folder.parents[inner - 1] if inner else folder


def _modules(function: Callable[..., object]) -> list[ModuleType]:
    """The modules that a function's file has imported."""
    return [value for value in _globals_of(function).values() if isinstance(value, ModuleType)]


def _globals_of(function: Callable[..., object]) -> dict[str, object]:
    return getattr(inspect.unwrap(function), "__globals__", {})


def _root(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and folder.resolve() in Path(file).resolve().parents


def _depends_on_jax(package: str) -> bool:
    """Whether an installed package says that it needs JAX."""
    for name in importlib.metadata.packages_distributions().get(package, ()):
        needed = importlib.metadata.requires(name) or ()
        if any(_required(line) in _OURS for line in needed):
            return True
    return False


def _required(line: str) -> str:
    """The name of the package in a requirement such as `jax>=0.4; extra == 'x'`."""
    head = line.partition(";")[0]
    name = "".join([char if char.isalnum() or char in "-_." else " " for char in head]).split()
    return name[0].lower() if name else ""
