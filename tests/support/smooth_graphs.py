"""Random differentiable graphs in float64, and what tests of differentiation do with them.

The graphs are smooth and bounded, so that finite differences judge their derivatives: every product is preceded by a
sine or divided by its length. Some values are integers or booleans; some are constants; regions nest, each under a
random policy; values are named and stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.logical import Compare
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.structural import Name, StopGradient
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Policy
from rematc.ir.types import F64, I32, TensorType
from rematc.ir.values import Types, Value
from rematc.passes.accounting import flat_equations
from rematc.passes.linearize import under_policy, vjp
from rematc.passes.policies import as_policy, parse_policy

Draw = st.DrawFn
SQUARE, VECTOR, SCALAR = TensorType(F64, (3, 3)), TensorType(F64, (3,)), TensorType(F64, ())
INDICES = TensorType(I32, (3,))
LABELS = ("a", "b", "c")
TERMS = ("nothing", "dots", "dots-no-batch", "names=a", "names=a,b", "any-names-but=a", "except=a", "except=b,c")


# -- policies ------------------------------------------------------------------------------------------------------


def by_seed(seed: int) -> Policy:
    """A user's policy whose answers look random, differ from value to value, and are the same each time."""

    def decide(op: Op, operands: Types, name: str | None) -> bool | Decision | tuple[Decision, ...]:
        draws = np.random.default_rng([seed, len(op.name), len(operands), len(name or "")])
        answer = draws.integers(0, 4)
        return (True, False, (SAVE,), RECOMPUTE)[answer]

    return as_policy(decide)


@st.composite
def policies(draw: Draw) -> Policy:
    """Built-in policies, a user's functions, and combinations of them; never the one that saves everything."""
    if draw(st.booleans()):
        return by_seed(draw(st.integers(0, 99)))
    return parse_policy("+".join(draw(st.lists(st.sampled_from(TERMS), min_size=1, max_size=2))))


# -- graphs ----------------------------------------------------------------------------------------------------------


@st.composite
def smooth_graphs(draw: Draw, max_equations: int = 12, regions: int = 2, stops: bool = True) -> Graph:
    """A graph of a matrix, two vectors and a vector of integers, with up to three results beside a scalar one.

    `stops` says whether gradients may be stopped on the way, which finite differences do not see.
    """
    b = Builder("main")
    pool = [b.parameter(SQUARE, "w"), b.parameter(VECTOR, "x"), b.parameter(VECTOR, "y"), b.parameter(INDICES, "i")]
    _fill(draw, b, pool, max_equations, regions)
    if not stops:
        b.equations[:] = [_unstopped(eqn) for eqn in b.equations]
    loss = b.reduce_sum(b.sine(draw(st.sampled_from(_of(pool, VECTOR)[-4:]))), (0,))
    return b.build(loss, *draw(st.lists(st.sampled_from(pool[-6:]), max_size=3)))


def _fill(draw: Draw, b: Builder, pool: list[Value], max_equations: int, regions: int) -> None:
    steps = (*STEPS, *(REGION_STEPS if regions else ()))
    for _ in range(draw(st.integers(1, max_equations))):
        pool.extend(draw(st.sampled_from(steps))(draw, b, pool, regions))


def _unstopped(eqn: Equation) -> Equation:
    """The equation with names for stopped gradients."""
    op = eqn.op
    if isinstance(op, StopGradient):
        op = Name("a")
    elif isinstance(op, (Call, Checkpoint)):
        body = op.body
        equations = tuple(_unstopped(one) for one in body.equations)
        op = replace(op, body=Graph(body.name, body.params, equations, body.results))
    return Equation(op, eqn.operands, eqn.results, eqn.loc)


Step = Callable[[Draw, Builder, Sequence[Value], int], tuple[Value, ...]]


def _of(pool: Sequence[Value], type: TensorType) -> list[Value]:
    return [value for value in pool if value.type == type]


def _pick(draw: Draw, pool: Sequence[Value], type: TensorType) -> Value:
    """A value of this type, often a recent one."""
    found = _of(pool, type)
    return draw(st.sampled_from(found[-3:] if draw(st.booleans()) else found))


def _unary(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, draw(st.sampled_from((VECTOR, SQUARE))))
    return (draw(st.sampled_from((b.sine, b.cosine, b.negate, lambda v: b.exponential(b.sine(v)))))(x),)


