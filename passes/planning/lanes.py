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
            features.update(_alike(eqn, features))
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


def _alike(eqn: Equation, features: dict[Value, _Features]) -> dict[Value, _Features]:
    """The features of an equation's values of which they follow from those of another, and are not known."""
    if isinstance(eqn.op, Convolution):
        return {}
    if isinstance(eqn.op, OptimizationBarrier):
        found = {}
        for pair in zip(eqn.operands, eqn.results, strict=True):
            known = [value for value in pair if value in features]
            if len(known) == 1:
                found.update({value: features[known[0]] for value in pair if value not in features})
        return found
    values = (*eqn.operands, *eqn.results)
    one = next((value for value in values if value in features), None)
    if one is None:
        return {}
    others = {other: _following(eqn, one, features[one], other) for other in values if other not in features}
    return {other: found for other, found in others.items() if found is not None}


def _following(eqn: Equation, one: Value, features: _Features, other: Value) -> _Features | None:
    """The features of another value of an equation; None where they do not follow."""
    op = eqn.op
    if op.is_elementwise or isinstance(op, (Name, StopGradient)):
        return features if other.type.shape == one.type.shape else None
    if isinstance(op, _ALONG):
        return features if other.type.rank == one.type.rank else None
    if isinstance(op, Reshape):
        return _reshaped(one.type.shape, features, other.type.shape)
    first, last = features
    if isinstance(op, Transpose) and last == first + 1:
        place = op.permutation.index(first) if one is eqn.operands[0] else op.permutation[first]
        return place, place + 1
    return None


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
