"""Compiled functions as files: portable StableHLO that other versions of jaxlib read.

A file is a zip archive of `meta.json` (types, trees, versions), `module.mlirbc` (a StableHLO portable artifact) and
`constants/N.bin` (row-major elements of the closed-over arrays). CHLO ops stay CHLO inside; StableHLO's compatibility
promise does not reach them, and they load wherever the dialect still has the op.
"""

from __future__ import annotations

import dataclasses
import io
import json
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from rematc.ir.errors import CompileError
from rematc.ir.types import DTYPES, TensorType
from rematc.ir.values import Array
from rematc.lowering.program import Module, PlatformChoice, Program
from rematc.lowering.reading import module_of
from rematc.lowering.target import Target
from rematc.lowering.validation import mlir_context, parse
from rematc.lowering.writer import tensor
from rematc.passes.planning.device import device_of_kind

FORMAT = "rematc artifact"
VERSION = 1
_PIECE = 1 << 24  # bytes that are written at a time
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: What reading a file raises that is no artifact: not zip, not JSON, encrypted, nested without end, of other types.
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, NotImplementedError),
    *(KeyError, TypeError, ValueError, OverflowError, MemoryError, AttributeError),
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled function.

    Attributes:
        program: what it runs.
        in_tree: how `(args, kwargs)` make up the program's leaves.
        out_tree: how the program's results make up what the function returns.
        donated: indices of the leaves whose memory the results may take over.
        compiler_options: options of XLA by name, those of the user's.
        static_positions: the arguments that it was compiled for by value.
        static_names: these by name.
        device: the kind of device that it was compiled for, of `rematc.targets`, where it was not there; else "".
    """

    program: Program
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    donated: tuple[int, ...] = ()
    compiler_options: tuple[tuple[str, str | bool | int], ...] = ()
    static_positions: tuple[int, ...] = ()
    static_names: tuple[str, ...] = ()
    device: str = ""

    def check_device(self, target: Target) -> None:
        """Raise CompileError where it was compiled for a device that was not there, and the target is another one."""
        found = device_of_kind(target.device_kind)
        if self.device and (found is None or found.name != self.device):
            raise CompileError(
                f"'{self.program.name}' was compiled for '{self.device}', and JAX runs on '{target.device_kind}' here; "
                f"load it where a '{self.device}' is, or compile it for what is here with target='{target.platform}', "
                "which what it keeps and computes again was not chosen for"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a file is written. Containers are pickled by themselves: any that pickle takes."""
        bare = dataclasses.replace(self, in_tree=_LEAF, out_tree=_LEAF)
        buffer = io.BytesIO()
        _write(bare, buffer)
        trees = [tree.unflatten([0] * tree.num_leaves) for tree in (self.in_tree, self.out_tree)]
        return _unpickled, (buffer.getvalue(), *trees)


_LEAF = jax.tree_util.tree_structure(0)


def _unpickled(data: bytes, in_example: Any, out_example: Any) -> Artifact:
    in_tree, out_tree = map(jax.tree_util.tree_structure, (in_example, out_example))
    return dataclasses.replace(_read(io.BytesIO(data), "the pickled function"), in_tree=in_tree, out_tree=out_tree)


