"""Devices that need not be here: their names, what XLA is told of them, what is said where no compiler is."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError
from rematc.lowering import described as module
from rematc.lowering.described import MODELS, PLATFORMS, described_devices, is_described
from rematc.lowering.target import Target
from rematc.lowering.targeting import target_of
from rematc.passes.planning.device import DEVICES
from tests.support.ahead import compiler_for, complaints

X = np.ones((8, 8), np.float32)


def test_each_device_with_rates_is_a_target_but_the_cpu() -> None:
    assert {"cpu", *MODELS} == set(DEVICES) and rematc.targets.names() == tuple(MODELS)
    assert all(DEVICES[name].memory and DEVICES[name].kinds for name in MODELS)


@pytest.mark.parametrize("name", [*MODELS, "h100:8", "h100:2x8", "v5e:4x4", "v5p:2x2x1"])
def test_names_of_devices_that_need_not_be_here(name: str) -> None:
    assert is_described(name)


@pytest.mark.parametrize("name", PLATFORMS)
def test_platforms_are_here_or_nowhere(name: str) -> None:
    assert not is_described(name)
    with pytest.raises(CompileError, match=f"'{name}' is a platform, whose devices are here or nowhere"):
        described_devices(name)


@pytest.mark.parametrize("name", ["abacus", "h100:", "h100:x", "h100:0", "v5e:1x2x3x4", "cpu:8", "H100", "", "v5e 4x4"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(
        CompileError, match=r"is no target; devices that need not be here are a100, .*h100:8 and v5e:4x4"
    ):
        is_described(name)
    with pytest.raises(CompileError, match="is no target"):
        rematc.compile(lambda x: x + 1, X, target=name)


@pytest.mark.parametrize(("name", "extra"), [("h100", "cuda"), ("a100:8", "cuda"), ("v5e", "tpu"), ("v5e:4x4", "tpu")])
def test_without_the_compiler_the_error_says_how_to_install_it(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: str, **__: str) -> list[jax.Device]:
        raise NotImplementedError

    monkeypatch.setattr(module, f"{'gpu' if extra == 'cuda' else 'tpu'}_devices", missing)
    described_devices.cache_clear()
    with pytest.raises(CompileError, match=rf"for '{name}' is not installed; .*: pip install 'rematc\[{extra}\]'"):
        rematc.compile(lambda x: x + 1, X, target=name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("h100:1x2x3", "GPUs are so many in a host, or hosts x GPUs of each; write h100:8 or such"),
        ("v5e:4", "chips of v5e form a torus of 2 dimensions; write v5e:4x4 or such"),
        ("v5p:4x4", "chips of v5p form a torus of 3 dimensions; write v5p:4x4x4 or such"),
    ],
)
def test_what_cannot_be_put_together_so_is_refused(name: str, reason: str) -> None:
    with pytest.raises(CompileError, match=f"there is no '{name}': {reason}"):
        described_devices(name)


def test_devices_that_are_here_are_those_of_their_platform() -> None:
    assert rematc.targets.devices("cpu") == jax.devices("cpu")
    with pytest.raises(CompileError, match=r"no platform 'rocm' here .*or a target that need not be here: a100, "):
        rematc.targets.devices("rocm")


@pytest.mark.parametrize("name", MODELS)
def test_a_target_has_the_kind_that_its_rates_are_found_by(name: str) -> None:
    target = target_of((), compiler_for(name))
    assert not target.is_here and target.name == name and target.devices == 1
    assert target.platform == ("tpu" if name.startswith("v") else "cuda") and target.has_host_memory
    assert rematc.targets.memory(name) == DEVICES[name].memory


@pytest.mark.parametrize(("name", "count"), [("h100:8", 8), ("h100:2x4", 8), ("v5e:4x4", 16), ("v4:2x2x1", 4)])
def test_many_of_a_device_are_the_same_ones_each_time(name: str, count: int) -> None:
    devices = rematc.targets.devices(compiler_for(name))
    assert len(devices) == count and devices == rematc.targets.devices(name)


def test_what_libtpu_does_not_know_is_said() -> None:
    compiler_for("v5e")
    with pytest.raises(CompileError, match=r"there is no 'v5e:3x3': .*write v5e:4x4 or such"):
        described_devices("v5e:3x3")


def test_a_target_that_is_here_is_called_by_its_platform() -> None:
    assert Target.of("gpu").name == "cuda" and target_of(X).name == jax.devices()[0].platform


_QUIET = """
import sys
sys.path[:0] = {path!r}
import numpy as np, rematc, rematc.jax
try:
    rematc.compile(lambda x: x @ x, np.ones((8, 8), np.float32), target={target!r})
except rematc.CompileError as error:
    assert "is not installed" in error.message
"""


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_asking_for_a_target_starts_no_plugin_that_fails(target: str, clean_environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", _QUIET.format(path=sys.path, target=target)]
    ran = subprocess.run(command, env=clean_environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, complaints(ran.stderr)) == (0, "", [])


_LATE = """
import sys
sys.path[:0] = {path!r}
import jax, rematc
jax.devices()
print(len(rematc.targets.devices({target!r})))
"""


@pytest.mark.parametrize("target", ["h100:8", "v5e:2x4"])
def test_a_target_can_be_asked_for_after_jax_has_looked_for_devices(
    target: str, clean_environment: dict[str, str]
) -> None:
    command = [sys.executable, "-c", _LATE.format(path=sys.path, target=compiler_for(target))]
    ran = subprocess.run(command, env=clean_environment, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-1:] == ["8"], ran.stderr


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """The environment of a user who has not chosen a platform."""
    return {
        name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS" and not name.startswith("TPU_")
    }
