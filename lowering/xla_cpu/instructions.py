"""Analysis: the instructions that XLA has for a graph before it fuses them.

Before:  %0 = reshape %x   %1 = dot_general %0, %dy {contract=[[0,1],[0,1]]}   %2 = transpose %1
After:   bitcast %x, copy (contracted dimensions go last in the first operand), bitcast %dy, dot_general, bitcast

Most equations are one instruction. What differs:

- names, identities and barriers are other names of a value; a reshape changes no byte (a bitcast);
- products take each operand in one order of dimensions: a dot_general its first one as batch, free, contracted, its
  second one as batch, contracted, free, if more than one is contracted or more than one is free; a convolution images
  as [batch, spatial, features] and kernels as [spatial, in, out]. What stands in another order is copied;
- a product of sums of one term each, as the gradients of single examples are, is elementwise work;
- a transpose is a part of the matrix products that read it, and of one whose only user it is;
- a division by a constant is a product, and so is one by a square root or by what is repeated of an array, if nothing
  else reads that; a product with a converted boolean is a selection;
- a concatenation of long rows, or of many operands, copies them and is fused with nothing;
- a function is its body, unless XLA keeps it apart;
- a hash of many counters is arithmetic on whole numbers, which every kernel does that reads it;
- most of what computes with 16-bit floating-point numbers stands between conversions (`precision`);
- a sum with what is scattered into zeros is scattered into the other summand;
- the updates of a scatter have the dimensions of their windows last;
- what the largest elements are looked for in is written with the NaNs changed;
- in a loop's body, a row is sliced from each stack, and each result is written to a carry or into a stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import Gather, ScatterAdd, Scattering
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.ops.reduction import ReduceSum, Reduction
from rematc.ir.ops.regions import Call
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Transpose
from rematc.ir.ops.sorting import TopK
from rematc.ir.ops.structural import Constant, OptimizationBarrier
from rematc.ir.ops.while_.op import While
from rematc.ir.ops.window import WindowReduction
from rematc.ir.types import BF16, BOOL, F32, TensorType
from rematc.ir.values import Value
from rematc.lowering.ops.random import hashes_few
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.divisors import Divisors
from rematc.lowering.xla_cpu.folding import added_scatters, folded_transposes
from rematc.lowering.xla_cpu.precision import Factor, in_computed_types, is_library_product
from rematc.passes.kernels import is_outer


class Kind(Enum):
    """How XLA evaluates an instruction."""

    #: Not at all: parameters, constants, what a barrier returns.
    SOURCE = auto()
    #: Element by element, in a kernel of its own or as a part of what reads it.
    LOOP = auto()
    #: Not at all, unless it is a part of a kernel: the same bytes with another shape.
    BITCAST = auto()
    #: By a library, which takes elementwise work before and after it along.
    REDUCTION = auto()
    #: By a library.
    PRODUCT = auto()
    #: By code of its own, whose operands and results are in memory.
    OPAQUE = auto()


#: A running combination is lowered to rounds that are a quarter as long, down to one of so many elements.
_RUN, _WHOLE_RUN = 4, 8
#: A concatenation of more operands is not fused, nor one along the last dimension of rows of so many bytes, so many in
#: all, or of so many elements where `Target.copies_rows` is not set.
_MOST_JOINED, _ROW_BYTES, _ROWS_BYTES, _ROW = 8, 64, 2048, 128
#: The type of what has no result.
_NOTHING = TensorType(BOOL, ())


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction, and what the analyses find of it.

    Attributes:
        index: its place in program order.
        kind: how it is evaluated.
        name: the op's, or what it is: parameter, barrier, copy, bitcast, slice, write, part (one of several results).
        operands: instructions whose results it reads.
        type: of its result; a scalar where it has none.
        size: bytes of its result, if it is written to memory.
        is_expensive: not worth being evaluated twice, where it is compiled for.
        is_read_once: a part of one kernel at most: its code branches.
        is_elementwise: each element of the result comes from the elements of the operands at the same place.
        inside: bytes that the regions it runs take, by each of the schedulers asked for; empty without regions.
        buffer: the instruction whose buffer the result lies in, if not one of its own.
        replaces: the instruction whose buffer the result may take where that is not read any more.
        users: instructions that read its result.
        group: the reduction that a library evaluates this together with; `root` is what that call returns.
        root: of a reduction, the last instruction of its group.
        is_written: its result is in memory.
        is_fused: the kernels that can evaluate it as a part of themselves do.
        kernel: the only kernel that evaluates it; None for several.
        is_reread: a kernel that it is a part of reads its elements several times.
        emitted: how often its code stands in one kernel.
        is_joined: a product that the library evaluates together with a reduction.
        is_direct: all between it and the end of the kernels that it is a part of is elementwise.
        is_kept_whole: it must not be evaluated twice, as what it reads is more than what it gives.
        eqn: the equation of the graph that it is a part of; None for parameters and the end.
    """

    index: int
    kind: Kind
    name: str
    operands: list[Instruction]
    type: TensorType
    size: int
    is_expensive: bool = False
    is_read_once: bool = False
    is_elementwise: bool = False
    inside: Sequence[int] = ()
    buffer: Instruction | None = None
    replaces: Instruction | None = None
    users: list[Instruction] = field(default_factory=list)
    group: Instruction | None = None
    root: Instruction | None = None
    is_written: bool = False
    is_fused: bool = False
    kernel: Instruction | None = None
    is_reread: bool = False
    emitted: int = 1
    is_joined: bool = False
    is_direct: bool = False
    is_kept_whole: bool = False
    eqn: Equation | None = None

    @property
    def elements(self) -> int:
        """How many elements the result has."""
        return self.type.size


