"""What a program has in memory, and who reads it."""

from __future__ import annotations

import pytest

from rematc.ir.parser import parse_graph
from rematc.passes.kernels import CPU, GPU, TPU, Fusion, kernels


def stored(body: str, results: str, fusion: Fusion = CPU) -> list[str]:
    """The names of the stored values of equations over %x and %w: f32[8,8]."""
    graph = parse_graph(f"graph @f(%x: f32[8,8], %w: f32[8,8]) -> ({results}) {{\n{body}\n}}")
    names = {value: f"%{index}" for index, value in enumerate(v for eqn in graph.equations for v in eqn.results)}
    return [names[value] for value in kernels(graph.equations, graph.results, fusion).stored]


DOT = "dot_general {} {{contract=[[1],[0]], batch=[[],[]]}}"


def test_what_one_kernel_reads_is_a_part_of_it() -> None:
    body = "%0: f32[8,8] = tanh %x\n%1: f32[8,8] = add %0, %w\nreturn %1"
    assert stored(body, "f32[8,8]") == ["%1"]


def test_what_a_product_takes_is_in_memory() -> None:
    body = f"%0: f32[8,8] = negate %x\n%1: f32[8,8] = {DOT.format('%0, %w')}\nreturn %1"
    assert stored(body, "f32[8,8]") == ["%0", "%1"]


def test_a_sum_takes_its_operand_along() -> None:
    body = "%0: f32[8,8] = negate %x\n%1: f32[8] = reduce_sum %0 {dimensions=[1]}\nreturn %1"
    assert stored(body, "f32[8]") == ["%1"]


def test_of_two_readers_heavy_work_is_done_once_and_light_work_twice() -> None:
    product = f"%1: f32[8,8] = {DOT.format('%x, %w')}"
    after = f"{product}\n%2: f32[8,8] = add %0, %1\n%3: f32[8,8] = multiply %0, %x\nreturn %2, %3"
    assert "%0" in stored(f"%0: f32[8,8] = tanh %x\n{after}", "f32[8,8], f32[8,8]")
    assert "%0" not in stored(f"%0: f32[8,8] = negate %x\n{after}", "f32[8,8], f32[8,8]")
    assert "%0" in stored(f"%0: f32[8,8] = add %x, %w\n{after}", "f32[8,8], f32[8,8]"), "it reads more than it gives"


@pytest.mark.parametrize(
    ("size", "dtype", "is_stored"), [(64, "f32", True), (64, "bf16", True), (8, "f32", False), (64, "f16", False)]
)
def test_what_a_library_reduces_and_another_kernel_reads_is_in_memory(size: int, dtype: str, is_stored: bool) -> None:
    """Of enough elements, of types that the library has, and on CPUs alone."""
    matrix, row = f"{dtype}[{size},{size}]", f"{dtype}[{size}]"
    body = (
        f"%0: {matrix} = negate %x\n%1: {row} = reduce_sum %0 {{dimensions=[1]}}\n"
        f"%2: {matrix} = add %0, %x\nreturn %1, %2"
    )
    graph = parse_graph(f"graph @f(%x: {matrix}) -> ({row}, {matrix}) {{\n{body}\n}}")
    shared = graph.equations[0].results[0]
    assert (shared in kernels(graph.equations, graph.results, CPU).stored) is is_stored
    assert shared not in kernels(graph.equations, graph.results, GPU).stored


def test_where_bytes_are_dear_each_kernel_works_for_itself_unless_it_reads_more() -> None:
    product = f"%1: f32[8,8] = {DOT.format('%x, %w')}"
    after = f"{product}\n%2: f32[8,8] = add %0, %1\n%3: f32[8,8] = multiply %0, %x\nreturn %2, %3"
    types = "f32[8,8], f32[8,8]"
    assert "%0" not in stored(f"%0: f32[8,8] = tanh %x\n{after}", types, TPU)
    assert "%0" not in stored(f"%0: f32[8,8] = add %x, %w\n{after}", types, TPU), "4 reads, not 2 and 3"
    thrice = after.replace("return %2, %3", "%4: f32[8,8] = sine %0\nreturn %2, %3, %4")
    sum = f"%0: f32[8,8] = add %x, %w\n{thrice}"
    assert "%0" in stored(sum, f"{types}, f32[8,8]", TPU), "6 reads are no fewer than 2 and 4"
    square = f"%0: f32[8,8] = multiply %x, %x\n{thrice}"
    assert "%0" not in stored(square, f"{types}, f32[8,8]", TPU), "one value, read twice, is read once"