def _binary(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    type = draw(st.sampled_from((VECTOR, SQUARE)))
    x, y = _pick(draw, pool, type), _pick(draw, pool, type)
    return (draw(st.sampled_from((b.add, b.subtract, lambda v, u: b.multiply(b.sine(v), u))))(x, y),)


def _product(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    w, x = _pick(draw, pool, SQUARE), _pick(draw, pool, VECTOR)
    return (b.scale(b.dot_general(w, x, ([1], [0])), 1 / 3),)


def _batched_product(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    w, u = _pick(draw, pool, SQUARE), _pick(draw, pool, SQUARE)
    return (b.scale(b.dot_general(w, u, ([1], [1]), ([0], [0])), 1 / 3),)


def _outer(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x, y = _pick(draw, pool, VECTOR), _pick(draw, pool, VECTOR)
    return (b.sine(b.dot_general(x, y, ([], []))),)


def _shape(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    w = _pick(draw, pool, SQUARE)
    row = b.reduce_sum(b.sine(w), (draw(st.integers(0, 1)),))
    return (b.transpose(w, (1, 0)), row, b.broadcast_in_dim(row, (3, 3), (draw(st.integers(0, 1)),)))


def _constant(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    ramp = b.scale(b.iota(VECTOR, 0), 0.25)
    return (b.full(VECTOR, draw(st.sampled_from((0.5, 1.0, 0.0)))), ramp, b.cosine(ramp))


def _alias(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    x = _pick(draw, pool, draw(st.sampled_from((VECTOR, SQUARE))))
    return (b.emit1(Name(draw(st.sampled_from(LABELS))), x),)


def _stop(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    return (b.emit1(StopGradient(), _pick(draw, pool, VECTOR)),)


def _discrete(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    """A choice between two values by integers; the integers as floats."""
    i = _pick(draw, pool, INDICES)
    chosen = b.emit1(Compare("LT"), i, b.full(INDICES, 1))
    x, y = _pick(draw, pool, VECTOR), _pick(draw, pool, VECTOR)
    return (b.add(i, i), b.select(chosen, x, y), b.sine(b.convert(i, F64)))


def _region(draw: Draw, b: Builder, pool: Sequence[Value], regions: int, is_checkpoint: bool) -> tuple[Value, ...]:
    operands = [_pick(draw, pool, type) for type in (SQUARE, VECTOR, VECTOR, INDICES)]
    inner = Builder("body")
    params = [inner.parameter(value.type) for value in operands]
    made = list(params)
    _fill(draw, inner, made, 6, regions - 1)
    body = inner.build(*draw(st.lists(st.sampled_from(made[-5:]), min_size=1, max_size=3)))
    if not is_checkpoint:
        return b.emit(Call(body), *operands)
    pins: tuple[bool | tuple[bool, ...], ...] = (True, False, (False, True, False, True))
    prevent_cse = draw(st.sampled_from(pins))
    return b.emit(Checkpoint(body, draw(policies()), prevent_cse), *operands)


def _checkpoint(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    return _region(draw, b, pool, regions, is_checkpoint=True)


def _call(draw: Draw, b: Builder, pool: Sequence[Value], regions: int) -> tuple[Value, ...]:
    return _region(draw, b, pool, regions, is_checkpoint=False)


STEPS: tuple[Step, ...] = (
    *(_unary, _unary, _binary, _binary, _product, _batched_product, _outer, _shape, _constant, _alias, _alias),
    *(_stop, _discrete),
)
REGION_STEPS: tuple[Step, ...] = (_checkpoint, _checkpoint, _call)


# -- derivatives by graphs and by finite differences -------------------------------------------------------------------


def is_float(graph: Graph) -> list[bool]:
    """For each parameter whether it can be differentiated."""
    return [type.dtype.is_inexact for type in graph.param_types]


def run(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The graph's results, by the reference interpreter."""
    return list(evaluate(graph, arrays))


def arrays_for(graph: Graph, seed: int = 0) -> list[Any]:
    """Arguments of the parameters' types, around zero and one."""
    random = np.random.default_rng(seed)
    return [
        random.integers(-1, 3, type.shape).astype(type.dtype.numpy)
        if type.dtype.is_integer
        else np.asarray(random.normal(0.3, 0.7, type.shape), type.dtype.numpy)
        for type in graph.param_types
    ]


def gradients(graph: Graph, arrays: Sequence[Any], policy: Policy | None = None) -> list[Any]:
    """The gradient of the graph's first result, by the forward and the backward graph of its vjp.

    One array for each floating-point parameter, under a policy on the whole graph where there is one.
    """
    primal = graph if policy is None else under_policy(graph, policy)
    of = [index == 0 for index in range(len(graph.results))]
    pulled = vjp(primal, is_float(graph), of)
    residuals = run(pulled.forward, arrays)[len(graph.results) :]
    cts = [np.ones((), np.float64)] if any(pulled.has_tangent) else []
    given = iter(run(pulled.backward, [*residuals, *cts]))
    types = [type for type in graph.param_types if type.dtype.is_inexact]
    return [
        next(given) if is_set else np.zeros(type.shape, type.dtype.numpy)
        for is_set, type in zip(pulled.has_ct, types, strict=True)
    ]


def directional_difference(graph: Graph, arrays: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """(f(x + h t) - f(x - h t)) / 2h of the floating-point results; a tangent for each floating-point parameter."""
    step = 1e-5

    def moved(sign: float) -> list[Any]:
        given = iter(tangents)
        return [x + sign * step * next(given) if x.dtype.kind == "f" else x for x in arrays]

    ahead, behind = run(graph, moved(1.0)), run(graph, moved(-1.0))
    return [(x - y) / (2 * step) for x, y in zip(ahead, behind, strict=True) if x.dtype.kind == "f"]


def count_ops(graph: Graph) -> Counter[str]:
    """How often each op occurs, in the graph and in its checkpoint regions."""
    return Counter(eqn.op.name for eqn in flat_equations(graph))
