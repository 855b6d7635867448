"""Convolutions in groups of the batch become convolutions in groups of features, which XLA:CPU runs as they are.

Before:  %2 = convolution %x, %ct {batch_group_count=64, ...}   the gradient of a depthwise kernel, f32[3,3,1,64]
After:   %0 = transpose of %x with each group of the batch in front of its features, and these last
         %2 = convolution %0, %ct {feature_group_count=64, ...}

Of groups of the batch XLA for CPUs convolves all of the input with all of the kernel, an array and work of so many
times the result's, and selects what is wanted: for 1,024 channels 72 MiB and 500 ms in the place of 8 MiB and 20 ms.
"""

from __future__ import annotations

from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.convolution import Convolution, ConvolutionDimensions
from rematc.ir.ops.shape import Reshape, Transpose
from rematc.ir.values import Value
from rematc.passes.regions import EquationRewriter


def with_groups_of_features(graph: Graph) -> Graph:
    """The graph, and its regions, without groups of the batch; the graph itself where there are none."""
    return EquationRewriter(lambda _: _by_features).graph(graph) if Convolution in graph.op_types else graph


def _by_features(eqn: Equation) -> list[Equation] | None:
    """The equations of one: the input in the order that XLA:CPU takes, so that it is copied once."""
    op = eqn.op
    if not isinstance(op, Convolution) or op.batch_group_count == 1:
        return None
    x, kernel = eqn.operands
    groups, shape = op.batch_group_count, x.type.shape
    batch, features, *spatial = op.dimensions.input
    size = shape[batch] // groups
    cut = Value(x.type.with_shape((*shape[:batch], groups, size, *shape[batch + 1 :])))
    # Of the dimensions of `cut`, those behind the batch's are one further on; its own second half is the batch within.
    batch_within, *rest = [d + (d >= batch) for d in (batch, *spatial)]
    order = (batch_within, *rest, batch, features + (features > batch))
    moved = Value(x.type.with_shape(tuple([cut.type.shape[d] for d in order])))
    joined = Value(x.type.with_shape((size, *[shape[d] for d in spatial], groups * shape[features])), x.name)
    own = replace(op.dimensions, input=ConvolutionDimensions.features_last(len(spatial)).input)
    grouped = replace(op, dimensions=own, batch_group_count=1, feature_group_count=groups)
    return [
        Equation(Reshape(cut.type.shape), (x,), (cut,), eqn.loc),
        Equation(Transpose(order), (cut,), (moved,), eqn.loc),
        Equation(Reshape(joined.type.shape), (moved,), (joined,), eqn.loc),
        Equation(grouped, (joined, kernel), eqn.results, eqn.loc),
    ]
