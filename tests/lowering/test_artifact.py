"""Artifacts: what is saved is what is loaded, and a damaged file is the user's error."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
import pytest

from rematc.ir.errors import CompileError
from rematc.ir.ops.special import Erf
from rematc.ir.types import BF16, F32, F64, TensorType
from rematc.lowering.artifact import Artifact, load_artifact, save_artifact
from rematc.lowering.module import stablehlo_module
from rematc.lowering.program import Program
from rematc.lowering.runtime import compile_program
from tests.support.programs import program, read_module
from tests.support.samples import families, graph_of

VECTOR = TensorType(F32, (3,))
STEPS = np.arange(3, dtype=np.float32)
SCALE = np.ones((2, 2), ml_dtypes.bfloat16) * 3
tree = jax.tree_util.tree_structure


def artifact() -> Artifact:
    """erf(x) + steps, and a bfloat16 constant: CHLO, hidden arguments, an element type that NumPy cannot name."""
    step = program(
        [VECTOR, VECTOR, TensorType(BF16, (2, 2))],
        lambda b, x, steps, scale: [b.add(b.emit1(Erf(), x), steps), scale],
        name="step",
        constants=[STEPS, SCALE],
    )
    step = dataclasses.replace(step, is_depth_first=True)
    return Artifact(step, tree((({"x": 0},), {})), tree([0, 0]))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "step.rematc"
    save_artifact(artifact(), path)
    return path


def test_what_is_loaded_runs_like_what_was_saved(saved: Path) -> None:
    before, after = artifact(), load_artifact(saved)
    assert (after.in_tree, after.out_tree) == (before.in_tree, before.out_tree)
    assert after.program.param_types == before.program.param_types
    assert after.program.result_types == before.program.result_types
    assert after.program.name == "step"
    assert after.program.is_depth_first
    x = np.array([0.5, -1, 2], np.float32)
    for left, right in zip(compile_program(before.program)(x), compile_program(after.program)(x), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_the_users_lines_survive(tmp_path: Path) -> None:
    before = artifact()
    text = before.program.text.replace("loc(unknown)", 'loc("model.py":12:8)')
    located = type(before.program)(read_module(text), *_rest(before))
    save_artifact(Artifact(located, before.in_tree, before.out_tree), tmp_path / "a")
    assert '"model.py":12:8' in load_artifact(tmp_path / "a").program.text


def _rest(artifact: Artifact) -> tuple[Any, ...]:
    program = artifact.program
    return program.param_types, program.result_types, program.name, program.constants


def test_the_same_program_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    save_artifact(artifact(), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_only_the_file_itself_is_left_behind(saved: Path) -> None:
    save_artifact(artifact(), saved)
    assert [path.name for path in saved.parent.iterdir()] == ["step.rematc"]


@pytest.mark.parametrize(
    "example",
    [0, (), ((0, [0, None]), {}), {"b": 0, "a": (0,)}, {1: [], 0: {"x": {}}}],
)
def test_trees_survive(example: object, tmp_path: Path) -> None:
    step = Artifact(program([VECTOR], lambda b, x: [x]), tree(example), tree(example))
    save_artifact(step, tmp_path / "a")
    assert load_artifact(tmp_path / "a").in_tree == tree(example)


# Programs that call Python are refused: tests/compiler/api/debugging.
@pytest.mark.parametrize("family", sorted(families().keys() - {"effects"}))
def test_every_op_can_be_saved(family: str, tmp_path: Path) -> None:
    rows = {sample.op.name: sample for sample in families()[family]}
    for name, sample in rows.items():
        graph = graph_of(sample.op, sample.types)
        module = stablehlo_module(graph)
        if module.partitions:
            continue  # refused: tests/compiler/test_placements.py
        step = Program(module, graph.param_types, graph.result_types, name)
        path = tmp_path / name
        save_artifact(Artifact(step, tree(0), tree(0)), path)
        assert load_artifact(path).program.result_types == graph.result_types


class Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize(("example", "kind"), [(Pair(0, 0), "Pair"), ({(0, 1): 0}, "dict")])
def test_containers_that_a_file_cannot_name_are_refused(example: object, kind: str, tmp_path: Path) -> None:
    step = Artifact(program([VECTOR], lambda b, x: [x]), tree(example), tree(0))
    with pytest.raises(CompileError, match=f"in a {kind}; pass and return tuples"):
        save_artifact(step, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_file_cut_at_any_byte_is_named(saved: Path) -> None:
    data = saved.read_bytes()
    for keep in range(len(data)):
        saved.write_bytes(data[:keep])
        with pytest.raises(CompileError, match=r"step\.rematc is no artifact of rematc, or damaged"):
            load_artifact(saved)


def test_flipped_bytes_are_never_loaded_as_something_else(saved: Path) -> None:
    good = saved.read_bytes()
    expected = load_artifact(saved).program
    for place in range(0, len(good), 11):
        saved.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        try:
            loaded = load_artifact(saved).program
        except CompileError:
            continue
        # A byte that zip does not read (times, attributes).
        assert (loaded.text, loaded.param_types) == (expected.text, expected.param_types)
        assert [array.tobytes() for array in loaded.constants] == [array.tobytes() for array in expected.constants]


def _rewrite(path: Path, member: str, data: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in members.items():
            archive.writestr(name, data if name == member else old)


JUNK: list[object] = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    "x",
    [],
    {},
    [[]],
    [["f32", [-1], "device"]],
    [["f32", [3], "device"]] * 9,
]


def test_every_entry_of_another_kind_is_refused_or_does_not_matter(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        meta = json.loads(archive.read("meta.json"))
    for key in meta:
        for value in JUNK:
            _rewrite(saved, "meta.json", json.dumps(meta | {key: value}).encode())
            refused_or_loaded(saved)


def test_entries_mutated_at_any_byte_are_refused_or_do_not_matter(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        meta = archive.read("meta.json")
    for place in range(0, len(meta), 7):
        for piece in (b"", b"9", b"-", b'"', b"[", b"9" * 30):
            _rewrite(saved, "meta.json", meta[:place] + piece + meta[place + 1 :])
            refused_or_loaded(saved)


def refused_or_loaded(path: Path) -> None:
    """Reading the file gives an artifact, or the user's error."""
    try:
        load_artifact(path)
    except CompileError as error:
        assert error.message.startswith(str(path))


