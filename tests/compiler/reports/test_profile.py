"""Profiles: every kernel that runs is counted as often as it runs, in its phase and at its line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import rematc
from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.reports.profile import PARTS, Profile, profile_of
from rematc.ir.errors import CompileError
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.profiling import KernelTime, Trace

X = np.ones((512, 128), np.float32)
WEIGHTS = np.full((4, 2, 128, 128), 1e-3, np.float32)


def layer(weights: Any, x: Any) -> Any:
    return x + np.sin(np.tanh(x @ weights[0]) @ weights[1])


def chain(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = layer(weights, x)
    return np.mean(x * x)


def loop(layers: Any, x: Any) -> Any:
    x, _ = rematc.lax.scan(lambda carry, weights: (layer(weights, carry), None), x, layers)
    return np.mean(x * x)


def compiled(function: Callable[..., Any], **options: Any) -> Compiled:
    return rematc.compile(rematc.value_and_grad(function, policy="nothing"), WEIGHTS, X, **options)


@pytest.fixture(scope="module", params=[chain, loop])
def profiled(request: pytest.FixtureRequest) -> tuple[Compiled, Profile]:
    one = compiled(request.param)
    return one, one.profile(WEIGHTS, X, runs=3)


def test_kernels_run_as_often_as_the_program_says(profiled: tuple[Compiled, Profile]) -> None:
    one, profile = profiled
    assert profile.runs == 3 and profile.seconds > 0 and profile.files == ()
    module = parse_hlo(one.hlo_optimized())
    entry = module.computations[module.entry or ""].instructions
    counts = {kernel.name: kernel.count for kernel in profile.kernels}
    fusions = [name for name, instruction in entry.items() if instruction.opcode == "fusion"]
    assert fusions and {counts[name] for name in fusions if name in counts} == {1}
    assert not {kernel.opcode for kernel in profile.kernels} & {"while", "call", "conditional"}
    if profile.function == "loop":
        inside = {kernel.count for kernel in profile.kernels if kernel.name not in entry}
        assert len(WEIGHTS) in inside and max(inside) <= len(WEIGHTS) + 1


def test_phases_and_lines_sum_up_to_all(profiled: tuple[Compiled, Profile]) -> None:
    _, profile = profiled
    parts = profile.by_part()
    assert sum(parts.values()) == pytest.approx(profile.busy_seconds)
    assert min(parts["forward"], parts["recompute"], parts["backward"]) > 0
    assert parts["other"] < 0.2 * profile.busy_seconds, "copies that XLA added"
    lines = profile.by_line()
    for part in PARTS:
        assert sum(times[part] for times in lines.values()) == pytest.approx(parts[part])
    most = next(iter(lines))
    assert most is not None and (most.file, most.function) == (__file__, "layer")


def test_the_text_has_both(profiled: tuple[Compiled, Profile]) -> None:
    lines = str(profiled[1]).splitlines()
    assert lines[0].startswith("profile: 3 runs of ")
    assert [line.split()[0] for line in lines[2:5]] == ["forward", "recompute", "backward"]
    assert next(line for line in lines if line.startswith("line")).split()[:4] == [
        "line",
        "forward",
        "recompute",
        "backward",
    ]


def test_the_trace_stays_where_it_is_asked_for(tmp_path: Path) -> None:
    one, folder = compiled(chain), tmp_path / "new/trace"
    files = [one.profile(WEIGHTS, X, directory=folder, runs=1).files for _ in range(2)]
    assert len({file for found in files for file in found}) == 4, "sessions of one second are two"
    for found in files:
        assert sorted(file.suffixes[-1] for file in found) == [".gz", ".pb"]
        (readable,) = [file for file in found if file.name.endswith(".trace.json.gz")]
        with gzip.open(readable, "rt", encoding="utf-8") as stream:
            events = json.load(stream)["traceEvents"]
        assert any(event.get("args", {}).get("hlo_op") for event in events), "Perfetto shows instructions"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


@pytest.mark.parametrize("error", [ValueError("no trace"), KeyboardInterrupt()])
def test_what_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def failing(file: str) -> object:
        raise error

    monkeypatch.setattr(jax.profiler.ProfileData, "from_file", failing)
    with pytest.raises(type(error)):
        compiled(chain).profile(WEIGHTS, X, directory=tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


def test_where_no_directory_can_be_it_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match="cannot write a trace to"):
        compiled(chain).profile(WEIGHTS, X, directory=tmp_path / "file")


def test_donated_arguments_are_there_for_each_run() -> None:
    def add(x: Any, y: Any) -> Any:
        return x + y

    step: Any = rematc.jit(add, donate_argnums=0)
    x, y = jax.numpy.ones((64, 64)), jax.numpy.ones((64, 64))
    one = step.lower(x, y).compile()
    assert one.profile(x, y, runs=2).runs == 2
    assert not x.is_deleted()


def test_arguments_are_those_of_a_call() -> None:
    with pytest.raises(CompileError, match="was compiled for"):
        compiled(chain).profile(WEIGHTS, X[:2])


def test_a_program_without_names_has_lines_all_the_same() -> None:
    profile = rematc.compile(chain, WEIGHTS, X).profile(WEIGHTS, X, runs=1)
    assert profile.by_part()["other"] == pytest.approx(profile.busy_seconds)
    assert __file__ in {loc.file for loc in profile.by_line() if loc is not None}


def test_seconds_are_of_one_run_and_executions_are_counted() -> None:
    text = """\
HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  %sine_1 = f32[2] sine(%x), metadata={op_name="jit(f)/forward/g/sine_1" source_file="m.py" source_line=3}
  ROOT %copy.1 = f32[2] copy(%sine_1)
}
"""
    module = parse_hlo(text)
    instructions = module.computations["main"].instructions
    trace = Trace((KernelTime(instructions["sine_1"], 0.5, 4), KernelTime(instructions["x"], 0.1, 2)), (2.0, 1.0), ())
    profile = profile_of("f", module, trace)
    assert [(kernel.seconds, kernel.count, kernel.part) for kernel in profile.kernels] == [
        (0.25, 2, "forward"),
        (0.05, 1, "other"),
    ]
    assert profile.seconds == 1.5
    found = profile.as_dict()
    assert found["parts"] == {"forward": 0.25, "recompute": 0, "backward": 0, "other": 0.05}
    assert found["lines"] == [
        {"source": "m.py:3", "function": "g", "forward": 0.25, "recompute": 0, "backward": 0, "other": 0},
        {"source": None, "function": "", "forward": 0, "recompute": 0, "backward": 0, "other": 0.05},
    ]
