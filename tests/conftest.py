"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.selection import Case, chosen

# A shell that starts the tests in the background lets them ignore Ctrl-C, and every process they start: the tests of
# an interrupted command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Most of the time goes to LLVM, which optimizes thousands of programs that run once. What XLA does to a program, and
# the memory it takes, is the same without. Who sets the variable, to nothing too, gets what it says.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


# How long an example takes says how busy the machine is.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all` and `--rest`."""
    parser.addoption("--all", action="store_true", help="run every test with all cases")
    parser.addoption("--rest", action="store_true", help="run what is left out without --all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `tests.support.selection` does not choose, but of files that the command names."""
    if config.getoption("--all"):
        return
    named = {path.resolve() for arg in config.args if (path := Path(arg.partition("::")[0])).is_file()}
    is_left_out = config.getoption("--rest")
    is_chosen = [is_set != is_left_out for is_set in chosen(_case(item, named) for item in items)]
    dropped = [item for item, is_set in zip(items, is_chosen, strict=True) if not is_set]
    items[:] = [item for item, is_set in zip(items, is_chosen, strict=True) if is_set]
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def _case(item: pytest.Item, named: set[Path]) -> Case:
    case = getattr(item, "callspec", None)
    is_slow = item.get_closest_marker("slow") is not None
    is_wanted = item.path in named or (item.get_closest_marker("each_case") is not None and not is_slow)
    test = str(getattr(item, "originalname", None) or item.name)
    return Case(str(item.path), test, None if case is None else str(case.id), is_wanted, is_slow)
