"""How XLA spreads the values of a program over devices: Shardy's own propagation, asked before anything is compiled.

Source: the Shardy documentation, "Propagation". The pass pipeline is the one that XLA runs before it partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import jax
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.mapped import DeviceMap
from rematc.ir.ops.placement import has_placements
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Value
from rematc.lowering.entry_attributes import dictionaries_of, main_of
from rematc.lowering.module import stablehlo_module
from rematc.lowering.target import Target
from rematc.lowering.validation import mlir_context, parse
from rematc.lowering.writer import braced, quoted
from rematc.passes.manual_computations import place_of_shards, shard_values
from rematc.passes.planning.shards import WHOLE, Axes, Shards, of_params, own_slicings, whole_axes
from rematc.passes.readers import dependent_on
from rematc.passes.regions import EquationRewriter

_PIPELINE = "builtin.module(sdy-propagation-pipeline)"


def shards_of(graph: Graph, target: Target, shardings: Sequence[Any]) -> Shards:
    """How the values of a graph and of its loops and branches are spread.

    Args:
        graph: a flat program.
        target: what it is for.
        shardings: JAX's, of the first parameters; None for what lies whole on each device, as the others do. There are
            none where nobody knows the arguments: a part of somebody else's program.

    Returns:
        Shards in which every value is whole where nothing is spread, or nothing known of it, where JAX's shardings
        are no `NamedSharding`s, and of a graph that has no text.
    """
    if not shardings:
        return WHOLE  # such a graph may go back to JAX with what StableHLO has no text for
    spread = [one for one in shardings if one is not None and devices_of(one) > 1]
    if not (spread or has_placements(graph)) or not all(isinstance(one, jax.sharding.NamedSharding) for one in spread):
        return WHOLE
    given = [_spelled(value, one) for value, one in zip(graph.params, shardings, strict=False)]
    propagation = _Propagation(target)
    try:
        with mlir_context():
            propagation.run(graph, [*given, *[""] * (len(graph.params) - len(given))])
    except CompileError:
        return WHOLE  # whoever lowers the graph says why
    return Shards(propagation.sizes, propagation.axes)


def devices_of(sharding: Any) -> int:
    """How many devices there are in a sharding, which may be that of a type of JAX's: they are not known then."""
    is_named = isinstance(sharding, jax.sharding.NamedSharding)
    return sharding.mesh.size if is_named else len(sharding.device_set)


def _spelled(value: Value, sharding: Any) -> str:
    """A sharding as Shardy spells it; empty for None."""
    if not isinstance(sharding, jax.sharding.NamedSharding) or value.type.rank < len(sharding.spec):
        return ""
    rows = [*sharding.spec, *[None] * (value.type.rank - len(sharding.spec))]
    return f"<{_spelled_mesh(sharding.mesh.shape)}, [{', '.join(map(_spelled_dimension, rows))}]>"


def _spelled_dimension(names: Any) -> str:
    if names is jax.sharding.PartitionSpec.UNCONSTRAINED:
        return "{?}"
    row = () if names is None else (names,) if isinstance(names, str) else names
    return braced(row)


def _spreadable(graph: Graph, made: Set[Value]) -> list[Value]:
    """The values that depend on a parameter but these. Others are made on each device as what reads them has them."""
    return list(dependent_on(graph, [param for param in graph.params if param not in made]))


def _once(eqn: Equation) -> Sequence[Equation] | None:
    """A region that is computed again as what it computes: whether it is, shardings do not depend on."""
    if not (isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated):
        return None
    return [Equation(replace(eqn.op, is_differentiated=False), eqn.operands, eqn.results, eqn.loc)]


