"""Random well-typed graphs over all ops, for laws that hold for every graph.

    @given(graphs())
    def test_law(graph): ...

Shapes are tiny, and so chosen that operands often fit; steps that do nothing (a reshape to the same shape, a
transpose back and forth) are as frequent as in what frontends write. Which ops there are says the table `ROWS`; a
new op joins by a row (tests/support/drawing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.locations import Location
from rematc.ir.ops import bessel, incomplete
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.registry import OPS
from rematc.ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F8E4M3FN,
    F16,
    F32,
    F64,
    I4,
    I8,
    I32,
    I64,
    U4,
    U8,
    U32,
    DType,
    TensorType,
)
from rematc.ir.values import Value
from tests.support.arrays import arguments_for, same_bits
from tests.support.drawing import SHAPES, Drawing, Hypothesis, Row, Seeded, Source
from tests.support.graph_rows import (
    complex_parts,
    cumulative,
    elementwise,
    folding,
    fourier,
    indexing,
    linear_algebra,
    loops,
    products,
    random,
    random_bits,
    reductions,
    shape,
    sorting,
    structural,
)

__all__ = ["arguments_for", "graphs", "graphs_of", "programs", "same_bits", "seeded_program"]

PROGRAM_EQUATIONS = 16
DTYPES_DRAWN = (F32, F64, I32, BOOL)
#: Element types that meet in one program.
PALETTES: tuple[tuple[DType, ...], ...] = (
    *(DTYPES_DRAWN,) * 3,
    (F64, I32, BOOL),
    (F32,),
    (BF16, F32, I32, BOOL),
    (F16, F32, U8, BOOL),
    (C64, F32, BOOL),
    (C128, F64, I64),
    (I8, U8, U32, I64, BOOL),
    (F8E4M3FN, BF16, I4, U4),
)
NAMES = (None, "x", "x", "w", "params['w']", "a.b", "7", "ü", "arg0")
LOCATIONS = (
    None,
    Location("model.py", 12, 8),
    Location("model.py", 14, 0, "loss"),
    Location('a "b"\\c\n.py', 3, 1, "λ"),
)
#: Registered ops that no row draws, and why.
EXEMPT = {
    "erfc_inv": "five steps of Newton's method for XLA: tests/lowering/test_special_functions.py",
    **dict.fromkeys(
        ("complex_erf", "complex_erfc"),
        "like e to the square, they leave the range at once: tests/lowering/test_special_functions.py",
    ),
    **dict.fromkeys(
        [cls.name for cls in OPS.values() if cls.__module__ in (bessel.__name__, incomplete.__name__)],
        "hundreds of equations for XLA; on a grid in tests/lowering/test_special_functions.py",
    ),
    "custom_call": "each name is a kernel of its own: tests/lowering/test_custom_call.py",
    "axis_gather": "has a meaning inside vmap alone: tests/passes",
    "axis_index": "has a meaning inside vmap alone: tests/passes",
    "axis_max": "has a meaning inside vmap alone: tests/passes",
    "axis_min": "has a meaning inside vmap alone: tests/passes",
    "axis_sum": "has a meaning inside vmap alone: tests/passes",
    **dict.fromkeys(
        ("custom_jvp", "custom_linear", "custom_vjp"),
        "their rules are graphs, which random ones would contradict: "
        "tests/compiler/api/transforms/test_custom_derivatives.py",
    ),
    "debug_callback": "shows itself outside of the graph: tests/compiler/api/debugging",
    "debug_print": "shows itself outside of the graph: tests/compiler/api/debugging",
    "io_callback": "calls Python, which StableHLO alone cannot: tests/compiler/api/debugging",
    "pure_callback": "calls Python, which StableHLO alone cannot: tests/compiler/api/debugging",
    **dict.fromkeys(
        [f"device_{what}" for what in ("exchange", "extremum", "gather", "permute", "scatter", "sum", "vary")],
        "has a meaning inside shard_map alone: tests/compiler/jax_api/test_meshes.py",
    ),
    **dict.fromkeys(
        ("device_map", "full_to_shard", "manual_computation", "shard_to_full"),
        "has a meaning on devices alone: tests/compiler/test_device_maps.py",
    ),
    "placement": "it says where devices hold parts of an array: tests/compiler/test_placements.py",
    "to_memory": "its operand or result lies in the host's memory, which CPUs do not have: tests/passes",
}


@st.composite
def graphs(
    draw: st.DrawFn,
    max_equations: int = 12,
    dtypes: Sequence[DType] = DTYPES_DRAWN,
    regions: int = 1,
    name: str = "main",
) -> Graph:
    """A graph of at most `max_equations` steps over values of `dtypes`; regions nest at most `regions` deep."""
    return draw_graph(Hypothesis(draw), max_equations, dtypes, regions, name)


@st.composite
def graphs_of(draw: st.DrawFn, params: Sequence[TensorType], max_equations: int = 12, regions: int = 1) -> Graph:
    """A graph with parameters of these types."""
    return draw_graph_of(Hypothesis(draw), params, max_equations, DTYPES_DRAWN, regions)


@st.composite
def programs(draw: st.DrawFn, palettes: Sequence[Sequence[DType]] = PALETTES) -> Graph:
    """A graph of any element types, with regions in regions."""
    source = Hypothesis(draw)
    return draw_graph(source, PROGRAM_EQUATIONS, source.one_of(palettes), regions=2)


def seeded_program(seed: int) -> Graph:
    """One of `programs`, of independent choices: as fast as it gets, but not made simpler where a test fails."""
    source = Seeded(Random(seed))
    return draw_graph(source, PROGRAM_EQUATIONS, source.one_of(PALETTES), regions=2)


def draw_graph(source: Source, max_equations: int, dtypes: Sequence[DType], regions: int, name: str = "main") -> Graph:
    """A graph of choices of this source."""
    count = source.integer(1, 4)
    params = [TensorType(source.one_of(dtypes), source.one_of(SHAPES)) for _ in range(count)]
    return draw_graph_of(source, params, max_equations, dtypes, regions, name)


def draw_graph_of(
    source: Source,
    params: Sequence[TensorType],
    max_equations: int,
    dtypes: Sequence[DType],
    regions: int,
    name: str = "main",
) -> Graph:
    """Likewise, with parameters of these types."""
    drawing = _filled(source, params, max_equations, dtypes, regions, name)
    return drawing.b.build(*drawing.some(drawing.pool, 0, 4), drawing.pool[-1])


def _filled(
    source: Source,
    params: Sequence[TensorType],
    max_equations: int,
    dtypes: Sequence[DType],
    regions: int,
    name: str,
) -> Drawing:
    """Parameters, and equations over them."""
    b = Builder(name)
    pool = [b.parameter(type, source.one_of(NAMES)) for type in params]
    drawing = Drawing(source, b, pool, dtypes, regions)
    steps = _STEPS if regions else _FLAT_STEPS
    for _ in range(source.integer(1, max_equations) if pool else 0):
        b.loc = source.one_of(LOCATIONS)
        pool.extend(source.one_of(steps)(drawing))
    return drawing


def _call(d: Drawing) -> tuple[Value, ...]:
    operands = d.some(d.pool, 1, 3)
    return d.emit(Call(_body(d, operands)), *operands)


def _checkpoint(d: Drawing) -> tuple[Value, ...]:
    operands = d.some(d.pool, 1, 3)
    per_operand: bool | tuple[bool, ...] = tuple(index == 0 for index in range(len(operands)))
    return d.emit(Checkpoint(_body(d, operands), None, d.one_of((True, False, per_operand))), *operands)


def _body(d: Drawing, operands: Sequence[Value]) -> Graph:
    types = [value.type for value in operands]
    return draw_graph_of(d.source, types, 4, d.dtypes, d.depth - 1, "body")


def _body_giving(d: Drawing, params: Sequence[TensorType], results: Sequence[TensorType], more: int) -> Graph:
    """A body with results of these types, zeros where there is no such value, and some others."""
    inner = _filled(d.source, params, 4, d.dtypes, d.depth - 1, "body")
    chosen = [_of_type(inner, type) for type in results]
    return inner.b.build(*chosen, *(inner.some(inner.pool, 0, more) if inner.pool else ()))


def _of_type(d: Drawing, type: TensorType) -> Value:
    found = d.pick(lambda other: other == type)
    return d.b.zeros(type) if found is None else found


FLAT_ROWS: tuple[Row, ...] = (
    *structural.ROWS,
    *elementwise.ROWS,
    *complex_parts.ROWS,
    *cumulative.ROWS,
    *folding.ROWS,
    *fourier.ROWS,
    *sorting.ROWS,
    *shape.ROWS,
    *reductions.ROWS,
    *products.ROWS,
    *random.ROWS,
    *random_bits.ROWS,
    *indexing.ROWS,
    *linear_algebra.ROWS,
)
ROWS = (*FLAT_ROWS, Row((Call,), _call), Row((Checkpoint,), _checkpoint), *loops.rows(_body_giving))
_FLAT_STEPS = tuple(row.step for row in FLAT_ROWS for _ in range(row.weight))
_STEPS = tuple(row.step for row in ROWS for _ in range(row.weight))
