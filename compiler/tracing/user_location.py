"""Where the user's code stands: the innermost frame outside rematc and the libraries that it calls through."""

from __future__ import annotations

import enum
import itertools
import os
import sys
import warnings
from types import CodeType, FrameType

from rematc.ir.locations import Location

# Frames of these packages are never the user's line: NumPy calls back into the tracers, JAX into pytree nodes.
_LIBRARIES = frozenset(
    {
        *("rematc", "numpy", "scipy", "jax", "jaxlib", "opt_einsum", "functools", "contextlib"),
        *("pandas", "polars", "pyarrow", "xarray", "sklearn", "statsmodels", "matplotlib", "tqdm", "torch"),
    }
)
# Nor those of Python's own library: json, heapq, statistics.
_STANDARD = os.path.join(os.path.dirname(os.__file__), "")
_PACKAGES = ("site-packages", "dist-packages")
# What calls the command is not the user's code either: click, the script that was installed.
_COMMAND = "rematc.cli."
_CACHE_LIMIT = 1 << 16


class _Owner(enum.Enum):
    """Whose file a frame runs in."""

    USER = "user"
    LIBRARY = "library"
    COMMAND = "command"


# Caches: both follow from their keys. A code object is kept beside its location, so that its id stays its own.
_owners: dict[str, _Owner] = {}
_locations: dict[tuple[int, int], tuple[Location, CodeType]] = {}


def user_location() -> Location | None:
    """The line of the user's code that is running; None where every frame is a library's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        owner = _owners.get(code.co_filename)
        if owner is None:
            owner = _classify(frame)
        if owner is _Owner.COMMAND:
            return None
        if owner is _Owner.USER:
            found = _locations.get((id(code), frame.f_lasti))
            return found[0] if found is not None else _locate(code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return None


def location_of_error(error: BaseException) -> Location | None:
    """The line of the user's code that an error was raised under: the innermost one."""
    entry, found = error.__traceback__, None
    while entry is not None:
        code = entry.tb_frame.f_code
        if (_owners.get(code.co_filename) or _classify(entry.tb_frame)) is _Owner.USER:
            found = _locate(code, entry.tb_lasti, entry.tb_lineno)
        entry = entry.tb_next
    return found


def warn_user(message: str) -> None:
    """Warn at the line of the user's code that is running; Python shows the same warning of a line once."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and (_owners.get(frame.f_code.co_filename) or _classify(frame)) is _Owner.LIBRARY:
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _classify(frame: FrameType) -> _Owner:
    module = frame.f_globals.get("__name__", "")
    file = frame.f_code.co_filename
    is_library = module.partition(".")[0] in _LIBRARIES or _is_standard(file)
    owner = _Owner.LIBRARY if is_library else _Owner.USER
    if module.startswith(_COMMAND):
        owner = _Owner.COMMAND
    # Code made from a string ("<string>") has no file of its own: judge each frame by its module.
    if not file.startswith("<"):
        _owners[file] = owner
    return owner


def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD) and not file[len(_STANDARD) :].startswith(_PACKAGES)


def raised_at(error: BaseException) -> Location | None:
    """The line of the user's code in which an error was raised, or what it called did; None where there is none."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        owner = _owners.get(frame.f_code.co_filename) or _classify(frame)
        if owner is _Owner.USER:
            found = _locate(frame.f_code, traceback.tb_lasti, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _locate(code: CodeType, instruction: int, line: int | None) -> Location:
    positions = next(itertools.islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    column = positions[2]
    loc = Location(
        code.co_filename,
        positions[0] or line or code.co_firstlineno,
        0 if column is None else column + 1,
        code.co_qualname.rpartition("<locals>.")[2],
    )
    if len(_locations) >= _CACHE_LIMIT:
        _locations.clear()
    _locations[id(code), instruction] = (loc, code)
    return loc