def postorder(
    roots: Iterable[Instruction], operands: Callable[[Instruction], Sequence[Instruction]]
) -> list[Instruction]:
    """All that the roots depend on, each after its operands, the first root and the first operand first."""
    order: list[Instruction] = []
    seen: set[Instruction] = set()
    for root in roots:
        seen.add(root)
        walk: list[tuple[Instruction, Iterator[Instruction]]] = [(root, iter(operands(root)))]
        while walk:
            instruction, rest = walk[-1]
            following = next((operand for operand in rest if operand not in seen), None)
            if following is None:
                order.append(instruction)
                walk.pop()
            else:
                seen.add(following)
                walk.append((following, iter(operands(following))))
    return order


class Step(NamedTuple):
    """Which parameters of a loop's body are what: first its consts, then its carries, then rows of stacks."""

    consts: int
    carry: int

    @classmethod
    def of(cls, op: Op, region: int) -> Step | None:
        """That of a region of an op, by its place; None for one that is no loop's body."""
        match op:
            case Scan():
                return cls(op.consts, op.carry)
            case While() if op.regions()[region] is op.body:
                return cls(op.body_consts, len(op.body.results))
            case _:
                return None


class Program:
    """The instructions of a graph.

    Attributes:
        graph: in the element types that XLA computes in.
        instructions: in program order; the end, which reads the results, is the last one before any are joined.
        results: the instructions that the graph returns.
        carried: of a loop's body, each carry before and after it.
        is_body: whether it is a loop's body, which takes its parameters from one tuple.
        target: what it is compiled for.
        aliased: of each result that lies in a donated parameter's memory, the parameter.
    """

    def __init__(
        self,
        graph: Graph,
        step: Step | None,
        inside: Callable[[Equation], Sequence[int]],
        target: Target,
        aliased: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.instructions: list[Instruction] = []
        graph = in_computed_types(graph, target)
        self.graph = graph
        self.target = target
        self.is_body = step is not None
        self._inside = inside
        self._of: dict[Value, Instruction] = {}
        self._divisors = Divisors(graph)
        self._updates: dict[Value, list[Instruction]] = {}
        self._reorderings: dict[tuple[object, ...], Instruction] = {}
        #: For a result in the order asked for, what XLA gathers, and the order of its dimensions.
        self._moved: dict[Instruction, tuple[Instruction, tuple[int, ...]]] = {}
        self._folded = folded_transposes(graph)
        self._scattered = added_scatters(graph)
        kept = len(graph.params) if step is None else sum(step)
        for index, value in enumerate(graph.params):
            parameter = self._add(Kind.SOURCE, "parameter", [], value.type, 0)
            is_row = index >= kept
            self._of[value] = self._add(Kind.LOOP, "slice", [parameter], value.type) if is_row else parameter
        for eqn in graph.equations:
            first = len(self.instructions)
            self._build(eqn)
            for instruction in self.instructions[first:]:
                instruction.eqn = eqn
        results = [self._of[value] for value in graph.results]
        carries: Sequence[Value] = ()
        if step is not None:
            results = [self._add(Kind.LOOP, "write", [result], result.type, 0) for result in results]
            carries = graph.params[step.consts : sum(step)]
        self.carried = [(self._of[before], after) for before, after in zip(carries, results, strict=False)]
        self.results = results
        self.aliased = {results[place]: self._of[graph.params[index]] for index, place in aliased}
        self.end = self._add(Kind.OPAQUE, "end", results, _NOTHING, 0)
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                operand.users.append(instruction)
        self._drop_unused()

    def __del__(self) -> None:
        """Instructions know each other: nothing else frees them while the cycle collector rests."""
        for one in self.instructions:
            one.operands, one.users = [], []
            one.group = one.root = one.kernel = one.buffer = one.replaces = None

    def in_postorder(self) -> list[Instruction]:
        """What the results depend on, each after its operands, the first of them first."""
        return postorder([self.end], lambda instruction: instruction.operands)

    def join(self, group: Sequence[Instruction]) -> None:
        """Let one instruction compute what several of one operand do, which become its parts."""
        operands = [operand for one in group for operand in one.operands]
        whole = self._add(Kind.OPAQUE, group[0].name, operands, _NOTHING, 0)
        whole.eqn, whole.is_written, whole.users = group[0].eqn, True, list(group)
        for operand in dict.fromkeys(operands):
            operand.users = [*[user for user in operand.users if user not in group], whole]
        for one in group:
            one.name, one.operands, one.replaces = "part", [whole], None

    def _drop_unused(self) -> None:
        """What only a rewriting left without a user is not computed."""
        dead: set[Instruction] = set()
        for instruction in reversed(self.instructions):
            if not instruction.users and instruction.kind in (Kind.LOOP, Kind.BITCAST):
                dead.add(instruction)
                for operand in dict.fromkeys(instruction.operands):
                    operand.users.remove(instruction)
        if dead:
            self.instructions = [instruction for instruction in self.instructions if instruction not in dead]

    def _add(
        self, kind: Kind, name: str, operands: list[Instruction], type: TensorType, size: int | None = None
    ) -> Instruction:
        if size is None:
            size = type.bytes
        if type.on_host:
            size = 0  # of the device's memory
        added = Instruction(len(self.instructions), kind, name, operands, type, size)
        added.is_elementwise = kind is Kind.BITCAST
        self.instructions.append(added)
        return added

    def _build(self, eqn: Equation) -> None:
        operands = [self._of[value] for value in eqn.operands if value not in self._scattered]
        if isinstance(eqn.op, Scattering):
            operands[-1] = self._windows_last(eqn.op, operands[-1])
        match eqn.op:
            case OptimizationBarrier():
                barrier = self._add(Kind.OPAQUE, "barrier", operands, _NOTHING, 0)
                for value, operand in zip(eqn.results, operands, strict=True):
                    self._of[value] = self._add(Kind.SOURCE, "after", [barrier], value.type, 0)
                    self._of[value].buffer = operand
            case Call(body=body) as op if op.is_inlineable:
                self._inline(body, eqn, operands)
            case op if op.storage is Storage.ALIAS:
                self._of[eqn.results[0]] = operands[0]
            case Constant():
                self._of[eqn.results[0]] = self._add(Kind.SOURCE, "constant", [], eqn.results[0].type, 0)
            case op if op.storage is Storage.BITCAST:
                self._of[eqn.results[0]] = self._reshaped(operands[0], eqn.results[0].type)
            case Transpose() if eqn.operands[0] in self._folded:
                self._of[eqn.results[0]] = self._add(Kind.BITCAST, "bitcast", operands, eqn.results[0].type)
            case ScatterAdd() if eqn.results[0] in self._scattered:
                self._updates[eqn.results[0]] = operands
            case Add() if any(value in self._scattered for value in eqn.operands):
                self._of[eqn.results[0]] = self._scatter_into(eqn)
            case DotGeneral() as op:
                self._of[eqn.results[0]] = self._multiply(op, eqn, operands)
            case Convolution() as op:
                self._convolve(op, eqn, operands)
            case op if len(eqn.results) == 1:
                self._of[eqn.results[0]] = self._one(eqn, operands)
            case _:
                self._several(eqn, operands)

    def _inline(self, body: Graph, eqn: Equation, operands: list[Instruction]) -> None:
        """The body's instructions in the place of a call."""
        body = in_computed_types(body, self.target)
        self._divisors.enter_body(body, eqn)
        self._folded |= folded_transposes(body)
        self._scattered |= added_scatters(body)
        self._of.update(zip(body.params, operands, strict=True))
        for inner in body.equations:
            self._build(inner)
        self._of.update({value: self._of[result] for value, result in zip(eqn.results, body.results, strict=True)})

    def _one(self, eqn: Equation, operands: list[Instruction]) -> Instruction:
        """An equation with one result."""
        op, type = eqn.op, eqn.results[0].type
        if isinstance(op, Reduction):
            multiplied = self._sum_of_repeated(op, operands[0], type)
            return multiplied or self._add(Kind.REDUCTION, op.name, operands, type)
        if isinstance(op, WindowReduction) and _touch(op):
            return self._add(Kind.REDUCTION, op.name, operands, type)
        if isinstance(op, Concatenate) and _is_copied_whole(op, eqn, self.target):
            return self._add(Kind.OPAQUE, op.name, operands, type)
        if not (op.is_fusible or isinstance(op, Gather)):
            opaque = self._add(Kind.OPAQUE, op.name, operands, type)
            opaque.inside = self._inside(eqn)
            self._replace(eqn, 0, opaque, operands)
            return opaque
        if op.name == "maximum" and any(map(_is_least, operands)):
            return operands[0] if _is_least(operands[1]) else operands[1]
        if op.name == "divide" and self._divisors.is_inverted(eqn.operands[1]):
            operands = [operands[0], self._reciprocal(eqn.operands[1])]
            loop = self._add(Kind.LOOP, "multiply", operands, type)
            loop.is_elementwise = True
            return loop
        is_mask = op.name == "multiply" and any(_is_converted_boolean(operand) for operand in operands)
        loop = self._add(Kind.LOOP, "select" if is_mask else op.name, operands, type)
        loop.is_elementwise = op.is_elementwise
        is_product = op.name == "divide" and self._divisors.is_cheap(eqn.operands[1])
        loop.is_expensive = not (self.target.repeats_heavy_work or is_product) and _is_expensive(eqn)
        loop.is_read_once = op.storage is Storage.FUSED_ONCE
        return self._windows_back(op, loop) if isinstance(op, Gather) else loop

    def _sum_of_repeated(self, op: Reduction, operand: Instruction, type: TensorType) -> Instruction | None:
        """A sum over dimensions along which an array is only repeated: the array times a number; None for another."""
        repeat = operand.eqn.op if operand.eqn is not None and operand.name == "broadcast_in_dim" else None
        if not isinstance(op, ReduceSum) or not isinstance(repeat, BroadcastInDim):
            return None
        (smaller,) = operand.operands
        sizes = zip(repeat.dimensions, smaller.type.shape, strict=True)
        if not set(op.dimensions).isdisjoint(place for place, size in sizes if size == repeat.shape[place]):
            return None
        if smaller.type != type:
            smaller = self._add(Kind.LOOP, "broadcast_in_dim", [smaller], type)
        found = self._add(Kind.LOOP, "multiply", [smaller], type)
        found.is_elementwise = True
        return found

    def _reciprocal(self, divisor: Value) -> Instruction:
        """One over a smaller array, repeated to the shape of a divisor."""
        is_cheap = self._divisors.is_cheap(divisor)
        operand, repeated = self._of[self._divisors.invert(divisor)], self._of[divisor]
        one_over = self._add(Kind.LOOP, "divide", [operand], operand.type)
        one_over.is_elementwise = True
        one_over.is_expensive = not (self.target.repeats_heavy_work or is_cheap)
        return self._add(Kind.LOOP, repeated.name, [one_over], repeated.type)

    def _scatter_into(self, eqn: Equation) -> Instruction:
        """A sum of which one term is scattered into an array: it is scattered into that and the other one, summed."""
        first, second = eqn.operands
        scattered, other = (first, second) if first in self._scattered else (second, first)
        array, *updates = self._updates[scattered]
        into = self._of[other]
        if not self._scattered[scattered]:
            into = self._add(Kind.LOOP, "add", [array, into], eqn.results[0].type)
            into.is_elementwise = True
        result = self._add(Kind.OPAQUE, "scatter_add", [into, *updates], eqn.results[0].type)
        result.replaces = into
        return result

    def _several(self, eqn: Equation, operands: list[Instruction]) -> None:
        """An equation with several results, or none."""
        if isinstance(eqn.op, Threefry2x32) and not hashes_few(eqn):
            for value in eqn.results:
                self._of[value] = self._add(Kind.LOOP, eqn.op.name, operands, value.type)
                self._of[value].is_elementwise = True
            return
        if isinstance(eqn.op, TopK) and eqn.operands[0].type.dtype.is_float:
            # As it is printed: NaNs have their sign taken from them first (`lowering.ops.sorting`).
            operands = [self._add(Kind.LOOP, "select", operands, eqn.operands[0].type)]
        whole = self._add(Kind.OPAQUE, eqn.op.name, operands, _NOTHING, 0)
        whole.inside = self._inside(eqn)
        for index, value in enumerate(eqn.results):
            part = self._of[value] = self._add(Kind.OPAQUE, "part", [whole], value.type)
            self._replace(eqn, index, part, operands)

    def _replace(self, eqn: Equation, index: int, result: Instruction, operands: list[Instruction]) -> None:
        """A result may take the place of an operand: a loop's carry that of the first one."""
        place = eqn.op.overwrites(index)
        if place is not None:
            result.replaces = operands[place]

    def _multiply(self, op: DotGeneral, eqn: Equation, operands: list[Instruction]) -> Instruction:
        """A matrix product, of one free dimension of each operand: its result is reshaped if there are more."""
        type, is_folded = eqn.results[0].type, eqn.results[0] in self._folded
        if is_folded:  # it is that of the factors in the other order
            type = type.with_shape(type.shape[::-1])
        if is_outer(eqn):
            repeated = [self._add(Kind.LOOP, "broadcast_in_dim", [one], type) for one in operands]
            product = self._add(Kind.LOOP, "multiply", repeated, type)
            product.is_elementwise = True
            return product
        arranged = [self._arranged(op, side, operand) for side, operand in enumerate(operands)]
        if is_folded:
            arranged.reverse()
        free = [x.type.rank - len(op.contract[side]) - len(op.batch[side]) for side, x in enumerate(operands)]
        batch = len(op.batch[0])
        shape = type.shape
        parts = (shape[batch : batch + free[0]], shape[batch + free[0] :])
        flat = type.with_shape((*shape[:batch], *[math.prod(part) for part in parts]))
        product = self._add(Kind.PRODUCT, op.name, arranged, type if max(free) <= 1 else flat)
        sides = [
            Factor(operand.type, contract, batch).before(operand.name == "transpose")
            for operand, contract, batch in zip(operands, op.contract, op.batch, strict=True)
        ]
        if is_folded:
            sides.reverse()
        product.is_joined = is_library_product(*sides)
        return product if max(free) <= 1 else self._add(Kind.BITCAST, "bitcast", [product], type)

    def _arranged(self, op: DotGeneral, side: int, operand: Instruction) -> Instruction:
        """An operand as the product takes it: batch dimensions, and one free and one contracted dimension."""
        batch, contract = op.batch[side], op.contract[side]
        if operand.name == "transpose" and operand.type.rank == 2 and not batch:
            return operand.operands[0]
        free = [d for d in range(operand.type.rank) if d not in batch and d not in contract]
        if len(free) <= 1 and len(contract) == 1 and batch == tuple(range(len(batch))):
            return operand
        first, second = (free, contract) if side == 0 else (contract, free)
        shape = operand.type.shape
        flat = (*[shape[d] for d in batch], math.prod(shape[d] for d in first), math.prod(shape[d] for d in second))
        return self._reordered(operand, op.moved(side, shape), flat)

    def _convolve(self, op: Convolution, eqn: Equation, operands: list[Instruction]) -> None:
        own = ConvolutionDimensions.features_last(len(op.window_strides))
        found = (op.dimensions.input, op.dimensions.kernel)
        arranged = [
            operand if order == direct else self._reordered(operand, order, tuple(operand.type.shape[d] for d in order))
            for operand, order, direct in zip(operands, found, (own.input, own.kernel), strict=True)
        ]
        result = self._add(Kind.PRODUCT, op.name, arranged, eqn.results[0].type)
        order = op.dimensions.output
        self._of[eqn.results[0]] = result if order == own.output else self._reordered(result, order, result.type.shape)

    def _windows_back(self, op: Gather, gathered: Instruction) -> Instruction:
        """The result of a gather, which XLA gathers with the dimensions of its windows last."""
        type, windows = gathered.type, op.dimension_numbers.offset_dims
        order = (*[d for d in range(type.rank) if d not in windows], *windows)
        moved = [d for d in order if type.shape[d] != 1]
        if moved == sorted(moved):
            return gathered
        gathered.type = type.with_shape(tuple(type.shape[d] for d in order))
        back = self._add(Kind.LOOP, "transpose", [gathered], type)
        self._moved[back] = gathered, order
        return back

    def _windows_last(self, op: Scattering, updates: Instruction) -> Instruction:
        """The updates of a scatter as XLA takes them: dimensions that say which window come first."""
        shape, windows = updates.type.shape, op.dimension_numbers.update_window_dims
        order = (*[d for d in range(len(shape)) if d not in windows], *windows)
        moved = [d for d in order if shape[d] != 1]
        return updates if moved == sorted(moved) else self._reordered(updates, order, tuple(shape[d] for d in order))

    def _reshaped(self, operand: Instruction, type: TensorType) -> Instruction:
        """An operand in another shape: that of a reshape of what has this one is what it reshapes."""
        while operand.kind is Kind.BITCAST and operand.name == "bitcast":
            (operand,) = operand.operands
        return operand if operand.type == type else self._add(Kind.BITCAST, "bitcast", [operand], type)

    def _reordered(self, operand: Instruction, order: tuple[int, ...], shape: tuple[int, ...]) -> Instruction:
        """An operand with its dimensions in another order, or in the same (), and another shape: once for all users."""
        if order and operand in self._moved:
            operand, moved = self._moved[operand]
            order = tuple([moved.index(d) for d in order])
        key = (operand, order, shape)
        if key not in self._reorderings:
            type = operand.type.with_shape(shape)
            copy = self._add(Kind.LOOP, "copy", [operand], type) if order else self._reshaped(operand, type)
            self._reorderings[key] = copy
        return self._reorderings[key]


def _touch(op: WindowReduction) -> bool:
    """Whether each window begins where the one before it ends: XLA leaves these to a library, as reductions."""
    return op.window_strides == op.window_dimensions and {*op.base_dilations, *op.window_dilations} <= {1}


def _is_copied_whole(op: Concatenate, eqn: Equation, target: Target) -> bool:
    """Whether a concatenation is a kernel of its own: of rows that are long enough to be copied whole, or of many."""
    type = eqn.results[0].type
    row = type.shape[-1] if type.rank > 1 and op.dimension == type.rank - 1 else 0
    is_large = row * type.dtype.bits >= 8 * _ROW_BYTES and type.bytes >= _ROWS_BYTES
    has_rows = is_large if target.copies_rows else row >= _ROW
    return has_rows or len(eqn.operands) > _MOST_JOINED


def _is_expensive(eqn: Equation) -> bool:
    """Whether an element is not computed twice. To round to bfloat16 takes several instructions."""
    if eqn.op.name == "convert":
        return eqn.results[0].type.dtype is BF16 and eqn.operands[0].type.dtype is F32
    return eqn.op.weight is Weight.HEAVY


def _is_least(instruction: Instruction) -> bool:
    """Whether it is minus infinity, or that repeated: of its maximum with anything XLA makes the other one."""
    while instruction.name == "broadcast_in_dim":
        (instruction,) = instruction.operands
    op = instruction.eqn.op if instruction.eqn is not None else None
    return (
        isinstance(op, Constant)
        and op.type.size == 1
        and op.type.dtype.is_float
        and float(op.array.item()) == -math.inf
    )


def _is_converted_boolean(instruction: Instruction) -> bool:
    return instruction.name == "convert" and instruction.operands[0].type.dtype is BOOL