def test_what_is_computed_of_a_value_that_is_not_in_memory_reads_what_that_is_of() -> None:
    body = (
        "%0: f32[8,8] = multiply %x, %x\n%1: f32[8,8] = add %0, %x\n%2: f32[8,8] = tanh %1\n"
        "%3: f32[8] = reduce_sum %2 {dimensions=[1]}\n%4: f32[8] = reduce_max %1 {dimensions=[1]}\n"
        "%5: f32[8,8] = multiply %2, %w\nreturn %3, %4, %5"
    )
    assert stored(body, "f32[8], f32[8], f32[8,8]", TPU) == ["%3", "%4", "%5"]
    assert stored(body, "f32[8], f32[8], f32[8,8]") == ["%1", "%2", "%3", "%4", "%5"]


def test_a_gather_computes_what_it_picks_where_the_device_fuses_it() -> None:
    dims = "{offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1}"
    body = (
        "%0: i32[3,1] = constant {type=i32[3,1], data=[[1], [2], [3]]}\n%1: f32[8,8] = negate %x\n"
        f"%2: f32[3,8] = gather %1, %0 {{dimension_numbers={dims}, slice_sizes=[1,8]}}\n"
        "%3: f32[8] = reduce_sum %1 {dimensions=[1]}\nreturn %2, %3"
    )
    assert "%1" in stored(body, "f32[3,8], f32[8]", TPU)
    assert "%1" not in stored(body, "f32[3,8], f32[8]", GPU)


def test_what_takes_long_is_written_for_sums_and_not_for_kernels_that_move_as_much() -> None:
    """As XLA does it for an H100: a tanh that two sums read, not that of a gelu, and never an exponential."""
    sums = (
        "%1: f32[8] = reduce_sum %0 {dimensions=[1]}\n%2: f32[8] = reduce_max %0 {dimensions=[1]}\nreturn %1, %2",
        "f32[8], f32[8]",
    )
    arrays = (
        "%1: f32[8,8] = multiply %0, %x\n%2: f32[8,8] = multiply %0, %w\n"
        f"%3: f32[8,8] = {DOT.format('%x, %w')}\nreturn %1, %2, %3",
        "f32[8,8], f32[8,8], f32[8,8]",
    )
    assert "%0" in stored(f"%0: f32[8,8] = tanh %x\n{sums[0]}", sums[1], GPU)
    assert "%0" not in stored(f"%0: f32[8,8] = exponential %x\n{sums[0]}", sums[1], GPU)
    assert "%0" not in stored(f"%0: f32[8,8] = tanh %x\n{arrays[0]}", arrays[1], GPU)


@pytest.mark.parametrize("fusion", [CPU, GPU, TPU])
@pytest.mark.parametrize(("column", "row", "contract"), [("[8]", "[8]", "[[],[]]"), ("[8,1]", "[1,8]", "[[1],[0]]")])
def test_a_product_of_one_term_is_a_part_of_what_reads_it(column: str, row: str, contract: str, fusion: Fusion) -> None:
    text = f"""graph @f(%x: f32[8,8], %a: f32{column}, %b: f32{row}) -> (f32[8,8]) {{
      %0: f32[8,8] = dot_general %a, %b {{contract={contract}, batch=[[],[]]}}
      %1: f32[8,8] = add %x, %0
      %2: f32[8,8] = {DOT.format("%1, %x")}
      %3: f32[8,8] = multiply %2, %0
      return %3
    }}"""
    graph = parse_graph(text)
    found = [value for eqn in graph.equations[2 if fusion.feeds_products else 1 :] for value in eqn.results]
    assert kernels(graph.equations, graph.results, fusion).stored == found


@pytest.mark.parametrize("fusion", [CPU, GPU, TPU])
def test_random_bits_are_in_memory_only_for_what_takes_them_from_there(fusion: Fusion) -> None:
    counters = "%0: u32[64] = iota {type=u32[64], dimension=0}\n%1: u32[8,8] = reshape %0 {shape=[8,8]}"
    bits = f"{counters}\n%2: u32[8,8], %3: u32[8,8] = threefry2x32 %key, %1, %1\n%4: u32[8,8] = xor %2, %3"
    apart = f"%5: f32[8,8] = convert %4 {{dtype=f32}}\n%6: f32[8,8] = {DOT.format('%5, %5')}"
    again = "%7: f32[8,8] = convert %4 {dtype=f32}\n%8: f32[8,8] = multiply %6, %7"
    text = f"graph @f(%key: u32[2]) -> (RESULTS) {{\n{bits}\n{apart}\n{again}\nreturn RETURNED\n}}"

    def of(results: str, returned: str) -> set[str]:
        graph = parse_graph(text.replace("RESULTS", results).replace("RETURNED", returned))
        names = {value: f"%{index}" for index, value in enumerate(v for eqn in graph.equations for v in eqn.results)}
        return {names[value] for value in kernels(graph.equations, graph.results, fusion).stored}

    factor = set[str]() if fusion.feeds_products else {"%5"}
    assert of("f32[8,8]", "%8") == {"%6", "%8"} | factor
    assert of("f32[8,8], u32[8,8]", "%8, %3") >= {"%2", "%3"}