def save_artifact(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Write a compiled function to a file, whole or not at all.

    Raises:
        CompileError: for a program that calls Python functions, where the file cannot be written, or for arguments
            or results in containers that a file cannot name: tuples, lists, dicts with string or integer keys, and
            None it can.
    """
    with _replaced(Path(path)) as partial:
        _write(artifact, partial)


def _write(artifact: Artifact, file: Path | IO[bytes]) -> None:
    program = artifact.program
    if program.module.callbacks:
        raise CompileError(
            f"'{program.name}' calls Python functions (debug.print, debug.callback, pure_callback), which a file "
            "cannot hold; compile it without them to save or pickle it"
        )
    if program.module.partitions:
        raise CompileError(
            f"'{program.name}' has sharding constraints, which a file cannot hold; compile it without them to save it",
            program.module.constrained_at,
        )
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "name": program.name,
        "param_types": [_type_to_json(type) for type in program.param_types],
        "result_types": [_type_to_json(type) for type in program.result_types],
        "constants": len(program.constants),
        "is_depth_first": program.is_depth_first,
        "in_tree": _tree_to_json(artifact.in_tree),
        "out_tree": _tree_to_json(artifact.out_tree),
        "donated": list(artifact.donated),
        "compiler_options": dict(artifact.compiler_options),
        "device": artifact.device,
        "choice": None if program.choice is None else [program.choice.platform, program.choice.what],
        "static": [list(artifact.static_positions), list(artifact.static_names)],
        "stablehlo": stablehlo.get_current_version(),
    }
    module = _serialize(program.text)
    with zipfile.ZipFile(file, "w") as archive:
        _add(archive, "meta.json", json.dumps(meta, indent=1).encode(), zipfile.ZIP_DEFLATED)
        _add(archive, "module.mlirbc", module, zipfile.ZIP_DEFLATED)
        for index, array in enumerate(program.constants):
            _add(archive, f"constants/{index}.bin", _bytes_of(array), zipfile.ZIP_STORED)


def load_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Read what `save_artifact` wrote.

    Every byte is covered by zip's check sums, so a damaged file is refused. A forged one can be anything: MLIR's
    reader of bytecode, which sees it then, is not made for strangers' files.

    Raises:
        CompileError: for a file that is not there, damaged, or written by a newer version.
    """
    return _read(path, os.fspath(path))


def _read(file: str | os.PathLike[str] | IO[bytes], name: str) -> Artifact:
    try:
        with zipfile.ZipFile(file) as archive:
            meta = json.loads(archive.read("meta.json"))
            _check_format(meta, name)
            module = archive.read("module.mlirbc")
            data = [archive.read(f"constants/{index}.bin") for index in range(meta["constants"])]
        param_types = tuple([_type_from_json(type) for type in meta["param_types"]])
        result_types = tuple([_type_from_json(type) for type in meta["result_types"]])
        hidden = param_types[len(param_types) - len(data) :]
        program = Program(
            _deserialize(module, param_types, result_types),
            param_types=param_types,
            result_types=result_types,
            name=meta["name"],
            constants=tuple([_array(type, elements) for type, elements in zip(hidden, data, strict=True)]),
            is_depth_first=bool(meta.get("is_depth_first", False)),
            choice=_choice_from_json(meta.get("choice")),
        )
        static_positions, static_names = map(tuple, meta.get("static", ([], [])))
        return Artifact(
            program,
            _tree_from_json(meta["in_tree"]),
            _tree_from_json(meta["out_tree"]),
            tuple(map(int, meta.get("donated", ()))),
            tuple(sorted(meta.get("compiler_options", {}).items())),
            static_positions=static_positions,
            static_names=static_names,
            device=str(meta.get("device", "")),
        )
    except OSError as error:
        raise CompileError(f"cannot read {name}: {error.strerror or error}") from None
    except _DAMAGES as error:
        raise CompileError(f"{name} is no artifact of rematc, or damaged ({error}); save it anew") from None


def _choice_from_json(data: Any) -> PlatformChoice | None:
    """What of the program was taken for one platform. Raises ValueError or TypeError for what says no such thing."""
    if data is None:
        return None
    platform, what = data
    return PlatformChoice(str(platform), str(what), None)


def _check_format(meta: Any, name: str) -> None:
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError("another format")
    if meta["version"] > VERSION:
        raise CompileError(
            f"{name} has format version {meta['version']}, this rematc reads up to {VERSION}; "
            "upgrade rematc, or save it with this version"
        )


def _add(archive: zipfile.ZipFile, name: str, data: bytes | memoryview, compression: int) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)  # the same bytes for the same program
    info.compress_type = compression
    info.file_size = len(data)  # so that it is known whether 32 bits suffice for it
    with archive.open(info, "w") as member:
        for start in range(0, len(data), _PIECE):
            member.write(data[start : start + _PIECE])


