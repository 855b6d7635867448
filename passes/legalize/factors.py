"""The factors of products in the order in which XLA:CPU copies less, where several dimensions are summed over.

Before:  %0 = dot_general %ct, %x {contract=[[0,1],[0,1]]}   %1 = transpose %0   for f32[8,1024,50257], f32[8,1024,768]
After:   %2 = optimization_barrier %ct   %1 = dot_general %x, %2 {contract=[[0,1],[0,1]]}

XLA:CPU multiplies plain matrices, and wants what is summed over last in the first one and first in the second one: %ct
would be copied, with its dimensions in another order, and of the logits of a head that is as much as there is. The
smaller factor is copied instead. Without the barrier XLA would write the larger one reshaped, and over no operand. All
products read it behind the barrier, or XLA would evaluate what is cheap, as the padding of a head without its last row,
in the kernel of each other one as well. A product that is not transposed anyway is written and then transposed, behind
a barrier again, where that is still less: XLA would make of it, transposed, the one in the first order.

What one product alone reads is written as its copy and in no other place, and what another one copies is copied anyway.
Only programs that recompute get barriers: with barriers XLA:CPU is known to run as these are planned.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.locations import Location
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import Transpose
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32
from rematc.ir.values import Value
from rematc.passes.regions import RegionRewriter


def has_barriers(graph: Graph) -> bool:
    """Whether there are barriers in a graph or its regions."""
    return OptimizationBarrier in graph.op_types


def copies_larger(eqn: Equation) -> bool:
    """Whether an equation is a product whose first factor is copied, and to copy the second and the result is less."""
    op, operands = eqn.op, eqn.operands
    if not isinstance(op, DotGeneral) or operands[0].type.bytes <= operands[1].type.bytes + eqn.results[0].type.bytes:
        return False
    return bool(op.moved(0, operands[0].type.shape)) and not swapped(op).moved(1, operands[0].type.shape)


def copied(eqn: Equation) -> list[bool]:
    """Which factors of a product are copied, once the smaller one is the first where it ought to be."""
    op = eqn.op
    assert isinstance(op, DotGeneral | Convolution), "others have no factors"
    if isinstance(op, DotGeneral) and copies_larger(eqn):
        return [False, bool(swapped(op).moved(0, eqn.operands[1].type.shape))]
    return [bool(op.moved(side, operand.type.shape)) for side, operand in enumerate(eqn.operands)]


def swapped(op: DotGeneral) -> DotGeneral:
    """The product of the factors in the other order."""
    return replace(op, contract=(op.contract[1], op.contract[0]), batch=(op.batch[1], op.batch[0]))


def of_source(op: DotGeneral, side: int, permutation: tuple[int, ...]) -> DotGeneral | None:
    """The product that reads what one factor is a transpose of; None where that is none for the library either."""
    contract = tuple([permutation[d] for d in op.contract[side]])
    batch = tuple([permutation[d] for d in op.batch[side]])
    rest = [d for d in permutation if d not in contract and d not in batch]
    is_plain = len(rest) == len(contract) == 1 and batch == tuple(range(len(batch)))
    if rest != sorted(rest) or (is_plain and side == 0 and contract[0] != len(permutation) - 1):
        return None
    contracts, batches = list(op.contract), list(op.batch)
    contracts[side], batches[side] = contract, batch
    return replace(op, contract=(contracts[0], contracts[1]), batch=(batches[0], batches[1]))


def swapping(op: DotGeneral, first: Value, result: Value) -> Transpose:
    """The transpose of a product's result to that of the factors in the other order, of which `first` is now first."""
    batch, end, rank = len(op.batch[0]), first.type.rank - len(op.contract[0]), result.type.rank
    return Transpose((*range(batch), *range(end, rank), *range(batch, end)))


