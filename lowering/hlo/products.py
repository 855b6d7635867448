"""What an HLO module executes: matrix products and convolutions, how often each, from which line.

An instruction counts as often as it runs: a loop's body as often as the loop's steps, a branch of a conditional at
most once (and perhaps not at all), a fusion, a call or a library's fusion once a call. Products are told apart by the
number of their multiplications, which XLA's rewriting of operands (transposed, reshaped, swapped, a convolution of
1x1 as a product) does not change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rematc.lowering.hlo.branches import branch_names, known_branch
from rematc.lowering.hlo.module import (
    Computation,
    HloModule,
    Instruction,
    Shape,
    SourceLine,
    called_computations,
    integers,
    provenance,
    source_line,
)
from rematc.lowering.hlo.trips import trip_count

#: Targets of library calls that multiply matrices, and that convolve, by XLA's sources (xla/service/gpu/cublas_cudnn.h,
#: xla/service/cpu/onednn_contraction_rewriter.cc); none was met in a program run here, where XLA puts products into
#: fusions. cuBLAS stands for its counterparts on ROCm too, cuDNN for MIOpen. Triton's are fusions, whose computations
#: have the product itself. Calls that reorder weights (`matmul_reorder`, `convReorderFilter`) are none.
_MATMUL_CALLS = re.compile(r"__cublas\$(gemm|lt\$matmul(\$f8)?)$|__onednn\$matmul$|__eigen.*[Mm]at[Mm]ul")
_CONVOLUTION_CALLS = re.compile(
    r"__cudnn\$conv(Forward|ForwardGraph|BiasActivationForward|BackwardInput|BackwardFilter)$"
    r"|__onednn\$convolution$|__eigen.*[Cc]onv"
)
_TARGET = re.compile(r'custom_call_target="((?:[^"\\]|\\.)*)"')
_LABELS = re.compile(r"\bdim_labels=(\w+)_(\w+)->(\w+)")


@dataclass(frozen=True, slots=True)
class Product:
    """A kind of matrix product or convolution.

    Attributes:
        multiplications: how many it takes.
        text: what it is: `dot f32[8,16], 32 terms each`.
        source: the user's line it comes from, if the module says.
        is_with_vector: whether one operand is a vector, or each sum has one term: XLA may compute it without a product.
        name: of the operation that it comes from; "" where the module says none.
    """

    multiplications: int
    text: str
    source: SourceLine | None = None
    is_with_vector: bool = False
    name: str = ""

    @property
    def kind(self) -> Product:
        """What it has in common with products of other operations of its line."""
        return replace(self, name="")


@dataclass(frozen=True, slots=True)
class Times:
    """How often something is executed: `most` where every conditional takes the branch that has it."""

    least: int
    most: int

    def __add__(self, other: Times) -> Times:
        return Times(self.least + other.least, self.most + other.most)

    def __mul__(self, factor: int) -> Times:
        return Times(self.least * factor, self.most * factor)

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"


_NEVER = Times(0, 0)


@dataclass(frozen=True, slots=True)
class Executed:
    """What a module executes.

    Attributes:
        products: matrix products and convolutions.
        others: further ops that cost much (sorts, decompositions, transforms), by opcode.
        unknown_loops: loops whose number of steps is not known; their bodies count once.
        unread: lines of the text that were not understood, and computations that are missing.
    """

    products: Mapping[Product, Times]
    others: Mapping[str, Times]
    unknown_loops: int
    unread: int

    @property
    def total(self) -> Times:
        """All products together."""
        return sum(self.products.values(), _NEVER)

    @property
    def multiplications(self) -> int:
        """Of all products, each conditional at its most expensive."""
        return sum(product.multiplications * times.most for product, times in self.products.items())


_OTHERS = ("sort", "cholesky", "triangular-solve", "fft", "rng-bit-generator", "scatter", "gather", "reduce-window")


def executed_products(module: HloModule) -> Executed:
    """What the module's entry executes."""
    if module.entry is None:
        return Executed({}, {}, 0, module.unread + 1)
    return _Counting(module).run(module.entry)


