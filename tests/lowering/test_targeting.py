"""Where a program is for: the user's word, then its arguments' devices, then where JAX would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.lowering import targeting as module
from rematc.lowering.dispatch import Dispatcher, LoweredFunction
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target, target_of, targeting
from tests.support.programs import program

X = np.ones(3, np.float32)
FAR = Target("cuda", device_kind="H100", has_host_memory=True)

_ON_FOUR_DEVICES = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import rematc
from rematc.lowering.targeting import target_of
first, second, *_ = jax.devices()
x = np.ones(8, np.float32)
spread = jax.device_put(x, NamedSharding(Mesh(np.array(jax.devices()), ("a",)), P("a")))
there = jax.device_put(x, second)
print([target_of(one).devices for one in (x, spread, (there, {"s": spread}), there)])
print(target_of(jax.ShapeDtypeStruct((8,), "float32", sharding=spread.sharding), "cuda").devices)
with jax.default_device(second):
    print([*rematc.compile(lambda x: x + 1, x)(x).devices()] == [second])
print([*rematc.compile(lambda x: x + 1, there)(there).devices()] == [second])
print([*rematc.jit(lambda x: x + 1)(there).devices()] == [second])
"""


def test_arguments_say_over_how_many_devices_and_on_which() -> None:
    flags = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'\n"
    command = [sys.executable, "-c", f"{flags}import sys; sys.path[:0] = {sys.path!r}\n{_ON_FOUR_DEVICES}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["[1, 4, 4, 1]", "4", "True", "True", "True"], ran.stderr


def test_the_users_word_comes_first() -> None:
    here = jax.device_put(X, jax.devices()[0])
    assert target_of(here).device_kind == jax.devices()[0].device_kind
    assert target_of(here, "tpu") == Target.of("tpu")
    with targeting(FAR):
        assert current_target(here) is FAR


class Described:
    """A device of a topology: it has a platform and a kind, and perhaps memories."""

    def __init__(self, platform: str, *memories: str) -> None:
        self.client = SimpleNamespace(_raw_platform=platform)
        self.device_kind, self.id = "described", 0
        self.memories = [SimpleNamespace(kind=kind) for kind in memories]

    def addressable_memories(self) -> list[Any]:
        return self.memories


@pytest.mark.parametrize(
    ("device", "has_host"),
    [
        (Described("cuda"), True),  # as jaxlib describes one that programs are compiled for ahead of time
        (Described("tpu", "device", "pinned_host"), True),
        (Described("tpu", "device"), False),
        (Described("cpu", "device", "pinned_host"), False),
    ],
)
def test_a_device_that_is_not_there_has_the_hosts_memory_unless_it_says_otherwise(
    device: Described, has_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "default_device", lambda: device)
    assert target_of(()).has_host_memory is has_host


# -- several platforms, of which all but one are pretended -------------------------------------------------------------


@pytest.fixture
def two_platforms(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """As if there were a GPU, which is JAX's default, and negative numbers lay on the CPU; the targets of calls."""
    asked: list[Target] = []

    def of(arguments: Any, platform: str | None = None) -> Target:
        leaves = jax.tree_util.tree_leaves(arguments)
        found = any(not isinstance(leaf, jax.core.Tracer) and np.min(leaf) < 0 for leaf in leaves)
        asked.append(Target.of("cpu") if found else FAR)
        return asked[-1]

    monkeypatch.setattr(module, "_only_target", lambda: None)
    monkeypatch.setattr(module, "target_of", of)
    return asked


def test_a_function_is_staged_for_each_platform_that_its_arguments_lie_on(two_platforms: list[Target]) -> None:
    staged: list[str] = []

    def lower(x: Any) -> LoweredFunction:
        staged.append(current_target().platform)

        def body(b: Builder, x: Value) -> list[Value]:
            return [b.add(x, b.full(x.type, len(staged)))]

        return LoweredFunction(program([TensorType(F32, (3,))], body), jax.tree_util.tree_structure(0))

    function = Dispatcher(lower)
    for _ in range(2):
        np.testing.assert_array_equal(function(X), X + 1)
        np.testing.assert_array_equal(function(-X), -X + 2)
        np.testing.assert_array_equal(function(X), X + 1)
    assert staged == ["cuda", "cpu"]
    # Inside of what JAX traces nobody knows where it will run.
    np.testing.assert_array_equal(jax.jit(function)(-X), -X + 1)
    assert staged == ["cuda", "cpu"]


def test_within_a_program_all_is_for_its_target(two_platforms: list[Target]) -> None:
    with targeting(Target.of("tpu")):
        assert current_target(-X) == Target.of("tpu")
    assert current_target(-X) == Target.of("cpu") and current_target(X) == FAR


def test_nothing_else_asks_jax_for_its_default() -> None:
    folders = [Path(module.__file__).parents[1] / folder for folder in ("ir", "passes", "lowering", "compiler", "cli")]
    words = ("default_backend", "default_platform", "get_backend", "jax_default_device")
    found = {
        file.name
        for folder in folders
        for file in folder.rglob("*.py")
        if any(word in file.read_text(encoding="utf-8") for word in words)
    }
    assert found == {"targeting.py"}
