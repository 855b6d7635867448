"""Gather what each device computes of its parts, where a program is written: what lies between borders becomes regions.

Before:  %0: f32[2,16] = full_to_shard %x {spec=[["d"],[]], ...}
         %1: f32[2,16] = tanh %0
         %2: f32[8,16] = shard_to_full %1 {spec=[["d"],[]], ...}
After:   %2: f32[8,16] = manual_computation %x {body=graph @shard(%0: f32[2,16]) -> (f32[2,16]) { %1 = tanh %0 ... }}

Values of one device stand beside whole ones until then (`rematc.ir.ops.mapped`), so that every other pass sees one
program. Equations of whole arrays that need nothing of a region go before it; a region ends where one needs what it
gives. What one region computes and another one reads crosses in parts, each on its device, and moves nowhere; so does
what waits in a barrier beside whole values. What follows from constants alone is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import Border, FullToShard, Manual, ManualComputation, ShardToFull, Spec
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.splicing import splice
from rematc.ir.traversal import all_equations
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.barriers import barrier_behind
from rematc.passes.regions import RegionRewriter


def has_borders(graph: Graph) -> bool:
    """Whether values of one device stand beside whole ones, in a graph or its regions."""
    return any(issubclass(cls, Border) for cls in graph.op_types)


def place_of(graph: Graph) -> Manual | None:
    """Where the values of one device in a graph and its regions are; None where there are none.

    Raises CompileError for a program of several places.
    """
    found = None
    for eqn in all_equations(graph) if has_borders(graph) else ():
        if isinstance(eqn.op, Border):
            own = replace(eqn.op.where, is_checked=False)
            if found is not None and own != found:
                raise CompileError(
                    "what devices compute of their parts is over two meshes, or over other axes", eqn.loc
                )
            found = own
    return found


def place_of_shards(graph: Graph) -> Manual | None:
    """Where those values are that the graph itself has beside whole ones; None where it has none.

    Loops and branches have them inside, and give whole ones.
    """
    ops = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Border | Call | Checkpoint)]
    return place_of(graph) if ops else None


def shard_values(graph: Graph, place: Manual, given: Iterable[Value] = ()) -> set[Value]:
    """The values of a graph that are those of one device; `given` are such parameters."""
    found = set(given)
    for eqn in graph.equations:
        op = eqn.op
        has_inside = any(map(has_borders, op.regions()))
        if isinstance(op, FullToShard):
            found.update(eqn.results)
        elif isinstance(op, ShardToFull):
            continue
        elif isinstance(op, Call | Checkpoint) and has_inside:
            pairs = zip(op.body.params, eqn.operands, strict=True)
            inside = shard_values(op.body, place, [param for param, value in pairs if value in found])
            results = zip(eqn.results, op.body.results, strict=True)
            found.update([value for value, inner in results if inner in inside])
        elif has_inside:
            continue  # a loop or branch takes and gives whole values
        elif isinstance(op, OptimizationBarrier):
            pairs = zip(eqn.results, eqn.operands, strict=True)
            found.update([value for value, operand in pairs if operand in found])
        elif not found.isdisjoint(eqn.operands) or not op.axes.isdisjoint(place.manual):
            found.update(eqn.results)
    return found


def crossing_spec(value: Value, place: Manual) -> Spec:
    """How a value of one device is part of an array: along the first dimension one after another; a scalar as a row."""
    return (place.manual, *((),) * (value.type.rank - 1))


def with_manual_computations(graph: Graph) -> Graph:
    """The graph with regions for what each device computes of its parts, in loops and branches too.

    The graph itself where it has no borders. Raises CompileError for a loop or branch that takes, or gives, what is of
    one device beside what is whole.
    """
    return _gathered_inside(RegionRewriter(with_manual_computations), graph) if has_borders(graph) else graph


def _gathered_inside(regions: RegionRewriter, graph: Graph) -> Graph:
    place = place_of_shards(graph)
    own = graph if place is None else _gathered(_with_clear_sides(graph, place), place)
    equations = [eqn if (op := regions.op(eqn.op)) is eqn.op else replace(eqn, op=op) for eqn in own.equations]
    return Graph(graph.name, graph.params, tuple(equations), own.results)


# -- each equation on one side ----------------------------------------------------------------------------------------


def _with_clear_sides(graph: Graph, place: Manual) -> Graph:
    """The graph in which functions and barriers have to do with whole values alone, or with those of one device."""
    local = shard_values(graph, place)
    equations: list[Equation] = []
    env: dict[Value, Value] = {}
    for eqn in graph.equations:
        own = eqn if env.keys().isdisjoint(eqn.operands) else replace(eqn, operands=_renamed(eqn.operands, env))
        is_function = isinstance(eqn.op, Call | Checkpoint)
        if is_function and not local.isdisjoint((*eqn.operands, *eqn.results)) and has_borders(eqn.op.regions()[0]):
            hoisted = _hoisted(own)
            if hoisted is None:
                env.update(zip(eqn.results, _in_place(own, equations), strict=True))
            else:
                equations += hoisted
        else:
            equations.append(own)
    clear = Graph(graph.name, graph.params, tuple(equations), _renamed(graph.results, env))
    return _BarrierSides(clear, place).graph()


def _renamed(values: Sequence[Value], env: Mapping[Value, Value]) -> tuple[Value, ...]:
    return tuple([env.get(value, value) for value in values])


def _hoisted(eqn: Equation) -> list[Equation] | None:
    """A function of values of one device, with the borders that it had inside before and behind it.

    None for one that has others as well.
    """
    op = eqn.op
    assert isinstance(op, Call | Checkpoint)
    before: list[Equation] = []
    after: list[Equation] = []
    operands, results = list(eqn.operands), list(eqn.results)
    params, inner, gone = list(op.body.params), list(op.body.results), set[Value]()
    readers: dict[Value, list[Equation]] = {}
    for one in op.body.equations:
        for value in one.operands:
            readers.setdefault(value, []).append(one)
    for index, param in enumerate(op.body.params):
        users = readers.get(param, [])
        if len(users) == 1 and isinstance(users[0].op, FullToShard) and param not in op.body.results:
            params[index] = users[0].results[0]
            gone.update(users[0].results)
            operands[index] = Value(params[index].type, param.name)
            before.append(Equation(users[0].op, (eqn.operands[index],), (operands[index],), users[0].loc or eqn.loc))
    makers = {one.results[0]: one for one in op.body.equations if isinstance(one.op, ShardToFull)}
    for index, value in enumerate(op.body.results):
        maker = makers.get(value)
        if maker is not None and value not in readers:
            inner[index] = maker.operands[0]
            gone.add(value)
            results[index] = Value(inner[index].type)
            after.append(Equation(maker.op, (results[index],), (eqn.results[index],), maker.loc or eqn.loc))
    kept = tuple([one for one in op.body.equations if gone.isdisjoint(one.results)])
    body = Graph(op.body.name, tuple(params), kept, tuple(inner))
    if has_borders(body):
        return None
    return [*before, Equation(replace(op, body=body), tuple(operands), tuple(results), eqn.loc), *after]


def _in_place(eqn: Equation, equations: list[Equation]) -> tuple[Value, ...]:
    """Append the equations of a function, behind a barrier over what it has to wait for; its results."""
    op, operands = eqn.op, list(eqn.operands)
    assert isinstance(op, Call | Checkpoint)
    if isinstance(op, Call) and op.pinned is not None and any(op.pinned):
        held = [value for value, is_set in zip(operands, op.pinned, strict=True) if is_set]
        names: dict[Value, Value] = {}
        equations.append(barrier_behind(list(dict.fromkeys(held)), names, eqn.loc))
        pairs = zip(operands, op.pinned, strict=True)
        operands = [names[value] if is_set else value for value, is_set in pairs]
    return splice(op.body, operands, equations, eqn.loc)


class _BarrierSides:
    """Lets barriers over both sides hold values of one: of one device if all whole ones can be cut, else whole ones.

    Whole values can be cut that borders alone read behind the barrier, or that are put together from parts before it.
    None may pass by: what waits for the others in the barrier would not wait, and XLA would merge it.
    """

    def __init__(self, graph: Graph, place: Manual) -> None:
        self._graph, self._place = graph, place
        self._local = shard_values(graph, place)
        self._read = _specs_read(graph)
        self._env: dict[Value, Value] = {}
        #: For whole values that are put together from parts, these and how.
        self._parts: dict[Value, tuple[Value, Spec]] = {}
        self._equations: list[Equation] = []

    def graph(self) -> Graph:
        for eqn in self._graph.equations:
            self._equation(replace(eqn, operands=_renamed(eqn.operands, self._env)))
        results = _renamed(self._graph.results, self._env)
        read = {value for eqn in self._equations for value in eqn.operands} | set(results)
        kept = [eqn for eqn in self._equations if not isinstance(eqn.op, Border) or not read.isdisjoint(eqn.results)]
        return Graph(self._graph.name, self._graph.params, tuple(kept), results)

    def _equation(self, eqn: Equation) -> None:
        if isinstance(eqn.op, FullToShard):
            part, spec = self._parts.get(eqn.operands[0], (None, ()))
            if part is not None and spec == eqn.op.spec:
                self._env[eqn.results[0]] = part
                return
        elif isinstance(eqn.op, ShardToFull):
            self._parts[eqn.results[0]] = (eqn.operands[0], eqn.op.spec)
        elif isinstance(eqn.op, OptimizationBarrier) and len({value in self._local for value in eqn.operands}) > 1:
            self._barrier(eqn)
            return
        self._equations.append(eqn)

    def _barrier(self, eqn: Equation) -> None:
        whole = [row for row in zip(eqn.operands, eqn.results, strict=True) if row[0] not in self._local]
        specs = [self._read.get(result, self._parts.get(value, (None, None))[1]) for value, result in whole]
        cut = {value: spec for (value, _), spec in zip(whole, specs, strict=True) if spec is not None}
        if len(cut) == len(whole):
            self._barrier_of_parts(eqn, cut)
        else:
            self._barrier_of_whole(eqn)

    def _barrier_of_parts(self, eqn: Equation, specs: Mapping[Value, Spec]) -> None:
        """The barrier over what each device has; whole values are cut so before."""
        held: list[tuple[Value, Value]] = []
        behind: list[Equation] = []
        for value, result in zip(eqn.operands, eqn.results, strict=True):
            if value in self._local:
                held.append((value, result))
                continue
            spec = specs[value]
            part, own = self._parts.get(value, (None, None))
            if part is None or spec != own:
                cut = FullToShard.at(self._place, spec)
                part = Value(cut.infer((value.type,))[0], value.name)
                self._equations.append(Equation(cut, (value,), (part,), eqn.loc))
            inside = Value(part.type, result.name)
            held.append((part, inside))
            self._parts[result] = (inside, spec)
            behind.append(Equation(ShardToFull.at(self._place, spec), (inside,), (result,), eqn.loc))
        operands, results = tuple([value for value, _ in held]), tuple([value for _, value in held])
        self._local.update(operands, results)
        self._equations += [replace(eqn, operands=operands, results=results), *behind]

    def _barrier_of_whole(self, eqn: Equation) -> None:
        """The barrier over whole values; those of one device are put one after another, which moves nothing."""
        held: list[tuple[Value, Value]] = []
        behind: list[Equation] = []
        for value, result in zip(eqn.operands, eqn.results, strict=True):
            if value not in self._local:
                held.append((value, result))
                continue
            spec = crossing_spec(value, self._place)
            part, part_behind = value, result
            if not value.type.rank:
                part, part_behind = [Value(_row_type(one), one.name) for one in (value, result)]
                self._local.update((part, part_behind))
                self._equations.append(Equation(Reshape((1,)), (value,), (part,), eqn.loc))
                behind.append(Equation(Reshape(()), (part_behind,), (result,), eqn.loc))
            border = ShardToFull.at(self._place, spec)
            whole, whole_behind = [Value(border.infer((part.type,))[0], one.name) for one in (value, result)]
            self._equations.append(Equation(border, (part,), (whole,), eqn.loc))
            back = Equation(FullToShard.at(self._place, spec), (whole_behind,), (part_behind,), eqn.loc)
            behind.insert(0, back)
            held.append((whole, whole_behind))
        operands, results = tuple([value for value, _ in held]), tuple([value for _, value in held])
        self._equations += [replace(eqn, operands=operands, results=results), *behind]


def _specs_read(graph: Graph) -> dict[Value, Spec]:
    """For values that are read by borders alone, all of one spec, that spec."""
    found: dict[Value, Spec | None] = dict.fromkeys(graph.results)
    for eqn in graph.equations:
        for value in eqn.operands:
            spec = eqn.op.spec if isinstance(eqn.op, FullToShard) else None
            found[value] = spec if found.setdefault(value, spec) == spec else None
    return {value: spec for value, spec in found.items() if spec is not None}


# -- regions ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Region:
    """The equations of one region, in order.

    Attributes:
        equations: those that are not borders, nor follow from constants alone.
        given: values of the graph around and how they are cut, by the value inside.
        gives: values inside and how they are put together, by the value of the graph around.
    """

    equations: list[Equation] = field(default_factory=list)
    given: dict[Value, tuple[Value, Spec]] = field(default_factory=dict)
    gives: dict[Value, tuple[Value, Spec]] = field(default_factory=dict)


def _gathered(graph: Graph, place: Manual) -> Graph:
    local = shard_values(graph, place)
    fixed = _follow_from_constants(graph, local)
    steps, region_of = _in_steps(graph, local, fixed)
    _cross(place, region_of)
    equations: list[Equation] = []
    written = set[Value]()
    for step in steps:
        own = _as_equation(step, place, fixed) if isinstance(step, _Region) else step
        equations += [*_makers(own.operands, fixed, written), own]
    equations += _makers(graph.results, fixed, written)
    return Graph(graph.name, graph.params, tuple(equations), graph.results)


def _follow_from_constants(graph: Graph, local: set[Value]) -> dict[Value, Equation]:
    """The equations of what follows from constants alone, by their results: each side computes it for itself."""
    found: dict[Value, Equation] = {}
    for eqn in graph.equations:
        is_such = not eqn.op.effect and not eqn.op.regions() and local.isdisjoint(eqn.results)
        if is_such and not isinstance(eqn.op, Border) and all(value in found for value in eqn.operands):
            found.update(dict.fromkeys(eqn.results, eqn))
    return found


def _makers(values: Iterable[Value], fixed: Mapping[Value, Equation], done: set[Value]) -> list[Equation]:
    """The equations of values that follow from constants, and of what they follow from, in order.

    Without those whose results are done, which gains the results of the others.
    """
    order: list[Equation] = []
    waiting = [(value, False) for value in values]
    while waiting:
        value, is_ready = waiting.pop()
        eqn = fixed.get(value)
        if eqn is None or value in done:
            continue
        if is_ready:
            order.append(eqn)
            done.update(eqn.results)
        else:
            waiting += [(value, True), *[(operand, False) for operand in eqn.operands]]
    return order


def _in_steps(
    graph: Graph, local: set[Value], fixed: Mapping[Value, Equation]
) -> tuple[list[_Region | Equation], dict[Value, _Region]]:
    """Regions and the equations between them, in order; and in which region each value of one device is made."""
    steps: list[_Region | Equation] = []
    region_of: dict[Value, _Region] = {}
    region: _Region | None = None
    for eqn in graph.equations:
        if eqn.results and all(value in fixed for value in eqn.results):
            continue
        op = eqn.op
        # What is filled ends where a whole value is needed that it gives.
        is_needed = region is not None and not region.gives.keys().isdisjoint(eqn.operands)
        is_inside = isinstance(op, ShardToFull) or not local.isdisjoint((*eqn.results, *eqn.operands))
        if region is not None and (is_needed or (op.effect and not is_inside)):
            steps.append(region)
            region = None
        if not is_inside:
            steps.append(eqn)
            continue
        if any(map(has_borders, op.regions())):
            raise CompileError(f"'{op.name}' takes what is of one device beside what is whole", eqn.loc)
        region = region or _Region()
        if isinstance(op, FullToShard):
            region.given[eqn.results[0]] = (eqn.operands[0], op.spec)
        else:
            # Arrays that a function captures are whole on each device.
            whole = [value for value in eqn.operands if value not in local and value not in fixed]
            region.given.update({value: (value, ((),) * value.type.rank) for value in whole})
            if isinstance(op, ShardToFull):
                region_of.get(eqn.operands[0], region).gives[eqn.results[0]] = (eqn.operands[0], op.spec)
            else:
                region.equations.append(eqn)
        region_of.update(dict.fromkeys([value for value in eqn.results if value in local], region))
    return ([*steps, region] if region is not None else steps), region_of


def _cross(place: Manual, region_of: Mapping[Value, _Region]) -> None:
    """Let regions give what others read."""
    names: dict[Value, Value] = {}
    for region in dict.fromkeys(region_of.values()):
        for value in dict.fromkeys(value for eqn in region.equations for value in eqn.operands):
            made = region_of.get(value)
            if made is None or made is region:
                continue
            border = ShardToFull.at(place, crossing_spec(value, place))
            if value not in names:
                names[value] = Value(border.infer((_row_type(value),))[0], value.name)
                made.gives[names[value]] = (value, border.spec)
            region.given[value] = (names[value], border.spec)


def _as_equation(region: _Region, place: Manual, fixed: Mapping[Value, Equation]) -> Equation:
    """A region as one equation."""
    params: list[Value] = []
    results: list[Value] = []
    equations: list[Equation] = []
    last: list[Equation] = []
    for inside, (_, spec) in region.given.items():
        params.append(inside if len(spec) == inside.type.rank else Value(_row_type(inside)))
        if params[-1] is not inside:
            equations.append(Equation(Reshape(()), (params[-1],), (inside,)))
    for inside, spec in region.gives.values():
        results.append(inside if len(spec) == inside.type.rank else Value(_row_type(inside)))
        if results[-1] is not inside:
            last.append(Equation(Reshape((1,)), (inside,), (results[-1],)))
    done = set(region.given)
    for eqn in (*region.equations, *last):
        equations += [*_makers(eqn.operands, fixed, done), eqn]
    equations += _makers(results, fixed, done)
    op = ManualComputation(
        Graph("shard", tuple(params), tuple(equations), tuple(results)),
        tuple([spec for _, spec in region.given.values()]),
        tuple([spec for _, spec in region.gives.values()]),
        place.axes,
        place.sizes,
        place.manual,
        place.source,
    )
    loc = next((eqn.loc for eqn in region.equations if eqn.loc is not None), None)
    return Equation(op, tuple([value for value, _ in region.given.values()]), tuple(region.gives), loc)


def _row_type(value: Value) -> TensorType:
    """The type of a value that crosses: a scalar is a row of one."""
    return value.type if value.type.rank else value.type.with_shape((1,))
