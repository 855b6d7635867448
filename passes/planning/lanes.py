"""What arrays take on a TPU, whose memory is tiles of 128 lanes: those of convolutions have features or images there.

    %x: f32[4,256,256,32] = convolution ...      4 x 256 x 256 x 128 x 4 bytes, four times its own
    %y: f32[128,256,256,32] = convolution ...    128 x 256 x 256 x 32 x 4 bytes: 128 images fill a tile
    %z: f32[64,8,192,192] = dot_general ...      64 x 8 x 192 x 256 x 4 bytes: nothing fills one better

XLA for TPUs chooses which dimension of an array lies along the lanes of a tile, mostly the one that fills them best. A
convolution reads and writes the features of each place together, and the images beside them, and what is computed of
its result element by element lies as it does. (Of XLA's optimized modules for v5e the layouts are `{3,1,2,0:T(8,128)}`,
features along the lanes, and for as many images as there are lanes `{0,3,2,1:T(8,128)}`.)
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

#: The dimensions, one after the other, that are the features of a convolution, or its images: from the first to behind
#: the last.
_Along = tuple[int, int]
#: The place of images and that of features in the dimensions of a convolution.
_IMAGES, _FEATURES = 0, 1
_ALONG = (Concatenate, Pad, Reverse, Slice, WindowReduction)


def padding(graph: Graph, lanes: int) -> dict[Value, float]:
    """How many times its own bytes each value takes, where it is more than once; not of the regions in the graph.

    Args:
        graph: a flat one.
        lanes: elements along the last dimension of a tile; 1 where there are no tiles.
    """
    if lanes == 1:
        return {}
    padded: dict[Value, float] = {}
    for place in (_IMAGES, _FEATURES):
        for value, (first, last) in _followed(graph, place).items():
            times = _times(math.prod(value.type.shape[first:last]), lanes)
            padded[value] = min(times, padded.get(value, times))
    for value in (value for eqn in graph.equations for value in eqn.results):
        if value not in padded and value.type.size >= lanes:
            padded[value] = min([_times(size, lanes) for size in value.type.shape])
    return {value: times for value, times in padded.items() if times > 1}


def _times(size: int, lanes: int) -> float:
    """How many times its bytes an array takes that has so many elements along the lanes."""
    return -(-size // lanes) * lanes / size if size else 1.0


def _followed(graph: Graph, place: int) -> dict[Value, _Along]:
    """For what convolutions read and write, and what is computed of that, the dimensions that are in such a place."""
    along: dict[Value, _Along] = {}
    for eqn in graph.equations:
        for value, dimension in _read_and_written(eqn, place):
            along.setdefault(value, (dimension, dimension + 1))
    for equations in (graph.equations, graph.equations[::-1], graph.equations) if along else ():
        for eqn in equations:
            along.update(_alike(eqn, along))
    return along


def _read_and_written(eqn: Equation, place: int) -> Iterator[tuple[Value, int]]:
    """What a convolution reads and writes as images, with the dimension in a place; not for a kernel's gradient."""
    if not isinstance(eqn.op, Convolution):
        return
    dimensions, (image, kernel), (result,) = eqn.op.dimensions, eqn.operands, eqn.results
    windows = math.prod(kernel.type.shape[d] for d in dimensions.kernel[2:])
    places = math.prod(result.type.shape[d] for d in dimensions.output[2:])
    if windows <= places:
        yield image, dimensions.input[place]
        yield result, dimensions.output[place]


def _alike(eqn: Equation, along: dict[Value, _Along]) -> dict[Value, _Along]:
    """The dimensions of an equation's values of which they follow from those of another, and are not known."""
    if isinstance(eqn.op, Convolution):
        return {}
    if isinstance(eqn.op, OptimizationBarrier):
        found = {}
        for pair in zip(eqn.operands, eqn.results, strict=True):
            known = [value for value in pair if value in along]
            if len(known) == 1:
                found.update({value: along[known[0]] for value in pair if value not in along})
        return found
    values = (*eqn.operands, *eqn.results)
    one = next((value for value in values if value in along), None)
    if one is None:
        return {}
    others = {other: _following(eqn, one, along[one], other) for other in values if other not in along}
    return {other: found for other, found in others.items() if found is not None}


def _following(eqn: Equation, one: Value, along: _Along, other: Value) -> _Along | None:
    """The dimensions of another value of an equation; None where they do not follow."""
    op = eqn.op
    if op.is_elementwise or isinstance(op, (Name, StopGradient)):
        return along if other.type.shape == one.type.shape else None
    if isinstance(op, _ALONG):
        return along if other.type.rank == one.type.rank else None
    if isinstance(op, Reshape):
        return _reshaped(one.type.shape, along, other.type.shape)
    first, last = along
    if isinstance(op, Transpose) and last == first + 1:
        place = op.permutation.index(first) if one is eqn.operands[0] else op.permutation[first]
        return place, place + 1
    return None


def _reshaped(shape: tuple[int, ...], along: _Along, other: tuple[int, ...]) -> _Along | None:
    """The dimensions of another shape that are these; None where they are a part of one."""
    first, last = along
    before, size = math.prod(shape[:first]), math.prod(shape[first:last])
    for begin in range(len(other)):
        if math.prod(other[:begin]) == before:
            for end in range(begin + 1, len(other) + 1):
                if math.prod(other[begin:end]) == size:
                    return begin, end
    return None
