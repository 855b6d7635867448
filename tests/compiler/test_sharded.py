"""Arguments that are spread over several devices: programs are compiled for them, and recomputation is kept.

Four devices of the host's have to be asked for before JAX starts, so one other process runs all of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, re
import jax, numpy as np, rematc
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("devices",))
random = np.random.default_rng(0)
weights = [random.normal(0, 0.1, (64, 64)).astype(np.float32) for _ in range(4)]
x = random.normal(0, 1, (1024, 64)).astype(np.float32)
everywhere = [jax.device_put(w, NamedSharding(mesh, PartitionSpec())) for w in weights]
rows = jax.device_put(x, NamedSharding(mesh, PartitionSpec("devices")))


def loss(weights, x):
    for w in weights:
        x = x + np.tanh(np.tanh(x @ w) @ w)
    return np.mean(x * x)


def bits(tree):
    return [np.asarray(leaf).tobytes().hex() for leaf in jax.tree_util.tree_leaves(tree)]


def refusal(function, *args):
    try:
        function(*args)
    except rematc.CompileError as error:
        return error.message


said = {}
for policy in (None, "nothing"):
    step = rematc.value_and_grad(loss, policy=policy)
    compiled = rematc.compile(step, everywhere, rows)
    value, gradients = compiled(everywhere, rows)
    check = compiled.check()
    said[str(policy)] = {
        "value": float(value), "bits": bits((value, gradients)), "called": bits(step(everywhere, rows)),
        "sharding": [len(one.sharding.device_set) for one in gradients],
        "temporary": compiled.memory().temp_bytes, "verdict": check.verdict, "planned": check.comparison.planned,
        "recomputed": check.comparison.recomputed, "found": check.comparison.found,
        "predicted": check.predicted_bytes, "inside": bits(jax.jit(step)(everywhere, rows)),
        "from numpy": bits(compiled(weights, x)),
    }
shape = jax.ShapeDtypeStruct
shapes = [
    [shape(w.shape, w.dtype, sharding=w.sharding) for w in everywhere], shape(x.shape, x.dtype, sharding=rows.sharding)
]
said["shapes"] = rematc.compile(rematc.value_and_grad(loss, policy="nothing"), *shapes).memory().temp_bytes
one = rematc.compile(rematc.value_and_grad(loss), weights, x)
said["one"] = float(one(weights, x)[0])
report = rematc.compile(rematc.value_and_grad(loss, policy="dots"), everywhere, rows).report()
(derivative,) = report.derivatives
said["report"] = {
    "text": str(report), "sizes": {str(row.type): row.bytes for row in (*derivative.residuals, *derivative.arguments)},
}
saved = rematc.saved_residuals(loss, everywhere, rows)
said["saved"] = {str(row.type): row.bytes for row in saved}


def slope(weights, x, direction):
    found = rematc.grad(loss, policy="dots")(weights, x)
    return sum(np.sum(one * other) for one, other in zip(found, direction))


twice = rematc.grad(slope, policy="dots")
alone = [np.asarray(one) for one in rematc.compile(twice, weights, x, weights)(weights, x, weights)]
spread = everywhere, rows, everywhere
together = [np.asarray(one) for one in rematc.compile(twice, *spread)(*spread)]
said["second"] = max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in zip(together, alone))
said["refused"] = [refusal(one, everywhere, rows), refusal(compiled, everywhere, jax.device_put(x, jax.devices()[0]))]
print(json.dumps(said))
"""


@cache
def said() -> dict[str, Any]:
    flags = "--xla_force_host_platform_device_count=4"  # optimized: else fusions are rounded in another way
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_compiled_program_runs_where_its_arguments_lie() -> None:
    plain, kept = said()["None"], said()["nothing"]
    assert plain["sharding"] == kept["sharding"] == [4] * 4
    assert abs(kept["value"] - said()["one"]) < 1e-5, "sums of rows in another order"


def test_recomputation_is_kept_on_each_device() -> None:
    plain, kept = said()["None"], said()["nothing"]
    assert kept["verdict"] == "kept"
    assert kept["recomputed"] >= 4
    assert kept["found"] == str(kept["planned"])
    assert kept["temporary"] < 0.75 * plain["temporary"]
    assert plain["verdict"] == "no product recomputed"


def test_second_derivatives_under_a_policy_are_those_of_one_device() -> None:
    """Segments of the first derivative stand in what the second one is taken of."""
    assert said()["second"] < 1e-4


def test_sizes_in_reports_are_those_on_each_device() -> None:
    """The batch's rows are spread over four devices, and weights whole on each."""
    found = said()["report"]
    assert found["sizes"] == {"f32[1024,64]": 1024 * 64 * 4 // 4, "f32[64,64]": 64 * 64 * 4}
    assert found["sizes"] == {type: said()["saved"][type] for type in found["sizes"]}
    assert "saved by the policy: 8 values, 512.0 KiB on each device" in found["text"]
    assert "of all devices together" in found["text"]


def test_what_one_device_takes_is_predicted() -> None:
    for policy in ("None", "nothing"):
        found = said()[policy]
        assert abs(found["predicted"] - found["temporary"]) < 0.15 * found["temporary"], (policy, found["predicted"])


def test_values_stay_bit_for_bit() -> None:
    expected = said()["None"]["bits"]
    for policy in ("None", "nothing"):
        for how in ("bits", "called", "inside", "from numpy"):
            assert said()[policy][how] == expected, (policy, how)


def test_shapes_with_shardings_will_do() -> None:
    assert said()["shapes"] == said()["nothing"]["temporary"]


def test_arguments_elsewhere_are_refused() -> None:
    spread, single = said()["refused"]
    assert spread.startswith("'loss' was compiled for array 0 on the device cpu:0, got one on 4 devices (cpu, ")
    assert "(cpu, PartitionSpec" in single or "(cpu, P(" in single
    assert single.endswith("or move the array there with jax.device_put")
