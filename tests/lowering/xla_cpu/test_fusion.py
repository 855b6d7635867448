"""Which instructions are written to memory, and which are parts of the kernels that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.compiler.api.text import parse
from rematc.lowering.pipeline import run_passes
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.fusion import fuse
from rematc.lowering.xla_cpu.instructions import Kind, Program

CPU = Target.of("cpu")
MATRIX = "f32[128,128]"
ROWS = "f32[128]"


def dot(x: str, y: str) -> str:
    return f"dot_general {x}, {y} {{contract=[[1],[0]], batch=[[],[]]}}"


def written(*lines: str, target: Target = CPU) -> list[str]:
    """The names of what is written, of equations over %x and %w that give matrices unless they say otherwise."""
    equations = [line if line.startswith("%") else f"%{index}: {MATRIX} = {line}" for index, line in enumerate(lines)]
    last, _, rest = equations[-1].partition(": ")
    signature = f"(%x: {MATRIX}, %w: {MATRIX}) -> ({rest.partition(' = ')[0]})"
    graph = parse("\n".join([f"graph @f{signature} {{", *equations, f"return {last}", "}"]))
    program = Program(graph, None, lambda eqn: (), target)
    fuse(program)
    return [instruction.name for instruction in program.instructions if instruction.is_written][:-1]


def test_a_chain_of_elementwise_work_is_one_kernel() -> None:
    assert written("negate %x", "tanh %0", "add %1, %w") == ["add"]


def test_what_takes_long_is_not_evaluated_for_two_kernels() -> None:
    assert written("exponential %x", "add %0, %w", dot("%1", "%w"), "multiply %0, %2") == [
        *("exponential", "add", "dot_general", "multiply")
    ]


def test_what_takes_long_is_evaluated_once_in_one_kernel() -> None:
    assert written("exponential %x", "add %0, %w", "multiply %0, %1") == ["multiply"]


def test_what_takes_long_is_not_evaluated_once_for_each_repetition() -> None:
    row = f"%0: {ROWS} = reduce_max %x {{dimensions=[1]}}"
    spread = "broadcast_in_dim %1 {shape=[128,128], dimensions=[0]}"
    assert written(row, f"%1: {ROWS} = sine %0", spread, "add %2, %w") == ["reduce_max", "sine", "add"]
    assert written(row, f"%1: {ROWS} = negate %0", spread, "add %2, %w") == ["reduce_max", "add"]


@pytest.mark.parametrize(("divisor", "times"), [("sqrt", 0), ("negate", 1)])
def test_a_division_by_a_square_root_is_a_product(divisor: str, times: int) -> None:
    """A product is evaluated twice; a division, which takes long, is written."""
    row = f"%0: {ROWS} = reduce_max %x {{dimensions=[1]}}"
    spread = "broadcast_in_dim %1 {shape=[128,128], dimensions=[0]}"
    kernels = (f"%1: {ROWS} = {divisor} %0", spread, "divide %w, %2", "negate %3", dot("%4", "%w"), "add %5, %3")
    assert written(row, *kernels).count("divide") == times


def test_what_is_read_again_far_behind_is_evaluated_again() -> None:
    """Nothing between the two readers is on a way to the second one, however much it is."""
    chain = [dot(f"%{index}", "%w") for index in range(2, 102)]
    first = ("add %x, %w", "negate %0", dot("%1", "%w"))
    assert "add" not in written(*first, *chain[:-1], "sine %0", dot("%102", "%101"))


def test_a_reduction_takes_along_what_only_it_reads() -> None:
    total = f"%1: {ROWS} = reduce_sum %0 {{dimensions=[1]}}"
    assert written("multiply %x, %w", total) == ["reduce_sum"]
    assert written("multiply %x, %w", total, dot("%0", "%w"), f"%3: {ROWS} = reduce_sum %2 {{dimensions=[0]}}")[0] == (
        "multiply"
    )


def test_a_reduction_takes_along_what_follows_it() -> None:
    """A product of matrices that only the reduction reads is a part of it, too."""
    lines = (
        *(dot("%x", "%w"), f"%1: {ROWS} = reduce_max %0 {{dimensions=[1]}}"),
        *("broadcast_in_dim %1 {shape=[128,128], dimensions=[0]}", "add %2, %w", "exponential %3"),
    )
    assert written(*lines) == ["exponential"]


def softmax(first: str, *before: str) -> list[str]:
    """The equations of what is like a softmax, of what the last one before gives; `first` is how that is reduced."""
    index = len(before)
    spread = "broadcast_in_dim %{} {{shape=[128,128], dimensions=[0]}}"
    return [
        *before,
        f"%{index}: {ROWS} = {first} %{index - 1} {{dimensions=[1]}}",
        spread.format(index),
        f"subtract %{index - 1}, %{index + 1}",
        f"exponential %{index + 2}",
        f"%{index + 4}: {ROWS} = reduce_sum %{index + 3} {{dimensions=[1]}}",
        spread.format(index + 4),
        f"multiply %{index + 3}, %{index + 5}",
    ]


def test_reductions_of_one_another_are_evaluated_together() -> None:
    """A softmax with the product and the scale that only it reads, and of what no library takes all but that."""
    assert written(*softmax("reduce_max", dot("%x", "%w"), "multiply %0, %w")) == ["multiply"]
    compared = '%0: bool[128,128] = compare %x, %w {direction="LT"}'
    assert written(*softmax("reduce_max", compared, "select %0, %x, %w")) == ["select", "multiply"]


@pytest.mark.parametrize("scale", [False, True])
def test_xla_evaluates_a_softmax_with_its_scores(scale: bool) -> None:
    """In its module: no scores are written, and one kernel of the library gives the softmax."""

    def mixed(x: Any, y: Any, z: Any) -> Any:
        scores = jnp.einsum("btd,bsd->bts", x, y)
        return jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores * 0.125 if scale else scores), z)

    x = np.ones((4, 256, 64), np.float32)
    lowered = rematc.lower(rematc.from_jax(mixed), x, x, x)
    compiled = lowered.compile()
    assert lowered.predicted_peak() == pytest.approx(compiled.memory().temp_bytes, rel=0.02)
    assert compiled.memory().temp_bytes < 2.2 * 4 * 256 * 256 * 4, "scores, and what they are scaled by, at most"


@pytest.mark.parametrize(("jaxlib", "repeated"), [((0, 10, 2), ["broadcast_in_dim"]), ((0, 12, 0, 1), ["reduce_max"])])
def test_a_library_that_does_not_repeat_leaves_that_to_readers(jaxlib: tuple[int, ...], repeated: list[str]) -> None:
    """Where one reader takes it along, it is in the library's kernel on both lines."""
    target = Target("cpu", jaxlib)
    rows = (f"%0: {ROWS} = reduce_max %x {{dimensions=[1]}}", "broadcast_in_dim %0 {shape=[128,128], dimensions=[0]}")
    several = written(*rows, "add %1, %w", dot("%2", "%w"), "multiply %1, %3", target=target)
    assert several == [*repeated, "add", "dot_general", "multiply"]
    assert written(*rows, "add %1, %w", "exponential %2", target=target) == ["exponential"]


