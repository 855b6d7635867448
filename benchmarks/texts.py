"""A hash of the StableHLO of some thousand programs: what a change that should change no program did change.

    python benchmarks/texts.py --write before.json            # on the commit before
    python benchmarks/texts.py --against before.json          # on the commit after: lists the programs that differ
    python benchmarks/texts.py --only model/chain --print     # the texts themselves

Programs are the models of benchmarks/architectures/ under each policy, written in NumPy and imported from JAX, and
every sample of an op with its derivative in both directions. A hash is of the module as MLIR prints it, without
locations and names of values; it is the same for the same jaxlib only. Exits with 1 where programs differ, or are on
one side alone.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import JAX, MODELS, ON_REQUEST, REMATC, Model, unwrapped
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.lowering.module import stablehlo_module
from rematc.lowering.validation import mlir_context, parse
from rematc.passes.jvp import jvp
from rematc.passes.linearize import vjp
from tests.support.samples import Sample, families, graph_of, rows

POLICIES = (None, "nothing", "dots", "dots-no-batch", "auto")
#: The text of each of its modules.
Program = Callable[[], tuple[str, ...]]


def programs(has_deep: bool) -> Iterator[tuple[str, Program]]:
    """The name of each program, and what gives its text."""
    for name, model in MODELS.items():
        if name in ON_REQUEST and not has_deep:
            continue
        for policy in POLICIES:
            yield f"model/{name}/{policy}", functools.partial(_model_in_numpy, model, policy)
            yield f"jax/{name}/{policy}", functools.partial(_model_in_jax, model, policy)
    for key, (family, index) in rows().items():
        sample = families()[family][index]
        yield f"op/{key}", functools.partial(_op, sample)
        if sample.differentiable:
            yield f"jvp/{key}", functools.partial(_jvp, sample)
            yield f"vjp/{key}", functools.partial(_vjp, sample)


def _shapes(model: Model) -> Any:
    return jax.eval_shape(model.arguments)


def _model_in_numpy(model: Model, policy: str | None) -> tuple[str, ...]:
    return _step(model.build(REMATC, unwrapped, unwrapped), model, policy)


def _model_in_jax(model: Model, policy: str | None) -> tuple[str, ...]:
    return _step(rematc.from_jax(model.build(JAX, unwrapped, unwrapped)), model, policy)


def _step(loss: Any, model: Model, policy: str | None) -> tuple[str, ...]:
    return (rematc.lower(rematc.value_and_grad(loss, policy=policy), *_shapes(model)).stablehlo(),)


def _op(sample: Sample) -> tuple[str, ...]:
    return _texts(graph_of(sample.op, sample.types))


def _flags(sample: Sample) -> list[bool]:
    return [index in sample.differentiable for index in range(len(sample.types))]


def _jvp(sample: Sample) -> tuple[str, ...]:
    return _texts(jvp(graph_of(sample.op, sample.types), _flags(sample)).graph)


def _vjp(sample: Sample) -> tuple[str, ...]:
    pulled = vjp(graph_of(sample.op, sample.types), _flags(sample))
    return _texts(pulled.forward, pulled.backward)


def _texts(*graphs: Graph) -> tuple[str, ...]:
    return tuple([stablehlo_module(graph).text for graph in graphs])


def _hash(program: Program) -> str:
    """Of the modules as MLIR prints them: without locations, values numbered."""
    found = hashlib.sha256()
    try:
        texts = program()
    except CompileError as error:
        return f"refused: {error.message}"
    with mlir_context():
        for text in texts:
            found.update(str(parse(text)).encode())
    return found.hexdigest()[:20]


def _compare(found: dict[str, str], expected: dict[str, str]) -> int:
    """Print what differs; how many programs do."""
    differing = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    for name in differing:
        print(f"{name}: {expected.get(name, 'not there')} -> {found.get(name, 'not there')}")
    print(f"{len(found) - len(differing)} of {len(found)} programs are the same, {len(differing)} differ")
    return len(differing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="a file for the hashes")
    parser.add_argument("--against", type=Path, help="such a file, to compare with")
    parser.add_argument("--only", default="", help="names of programs begin with this")
    parser.add_argument("--deep", action="store_true", help="the models too that take minutes")
    parser.add_argument("--print", action="store_true", help="print the texts")
    given = parser.parse_args()
    found: dict[str, str] = {}
    for name, program in programs(given.deep):
        if not name.startswith(given.only):
            continue
        if given.print:
            print(f"// {name}", *program(), sep="\n")
            continue
        found[name] = _hash(program)
        print(f"{name} {found[name]}", file=sys.stderr, flush=True)
    if given.write:
        given.write.write_text(json.dumps(found, indent=0) + "\n")
    if given.against:
        expected = json.loads(given.against.read_text())
        return 1 if _compare(found, {k: v for k, v in expected.items() if k.startswith(given.only)}) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