PICKS = (
    "{dimension_numbers={offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1}, "
    "slice_sizes=[1,8]}"
)
ADDS = (
    "{dimension_numbers={update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], "
    "index_vector_dim=1}}"
)


@pytest.mark.parametrize(("fusion", "edges"), [(GPU, set[str]()), (TPU, {"%1", "%2", "%3"}), (CPU, {"%1", "%2", "%3"})])
def test_a_gpu_computes_what_it_scatters_from_what_it_gathers(fusion: Fusion, edges: set[str]) -> None:
    """A layer on a graph: what has a row for each edge, 32 of them, is never in memory there."""
    text = f"""graph @f(%x: f32[8,8], %w: f32[8,8], %from: i32[32,1], %to: i32[32,1]) -> (f32[8,8]) {{
      %z: f32[] = constant {{type=f32[], data=0.0}}
      %0: f32[8,8] = broadcast_in_dim %z {{shape=[8,8], dimensions=[]}}
      %1: f32[32,8] = gather %x, %from {PICKS}
      %2: f32[32,8] = gather %w, %to {PICKS}
      %3: f32[32,8] = multiply %1, %2
      %4: f32[8,8] = scatter_add %0, %to, %3 {ADDS}
      return %4
    }}"""
    graph = parse_graph(text)
    names = {value: f"%{index - 1}" for index, value in enumerate(v for eqn in graph.equations for v in eqn.results)}
    found = {names[value] for value in kernels(graph.equations, graph.results, fusion).stored}
    assert found == {"%0", "%4"} | edges


@pytest.mark.parametrize(("fusion", "is_stored"), [(GPU, False), (TPU, True), (CPU, True)])
def test_a_gpu_pads_in_several_kernels(fusion: Fusion, is_stored: bool) -> None:
    body = (
        "%0: f32[] = constant {type=f32[], data=0.0}\n"
        "%1: f32[16,8] = pad %x, %0 {low=[4,0], high=[4,0], interior=[0,0]}\n"
        "%2: f32[16,8] = negate %1\n%3: f32[16,8] = multiply %1, %1\nreturn %2, %3"
    )
    assert ("%1" in stored(body, "f32[16,8], f32[16,8]", fusion)) is is_stored


@pytest.mark.parametrize(("levels", "are_stored"), [(3, False), (6, True)])
def test_what_takes_too_much_code_is_written(levels: int, are_stored: bool) -> None:
    """Sums of what was shifted, of sums of what was: twice the code at each level."""
    lines = ["%zero: f32[] = constant {type=f32[], data=0.0}"]
    last = "%x"
    for level in range(levels):
        up, down, name = f"%u{level}", f"%d{level}", f"%s{level}"
        lines += [
            f"{up}: f32[8,8] = pad {last}, %zero {{low=[1,0], high=[-1,0], interior=[0,0]}}",
            f"{down}: f32[8,8] = pad {last}, %zero {{low=[-1,0], high=[1,0], interior=[0,0]}}",
            f"{name}: f32[8,8] = add {up}, {down}",
        ]
        last = name
    lines += [f"%first: f32[8,8] = negate {last}", f"%second: f32[8,8] = sine {last}"]
    text = "graph @f(%x: f32[8,8]) -> (f32[8,8], f32[8,8]) {\n" + "\n".join(lines) + "\nreturn %first, %second\n}"
    graph = parse_graph(text)
    between = set(kernels(graph.equations, graph.results, GPU).stored) - set(graph.results)
    assert bool(between) is are_stored


def test_what_two_scatters_take_is_written_since_each_would_gather_for_it() -> None:
    """A gather reads as many bytes as it picks, however few it picks them from."""
    text = f"""graph @f(%x: f32[8,8], %w: f32[8,8], %from: i32[32,1], %to: i32[32,1]) -> (f32[8,8], f32[8,8]) {{
      %z: f32[] = constant {{type=f32[], data=0.0}}
      %0: f32[8,8] = broadcast_in_dim %z {{shape=[8,8], dimensions=[]}}
      %1: f32[32,8] = gather %x, %from {PICKS}
      %2: f32[32,8] = gather %x, %to {PICKS}
      %3: f32[32,8] = gather %w, %from {PICKS}
      %4: f32[32,8] = gather %w, %to {PICKS}
      %5: f32[32,8] = multiply %1, %2
      %6: f32[32,8] = multiply %3, %4
      %7: f32[32,8] = multiply %5, %6
      %8: f32[8,8] = scatter_add %0, %to, %7 {ADDS}
      %9: f32[8,8] = scatter_add %0, %from, %7 {ADDS}
      return %8, %9
    }}"""
    graph = parse_graph(text)
    edges = [eqn.results[0] for eqn in graph.equations[2:9]]
    found = kernels(graph.equations, graph.results, GPU).stored
    assert [value for value in edges if value in found] == edges[-1:]
