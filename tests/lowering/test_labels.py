"""XLA's instructions lead back to the value, the decision and the user's line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.compiler.driver.lowered import Compiled
from rematc.ir.core import Equation, Graph
from rematc.ir.printer import name_values
from rematc.lowering import module as lowering_module
from rematc.lowering.hlo.module import SourceLine, op_name, source_line
from rematc.lowering.hlo.origins import Origin, origin_in, origins_of
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.pipeline import default_pipeline
from rematc.passes.memory_timeline import BACKWARD, FORWARD, RECOMPUTED

X = np.ones((512, 128), np.float32)
WEIGHTS = np.full((4, 2, 128, 128), 1e-3, np.float32)
FILE = __file__


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
    return rematc.compile(rematc.value_and_grad(function, **options), WEIGHTS, X)


def values(graph: Graph, path: str = "") -> Iterator[tuple[str, Equation]]:
    """The equations of a graph and its regions by the names of their first results."""
    names = name_values(graph)
    for eqn in graph.equations:
        if eqn.results:
            here = path + names[eqn.results[0]]
            yield here, eqn
            for region in eqn.op.regions():
                yield from values(region, f"{here}/")


@pytest.mark.parametrize("function", [chain, loop])
@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_each_name_leads_to_a_value_and_its_line(function: Callable[..., Any], policy: str | None) -> None:
    one = compiled(function, policy=policy)
    module = parse_hlo(one.hlo_optimized())
    by_name = dict(values(one.lowered.graph))
    seen = set()
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            origin = origin_in(op_name(instruction))
            if origin is None or ";" in op_name(instruction):
                continue
            loc = by_name[origin.value].loc
            assert loc is not None and origin.function == loc.function
            if (line := source_line(instruction, module)) is not None:
                assert line == SourceLine(loc.file, loc.line) and loc.file == FILE
            seen.add(origin.phase)
    # The steps of a loop compute some of what is cheap again under any policy.
    assert seen >= {FORWARD, BACKWARD}
    assert (RECOMPUTED in seen) == (policy is not None or function is loop)


@pytest.mark.parametrize("function", [chain, loop])
def test_each_kernel_has_an_origin(function: Callable[..., Any]) -> None:
    module = parse_hlo(compiled(function, policy="nothing").hlo_optimized())
    found = origins_of(module)
    work = [
        instruction.name
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode in ("dot", "fusion", "convolution", "while", "custom-call")
    ]
    assert work and [name for name in work if name not in found] == []


def test_a_budget_names_its_stages() -> None:
    plain = compiled(chain)
    budget = plain.memory().temp_bytes * 3 // 4
    one = rematc.compile(rematc.value_and_grad(chain), WEIGHTS, X, budget=budget)
    assert one.plan is not None
    found = {origin.stage for origin in origins_of(parse_hlo(one.hlo_optimized())).values()}
    assert found - {0} and found - {0} <= set(range(1, len(one.plan.stages.begins) + 1))


def test_functions_that_xla_must_not_inline_say_what_their_calls_share() -> None:
    one = rematc.compile(rematc.value_and_grad(chain, policy="nothing"), WEIGHTS, X, passes=default_pipeline("call"))
    parts = {origin.part for origin in origins_of(parse_hlo(one.hlo_optimized())).values()}
    assert {"forward", "backward"} <= parts and any(part.startswith("recompute") for part in parts)
    assert '"recompute' in one.stablehlo() and "()/" in one.stablehlo()


@pytest.mark.parametrize("function", [chain, loop])
@pytest.mark.parametrize("policy", [None, "nothing"])
def test_names_change_nothing_else(
    function: Callable[..., Any], policy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def texts() -> tuple[str, str]:
        one = rematc.lower(rematc.value_and_grad(function, policy=policy), WEIGHTS, X)
        own = re.sub(r" loc\(.*?\)$|^#loc.*\n", "", one.stablehlo(), flags=re.MULTILINE)
        text = one.compile().hlo_optimized()
        # XLA names instructions by operations, and numbers what has one name.
        bare = re.sub(
            r", metadata=\{[^}]*\}|[\w.\-]+(?=: )", "", text[text.index("StackFrames") :].partition("\n\n")[2]
        )
        names = {name: f"%{number}" for number, name in enumerate(dict.fromkeys(re.findall(r"%[\w.\-]+", bare)))}
        return own, re.sub(r"%[\w.\-]+", lambda found: names[found[0]], bare)

    labelled = texts()
    monkeypatch.setattr(lowering_module, "phases_of", lambda graph: {})
    assert texts() == labelled


def jax_layer(weights: Any, x: Any) -> Any:
    return x + jnp.sin(jnp.tanh(x @ weights[0]) @ weights[1])


def jax_chain(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = jax_layer(weights, x)
    return jnp.mean(x * x)


def jax_loop(layers: Any, x: Any) -> Any:
    x, _ = jax.lax.scan(lambda carry, weights: (jax.checkpoint(jax_layer)(weights, carry), None), x, layers)
    return jnp.mean(x * x)


@pytest.mark.parametrize("function", [jax_chain, jax_loop])
def test_functions_of_jax_have_scopes_of_the_same_names(function: Callable[..., Any]) -> None:
    policy = "nothing" if function is jax_chain else None
    derivative = jax.jit(rematc.jax.value_and_grad(function, policy=policy))
    text: Any = derivative.lower(WEIGHTS, X).compile().as_text()
    found = origins_of(parse_hlo(text)).values()
    assert {origin.phase for origin in found} == {FORWARD, RECOMPUTED, BACKWARD}
    assert {"jax_layer", function.__name__} <= {origin.function for origin in found}


def test_a_step_that_jax_differentiated_has_the_same_names() -> None:
    def step(layers: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(jax_chain)(layers, x)
        return layers - 0.1 * gradient, {"norm": jnp.sum(gradient * gradient), "loss": value}

    x = np.ones((4096, 128), np.float32)
    planned: Any = rematc.jax.jit(step, budget="70%")
    text = planned.lower(WEIGHTS, x).compile().as_text()
    module = parse_hlo(text)
    found = origins_of(module)
    assert {origin.phase for origin in found.values()} == {FORWARD, RECOMPUTED, BACKWARD}
    written = {origin.phase for origin in found.values() if origin.function.endswith("step")}
    assert BACKWARD in written, "an optimizer reads gradients"


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("jit(f)/rematc_call/forward/g/dot_general_3#12", Origin(FORWARD, 0, "g", "dot_general_3", 12)),
        ("jit(f)/rematc_call/recompute/2/A.g/scan_9/tanh_3", Origin(RECOMPUTED, 2, "A.g", "scan_9/tanh_3", 0)),
        ("recompute/<lambda>/stage()/tanh_3", Origin(RECOMPUTED, 0, "<lambda>", "stage()/tanh_3", 0)),
        ("jit(f)/backward/?/tanh_7", Origin(BACKWARD, 0, "", "tanh_7", 0)),
        ("jit(forward)/forward/forward/tanh_1", Origin(FORWARD, 0, "forward", "tanh_1", 0)),
        ("forward/backward/tanh_1", Origin(FORWARD, 0, "backward", "tanh_1", 0)),
        ("jit(f)/backward/layer_1/tanh_1/g#3", Origin(BACKWARD, 0, "layer_1", "tanh_1", 0)),
        ("jit(f)/backward/g/sine_4;forward/g/sine_2", Origin(BACKWARD, 0, "g", "sine_4", 0)),
        (
            "jit(f)/backward/g/scan_4/while/body/recompute/1/h/scan_4/dot_0/dot_general",
            Origin(RECOMPUTED, 1, "h", "scan_4/dot_0", 0),
        ),
        ("jit(f)/forward/g", None),
        ("jit(f)/transpose(jvp(forward))/dot_general", None),
        ("", None),
    ],
)
def test_names_are_read(name: str, origin: Origin | None) -> None:
    assert origin_in(name) == origin


@pytest.mark.parametrize("is_jaxs", [False, True])
def test_a_module_that_says_what_it_transposed_has_them_too(is_jaxs: bool) -> None:
    """What JAX wrote of a step, and what rematc did, read as StableHLO and planned."""
    x = np.ones((4096, 128), np.float32)
    if is_jaxs:
        text = jax.jit(jax.value_and_grad(jax_chain)).lower(WEIGHTS, x).as_text(debug_info=True)
    else:
        text = rematc.lower(rematc.value_and_grad(chain), WEIGHTS, x).stablehlo()
    graph = rematc.from_stablehlo(text)
    budget = rematc.compile(graph, WEIGHTS, x).memory().temp_bytes * 7 // 10
    one = rematc.compile(graph, WEIGHTS, x, budget=budget)
    found = origins_of(parse_hlo(one.hlo_optimized())).values()
    assert {origin.phase for origin in found} == {FORWARD, RECOMPUTED, BACKWARD}
