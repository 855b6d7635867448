"""Programs compiled for devices that are not here: figures, checks, plans, saving; and that nothing runs.

Where a compiler is not installed its tests are skipped, and those that need none run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import rematc
import rematc.jax as rjax
from benchmarks.parallel import PROGRAMS as SPREAD
from benchmarks.parallel.program import REAL
from rematc.compiler.reports.check import KEPT, UNDONE, UNKNOWN
from rematc.ir.errors import CompileError
from rematc.lowering.artifact import load_artifact, save_artifact
from tests.support.ahead import COMPILERS, compiler_for, complaints

X = np.linspace(0, 1, 8, dtype=np.float32)
Struct: Any = jax.ShapeDtypeStruct


def f32(*shape: int) -> Any:
    return Struct(shape, "float32")


def bf16(*shape: int) -> Any:
    return Struct(shape, "bfloat16")


# -- programs ----------------------------------------------------------------------------------------------------------


def mlp(weights: Any, x: Any) -> Any:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.sum(x)


def attention(weights: Any, x: Any) -> Any:
    query, key, value, out = weights
    for _ in range(2):
        parts = [(x @ weight).reshape(2, 64, 2, 32) for weight in (query, key, value)]
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", *parts[:2]) / 6, -1)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", scores, parts[2]).reshape(2, 64, 64) @ out
    return jnp.mean(x**2)


def convolutions(kernels: Any, x: Any) -> Any:
    for kernel in kernels:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.nn.gelu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers))
    return jnp.mean(x**2)


def scanned(weights: Any, x: Any) -> Any:
    return jnp.sum(jax.lax.scan(lambda carry, weight: (jnp.tanh(carry @ weight), None), x, weights)[0])


def recurrent(weights: Any, steps: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        return jnp.tanh(state @ weights[0] + x @ weights[1]), None

    return jnp.sum(jax.lax.scan(step, jnp.zeros((steps.shape[1], len(weights[0]))), steps)[0])


def experts(weights: Any, x: Any) -> Any:
    for _ in range(2):
        x = x + jnp.einsum("enh,ehd->end", jax.nn.gelu(jnp.einsum("end,edh->enh", x, weights[0])), weights[1])
    return jnp.sum(x**2)


def language(weights: Any, tokens: Any) -> Any:
    x = weights[0][tokens]
    for weight in weights[1]:
        x = x + jnp.tanh(x @ weight)
    return -jnp.mean(jax.nn.log_softmax(x @ weights[0].T)[:, 0])


def branching(weight: Any, x: Any) -> Any:
    for _ in range(2):
        x = jax.lax.cond(x[0, 0] > 0, lambda one: jnp.tanh(one @ weight), lambda one: jnp.sin(one @ weight), x)
    return jnp.sum(x)


def looping(weight: Any, x: Any) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, 4, lambda _, one: jnp.tanh(one @ weight), x))


def vectors(weight: Any, x: Any) -> Any:
    for _ in range(3):
        x = jnp.sin(weight @ x)
    return jnp.sum(x)


def pooled(kernel: Any, x: Any) -> Any:
    for _ in range(2):
        x = jnp.sin(jax.lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 1), (1, 2, 1), "VALID")
    return jnp.sum(x)


def narrow(weights: Any, x: Any) -> Any:
    """Sums of many terms for few elements, which XLA for GPUs splits."""
    for wide, tall in weights:
        x = jnp.tanh(jnp.tanh(x @ wide) @ tall)
    return jnp.sum(x)


Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Program] = {
    "mlp": (mlp, ([f32(128, 128)] * 4, f32(256, 128))),
    "mlp in 16 bits": (mlp, ([bf16(128, 128)] * 4, bf16(256, 128))),
    "attention": (attention, ([bf16(64, 64)] * 4, bf16(2, 64, 64))),
    "convolutions": (convolutions, ([f32(3, 3, 16, 16)] * 3, f32(4, 16, 16, 16))),
    "scanned": (scanned, (f32(4, 128, 128), f32(64, 128))),
    "recurrent": (recurrent, ((f32(64, 64), f32(32, 64)), f32(6, 16, 32))),
    "experts": (experts, ((bf16(4, 32, 64), bf16(4, 64, 32)), bf16(4, 64, 32))),
    "language": (language, ((f32(512, 64), [f32(64, 64)] * 2), Struct((128,), "int32"))),
    "branching": (branching, (f32(64, 64), f32(32, 64))),
    "looping": (looping, (f32(64, 64), f32(32, 64))),
    "vectors": (vectors, (f32(128, 128), f32(128))),
    "pooled": (pooled, (f32(3, 16, 16), f32(4, 64, 16))),
    "narrow": (narrow, ([(bf16(2048, 32), bf16(32, 2048))] * 2, bf16(32, 2048))),
}


@pytest.mark.parametrize("target", COMPILERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_compiles_and_keeps_what_is_recomputed(name: str, target: str) -> None:
    loss, args = PROGRAMS[name]
    step = rematc.value_and_grad(rematc.from_jax(loss), policy="nothing")
    compiled = rematc.compile(step, *args, target=compiler_for(target))
    check = compiled.check()
    assert check.verdict == {"vectors": UNKNOWN}.get(name, KEPT), str(check)
    assert compiled.memory().argument_bytes > 0 and compiled.flops() > 0
    assert f"XLA on {target}" in str(compiled.report()) and compiled.report().as_dict()["target"] == target
    assert "ENTRY" in compiled.hlo_optimized() and "ENTRY" in compiled.hlo()
    with pytest.raises(CompileError, match=f"was compiled for '{target}' .*, which is not here: it can be read"):
        compiled(*jax.tree_util.tree_map(lambda one: np.ones(one.shape, one.dtype), args))


@pytest.mark.parametrize("target", COMPILERS)
@pytest.mark.parametrize("name", ["mlp", "convolutions", "experts"])
def test_without_barriers_the_check_says_that_recomputation_is_undone(name: str, target: str) -> None:
    loss, args = PROGRAMS[name]
    step = rematc.value_and_grad(rematc.from_jax(loss), policy="nothing")
    passes = "barriers{strategy=none},simplify,cse,dce"
    check = rematc.compile(step, *args, target=compiler_for(target), passes=passes).check()
    assert check.verdict == UNDONE, str(check)


@pytest.mark.parametrize("target", COMPILERS)
def test_jaxs_checkpoints_are_checked_on_the_device_that_arguments_lie_on(target: str) -> None:
    place = SingleDeviceSharding(rematc.targets.devices(compiler_for(target))[0])

    def loss(weight: Any, x: Any) -> Any:
        for _ in range(3):
            x = jax.checkpoint(lambda one: jnp.sin(one @ weight))(x)
        return jnp.sum(x)

    found = rematc.check_jax(jax.grad(loss), *[Struct((256, 256), "float32", sharding=place)] * 2)
    plain = jax.grad(lambda weight, x: jnp.sum(jnp.sin(jnp.sin(jnp.sin(x @ weight) @ weight) @ weight)))
    without = jax.jit(plain).lower(*[Struct((256, 256), "float32", sharding=place)] * 2).compile()
    analysis: Any = without.memory_analysis()
    assert found.without_bytes == analysis.temp_size_in_bytes and found.flops > 0


def test_python_is_called_by_programs_for_gpus_that_are_here_alone() -> None:
    def printing(x: Any) -> Any:
        rematc.debug.print("{x}", x=x[0])
        return x * 2

    assert rematc.compile(printing, X, target=compiler_for("v5e")).memory().argument_bytes > 0
    with pytest.raises(CompileError, match="which JAX compiles for a GPU that is here alone, and 'h100' is not"):
        rematc.compile(printing, X, target=compiler_for("h100"))


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", COMPILERS)
def test_a_plan_is_made_with_the_rates_and_the_memory_of_the_target(target: str) -> None:
    loss, args = PROGRAMS["mlp"]
    step = rematc.value_and_grad(rematc.from_jax(loss))
    lowered = rematc.lower(step, *args, target=compiler_for(target), budget="device")
    results = sum(type.bytes for type in lowered.program.result_types)
    assert lowered.budget is not None and lowered.plan is not None
    assert lowered.budget.budget == rematc.targets.memory(target) - results - lowered.bytes_to_place()
    assert f"({target})" in str(lowered.plan)
    curve = rematc.pareto(step, *args, target=target, points=2, policies=("dots",), measure=False)
    assert (curve.target, curve.device) == (target, target)


# -- devices in shardings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", COMPILERS)
def test_shardings_say_what_a_program_is_for(target: str) -> None:
    place = SingleDeviceSharding(rematc.targets.devices(compiler_for(target))[0])
    weights, x = [Struct((64, 64), "float32", sharding=place)] * 2, Struct((32, 64), "float32", sharding=place)
    compiled = rematc.compile(rematc.value_and_grad(rematc.from_jax(mlp), policy="dots"), weights, x)
    assert compiled.executable.target.name == target and not compiled.executable.target.is_here
    jitted: Any = rjax.jit(rjax.value_and_grad(mlp, policy="nothing"))
    theirs = jitted.lower(weights, x).compile()
    assert theirs.memory_analysis().argument_size_in_bytes >= 3 * 32 * 64 * 4
    other = next(one for one in COMPILERS if one != target)
    with pytest.raises(CompileError, match=f"arguments lie on devices of kind .* not of the target '{other}'"):
        rematc.compile(mlp, weights, x, target=compiler_for(other))


@pytest.mark.parametrize("target", ["h100:8", "v5e:2x4"])
def test_a_program_is_spread_over_many_devices_that_are_not_here(target: str) -> None:
    mesh = Mesh(np.array(rematc.targets.devices(compiler_for(target))), ("data",))
    spec: Any = PartitionSpec  # which JAX leaves unannotated
    whole, rows = NamedSharding(mesh, spec()), NamedSharding(mesh, spec("data"))
    weights, x = [Struct((128, 128), "float32", sharding=whole)] * 2, Struct((512, 128), "float32", sharding=rows)
    step = rematc.value_and_grad(rematc.from_jax(mlp), policy="nothing")
    for given in ({}, {"target": target}):
        compiled = rematc.compile(step, weights, x, **given)
        assert compiled.executable.target.devices == 8
        # The rows of a device, and both weights.
        assert compiled.memory().argument_bytes == 4 * (64 * 128 + 2 * 128 * 128)
        assert "all-reduce" in compiled.hlo_optimized() and not compiled.check().is_broken
    with pytest.raises(CompileError, match="compiled for 8 devices, and neither saved nor pickled"):
        compiled.save(os.devnull)


@pytest.mark.parametrize("policy", [None, "nothing"])
def test_what_each_of_many_devices_takes_is_predicted(policy: str | None) -> None:
    """Tensor parallel: sums over devices are as large as what lies whole, and so are the terms of the sums."""
    program = SPREAD["tensor"]
    mesh = program.mesh(np.array(rematc.targets.devices(compiler_for("h100:8"))), "Auto")
    built = program.build(mesh, REAL)
    step = rematc.value_and_grad(rematc.from_jax(built.loss_of(lambda layer: layer)), policy=policy)
    compiled = rematc.compile(step, *built.given)
    assert compiled.lowered.predicted_peak() == pytest.approx(compiled.memory().temp_bytes, rel=0.15)


@pytest.mark.parametrize("target", ["h100:8", "v5e:2x4"])
def test_a_program_of_one_device_is_not_compiled_for_many(target: str) -> None:
    with pytest.raises(CompileError, match=f"nothing in .* is spread over the 8 devices of '{target}'; give arguments"):
        rematc.compile(lambda x: x + 1, X, target=compiler_for(target))


# -- saving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", COMPILERS)
def test_a_program_for_another_device_is_saved_and_not_loaded_here(target: str, tmp_path: Path) -> None:
    compiled = rematc.compile(lambda x: x * 2, X, target=compiler_for(target))
    compiled.save(tmp_path / "double")
    with pytest.raises(CompileError, match=f"compiled for '{target}', and JAX runs on 'cpu' here; load it where a"):
        rematc.load(tmp_path / "double")
    here: Any = rematc.load(tmp_path / "double", target="cpu")
    np.testing.assert_array_equal(here(X), X * 2)
    assert rematc.load(tmp_path / "double", target=target).executable.target.name == target


def test_a_file_says_which_device_it_is_for(tmp_path: Path) -> None:
    """As if the compiler had been here: nothing of it is needed to load a file."""
    made = rematc.compile(lambda x: x * 2, X).artifact
    save_artifact(replace(made, device="h100"), tmp_path / "double")
    assert load_artifact(tmp_path / "double").device == "h100"
    with pytest.raises(CompileError, match="'<lambda>' was compiled for 'h100', and JAX runs on 'cpu' here; load it"):
        rematc.load(tmp_path / "double")
    here: Any = rematc.load(tmp_path / "double", target="cpu")
    np.testing.assert_array_equal(here(X), X * 2)


def test_what_is_another_function_elsewhere_is_not_loaded_there(tmp_path: Path) -> None:
    def chosen(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    made = rematc.lower(rematc.from_jax(chosen), X, target="cuda")
    here = rematc.compile(rematc.from_jax(chosen), X)
    save_artifact(replace(here.artifact, program=made.program), tmp_path / "chosen")
    with pytest.raises(CompileError, match=r"was traced for platform 'cuda', on which '.*' is not what it is on 'cpu'"):
        rematc.load(tmp_path / "chosen")
    here.save(tmp_path / "chosen")
    loaded: Any = rematc.load(tmp_path / "chosen")
    np.testing.assert_allclose(loaded(X), np.sin(X), rtol=1e-6)  # XLA's sine is another one


# -- the command -------------------------------------------------------------------------------------------------------

_MODEL = """
import numpy as np