@dataclass(slots=True)
class _Counts:
    products: dict[Product, Times] = field(default_factory=dict)
    others: dict[str, Times] = field(default_factory=dict)
    unknown_loops: int = 0

    def add(self, other: _Counts, factor: int = 1) -> None:
        for product, times in other.products.items():
            self.products[product] = self.products.get(product, _NEVER) + times * factor
        for name, times in other.others.items():
            self.others[name] = self.others.get(name, _NEVER) + times * factor
        self.unknown_loops += other.unknown_loops


def _either(branches: list[_Counts]) -> _Counts:
    """What a conditional executes: of each kind of product the fewest and the most among its branches."""
    merged = _Counts(unknown_loops=max(branch.unknown_loops for branch in branches))
    for kind in dict.fromkeys(product.kind for branch in branches for product in branch.products):
        found = [{one: times for one, times in branch.products.items() if one.kind == kind} for branch in branches]
        certain = min(sum(counted.least for counted in one.values()) for one in found)
        for product, counted in max(found, key=lambda one: sum(counted.most for counted in one.values())).items():
            least = min(counted.least, certain)
            certain -= least
            merged.products[product] = Times(least, counted.most)
    for name in dict.fromkeys(name for branch in branches for name in branch.others):
        times = [branch.others.get(name, _NEVER) for branch in branches]
        merged.others[name] = Times(min(one.least for one in times), max(one.most for one in times))
    return merged


class _Counting:
    """One count for each computation, callees first, without recursion."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.done: dict[str, _Counts] = {}
        self.missing = 0

    def run(self, entry: str) -> Executed:
        stack = [entry]
        open_ones: set[str] = set()
        while stack:
            name = stack[-1]
            computation = self.module.computations.get(name)
            if name in self.done or computation is None:
                stack.pop()
                continue
            waiting = [] if name in open_ones else [one for one in _callees(computation) if one not in self.done]
            open_ones.add(name)
            if waiting := [one for one in waiting if one in self.module.computations and one not in open_ones]:
                stack.extend(waiting)
                continue
            self.done[name] = self._count(computation)
            stack.pop()
        counts = self.done.get(entry, _Counts())
        return Executed(counts.products, counts.others, counts.unknown_loops, self.module.unread + self.missing)

    def _count(self, computation: Computation) -> _Counts:
        counts = _Counts()
        for instruction in computation.instructions.values():
            match instruction.opcode:
                case "while":
                    self._add_loop(instruction, computation, counts)
                case "conditional":
                    names = branch_names(instruction)
                    known = known_branch(instruction, computation, self.module)
                    branches = [self._counts(name) for name in (names if known is None else names[known : known + 1])]
                    counts.add(_either(branches) if branches else _Counts())
                case "fusion" | "call" | "async-start":
                    for names in called_computations(instruction).values():
                        for name in names:
                            counts.add(self._counts(name))
                case opcode:
                    product = product_of(instruction, computation, self.module)
                    if product is not None:
                        counts.products[product] = counts.products.get(product, _NEVER) + Times(1, 1)
                    elif opcode in _OTHERS:
                        counts.others[opcode] = counts.others.get(opcode, _NEVER) + Times(1, 1)
        return counts

    def _add_loop(self, loop: Instruction, around: Computation, counts: _Counts) -> None:
        trips = trip_count(loop, around, self.module)
        for name in called_computations(loop).get("body", ()):
            inside = self._counts(name)
            counts.add(inside, 1 if trips is None else trips)
            if trips is None and (inside.products or inside.others):
                counts.unknown_loops += 1

    def _counts(self, name: str) -> _Counts:
        found = self.done.get(name)
        if found is None:
            self.missing += 1  # not in the text, or it calls itself
            return _Counts()
        return found


def _callees(computation: Computation) -> list[str]:
    found = [
        name
        for instruction in computation.instructions.values()
        if instruction.opcode in ("while", "conditional", "fusion", "call", "async-start")
        for names in called_computations(instruction).values()
        for name in names
    ]
    return list(dict.fromkeys(found))


# -- single products -------------------------------------------------------------------------------------------------


def product_of(instruction: Instruction, computation: Computation, module: HloModule) -> Product | None:
    """The product that an instruction is; None for another op, and where its operands' shapes are not there."""
    found = _product_of(instruction, computation, module)
    return None if found is None else replace(found, name=provenance(instruction))


