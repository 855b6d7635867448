"""Documents of JSON have the schemas that the command prints, and no key that these do not know."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema  # type: ignore[import-untyped]  # its types are another package
import pytest

from rematc.cli.json_schema import SCHEMAS, schema_of
from rematc.cli.options import DOCUMENTS
from tests.support.ahead import compiler_for
from tests.support.command import Command, WriteModel

MODEL = """\
    import numpy as np

    def example_args():
        return [np.ones((128, 128), "float32") / 128 for _ in range(6)], np.ones((256, 128), "float32")

    def loss(weights, x):
        for weight in weights:
            x = np.tanh(x @ weight)
        return np.sum(x * x)
    """

LOOP = """\
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    def example_args():
        return jnp.ones((8, 128, 128)) / 128, jnp.ones((1024, 128))

    def loss(weights, x):
        def layer(x, weight):
            x = checkpoint_name(jnp.tanh(x @ weight), "hidden")
            return jnp.sin(x @ weight.T), None
        x, _ = jax.lax.scan(layer, x, weights)
        return jnp.sum(jnp.sort(x, -1) * x)
    """

BRANCHES = """\
    import jax
    import jax.numpy as jnp

    def example_args():
        return jnp.ones((8, 128, 128)) / 128, jnp.ones((1024, 128))

    def loss(weights, x):
        def layers(x):
            for index in range(8):
                x = jax.checkpoint(lambda x, weight: jnp.sin(jnp.tanh(x @ weight) @ weight.T))(x, weights[index])
            return x
        return jnp.sum(jax.lax.cond(weights[0, 0, 0] > 0, layers, jnp.tanh, x) ** 2)
    """

HEAD = """\
    import jax
    import jax.numpy as jnp

    def example_args():
        return jnp.ones((32, 2048)), jnp.ones((512, 32)), jnp.zeros(512, jnp.int32)

    def loss(w, x, y):
        logits = x @ w
        picked = jnp.take_along_axis(logits, y[:, None], -1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)
    """


def closed(schema: Any) -> Any:
    """The schema, which allows no properties but those that it knows."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    return found | {"additionalProperties": False} if "required" in found else found


def check(document: str, text: str) -> Any:
    """What a document holds, which is as its schema says."""
    found = json.loads(text)
    jsonschema.validate(found, closed(schema_of(document)))
    return found


def test_the_command_prints_schemas_that_are_valid(command: Command) -> None:
    assert set(DOCUMENTS) == set(SCHEMAS)
    for document in DOCUMENTS:
        result = command("--json-schema", document)
        assert result.exit_code == 0
        schema = json.loads(result.stdout)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"] == f"urn:rematc:{document}:1"


REPORTS: dict[str, tuple[str, list[str]]] = {
    "no policy": (MODEL, []),
    "a policy, quiet": (MODEL, ["--policy", "nothing", "-q"]),
    "a policy, compared": (MODEL, ["--policy", "dots"]),
    "in calls": (MODEL, ["--policy", "nothing", "--barrier", "call"]),
    "undone": (MODEL, ["--policy", "nothing", "--barrier", "none"]),
    "run": (MODEL, ["--policy", "nothing", "--run", "-q"]),
    "a budget": (MODEL, ["--budget", "60%", "--never-repeat", "sort"]),
    "a loop": (LOOP, ["--policy", "names=hidden"]),
    "a budget of a loop": (LOOP, ["--budget", "50%"]),
    "slices": (HEAD, ["--slices", "4"]),
    "a budget of branches": (BRANCHES, ["--budget", "90%"]),
    "a budget and slices": (HEAD, ["--slices", "auto", "--budget", "40%", "-q"]),
}


@pytest.mark.each_case
@pytest.mark.parametrize("case", REPORTS)
def test_reports_are_as_their_schema_says(command: Command, write_model: WriteModel, case: str) -> None:
    model, options = REPORTS[case]
    result = command(write_model(model), "--json", *options)
    assert result.stdout, result.stderr
    found = check("report", result.stdout)
    assert (found["run"] is not None) == ("--run" in options)
    assert (found["budget"] is not None) == ("--budget" in options)
    assert (found["slices"] is not None) == ("--slices" in options)


def test_a_report_with_a_profile_is_as_its_schema_says(
    command: Command, write_model: WriteModel, tmp_path: Path
) -> None:
    result = command(write_model(MODEL), "--json", "-q", "--policy", "nothing", "--profile", tmp_path / "trace")
    assert check("report", result.stdout)["profile"]["kernels"], result.stderr


def test_a_report_on_a_device_that_is_not_here_is_as_its_schema_says(command: Command, write_model: WriteModel) -> None:
    target = compiler_for("h100")
    result = command(write_model(MODEL), "--json", "--policy", "nothing", "--target", target)
    assert check("report", result.stdout)["target"] == "h100", result.stderr


def test_comparisons_curves_differences_and_plans_are_as_their_schemas_say(
    command: Command, write_model: WriteModel
) -> None:
    model = write_model(MODEL)
    compared = check("comparison", command(model, "--json", "-q", "--compare", "none,nothing,names=no").stdout)
    assert [row["policy"] for row in compared["policies"]] == ["none", "nothing", "names=no"]
    check("pareto", command(model, "--json", "-q", "--pareto").stdout)
    assert check("diff", command("diff", f"{model}@none", f"{model}@nothing", "--json", "-q").stdout)["changed"]
    plan = command(model, "-q", "--budget", "60%", "--keep", "", "--emit", "plan-json")
    assert check("plan", plan.stdout)["stages"], plan.stderr


def test_plans_of_loops_are_as_their_schema_says(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(LOOP), "-q", "--budget", "50%", "--never-repeat", "sort", "--emit", "plan-json")
    found = check("plan", result.stdout)
    assert found["loops"]
    assert found["constraints"]["never_repeat"] == ["sort"]


def test_modules_have_reports_of_the_same_schema(command: Command, tmp_path: Path) -> None:
    step: Callable[..., Any] = jax.value_and_grad(lambda w: jnp.sum(jnp.tanh(jnp.tanh(w @ w) @ w)))
    struct: Any = jax.ShapeDtypeStruct
    file = tmp_path / "step.mlir"
    file.write_text(jax.jit(step).lower(struct((128, 128), jnp.float32)).as_text())
    result = command(file, "--json", "-q")
    assert check("report", result.stdout)["derivatives"] == [], result.stderr


def test_a_key_that_a_schema_does_not_know_is_noticed(command: Command, write_model: WriteModel) -> None:
    """Else the tests here would say nothing of what is new."""
    text = command(write_model(MODEL), "--json", "-q").stdout
    known = closed(copy.deepcopy(schema_of("report")))
    del known["properties"]["decisions"]["items"]["properties"]["place"]
    known["properties"]["decisions"]["items"]["required"].remove("place")
    with pytest.raises(jsonschema.ValidationError, match="'place' was unexpected"):
        jsonschema.validate(json.loads(text), known)
