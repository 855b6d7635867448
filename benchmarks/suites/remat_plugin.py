"""A plugin of pytest's: `rematc.jax.checkpoint` in the place of `jax.checkpoint`, wherever JAX's tests look for it.

Of each file it keeps the tests of `jax.checkpoint`, and notes for each how often a function of ours was called in it.
REMAT_SUITE_TREE is the source tree; with `REMAT_SUITE_OWN=1` JAX's own function stays: what fails then is not ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax._src
import jax.ad_checkpoint
import pytest
from jax._src import ad_checkpoint
from remat_selection import tests_of

import rematc.jax
from rematc.compiler.jax_api import checkpointing

#: When functions of ours were called: one entry for each call.
_calls: list[None] = []
# Some of JAX's helpers for tests are in its source tree only.
jax._src.__path__.append(os.path.join(os.environ["REMAT_SUITE_TREE"], "jax", "_src"))


def _count_calls() -> None:
    find = checkpointing.Remembered.find

    def counting(self: Any, key: Any, make: Callable[[], Any]) -> Any:
        _calls.append(None)
        return find(self, key, make)

    checkpointing.Remembered.find = counting  # type: ignore[method-assign]  # for the time of the tests


if not os.environ.get("REMAT_SUITE_OWN"):
    _count_calls()
    for module in (jax, jax.ad_checkpoint, ad_checkpoint):
        for name in ("checkpoint", "remat", "new_checkpoint"):
            if hasattr(module, name):
                setattr(module, name, rematc.jax.checkpoint)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that the source says are of `jax.checkpoint`."""
    items[:] = [item for item in items if _is_chosen(item)]


def _is_chosen(item: pytest.Item) -> bool:
    cls = getattr(item, "cls", None)
    if cls is None:
        return False
    tests = tests_of(Path(item.path))
    wanted = [name for base in cls.__mro__ for name in tests.get(base.__name__, ())]
    defined = [name for base in cls.__mro__ for name in vars(base) if item.name.startswith(name)]
    method = item.originalname if hasattr(item, "originalname") else item.name
    # A test with parameters is called by its method's name and more.
    known = [name for name in wanted if method == name or method.startswith(name)]
    return bool(known) and not any(len(name) > max(map(len, known)) and name != method for name in defined)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note how often a test called functions of ours."""
    before = len(_calls)
    try:
        yield
    finally:
        item.user_properties.append(("calls", str(len(_calls) - before)))