class _Propagation:
    """Runs the pipeline on a graph, and then on the graphs of its loops and branches, with what it has found.

    What a loop begins with and nothing else spreads, as zeros, is spread as what it ends with.

    Attributes:
        sizes: devices along each axis that something is spread along.
        axes: along which axes each value is spread, by dimension.
    """

    def __init__(self, target: Target) -> None:
        self.sizes: dict[str, int] = {}
        self.axes: dict[Value, Axes] = {}
        self._target = target
        self._meshes: dict[str, str] = {}  # by the axes' names
        self._done: dict[int, Graph] = {}

    def run(self, graph: Graph, given: Sequence[str], made: Set[Value] = frozenset()) -> None:
        """`given` are shardings of the parameters, as Shardy spells them. `made` are those that depend on none of the
        program's: they are made on each device as what reads them has them.
        """
        self._done[id(graph)] = graph
        place = place_of_shards(graph)
        # What one device computes by itself is spread no further, as far as anybody knows.
        own = set[Value]() if place is None else shard_values(graph, place)
        values = [value for value in _spreadable(graph, made) if value not in own]
        probe = EquationRewriter(lambda _: _once).graph(Graph(graph.name, graph.params, graph.equations, tuple(values)))
        module = parse(stablehlo_module(probe, self._target).text)
        _set_shardings(module, given)
        passmanager.PassManager.parse(_PIPELINE).run(module.operation)
        found = _of_results(module)
        first = len(found) - len(values)  # what a program with ordered effects gives first is a token
        for value, sharding in zip(values, found[first:], strict=True):
            self.axes[value] = self._named(value, sharding, module)
        known = own.union(values)
        for eqn in graph.equations:
            if own.isdisjoint((*eqn.operands, *eqn.results)):
                self._run_inside(eqn, known)
        self._made_as_read(graph, known)

    def _made_as_read(self, graph: Graph, known: Set[Value]) -> None:
        """Spread what depends on no parameter, such as masks, as far as all that reads it is spread."""
        found: dict[Value, Axes] = {}
        for eqn in reversed(graph.equations):
            # All that reads its results has been seen.
            for value in eqn.results:
                if value in found:
                    self.axes.setdefault(value, found[value])
            made = [(place, value) for place, value in enumerate(eqn.operands) if value not in known]
            slicings = own_slicings(eqn) if made else ()
            for place, value in made:
                if isinstance(eqn.op, Scan):
                    axes = self._as_in_steps(eqn.op, place)
                else:
                    result = self._axes(eqn.results[0]) if eqn.results else ()
                    pairs = {slicing.operands[place]: slicing.results[0] for slicing in slicings}
                    to = [pairs.get(d) for d in range(value.type.rank)]
                    axes = tuple([() if d is None else result[d] for d in to])
                before = found.get(value, axes)
                found[value] = tuple([one if one == other else () for one, other in zip(before, axes, strict=True)])
        for param in graph.params:
            if param in found:
                self.axes.setdefault(param, found[param])

    def _as_in_steps(self, op: Scan, place: int) -> Axes:
        """How an operand of a loop is spread, as its steps read it."""
        axes = self._axes(op.body.params[place])
        return axes if place < op.consts + op.carry else ((), *axes)

    def _axes(self, value: Value) -> Axes:
        return self.axes.get(value) or whole_axes(value)

    def _run_inside(self, eqn: Equation, known: Set[Value]) -> None:
        if isinstance(eqn.op, DeviceMap):
            return
        carries = None
        if isinstance(eqn.op, Scan | While):
            first = eqn.op.parts(eqn.operands).carry
            carries = [self.axes.get(value, whole_axes(value)) for value in eqn.results[: len(first)]]
            for value, axes in zip(first, carries, strict=True):
                self.axes.setdefault(value, axes)
        own = [self.axes.get(value, whole_axes(value)) for value in eqn.operands]
        for region, given in of_params(eqn, own, carries):
            if id(region) not in self._done:
                self.run(region, [self._spelled(each) for each in given], self._made_in_steps(eqn, known))

    def _made_in_steps(self, eqn: Equation, known: Set[Value]) -> Set[Value]:
        """The parameters of a loop's steps, but for carries, that depend on none of the program's."""
        if not isinstance(eqn.op, Scan):
            return frozenset()
        consts, _, xs = eqn.op.parts(eqn.operands)
        params = eqn.op.parts(eqn.op.body.params)
        pairs = zip((*consts, *xs), (*params.consts, *params.xs), strict=True)
        return {param for value, param in pairs if value not in known}

    def _named(self, value: Value, found: Any, module: ir.Module) -> Axes:
        if found is None:
            return whole_axes(value)
        mesh = _mesh_of(found, module)
        rows = []
        for dimension in found.dimension_shardings:
            row = []
            for axis in map(sdy.AxisRefAttr, sdy.DimensionShardingAttr(dimension).axes):
                size = mesh[axis.name] if axis.sub_axis_info is None else sdy.SubAxisInfoAttr(axis.sub_axis_info).size
                name = axis.name if axis.sub_axis_info is None else str(axis)
                self.sizes[name] = size
                row.append(name)
            self._meshes.update(dict.fromkeys(row, _spelled_mesh(mesh)))
            rows.append(tuple(row))
        return tuple(rows)

    def _spelled(self, axes: Axes) -> str:
        """Axes as Shardy spells a sharding; what is spread along a part of an axis is left to the propagation."""
        names = [name for row in axes for name in row]
        if not names or not all(name.isidentifier() for name in names):
            return ""
        return f"<{self._meshes[names[0]]}, [{', '.join(map(braced, axes))}]>"


def _set_shardings(module: ir.Module, given: Sequence[str]) -> None:
    """Say of the parameters of a module's entry how they are spread."""
    main, name = main_of(module), "arg_attrs"
    rows = dictionaries_of(main, name)
    for place, sharding in enumerate(given, len(rows) - len(given)):
        if sharding:
            spread = ir.Attribute.parse(f"#sdy.sharding{sharding}")
            rows[place] = ir.DictAttr.get({**{one.name: one.attr for one in rows[place]}, "sdy.sharding": spread})
    main.attributes[name] = ir.ArrayAttr.get(rows)


def _of_results(module: ir.Module) -> list[Any]:
    """The shardings of the entry's results; None for those that are whole."""
    rows = dictionaries_of(main_of(module), "res_attrs")
    return [sdy.TensorShardingAttr(row["sdy.sharding"]) if "sdy.sharding" in row else None for row in rows]


def _mesh_of(sharding: Any, module: ir.Module) -> dict[str, int]:
    """Devices along each axis of the mesh that a sharding names."""
    named = ir.FlatSymbolRefAttr(sharding.mesh_or_ref).value
    meshes = [op.operation for op in module.body.operations if op.operation.name == "sdy.mesh"]
    (mesh,) = [one.attributes["mesh"] for one in meshes if ir.StringAttr(one.attributes["sym_name"]).value == named]
    axes = map(sdy.MeshAxisAttr, sdy.MeshAttr(mesh).axes)
    return {axis.name: axis.size for axis in axes}


def _spelled_mesh(mesh: Mapping[str, int]) -> str:
    return f"mesh<[{', '.join([f'{quoted(name)}={size}' for name, size in mesh.items()])}]>"