@pytest.mark.parametrize(
    ("member", "data"),
    [
        ("meta.json", b"[" * 100_000),
        ("meta.json", b"{}"),
        ("meta.json", b"[]"),
        ("meta.json", b"no json"),
        ("module.mlirbc", b""),
        ("module.mlirbc", b"no bytecode"),
        ("constants/0.bin", b"123"),
    ],
)
def test_contents_of_another_kind_are_named(saved: Path, member: str, data: bytes) -> None:
    _rewrite(saved, member, data)
    with pytest.raises(CompileError, match="no artifact of rematc, or damaged"):
        load_artifact(saved)


def test_a_newer_format_is_named(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        meta = json.loads(archive.read("meta.json"))
    _rewrite(saved, "meta.json", json.dumps(meta | {"version": 99}).encode())
    with pytest.raises(CompileError, match="format version 99, this rematc reads up to 1; upgrade"):
        load_artifact(saved)


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"cannot read .*nothing: No such file"):
        load_artifact(tmp_path / "nothing")
    with pytest.raises(CompileError, match=r"cannot write .*nowhere/a: No such file"):
        save_artifact(artifact(), tmp_path / "nowhere" / "a")


def test_a_scalar_of_64_bits_survives(tmp_path: Path) -> None:
    constant = np.array(2.0**-1074)
    step = program([TensorType(F64, ())], lambda b, c: [c], constants=[constant])
    save_artifact(Artifact(step, tree(((), {})), tree(0)), tmp_path / "a")
    (result,) = compile_program(load_artifact(tmp_path / "a").program)()
    assert float(result) == 2.0**-1074