class SmallerFirst:
    """Rewrites graphs, and their regions.

    Args:
        shares_behind_barriers: whether XLA:CPU writes results over what barriers give on, and so whether all products
            read a larger factor behind its barrier, or only what is padded or joined, or multiplied in 32 bits: behind
            the barrier and before it these would be two copies.
    """

    def __init__(self, shares_behind_barriers: bool = True) -> None:
        self._shares_behind_barriers = shares_behind_barriers
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with the smaller factor first where that is for nothing else; the graph itself where it is not."""
        users = _users(graph)
        larger = {
            eqn.operands[0]
            for eqn in graph.equations
            if copies_larger(eqn) and _is_in_memory(eqn.operands[0], users[eqn.operands[0]])
        }
        moved = {eqn.results[0] for eqn in graph.equations if eqn.op.storage is Storage.FUSED_ONCE}
        is_shared = self._shares_behind_barriers
        rewriting = _Rewriting({value for value in larger if is_shared or value in moved or _is_widened(value)})
        for eqn in graph.equations:
            if copies_larger(eqn) and eqn.operands[0] in larger:
                rewriting.swap(eqn, users.get(eqn.results[0], []))
            else:
                op = self._regions.op(eqn.op)
                rewriting.keep(eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc))
        equations = rewriting.equations
        results = tuple([rewriting.names.get(value, value) for value in graph.results])
        has_changed = any(new is not old for new, old in zip(equations, graph.equations, strict=False))
        return Graph(graph.name, graph.params, tuple(equations), results) if has_changed else graph


def _is_in_memory(value: Value, users: Sequence[Equation | None]) -> bool:
    """Whether several products read a value, and none of them as a copy once all have the smaller factor first."""
    products = [user for user in users if user is not None and isinstance(user.op, DotGeneral)]
    copies = (
        is_copied
        for user in products
        for operand, is_copied in zip(user.operands, copied(user), strict=True)
        if operand is value
    )
    return len(products) > 1 and not any(copies)


def _is_widened(value: Value) -> bool:
    """Whether products that XLA:CPU computes in 32 bits read a copy of a value."""
    return value.type.dtype.is_float and value.type.dtype.bits < F32.bits


def _users(graph: Graph) -> dict[Value, list[Equation | None]]:
    """The equations that read each value; None is the end of the graph."""
    users: dict[Value, list[Equation | None]] = {}
    for eqn in graph.equations:
        for value in eqn.operands:
            users.setdefault(value, []).append(eqn)
    for value in graph.results:
        users.setdefault(value, []).append(None)
    return users


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """The equations of one graph, as far as they are rewritten.

    Attributes:
        shared: the larger factors that all products read behind their barrier.
        equations: the new ones.
        held: for larger factors what their barriers give.
        names: for transposes of products the products of the factors in the other order.
    """

    shared: Set[Value]
    equations: list[Equation] = field(default_factory=list)
    held: dict[Value, Value] = field(default_factory=dict)
    names: dict[Value, Value] = field(default_factory=dict)

    def keep(self, eqn: Equation) -> None:
        """Add an equation, unless it is a transpose that is already there."""
        if not self.names.keys().isdisjoint(eqn.operands):
            operands = tuple([self.names.get(value, value) for value in eqn.operands])
            eqn = Equation(eqn.op, operands, eqn.results, eqn.loc)
        if isinstance(eqn.op, DotGeneral) and not self.shared.isdisjoint(eqn.operands):
            operands = tuple([self._held(value, eqn.loc) if value in self.shared else value for value in eqn.operands])
            eqn = Equation(eqn.op, operands, eqn.results, eqn.loc)
        if self.names.keys().isdisjoint(eqn.results):
            self.equations.append(eqn)

    def swap(self, eqn: Equation, users: Sequence[Equation | None]) -> None:
        """Add a product with its factors in the other order, which is what stands for its transposes."""
        large, small = [self.names.get(value, value) for value in eqn.operands]
        assert isinstance(eqn.op, DotGeneral), "others have no factors"
        held = self._held(large, eqn.loc)
        op, (result,) = swapped(eqn.op), eqn.results
        product = Value(op.infer((small.type, large.type))[0], result.name)
        self.equations.append(Equation(op, (small, held), (product,), eqn.loc))
        back = swapping(eqn.op, large, result)
        transposed = [user.results[0] for user in users if user is not None and user.op == back]
        self.names.update(dict.fromkeys(transposed, product))
        if len(transposed) < len(users):
            written = self._barrier(product, Value(product.type, product.name), eqn.loc)
            self.equations.append(Equation(swapping(op, small, product), (written,), (result,), eqn.loc))

    def _held(self, value: Value, loc: Location | None) -> Value:
        """What products read for a larger factor."""
        if value not in self.held:
            self.held[value] = self._barrier(value, Value(value.type, value.name), loc)
        return self.held[value]

    def _barrier(self, value: Value, result: Value, loc: Location | None) -> Value:
        self.equations.append(Equation(OptimizationBarrier(), (value,), (result,), loc))
        return result