def top_by_rows(x: Any) -> Any:
    return lax.broadcast_in_dim(jnp.max(x, -1), x.shape, (0,))


def exponentials(x: Any, w: Any) -> Any:
    """What is repeated has a reader in the forward pass and one in the backward pass."""
    top = top_by_rows(x)
    return jnp.exp(jnp.sin(x) - top) @ w, x > top


def scaled(x: Any, w: Any) -> Any:
    top = top_by_rows(x)
    return jnp.exp(jnp.sin(x) - top) @ w, x * top @ w


@pytest.mark.parametrize("function", [exponentials, scaled])
def test_xla_writes_what_is_repeated_of_a_reduction_as_predicted(function: Callable[..., Any]) -> None:
    lowered = rematc.lower(rematc.from_jax(function), *[np.ones((512, 512), np.float32)] * 2)
    assert lowered.predicted_peak() == pytest.approx(lowered.compile().memory().temp_bytes, rel=0.02)


@pytest.mark.parametrize(
    ("reduction", "dimension", "is_reduced"), [("sum", 1, False), ("max", 1, True), ("sum", 0, True)]
)
def test_a_sum_over_what_is_repeated_is_a_product_by_a_number(reduction: str, dimension: int, is_reduced: bool) -> None:
    """The addition is no part of a reduction, so that it computes what another kernel does as well."""
    lines = (
        "%0: f32[128,128,128] = broadcast_in_dim %w {shape=[128,128,128], dimensions=[0,2]}",
        f"%1: {MATRIX} = reduce_{reduction} %0 {{dimensions=[{dimension}]}}",
        *("negate %x", "add %1, %2", dot("%3", "%w"), "multiply %2, %4"),
    )
    assert ("negate" in written(*lines)) is is_reduced


def test_no_library_takes_a_selection_or_integers() -> None:
    mask = '%0: bool[128,128] = compare %x, %w {direction="LT"}'
    assert written(mask, "select %0, %x, %w", f"%2: {ROWS} = reduce_sum %1 {{dimensions=[1]}}") == [
        *("select", "reduce_sum")
    ]


def test_a_concatenation_is_written_where_rows_are_long() -> None:
    tall, wide = "f32[256,128]", "f32[128,256]"
    assert written(f"%0: {tall} = concatenate %x, %w {{dimension=0}}", f"%1: {tall} = negate %0") == ["negate"]
    assert written(f"%0: {wide} = concatenate %x, %w {{dimension=1}}", f"%1: {wide} = negate %0") == [
        *("concatenate", "negate")
    ]


