"""Policies and predictions where arguments are spread over devices: what counts is what one device holds.

Eight devices of the host's have to be asked for before JAX starts, so one other process runs all of it. The programs
are those of `benchmarks/parallel`: layers with products whose factors are spread, and activations between them that are
whole on each device, or spread along another axis.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support.many_devices import ROOT, said_by

PROGRAM = (
    f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
"""
    + """
import json
import jax, numpy as np, rematc, rematc.jax
from benchmarks.parallel import PROGRAMS
from benchmarks.parallel.program import Sizes

SIZES = Sizes(layers=4, width=128, heads=8, hidden=512, tokens=128, batch=32)
by_hand = lambda layer: jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)
plain = lambda layer: layer
said = {}
for name, kind in (("both", "Explicit"), ("both", "Auto"), ("both, scan", "Auto"), ("data", "Auto")):
    program = PROGRAMS[name]
    mesh = program.mesh(np.array(jax.devices()), kind)
    with jax.set_mesh(mesh) if kind == "Explicit" else mesh:
        built = program.build(mesh, SIZES)
        loss = built.loss_of(plain)
        own = {
            policy: rematc.compile(rematc.value_and_grad(rematc.from_jax(loss), policy=policy), *built.given)
            for policy in ("none", "nothing", "dots")
        }
        hand = jax.jit(jax.value_and_grad(built.loss_of(by_hand))).lower(*built.given).compile()
        # Inside of JAX only the types of an Explicit mesh say how arguments lie.
        step = rematc.jax.value_and_grad(loss, policy="dots")
        inside = jax.jit(step).lower(*built.given).compile() if kind == "Explicit" else None
        said[f"{name}, {kind}"] = {
            "by hand": hand.memory_analysis().temp_size_in_bytes,
            "inside": inside and inside.memory_analysis().temp_size_in_bytes,
            "taken": {policy: one.memory().temp_bytes for policy, one in own.items()},
            "predicted": {policy: one.lowered.predicted_peak() for policy, one in own.items()},
            "reported": own["dots"].report().figures.predicted_bytes,
            "at the peak": sum(one.size for one in timeline.standing(timeline.at))
            if (timeline := own["dots"].report().inspection.predicted) else 0,
        }
print(json.dumps(said))
"""
)
CASES = ["both, Explicit", "both, Auto", "both, scan, Auto", "data, Auto"]


@cache
def said() -> dict[str, Any]:
    return said_by(PROGRAM, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_dots_take_no_more_than_layers_by_hand(name: str) -> None:
    found = said()[name]
    assert found["taken"]["dots"] <= found["by hand"]
    assert found["taken"]["nothing"] < 0.7 * found["taken"]["dots"]


@pytest.mark.slow
def test_inside_jax_types_say_how_arguments_lie() -> None:
    found = said()["both, Explicit"]
    assert found["inside"] <= found["by hand"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_one_device_takes_is_predicted(name: str) -> None:
    taken, predicted = said()[name]["taken"], said()[name]["predicted"]
    off = [abs(predicted[policy] / taken[policy] - 1) for policy in taken]
    assert max(off) < 0.3
    assert sum(off) / len(off) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_reports_show_it(name: str) -> None:
    found = said()[name]
    assert found["reported"] == found["predicted"]["dots"]
    assert 0.5 * found["reported"] < found["at the peak"] <= found["reported"]