def _product_of(instruction: Instruction, computation: Computation, module: HloModule) -> Product | None:
    match instruction.opcode:
        case "dot" | "ragged-dot" | "scaled-dot":
            return _dot(instruction, computation, module)
        case "convolution":
            return _convolution(instruction, computation, module)
        case "custom-call":
            found = _TARGET.search(instruction.attributes)
            target = "" if found is None else found[1]
            if _CONVOLUTION_CALLS.match(target):
                return _convolution(instruction, computation, module, target)
            if _MATMUL_CALLS.match(target):
                if "contracting_dim" not in instruction.attributes:
                    return _call_without_dimensions(instruction, computation, module)
                return _dot(instruction, computation, module)
    return None


def _operand_shapes(instruction: Instruction, computation: Computation) -> list[Shape]:
    found = [computation.instructions.get(name) for name in instruction.operands]
    return [Shape.of(one.shape) for one in found if one is not None]


def _dot(instruction: Instruction, computation: Computation, module: HloModule) -> Product | None:
    """As many multiplications as the result has elements, times the terms of each."""
    result = Shape.of(instruction.shape)
    shapes = _operand_shapes(instruction, computation)
    if not shapes:
        return None
    contracted = _dimensions(instruction.attributes, "contracting")
    if any(dimension >= len(shapes[0].sizes) for dimension in contracted):
        return None
    terms = math.prod([shapes[0].sizes[dimension] for dimension in contracted])
    batch = _dimensions(instruction.attributes, "batch")
    batched = math.prod([shapes[0].sizes[dimension] for dimension in batch if dimension < len(shapes[0].sizes)])
    rows = math.prod(shapes[0].sizes) // max(terms * batched, 1)
    columns = math.prod(result.sizes) // max(rows * batched, 1)
    text = f"dot {result}, {terms} term{'s' * (terms != 1)} each"
    is_with_vector = 1 in (rows, columns, terms)
    return Product(math.prod(result.sizes) * terms, text, source_line(instruction, module), is_with_vector)


def _call_without_dimensions(instruction: Instruction, computation: Computation, module: HloModule) -> Product | None:
    """A call that does not say what it contracts, as oneDNN's: [..., m, k] or [..., k, m] by a matrix with n columns.

    The result has an element for each row and column, so that the left operand has k for each of the rows.
    """
    result = Shape.of(instruction.shape)
    shapes = _operand_shapes(instruction, computation)
    if len(shapes) < 2 or not result.sizes or not math.prod(result.sizes):
        return None
    columns = result.sizes[-1]
    rows = math.prod(result.sizes) // columns
    terms = math.prod(shapes[0].sizes) // rows
    text = f"dot {result}, {terms} term{'s' * (terms != 1)} each"
    return Product(rows * columns * terms, text, source_line(instruction, module), 1 in (rows, columns, terms))


def _dimensions(attributes: str, kind: str) -> tuple[int, ...]:
    """Batch or contracting dimensions of the left operand; a library call has them in its configuration."""
    if found := re.search(rf'"lhs_{kind}_dimensions":\[([^\]]*)\]', attributes):
        return tuple([int(digits) for digits in re.findall(r"\d+", found[1])])
    return integers(attributes, f"lhs_{kind}_dims")


def _convolution(
    instruction: Instruction, computation: Computation, module: HloModule, target: str = ""
) -> Product | None:
    """As many multiplications as the output has elements, times the kernel's elements for each output feature.

    cuDNN computes gradients as calls of their own whose labels are those of the forward convolution: with respect to
    the input the result takes the input's place, with respect to the kernel the kernel's.
    """
    result = Shape.of(instruction.shape)
    shapes = _operand_shapes(instruction, computation)
    labels = _LABELS.search(instruction.attributes)
    if len(shapes) < 2 or labels is None:
        return None
    output, kernel = result, shapes[1]
    if "BackwardInput" in target:
        output = shapes[0]
    elif "BackwardFilter" in target:
        output, kernel = shapes[1], result
    feature = labels[2].find("o")
    if feature < 0 or feature >= len(kernel.sizes):
        return None
    taps = math.prod([size for index, size in enumerate(kernel.sizes) if index != feature])
    text = f"convolution {result}, {taps} terms each"
    return Product(math.prod(output.sizes) * taps, text, source_line(instruction, module))
