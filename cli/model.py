"""The model file: loading it, finding the function to differentiate."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from rematc.cli.packages import Place, place_of
from rematc.compiler.tracing.options import Options
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location, relative
from rematc.ir.spelling import suggestion

EXAMPLE_ARGUMENTS = "example_args"


@dataclass(frozen=True, slots=True)
class Entry:
    """The function to differentiate.

    Attributes:
        module: the model file as a module.
        name: the function's name in it.
        function: the function.
        loc: the line that defines it, where it is known.
        compiling: how it is to be compiled, where its file says that.
    """

    module: ModuleType
    name: str
    function: Callable[..., object]
    loc: Location | None
    compiling: Options | None = None


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """Run the user's code with what it prints on standard error: standard output is for results."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def users_command_line(path: Path, args: Sequence[str]) -> Iterator[None]:
    """`sys.argv` as a model sees it that Python runs with these arguments: it is not to read ours."""
    ours = sys.argv
    sys.argv = [str(path), *args]
    try:
        yield
    finally:
        sys.argv = ours


def load_model(path: Path) -> ModuleType:
    """Run the file as a module, its folder on `sys.path` as when Python runs it.

    A file that imports relatively is run as part of its package, as `python -m` does. Raises whatever compiling and
    running it raises.
    """
    path = path.absolute()
    source = _read(path)
    code = _compiled(path, source)
    place = place_of(path, source)
    if place is not None:
        return _loaded_in_package(path, code, place)
    # The module has the file's name, so that its helpers can import it and its classes are found, unless a module of
    # that name is there already: a model called random.py must not become everybody's `random`.
    name = path.stem if path.stem not in sys.modules else f"rematc_model_{path.stem}"
    sys.path.insert(0, os.path.realpath(path.parent))
    return _run(code, path, name, "")


def _loaded_in_package(path: Path, code: CodeType, place: Place) -> ModuleType:
    sys.path.insert(0, str(place.root))
    with users_code():
        importlib.import_module(place.package)
    name = f"{place.package}.{path.stem}"
    return sys.modules.get(name) or _run(code, path, name, place.package)  # its package may have imported it


def _run(code: CodeType, path: Path, name: str, package: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = package
    sys.modules[name] = module
    try:
        with users_code():
            exec(code, vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CompileError(f"cannot read {relative(str(path))}: {error.strerror or error}") from None


def _compiled(path: Path, source: bytes) -> CodeType:
    """The file's code. Raises SyntaxError with its place, and CompileError for what Python cannot read otherwise."""
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        if isinstance(error, SyntaxError) and error.lineno:
            raise
        found = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
        raise CompileError(f"Python cannot compile {relative(str(path))}: {found}") from None


def find_entry(module: ModuleType, name: str | None) -> Entry:
    """The function called `name`; without a name `loss`, else the only public function that the file defines.

    Raises CompileError with the functions that are there.
    """
    if name is not None:
        return _named_entry(module, name)
    if callable(getattr(module, "loss", None)):
        return _entry(module, "loss")
    candidates = defined_functions(module)
    if len(candidates) == 1:
        return candidates[0]
    file = relative(str(module.__file__))
    if not candidates:
        raise CompileError(f"{file} defines no public function; define loss(...), or name another with --entry")
    listed = "".join(f"\n  {_listed(entry)}" for entry in candidates)
    raise CompileError(
        f"{file} has no function 'loss' and several others; name one with --entry, or call it loss:{listed}"
    )


def defined_functions(module: ModuleType) -> list[Entry]:
    """The public functions that the file itself defines, in order of their lines; `example_args` is none of them."""
    found: dict[int, Entry] = {}
    for name, value in vars(module).items():
        is_public = not name.startswith("_") and name != EXAMPLE_ARGUMENTS
        is_own = getattr(value, "__module__", None) == module.__name__
        if is_public and is_own and callable(value) and not inspect.isclass(value):
            found.setdefault(id(value), _entry(module, name))
    return sorted(found.values(), key=lambda entry: entry.loc.line if entry.loc else 0)


def _named_entry(module: ModuleType, name: str) -> Entry:
    value = getattr(module, name, None)
    if callable(value):
        return _entry(module, name)
    file = relative(str(module.__file__))
    if hasattr(module, name):
        raise CompileError(f"'{name}' in {file} is a {type(value).__name__}, expected a function")
    candidates = defined_functions(module)
    hint = suggestion(name, [entry.name for entry in candidates])
    listed = "".join(f"\n  {_listed(entry)}" for entry in candidates) or " none"
    raise CompileError(f"{file} has no function '{name}'{hint or ';'} its functions:{listed}")


def _entry(module: ModuleType, name: str) -> Entry:
    function = getattr(module, name)
    code = getattr(inspect.unwrap(function), "__code__", None)
    loc = Location(code.co_filename, _definition_line(code), 0, name) if code else None
    return Entry(module, name, function, loc)


def _definition_line(code: CodeType) -> int:
    """The line of `def`: a code object begins with its first decorator."""
    for line in range(code.co_firstlineno, code.co_firstlineno + 50):
        if linecache.getline(code.co_filename, line).lstrip().startswith(("def ", "async def ")):
            return line
    return code.co_firstlineno


def _listed(entry: Entry) -> str:
    try:
        signature = str(inspect.signature(entry.function))
    except (TypeError, ValueError):
        signature = "(...)"
    place = f"{relative(entry.loc.file)}:{entry.loc.line}: " if entry.loc else ""
    return f"{place}{entry.name}{signature}"