def loss(w, target):
    return np.sum(np.tanh(w @ target) ** 2)

def example_args():
    return np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)
"""


@pytest.mark.parametrize("options", [(), ("--target", "h100"), ("--target", "v5e", "--compare", "none,nothing")])
def test_the_command_starts_no_plugin_that_fails(options: tuple[str, ...], tmp_path: Path) -> None:
    if options:
        compiler_for(options[1])
    (tmp_path / "model.py").write_text(_MODEL)
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {
        name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS" and not name.startswith("TPU_")
    }
    ran = subprocess.run(
        [sys.executable, "-m", "rematc", str(tmp_path / "model.py"), "-q", *options],
        env={**environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, complaints(ran.stderr)) == (0, [])
    name = options[1] if options else "cpu"
    assert f"XLA on {name}" in ran.stdout
    assert ("not run, as the device need not be here" in ran.stdout) is ("--compare" in options)


def test_offloaded_values_leave_the_gpu() -> None:
    """On the device is no more than under `nothing`, and what two copies under way hold."""
    target, rows, width, layers = compiler_for("h100"), 4096, 512, 6

    def loss(weights: Any, x: Any) -> Any:
        for first, second in weights:
            x = x + jax.nn.gelu(checkpoint_name(x @ first, "a")) @ second  # type: ignore[no-untyped-call]  # jax
        return jnp.sum(x**2)

    given = [(f32(width, width), f32(width, width))] * layers, f32(rows, width)
    made = {}
    for policy in ("nothing", "offload=a"):
        step = rematc.value_and_grad(rematc.from_jax(loss), policy=policy)
        made[policy] = rematc.compile(step, *given, target=target).memory()
    size = rows * width * 4
    assert made["offload=a"].temp_bytes <= made["nothing"].temp_bytes + 2 * size
    assert made["offload=a"].host_temp_bytes >= (layers - 2) * size


def test_edges_of_a_graph_are_not_in_a_gpus_memory_between_a_gather_and_a_scatter() -> None:
    """No array of edges is held that layers by hand, each in a `jax.checkpoint`, do not hold; predictions know it."""
    nodes, edges, width, layers = 2000, 32_000, 128, 4
    target = compiler_for("h100")
    sharding = jax.sharding.SingleDeviceSharding(rematc.targets.devices(target)[0])

    def layer(w: Any, x: Any, source: Any, sink: Any) -> Any:
        message = jax.nn.relu(x @ w[0])[source] * jax.nn.sigmoid((x @ w[1])[source] + (x @ w[2])[sink])
        return x + jnp.tanh(jax.ops.segment_sum(message, sink, nodes))

    def loss(weights: Any, x: Any, source: Any, sink: Any, layer: Any = layer) -> Any:
        for index in range(layers):
            x = layer(weights[index], x, source, sink)
        return jnp.mean(x**2)

    def by_hand(*args: Any) -> Any:
        return loss(*args, layer=jax.checkpoint(layer))  # type: ignore[misc]  # four arguments

    def like(*shape: int, dtype: str = "float32") -> Any:
        return Struct(shape, dtype, sharding=sharding)

    args = like(layers, 3, width, width), like(nodes, width), like(edges, dtype="int32"), like(edges, dtype="int32")
    lowered = rematc.lower(rematc.grad(rematc.from_jax(loss), policy="nothing"), *args)
    taken = lowered.compile().memory().temp_bytes
    hand: Any = jax.jit(jax.grad(by_hand)).lower(*args).compile().memory_analysis()
    assert taken < hand.temp_size_in_bytes + edges * width * 4
    assert taken / 1.3 <= lowered.predicted_peak() <= taken * 1.3
