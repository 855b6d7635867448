"""The command on models written in JAX: found out, compiled, reported at the model's lines."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.command import Command, WriteModel

MODEL = """
    import jax
    import jax.numpy as jnp

    def block(w, x):
        return jnp.tanh(x @ w)

    def loss(params, x, key):
        for w in params:
            x = jax.checkpoint(block)(w, x)
        return (jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0) ** 2).sum()

    def example_args():
        return [np.eye(4, dtype=np.float32)] * 2, np.ones((3, 4), np.float32), jax.random.key(1)
"""
NUMPY_WITH_JAX_ARGUMENTS = """
    import jax

    def loss(w, x):
        return np.sum(np.sin(np.dot(w, x)))

    def example_args():
        return jax.numpy.ones((3, 4)), jax.random.normal(jax.random.key(0), (4,))
"""
OPERATORS = """
    def loss(w, x):
        return ((w @ x) ** 2).sum()

    def example_args():
        return np.ones((3, 4), np.float32), np.ones(4, np.float32)
"""
FOREIGN = """
    import jax.numpy as jnp
    from jax.extend.core import Primitive
    from jax.interpreters import ad, mlir

    double_p = Primitive("double")
    double_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(double_p, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    ad.deflinear(double_p, lambda ct: [ct * 2])

    def loss(x):
        return jnp.sum(double_p.bind(double_p.bind(x)))

    def example_args():
        return (np.ones(3, np.float32),)
"""


def test_a_jax_model_is_found_out_and_its_values_are_those_of_jax(command: Command, write_model: WriteModel) -> None:
    path = write_model(MODEL)
    result = command(path, "--policy", "dots", "--run", "--json", "-q")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["run"]["loss"]
    namespace: dict[str, Any] = {}
    exec(path.read_text(), namespace)
    assert found == pytest.approx(float(namespace["loss"](*namespace["example_args"]())), rel=1e-5)


def test_the_report_names_the_model_s_arguments_and_lines(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(MODEL), "--policy", "dots", "-q")
    assert "from the argument params[0]" in result.stdout
    assert "from the argument key\n" in result.stdout
    assert "output of dot_general from model.py:7 (block)" in result.stdout


def test_a_numpy_model_with_arguments_from_jax_stays_one(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(NUMPY_WITH_JAX_ARGUMENTS), "--emit", "ir")
    assert result.exit_code == 0, result.output
    assert "sine" in result.stdout


@pytest.mark.parametrize("frontend", ["auto", "numpy", "jax"])
def test_operators_alone_are_traced_by_either(frontend: str, command: Command, write_model: WriteModel) -> None:
    result = command(write_model(OPERATORS), "--frontend", frontend, "--run", "--json", "-q")
    assert json.loads(result.stdout)["run"]["loss"] == 48.0


def test_the_numpy_frontend_can_be_forced(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(MODEL), "--frontend", "numpy", "-q")
    assert result.exit_code == 1
    assert "error" in result.stderr


def test_a_module_beside_the_model_may_be_what_imports_jax(command: Command, write_model: WriteModel) -> None:
    write_model("import jax.numpy as jnp\ndef layer(w, x): return jnp.sin(w @ x)\n", "layers_beside.py")
    model = write_model(
        """
        from layers_beside import layer

        def loss(w, x):
            return layer(w, x).sum()

        def example_args():
            return np.ones((3, 4), np.float32), np.ones(4, np.float32)
        """
    )
    result = command(model, "--run", "--json", "-q")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["run"]["loss"] == pytest.approx(3 * np.sin(4), rel=1e-5)


def test_the_report_lists_what_came_in_through_jax(command: Command, write_model: WriteModel) -> None:
    model = write_model(FOREIGN)
    assert "double x2 from model.py:13 (loss)" in command(model, "-q").stdout
    document = json.loads(command(model, "-q", "--json").stdout)
    assert [(one["name"], one["count"]) for one in document["imported_through_jax"]] == [("double", 2)]


def test_the_report_says_which_work_it_cannot_count(command: Command, write_model: WriteModel) -> None:
    model = write_model(
        """
        import jax
        import jax.numpy as jnp

        def loss(w):
            triangle, vectors = jax.lax.linalg.schur(jax.lax.stop_gradient(w))
            return jnp.sum(jnp.square(vectors @ w))

        def example_args():
            return (np.eye(3, dtype=np.float32),)
        """
    )
    said = "without the FLOPs of calls of libraries, which are not known: lapack_sgees_ffi\n"
    assert said in command(model, "-q", "--policy", "auto").stdout
    document = json.loads(command(model, "-q", "--policy", "auto", "--json").stdout)
    assert [one["uncounted_calls"] for one in document["derivatives"]] == [{"lapack_sgees_ffi": 1}]
    document = json.loads(command(model, "-q", "--policy", "nothing", "--json").stdout)
    assert [one["uncounted_calls"] for one in document["derivatives"]] == [{"lapack_sgees_ffi": 2}]


def test_what_cannot_be_imported_is_an_error_at_the_model_s_line(command: Command, write_model: WriteModel) -> None:
    model = write_model(
        """
        import jax
        from jax.experimental.xla_metadata import set_xla_metadata

        def loss(x):
            with set_xla_metadata(mark="here"):
                return jax.numpy.sin(x).sum()
        """
    )
    result = command(model, "--arg", "f32[3]", "-q")
    assert result.exit_code == 1
    assert "model.py:8:" in result.stderr
    assert "JAX's 'sin' has metadata for XLA" in result.stderr


def test_gradients_of_the_command_are_those_of_jax(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(MODEL), "--policy", "nothing", "--run", "--json", "-q", "--argnums", "1")

    def loss(x: Any) -> Any:
        for _ in range(2):
            x = jnp.tanh(x)
        return (jnp.where(jax.random.bernoulli(jax.random.key(1), 0.5, x.shape), x, 0) ** 2).sum()

    expected = float(jnp.linalg.norm(jax.grad(loss)(jnp.ones((3, 4)))))
    assert json.loads(result.stdout)["run"]["gradient_norm"] == pytest.approx(expected, rel=1e-4)
