"""What arrays take on a TPU, whose memory is tiles of 128 lanes: those of convolutions have their features there.

    %x: f32[4,256,256,32] = convolution ...    4 x 256 x 256 x 128 x 4 bytes, four times its own

XLA for TPUs chooses which dimensions of an array lie along a tile, and may nearly always choose ones that fill it; a
convolution reads and writes the features of each place together, and what is computed of its result element by element
lies as it does. (Of XLA's optimized modules for v5e the layouts are `{3,1,2,0:T(8,128)}`: features, then images.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.shape import Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.ops.structural import Name, OptimizationBarrier, StopGradient
from rematc.ir.ops.window import WindowReduction
from rematc.ir.values import Value

#: The dimensions, one after the other, that are the features of a convolution: from the first to behind the last.
_Features = tuple[int, int]
_ALONG = (Concatenate, Pad, Reverse, Slice, WindowReduction)


def padding(graph: Graph, lanes: int) -> dict[Value, float]:
    """How many times its own bytes each value takes, where it is more than once; not of the regions in the graph.

    Args:
        graph: a flat one.
        lanes: elements along the last dimension of a tile; 1 where there are no tiles.
    """
    if lanes == 1 or not any(isinstance(eqn.op, Convolution) for eqn in graph.equations):
        return {}
    features: dict[Value, _Features] = {}
    for eqn in graph.equations:
        for value, dimension in _read_and_written(eqn):
            features.setdefault(value, (dimension, dimension + 1))
    for equations in (graph.equations, graph.equations[::-1], graph.equations):
        for eqn in equations:
            for one, other, found in _alike(eqn, features):
                features.setdefault(other, found)
                assert one in features
    sizes = {value: math.prod(value.type.shape[first:last]) for value, (first, last) in features.items()}
    return {value: -(-size // lanes) * lanes / size for value, size in sizes.items() if size % lanes}


def _read_and_written(eqn: Equation) -> Iterator[tuple[Value, int]]:
    """What a convolution reads and writes as images, with the dimension of features; not for a kernel's gradient."""
    if not isinstance(eqn.op, Convolution):
        return
    dimensions, (image, kernel), (result,) = eqn.op.dimensions, eqn.operands, eqn.results
    windows = math.prod(kernel.type.shape[d] for d in dimensions.kernel[2:])
    places = math.prod(result.type.shape[d] for d in dimensions.output[2:])
    if windows <= places:
        yield image, dimensions.input[1]
        yield result, dimensions.output[1]


def _alike(eqn: Equation, features: dict[Value, _Features]) -> Iterator[tuple[Value, Value, _Features]]:
    """Values of which one's features are known, others of the equation, and which dimensions are those of them."""
    values = (*eqn.operands, *eqn.results)
    known = [value for value in values if value in features]
    if not known or isinstance(eqn.op, Convolution):
        return
    if isinstance(eqn.op, OptimizationBarrier):
        pairs = list(zip(eqn.operands, eqn.results, strict=True))
        pairs += [(result, operand) for operand, result in pairs]
        yield from ((one, other, features[one]) for one, other in pairs if one in features)
        return
    one = known[0]
    first, last = features[one]
    for other in values:
        if other in features:
            continue
        if eqn.op.is_elementwise or isinstance(eqn.op, (Name, StopGradient)):
            is_alike = other.type.shape == one.type.shape
        elif isinstance(eqn.op, _ALONG):
            is_alike = other.type.rank == one.type.rank
        elif isinstance(eqn.op, Reshape):
            found = _reshaped(one.type.shape, (first, last), other.type.shape)
            if found is not None:
                yield one, other, found
            continue
        elif isinstance(eqn.op, Transpose) and last == first + 1:
            order = eqn.op.permutation
            place = order.index(first) if one is eqn.operands[0] else order[first]
            yield one, other, (place, place + 1)
            continue
        else:
            continue
        if is_alike:
            yield one, other, (first, last)


def _reshaped(shape: tuple[int, ...], features: _Features, other: tuple[int, ...]) -> _Features | None:
    """The dimensions of another shape that are these; None where they are a part of one."""
    first, last = features
    before, size = math.prod(shape[:first]), math.prod(shape[first:last])
    for begin in range(len(other)):
        if math.prod(other[:begin]) == before:
            for end in range(begin + 1, len(other) + 1):
                if math.prod(other[begin:end]) == size:
                    return begin, end
    return None
