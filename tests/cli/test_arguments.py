"""The arguments to compile for: types as written, arrays made of them, example_args()."""

from __future__ import annotations

import click
import numpy as np
import pytest

from rematc.cli.arguments import parse_type, random_arrays
from rematc.ir.types import DTYPES, DType, TensorType
from tests.support.command import Command, WriteModel


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_spelling_of_an_element_type(dtype: DType) -> None:
    for spelling in (dtype.name, dtype.mlir, dtype.name.upper(), dtype.numpy.name):
        assert parse_type(f"{spelling}[2,3]") == TensorType(dtype, (2, 3))


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("f32[5,4]", "f32[5,4]"),
        ("f32[5, 4]", "f32[5,4]"),
        (" f32[5,4] ", "f32[5,4]"),
        ("f32[5,]", "f32[5]"),
        ("f32[]", "f32[]"),
        ("f32", "f32[]"),
        ("f32[0]", "f32[0]"),
        ("ui8[3]", "u8[3]"),
        ("i1[]", "bool[]"),
        ("complex<f32>[2]", "c64[2]"),
        ("float32[5,4]", "f32[5,4]"),
        ("int64[8]", "i64[8]"),
        ("bfloat16[8]", "bf16[8]"),
    ],
)
def test_type_as_written(text: str, type: str) -> None:
    assert str(parse_type(text)) == type


@pytest.mark.parametrize("text", ["", "f32[", "f32]", "f32[a]", "f32[-1]", "f32[1,,2]", "f32[,]", "[3]", "f32(3)"])
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no array type"):
        parse_type(text)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_arrays_have_their_type_and_are_the_same_each_time(dtype: DType) -> None:
    type = TensorType(dtype, (3, 2))
    first, second = random_arrays([type])[0], random_arrays([type])[0]
    assert first.shape == (3, 2) and first.dtype == type.dtype.numpy
    np.testing.assert_array_equal(first.view(np.uint8), second.view(np.uint8))


def test_scalars_are_arrays() -> None:
    for array in random_arrays([parse_type(text) for text in ("f32", "c64", "bool", "i32")]):
        assert isinstance(array, np.ndarray) and array.shape == ()


def test_integers_are_valid_indices_and_floats_are_not_alike() -> None:
    indices, floats, others = random_arrays([parse_type("i32[9]"), parse_type("f32[9]"), parse_type("f32[9]")])
    assert not indices.any()
    assert len(set(floats.tolist())) == 9 and np.any(floats != others)


def test_arg_gives_the_types_of_the_arguments(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(w, i): return np.sum(w[i])")
    result = command(model, "--arg", "f64[5,4]", "--arg", "i32[3]", "--emit", "ir")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("graph @loss(%w: f64[5,4], %i: i32[3]) -> (f64[]) {\n")


def test_arg_takes_the_place_of_example_args(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(x): return np.sum(x)\ndef example_args(): raise AssertionError")
    assert "%x: f32[7]" in command(model, "--arg", "f32[7]", "--emit", "ir").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["f32[3]"], "'loss(w, x)' does not take the 1 argument of --arg: missing a required argument: 'x'"),
        (["f32[3]"] * 3, "'loss(w, x)' does not take the 3 arguments of --arg: too many positional arguments"),
    ],
)
def test_wrong_number_of_arg(command: Command, write_model: WriteModel, args: list[str], message: str) -> None:
    model = write_model("def loss(w, x): return np.sum(w * x)")
    result = command(model, *(part for arg in args for part in ("--arg", arg)))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"model.py:2: error: {message}")
    assert "    2 | def loss(w, x): return np.sum(w * x)" in result.stderr


def test_no_arguments_at_all(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(w, x): return np.sum(w * x)"))
    assert result.exit_code == 1
    assert "the shapes of 'loss(w, x)' are not known; define example_args()" in result.stderr
    assert "--arg 'f32[5,4]'" in result.stderr


def test_example_args_of_the_wrong_number(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(w, x): return np.sum(w * x)\ndef example_args(): return (np.ones(3),)"))
    assert result.exit_code == 1
    assert "does not take the 1 argument of example_args()" in result.stderr


def test_example_args_that_returns_one_array(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(x): return np.sum(x)\ndef example_args(): return np.ones(3)"))
    assert result.exit_code == 1
    assert "example_args() returned a ndarray, expected a tuple of arguments: return (x,)" in result.stderr


def test_example_args_that_fails_shows_its_line(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(x): return np.sum(x)\ndef example_args():\n    return 1 / 0"))
    assert result.exit_code == 1
    assert result.stderr == (
        "model.py:4:12: error: ZeroDivisionError: division by zero\n    4 |     return 1 / 0\n      |            ^\n"
    )


def test_argnums_out_of_range(command: Command, write_model: WriteModel) -> None:
    result = command(write_model("def loss(x): return np.sum(x)"), "--arg", "f32[3]", "--argnums", "2")
    assert result.exit_code == 1
    assert "argnums names argument 2" in result.stderr


def test_types_need_no_memory_unless_the_program_runs(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(w, x): return np.sum(np.sin(w @ x))")
    terabytes = ("--arg", "f32[1000000,1000000]", "--arg", "f32[1000000]")
    result = command(model, *terabytes, "--emit", "stablehlo")
    assert result.exit_code == 0, result.stderr
    assert "tensor<1000000x1000000xf32>" in result.stdout
    assert command(model, *terabytes, "--run").exit_code == 1


def test_shapes_without_values_compile_and_do_not_run(command: Command, write_model: WriteModel) -> None:
    source = """
    import jax

    def loss(x): return np.sum(np.sin(x))

    def example_args(): return (jax.ShapeDtypeStruct((3,), np.float32),)
    """
    model = write_model(source)
    assert command(model).exit_code == 0
    result = command(model, "--run")
    assert result.exit_code == 1
    assert "x is a ShapeDtypeStruct without values, and the program is to run" in result.stderr
