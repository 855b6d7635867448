"""The example models as NumPy code, without rematc: what each says of itself holds."""

from __future__ import annotations

import ast
import importlib.util
import math
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(tree: Any) -> list[Any]:
    """The arrays of nested tuples, lists and dicts."""
    if isinstance(tree, dict):
        return leaves(list(tree.values()))
    if isinstance(tree, (list, tuple)):
        return [leaf for child in tree for leaf in leaves(child)]
    return [tree]


def test_the_examples_are_the_four_of_the_documentation() -> None:
    assert NAMES == ["convnet", "mlp", "sin_chain", "transformer"]


@pytest.mark.parametrize("name", NAMES)
def test_example_imports_numpy_alone(name: str) -> None:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in imported] == ["import numpy as np"]


@pytest.mark.parametrize("name", NAMES)
def test_example_arguments_are_the_same_each_time_and_32_bit(name: str) -> None:
    first, second = (leaves(load(name).example_args()) for _ in range(2))
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype in (np.float32, np.int32)


@pytest.mark.parametrize("name", NAMES)
def test_running_an_example_prints_its_loss(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    value = module["loss"](*module["example_args"]())
    assert capsys.readouterr().out == f"loss {value:.6f}\n"
    assert value.shape == () and value.dtype == np.float32
    assert module["loss"].__doc__ and module["example_args"].__doc__


@pytest.mark.parametrize(("name", "classes"), [("transformer", "VOCABULARY"), ("convnet", "CLASSES")])
def test_an_untrained_classifier_guesses(name: str, classes: str) -> None:
    module = load(name)
    chance = math.log(getattr(module, classes))
    assert abs(module.loss(*module.example_args()) - chance) < 0.1


def test_an_untrained_prediction_is_uncorrelated_with_the_target() -> None:
    module = load("mlp")
    layers, x, target = module.example_args()
    independent = np.mean(np.square(module.mlp(layers, x))) + np.mean(np.square(target))
    # The mean of 2M products of independent unit normals has a standard deviation of 1/1448.
    assert abs(module.loss(layers, x, target) - independent) < 0.01


def test_convolution_of_an_impulse_is_the_reversed_kernel() -> None:
    module = load("convnet")
    kernel = np.arange(9, dtype=np.float32).reshape(3, 3, 1, 1)
    image = np.zeros((1, 5, 5, 1), np.float32)
    image[0, 2, 2, 0] = 1
    result = module.convolution(image, kernel)
    np.testing.assert_array_equal(result[0, 1:4, 1:4, 0], kernel[::-1, ::-1, 0, 0])


def test_attention_reads_no_later_position() -> None:
    module = load("transformer")
    params, tokens, _ = module.example_args()
    changed = tokens.copy()
    changed[:, 200:] = 0
    before, after = module.transformer(params, tokens[:1]), module.transformer(params, changed[:1])
    np.testing.assert_array_equal(before[:, :200], after[:, :200])
    assert np.any(before[:, 200:] != after[:, 200:])


def test_sin_chain_is_three_sines() -> None:
    module = load("sin_chain")
    W1, W2, W3, x = module.example_args()  # noqa: N806  # the matrices' names in the example
    assert [W.shape for W in (W1, W2, W3)] == [(5, 4), (6, 5), (7, 6)]
    np.testing.assert_array_equal(module.f(W1, W2, W3, x), np.sin(W3 @ np.sin(W2 @ np.sin(W1 @ x))))