def _bytes_of(array: Array) -> memoryview:
    """The elements in row-major order, not copied where they lie so; element types of ml_dtypes have no buffers."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which then takes its place, or is gone."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CompileError(f"cannot write {path}: {error.strerror or error}") from None


# -- the module --------------------------------------------------------------------------------------------------------


def _serialize(text: str) -> bytes:
    """The module in the oldest version of StableHLO that has all its ops."""
    requirement = stablehlo.StablehloCompatibilityRequirement
    versions = [
        stablehlo.get_minimum_version(),
        stablehlo.get_version_from_compatibility_requirement(requirement.WEEK_12),
        stablehlo.get_current_version(),
    ]
    with mlir_context() as context:
        module = parse(text)
        context.attach_diagnostic_handler(lambda diagnostic: True)  # a version that lacks an op is no news to the user
        for version in versions:
            try:
                data: bytes = stablehlo.serialize_portable_artifact(module, version, allow_other_dialects=True)
            except ValueError:
                continue
            return data
    raise CompileError(f"StableHLO {versions[-1]} cannot serialize this program; save its text instead")


def _deserialize(data: bytes, param_types: Sequence[TensorType], result_types: Sequence[TensorType]) -> Module:
    """The module. Raises ValueError where this is no module whose `main` has these types."""
    expected = [tensor(type) for type in (*param_types, *result_types)]
    with mlir_context() as context:
        context.attach_diagnostic_handler(lambda diagnostic: True)
        try:
            module = stablehlo.deserialize_portable_artifact(context, data)
        except ir.MLIRError as error:
            raise ValueError(str(error)) from None
        if module is None:
            raise ValueError(f"StableHLO {stablehlo.get_current_version()} does not read the module")
        symbols = ir.SymbolTable(module.operation)
        if "main" not in symbols:
            raise ValueError("no function 'main'")
        main: Any = symbols["main"]
        signature = main.type
        if [str(type) for type in (*signature.inputs, *signature.results)] != expected:
            raise ValueError(f"'main' is {signature}")
        return module_of(module)


# -- types, arrays, trees ----------------------------------------------------------------------------------------------


def _type_to_json(type: TensorType) -> list[Any]:
    return [type.dtype.name, list(type.shape), "host" if type.on_host else "device"]


def _type_from_json(data: Sequence[Any]) -> TensorType:
    dtype, shape, memory = data
    return TensorType(DTYPES[dtype], tuple(shape), memory == "host")


def _array(type: TensorType, data: bytes) -> Array:
    return np.frombuffer(data, type.dtype.numpy).reshape(type.shape)


def _tree_to_json(tree: PyTreeDef) -> Any:
    """A leaf as 0, None as null, the containers under their names."""
    data = tree.node_data()
    if data is None:
        return 0
    kind, keys = data
    children = [_tree_to_json(child) for child in tree.children()]
    if kind is type(None):
        return None
    if kind in (tuple, list):
        return {kind.__name__: children}
    if kind is dict and all(isinstance(key, (str, int)) for key in keys):
        return {"dict": [[key, child] for key, child in zip(keys, children, strict=True)]}
    raise CompileError(
        f"a file cannot hold arguments or results in a {kind.__name__}; "
        "pass and return tuples, lists, dicts with string or integer keys, and None"
    )


def _tree_from_json(data: Any) -> PyTreeDef:
    return jax.tree_util.tree_structure(_example_from_json(data))


def _example_from_json(data: Any) -> Any:
    match data:
        case 0 | None:
            return data
        case {"tuple": children}:
            return tuple([_example_from_json(child) for child in children])
        case {"list": children}:
            return [_example_from_json(child) for child in children]
        case {"dict": items}:
            return {key: _example_from_json(child) for key, child in items}
    raise ValueError(f"a tree of {data!r}")
