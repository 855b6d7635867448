"""Plans as JSON: programs and stages as documents, and documents read back, checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from rematc.ir.errors import CompileError
from rematc.passes.kernels import Fusion
from rematc.passes.planning.constraints import Constraints, Form
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.planning.loop_splits import LoopSplit
from rematc.passes.planning.loops import LoopChoice, LoopDecision
from rematc.passes.planning.planned_loops import DroppedStack, PlannedLoop
from rematc.passes.planning.planned_program import Kernel, PlannedProgram, StoredValue
from rematc.passes.planning.problem import Stages
from rematc.passes.planning.region_paths import Inside, Path
from rematc.passes.planning.staged_bodies import StagedBody

#: What the document is, and the version of its form.
FORMAT = "rematc plan 1"

T = TypeVar("T")


class Fields:
    """An object of a JSON document.

    Raises CompileError where there is none, and for what is missing or of another type.
    """

    def __init__(self, document: object, what: str) -> None:
        if not isinstance(document, dict):
            raise _no_plan(f"{what} is {_shown(document)}, expected an object")
        self._document, self._what = document, what

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The field of this name, of this type; where it is missing the default, if there is one."""
        found = self._document.get(name, default)
        if isinstance(found, kind) and not (kind is int and isinstance(found, bool)):
            return found
        raise _no_plan(f"'{name}' of {self._what} is {_shown(found)}, expected {kind.__name__}")

    def get_all(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """A list of this name whose entries are of this type; where it is missing there are none."""
        found = self.get(name, list, [])
        if all(isinstance(each, kind) and not (kind is int and isinstance(each, bool)) for each in found):
            return tuple(found)
        raise _no_plan(f"'{name}' of {self._what} is {_shown(found)}, expected a list of {kind.__name__}")


def _no_plan(why: str) -> CompileError:
    return CompileError(f"this is no plan of rematc's: {why}")


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 40 else text[:40] + " ..."


def parse(text: str) -> Fields:
    """The document of a plan. Raises CompileError for text that is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_plan(str(error)) from None
    fields = Fields(document, "the document")
    if fields.get("format", str, "") != FORMAT:
        raise _no_plan(f"its 'format' is {_shown(fields.get('format', str, ''))}, expected '{FORMAT}'")
    return fields


def write(head: dict[str, object], stages: Stages, loops: Sequence[PlannedLoop], program: PlannedProgram) -> str:
    """A document, each stage, loop and kernel on a line of its own."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = _of_stages(stages)
    lines += ['  "stages": [', ",\n".join(f"    {json.dumps(row)}" for row in rows), "  ],"]
    if loops:
        lines += ['  "loops": [', ",\n".join(f"    {json.dumps(_of_loop(loop))}" for loop in loops), "  ],"]
    kernels = [_without_defaults(_as_dict(kernel)) for kernel in program.kernels]
    lines += ['  "kernels": [', ",\n".join(f"    {json.dumps(kernel)}" for kernel in kernels), "  ]"]
    return "\n".join(["{", *filter(None, lines), "}"]) + "\n"


def _of_stages(stages: Stages) -> list[dict[str, object]]:
    return [{"begin": begin, "again": again} for begin, again in zip(stages.begins, stages.again, strict=True)]


def _as_dict(kernel: Kernel) -> dict[str, object]:
    return {
        "op": kernel.op,
        "digest": kernel.digest,
        "names": kernel.names,
        "where": kernel.where,
        "fused": kernel.fused,
        "ns": kernel.time,
        "flops": kernel.flops,
        "workspace": kernel.workspace,
        "fixed": not kernel.is_repeatable,
        "reads": kernel.reads,
        "writes": [
            _without_defaults(
                {"type": value.type, "bytes": value.size, "result": value.is_result, "origin": value.origin}
            )
            | ({"replaces": value.replaces} if value.replaces >= 0 else {})
            for value in kernel.writes
        ],
        "inside": kernel.inside,
    }


def _of_loop(loop: PlannedLoop) -> dict[str, object]:
    decision = loop.decision
    what: dict[str, object] = {"dropped": decision.dropped} if isinstance(decision, LoopChoice) else {}
    if isinstance(decision, LoopChoice) and decision.states:
        what["states"] = True
    return {
        "path": [inside.place for inside in decision.path],
        **({"regions": regions} if any(regions := [inside.region for inside in decision.path]) else {}),
        "forward": decision.forward,
        "backward": decision.backward,
        **what,
        **({"chunks": decision.chunks} if isinstance(decision, LoopSplit) else {}),
        **(_of_body(decision) if isinstance(decision, StagedBody) else {}),
        "length": loop.length,
        **({"branch": True} if loop.is_branch else {}),
        "where": loop.where,
        "products": loop.products,
        "stacks": [
            {"op": one.op, "names": one.names, "type": one.type, "bytes": one.size, "where": one.where}
            for one in loop.stacks
        ],
    }


def _of_body(decision: StagedBody) -> dict[str, object]:
    region = {"region": decision.region} if decision.region else {}
    return {**region, "stages": _of_stages(decision.stages)}


def constraints_of(fields: Fields) -> Constraints:
    """The constraints of a document."""
    given = Fields(fields.get("constraints", dict, {}), "'constraints'")
    form = given.get("form", str, "")
    if form not in list(Form):
        raise _no_plan(f"'form' of 'constraints' is {_shown(form)}, expected one of {_shown(list(Form))}")
    names = given.get_all("keep", str), given.get_all("never_repeat", str)
    return Constraints(*names, given.get("sums", bool, False), given.get("fuses_shared", bool, False), Form(form))


def slices_of(fields: Fields) -> InSlices | None:
    """How the program of a document was cut."""
    given = fields.get("slices", dict, {})
    if not given:
        return None
    asked = Fields(given, "'slices'")
    return InSlices(asked.get("count", int), asked.get("way", str))


def loops_of(fields: Fields, constraints: Constraints, fusion: Fusion) -> tuple[PlannedLoop, ...]:
    """The loops of a document that compute something again; constraints and device are its plan's."""
    constraints = replace(constraints, sums=False, form=Form.NONE)  # which are about the program around them
    return tuple([_loop(Fields(row, "a loop"), constraints, fusion) for row in fields.get_all("loops", dict)])


def _loop(fields: Fields, constraints: Constraints, fusion: Fusion) -> PlannedLoop:
    path, dropped = _path(fields), fields.get_all("dropped", int)
    forward, backward, chunks = fields.get("forward", int), fields.get("backward", int), fields.get("chunks", int, 0)
    stages, region = _stages(fields.get("stages", list, [])), fields.get("region", int, 0)
    ways = [bool(dropped), bool(chunks), bool(stages.begins)]
    places = [number for inside in path for number in inside]
    if ways.count(True) != 1 or min(*places, forward, backward, *dropped, chunks, region, 0) < 0:
        raise _no_plan("a loop of it either drops stacks, or has chunks, or stages, at places from 0 on")
    decision: LoopDecision = LoopChoice(path, forward, backward, dropped, fields.get("states", bool, False))
    if stages.begins:
        decision = StagedBody(path, forward, stages, constraints, fusion, region)
    if chunks:
        decision = LoopSplit(path, forward, backward, chunks)
    stacks = [
        DroppedStack(
            row.get("op", str),
            row.get_all("names", str),
            row.get("type", str),
            row.get("bytes", int),
            row.get("where", str),
        )
        for row in [Fields(one, "a stack") for one in fields.get_all("stacks", dict)]
    ]
    length, where, products = fields.get("length", int), fields.get("where", str, ""), fields.get("products", int, 0)
    return PlannedLoop(decision, length, where, tuple(stacks), products, fields.get("branch", bool, False))


def _path(fields: Fields) -> Path:
    """The path of a loop; without regions it is through the first one of each equation."""
    places = fields.get_all("path", int)
    regions = fields.get_all("regions", int) or (0,) * len(places)
    if len(regions) != len(places):
        raise _no_plan(f"a loop of it has {len(places)} places in its 'path', and {len(regions)} 'regions'")
    return tuple(map(Inside, places, regions))


def _without_defaults(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value}


def stages_of(fields: Fields) -> Stages:
    """The stages of a document."""
    return _stages(fields.get("stages", list))


def _stages(documents: Sequence[object]) -> Stages:
    rows = [Fields(row, "a stage") for row in documents]
    return Stages(tuple([row.get("begin", int) for row in rows]), tuple([row.get_all("again", int) for row in rows]))


def program_of(fields: Fields) -> PlannedProgram:
    """The program of a document."""
    kernels: list[Kernel] = []
    count = 0
    for row in fields.get("kernels", list):
        kernel = _kernel(Fields(row, f"kernel {len(kernels)}"))
        links = [*kernel.reads, *[value.replaces for value in kernel.writes if value.replaces != -1]]
        if not all(0 <= value < count for value in links):
            raise _no_plan(f"kernel {len(kernels)} reads what is not there before it")
        kernels.append(kernel)
        count += len(kernel.writes)
    return PlannedProgram(tuple(kernels))


def _kernel(fields: Fields) -> Kernel:
    return Kernel(
        fields.get("op", str),
        fields.get("digest", str),
        fields.get_all("names", str),
        fields.get("where", str, ""),
        fields.get_all("fused", str),
        fields.get("ns", int, 0),
        fields.get("flops", int, 0),
        fields.get("workspace", int, 0),
        not fields.get("fixed", bool, False),
        fields.get_all("reads", int),
        tuple([_value(Fields(value, "a value")) for value in fields.get_all("writes", dict)]),
        fields.get("inside", int, 0),
    )


def _value(fields: Fields) -> StoredValue:
    return StoredValue(
        fields.get("type", str),
        fields.get("bytes", int, 0),
        fields.get("replaces", int, -1),
        fields.get("result", bool, False),
        fields.get("origin", str, ""),
    )