@pytest.mark.parametrize(
    ("columns", "dtype"), [(4, "f32"), (8, "f32"), (16, "f32"), (32, "bf16"), (128, "i8"), (64, "f64")]
)
def test_a_concatenation_of_short_rows_is_a_kernel_where_it_is_one_of_xla(columns: int, dtype: str) -> None:
    text = f"""graph @f(%x: {dtype}[16,{columns}], %w: {dtype}[16,{columns}]) -> ({dtype}[16,{2 * columns}]) {{
      %0: {dtype}[16,{2 * columns}] = concatenate %x, %w {{dimension=1}}
      %1: {dtype}[16,{2 * columns}] = negate %0
      %2: {dtype}[16,{2 * columns}] = multiply %1, %1
      return %2
    }}"""
    graph = parse(text)
    program = Program(graph, None, lambda eqn: (), CPU)
    fuse(program)
    names = [instruction.name for instruction in program.instructions if instruction.is_written]
    x = np.ones((16, columns), graph.param_types[0].dtype.numpy)
    with jax.enable_x64(True):
        main = rematc.compile(graph, x, x).hlo_optimized().partition("ENTRY")[2]
    assert ("concatenate" in names) == (" concatenate(" in main)


SOURCES: dict[str, Callable[..., Any]] = {
    "pad": lambda x, w: jax.lax.pad(x, 0.0, ((0, 128, 0), (0, 0, 0))),
    "concatenate": lambda x, w: jnp.concatenate([x, w]),
}
READERS: dict[str, Callable[[Any], Any]] = {
    "one": lambda q: -q,
    "two kernels": lambda q: (-q, abs(q)),
    "two that take long": lambda q: jnp.exp(q) @ jnp.sin(q).T,
    "three kernels": lambda q: (-q @ abs(q).T, jnp.sign(q)),
    "one, twice": lambda q: q + q,
    "one, by two ways": lambda q: (q * 2 + 3) * abs(q),
    "copies of one": lambda q: (-(q * 3 + q), abs(q * 3 + q)),
    "a product as well": lambda q: (-q, q @ q.T),
}


@pytest.mark.parametrize("readers", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", SOURCES)
def test_padded_and_joined_arrays_are_written_where_xla_writes_them(name: str, readers: Callable[[Any], Any]) -> None:
    def function(x: Any, w: Any) -> Any:
        return readers(SOURCES[name](x, w))

    x = np.ones((128, 128), np.float32)
    traced = rematc.trace(rematc.from_jax(function), x, x)
    program = Program(run_passes(traced).graph, None, lambda eqn: (), CPU)
    fuse(program)
    names = [instruction.name for instruction in program.instructions if instruction.is_written]
    main = rematc.compile(traced, x, x).hlo_optimized().partition("ENTRY")[2]
    assert (name in names) == (f"wrapped_{name}" in main or f" {name}(" in main)


def test_a_barrier_reads_from_memory() -> None:
    assert written("negate %x", "optimization_barrier %0", "add %1, %w") == ["negate", "barrier", "add"]


def shifted_sums(count: int) -> list[str]:
    """Each the sum of the two shifted parts of the one before."""
    lines: list[str] = []
    for index in range(count):
        width, source = 127 - index, f"%{len(lines) - 1}" if lines else "%x"
        for start in (0, 1):
            window = f"{{start=[0,{start}], limit=[128,{width + start}], strides=[1,1]}}"
            lines.append(f"%{len(lines)}: f32[128,{width}] = slice {source} {window}")
        lines.append(f"%{len(lines)}: f32[128,{width}] = add %{len(lines) - 2}, %{len(lines) - 1}")
    return lines


def test_code_that_would_stand_too_often_in_a_kernel_is_written() -> None:
    """A kernel of three such sums has the code of the first one 4 times, of five sums 16 times."""
    assert written(*shifted_sums(3)) == ["add"]
    assert written(*shifted_sums(5)).count("add") == 2


def test_a_transposed_product_is_the_product_of_the_others() -> None:
    text = (
        f"graph @f(%x: {MATRIX}, %w: {MATRIX}) -> ({MATRIX}) {{ %0: {MATRIX} = {dot('%x', '%w')} "
        f"%1: {MATRIX} = transpose %0 {{permutation=[1,0]}} return %1 }}"
    )
    kinds = [instruction.kind for instruction in Program(parse(text), None, lambda eqn: (), CPU).instructions]
    assert Kind.LOOP not in kinds and kinds.count(Kind.BITCAST) == 1


def test_what_is_scattered_into_an_array_and_added_is_written_as_a_sum_and_then_scattered() -> None:
    """Both terms are computed, and the rows are scattered into the sum of them."""

    def function(x: Any, y: Any) -> Any:
        return (x @ y).at[jnp.arange(4)].add(y[:4]) + jnp.sin(x)

    x = np.ones((128, 128), np.float32)
    program = Program(run_passes(rematc.trace(rematc.from_jax(function), x, x)).graph, None, lambda eqn: (), CPU)
    fuse(program)
    names = [instruction.name for instruction in program.instructions if instruction.is_written]
    assert [name for name in names if name in ("dot_general", "sine", "add", "scatter_add")] == [
        *("dot_general", "add", "scatter_add")
    ]
