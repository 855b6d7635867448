"""The parser: it reads back all that is printed, and refuses all else with a place and an expectation."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError, ParseError, VerifierError
from rematc.ir.fields import record_of
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.structural import Constant
from rematc.ir.parser import MAX_DEPTH, parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.registry import OPS
from rematc.ir.types import DTYPES, F32, DType, TensorType, dtype_of_numpy
from rematc.ir.verifier import verify
from tests.support.random_graphs import graphs
from tests.support.work import lines_run

VECTOR = TensorType(F32, (4,))


@given(graphs())
def test_what_is_printed_reads_back(graph: Graph) -> None:
    text = print_graph(graph)
    read = parse_graph(text)
    assert read == graph
    assert print_graph(read) == text  # with names, locations and the bits of constants


def test_every_op_has_a_text_form() -> None:
    for op in OPS.values():
        written = [field.name for field in fields(op) if field.metadata.get("is_written", True)]  # type: ignore[arg-type]  # every op is a dataclass
        assert [field.name for field in record_of(op).fields] == written


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_pattern_of_bits_reads_back(dtype: DType) -> None:
    patterns = np.random.default_rng(0).integers(0, 256, (300, dtype.numpy.itemsize), np.uint8)
    if dtype.is_bool or dtype.bits < 8:
        patterns &= 1 if dtype.is_bool else (1 << dtype.bits) - 1
    b = Builder()
    for pattern in patterns:
        b.emit(Constant(TensorType(dtype, ()), np.frombuffer(pattern.tobytes(), dtype.numpy).tobytes()))
    graph = b.build()
    assert dtype_of_numpy(dtype.numpy) is dtype
    assert parse_graph(print_graph(graph)) == graph


def test_locations_survive() -> None:
    locs = [Location("model.py", 12, 8), Location("model.py", 12), Location('"\\\n\udc80é', 3, 4, 'f "g"'), None]
    b = Builder()
    x = b.parameter(VECTOR)
    for loc in locs:
        b.loc = loc
        b.negate(x)
    assert [eqn.loc for eqn in parse_graph(print_graph(b.build())).equations] == locs


def test_layout_and_comments_do_not_matter() -> None:
    text = """// two results
        graph @g(%x:f32[4],%y : f32[4, 2]) -> (f32[4],bool[])   { %0:f32[4]=negate %x loc("f":1:2)//done
        %1:bool[]=constant{data=true,type=bool[]}return %0,%1}"""  # not a location, and fields in another order
    with pytest.raises(ParseError, match="the field 'type' before elements"):
        parse_graph(text)
    graph = parse_graph(text.replace("data=true,type=bool[]", "type=bool[],data=true"))
    assert [str(type) for type in graph.param_types] == ["f32[4]", "f32[4,2]"]
    assert graph.equations[0].loc == Location("f", 1, 2)


def test_an_equation_may_follow_one_without_operands() -> None:
    text = (
        "graph @g(%x: f32[]) -> (f32[]) {\n optimization_barrier\n %0: f32[] = negate %x\n"
        " optimization_barrier\n return %0\n}"
    )
    names = ["optimization_barrier", "negate", "optimization_barrier"]
    assert [eqn.op.name for eqn in parse_graph(text).equations] == names


@dataclass(frozen=True, slots=True)
class Counting:
    """A policy, as far as text is concerned."""

    spec: str
    is_everything = False
    saves_least = False

    def decide(self, op: object, operands: object, names: object) -> tuple[()]:
        return ()


def with_policy() -> Graph:
    b = Builder("body")
    body = b.build(b.negate(b.parameter(VECTOR)))
    outer = Builder("main")
    x = outer.parameter(VECTOR)
    return outer.build(*outer.emit(Checkpoint(body, Counting('names="a"')), x))


def test_a_policy_is_found_by_its_spec() -> None:
    assert parse_graph(print_graph(with_policy()), policies=Counting) == with_policy()


def test_a_policy_needs_someone_who_knows_policies() -> None:
    with pytest.raises(ParseError, match="parse_graph was not given `policies`"):
        parse_graph(print_graph(with_policy()))


def test_an_unknown_policy_is_reported_at_its_place() -> None:
    def unknown(spec: str) -> object:
        raise CompileError(f"there is no policy '{spec}'")

    with pytest.raises(ParseError, match="there is no policy") as caught:
        parse_graph(print_graph(with_policy()), policies=unknown)
    assert caught.value.loc is not None
    assert caught.value.loc.line == 5


HEAD = "graph @g(%x: f32[4]) -> (f32[4]) {\n"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "found the end of the text, expected 'graph'"),
        ("graph g()", "1:7", "found 'g', expected the graph's name, such as @main"),
        ("graph @g(%x: f33[4])", "1:14", "found 'f33[4]', expected a type such as f32[4,8]"),
        ("graph @g(%x: f32[4] %y", "1:21", "found '%y', expected ',' or ')'"),
        ("graph @g(%x: f32[4], %x: f32[])", "1:22", "found '%x', expected a name that is not defined yet"),
        (HEAD + "  return %xx\n}", "2:10", "found '%xx', expected a value defined before this; did you mean '%x'?"),
        (HEAD + "  return\n}", "2:3", "graph 'g' returns (), its first line says (f32[4])"),
        (
            HEAD + "  %0: f32[4] = negat %x",
            "2:16",
            "expected an op, or 'return'; did you mean 'negate'?",
        ),
        (HEAD + "  %0: f32[4] = negate %0", "2:23", "found '%0', expected a value defined before this"),
        (HEAD + "  %0: f32[5] = negate %x\n", "2:3", "'negate' gives (f32[4]), its results are of type (f32[5])"),
        (HEAD + "  %0: f32[4] = add %x\n", "2:3", "'add' takes 2 operands, got 1"),
        (
            HEAD + "  %0: f32[4] = reverse %x\n return",
            "3:2",
            "expected {dimensions=...}, the fields of",
        ),
        (HEAD + "  %0: f32[4] = reverse %x {dimension=[0]}", "2:28", "expected a field of Reverse (dimensions)"),
        (HEAD + "  %0: f32[4] = reverse %x {dimensions=[0.5]}", "2:40", "found '0.5', expected an integer"),
        (HEAD + "  %0: f32[4] = reverse %x {dimensions=[0] ", "2:43", "found the end of the text, expected ',' or '}'"),
        (HEAD + "  %0: f32[4] = reverse %x {dimensions=[1]}", "2:3", "'reverse' takes distinct dimensions"),
        (HEAD + "  %0: i8[] = constant {type=i8[], data=128}", "2:40", "found '128', expected an element of type i8"),
        (HEAD + "  %0: i8[] = constant {type=i8[], data=0x1}", "2:40", "expected hexadecimal digits in pairs after 0x"),
        (HEAD + "  %0: i8[] = constant {type=i8[], data=0x0102}", "2:40", "expected 1 bytes of i8[]"),
        (HEAD + "  %0: f32[4] = negate %x loc(model.py)", "2:26", "found 'loc', expected a location such as"),
        (HEAD + "  return %x\n} graph", "3:3", "found 'graph', expected the end of the text"),
    ],
)
def test_an_error_says_where_what_was_found_and_what_was_expected(text: str, place: str, message: str) -> None:
    with pytest.raises((ParseError, VerifierError), match=re.escape(message)) as caught:
        parse_graph(text, file="g.ir")
    assert str(caught.value).startswith(f"g.ir:{place}: error: ")


def test_a_type_error_names_the_line_of_the_model_too() -> None:
    text = HEAD + '  %0: f32[5] = negate %x loc("model.py":7:1)\n  return %x\n}'
    with pytest.raises(VerifierError, match=r"compiled from model\.py:7:1"):
        parse_graph(text)


def nested(depth: int) -> Graph:
    b = Builder("leaf")
    graph = b.build(b.negate(b.parameter(VECTOR)))
    for _ in range(depth):
        b = Builder("caller")
        graph = b.build(*b.emit(Call(graph), b.parameter(VECTOR)))
    return graph


def test_regions_nest_up_to_a_limit() -> None:
    assert parse_graph(print_graph(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(ParseError, match=f"expected no more than {MAX_DEPTH} regions in each other"):
        parse_graph(print_graph(nested(MAX_DEPTH + 1)))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "graph @g() -> () {" + "{" * 100_000,
        "graph @g(%x: f32[" + "1," * 10_000 + "1]) -> () {return}",
        "graph @g(%x: f32[" + "9" * 10_000 + "]) -> () {return}",
        "graph @g() -> () { %0: f32[] = constant {type=f32[" + "1," * 2000 + "1], data=" + "[" * 2001,
        HEAD + "  %0: f32[4] = reverse %x {dimensions=[" + "9" * 10_000 + "]}",
        'graph @g() -> () {return} loc("f":1:' + "9" * 10_000 + ")",
        HEAD + "\n" * 100_000,
        HEAD + " " * 100_000 + "//" * 100_000,
        'graph @"' + "\\" * 100_001,
    ],
)
def test_hostile_text_is_refused_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(ParseError):
        parse_graph(text)
    assert time.process_time() - start < 2


PIECES = ["", "-1", "%0", "[", "]", "{", "}", "loc", '"', "f32[2]", "f32", "return", "nan", "1.5", "0x", "none", "\\"]
PIECES += ["graph", "@a", ":", ",", "=", "//", "\n", "->", "true", "7" * 5000, "\0", "é"]


def mutated(text: str, seed: int) -> str:
    """The text with a stretch of it deleted, replaced, repeated or cut off, or with another number somewhere."""
    choose = random.Random(seed)
    start = choose.randrange(len(text))
    end = start + choose.choice([0, 1, 1, 2, 5, 20])
    numbers = [*re.finditer(r"\d+", text)]
    if numbers and choose.random() < 0.4:
        number = choose.choice(numbers)
        return text[: number.start()] + str(choose.choice([0, 1, 2, 3, 7, -1, 10**15])) + text[number.end() :]
    other = choose.randrange(len(text))
    middle = choose.choice([choose.choice(PIECES), text[other : other + 10]])
    return text[:start] + middle + (text[end:] if choose.random() < 0.9 else "")


@given(graphs(), st.integers(0, 10**6))
def test_mutated_text_is_read_or_refused(graph: Graph, seed: int) -> None:
    text = print_graph(graph)
    for step in range(10):
        try:
            read = parse_graph(mutated(text, seed + step))
        except (ParseError, VerifierError) as error:
            assert error.loc is not None
            continue
        verify(read)
        assert parse_graph(print_graph(read)) == read


#: Regions, complex constants, host memory, policies, locations of every kind: a bit of all that text can have.
MIDDLE = """// the head
graph @"a \\"graph\\"\\u000a"(%x: f32[4], %p_w: c64[2], %i: i32[]) -> (f32[4], f32[3,4], c64[2]) {
  %0: c64[2] = constant {type=c64[2], data=[[1.5,-0.0],[nan,1e-30]]} loc("f"("model.py":1:2))
  %1: bf16[3] = constant {type=bf16[3], data=0x803f004080ff}
  %2: f32[4], %3: f32[3,4] = scan %x, %x {body=graph @step(%x: f32[4], %c: f32[4]) -> (f32[4], f32[4]) {
    %0: f32[4] = sine %c loc("model.py":7:0)
    %1: f32[4] = case %0 {branches=[]}
    return %0, %x
  }, length=3, consts=1, carry=1, is_reversed=true}
  %4: f32[4] = checkpoint %2 {body=graph @b(%x: f32[4]) -> (f32[4]) {
    %0: f32[4] = name %x {label="a,b"}
    return %0
  }, policy="names=\\"a\\"", prevent_cse=[true]}
  optimization_barrier
  %5: f32<host>[4] = to_memory %4 {is_host=true}
  %6: f32[4] = select_and_gather %x, %4 {direction="GE", window_dimensions=[2], window_strides=[1], padding=[[1,0]]}
  return %6, %3, %p_w
}
"""


def middle() -> str:
    """The text without what is there to be wrong."""
    lines = [line for line in MIDDLE.splitlines() if "branches=[]" not in line and "to_memory" not in line]
    return "\n".join(lines) + "\n"


def read_or_refused(text: str) -> None:
    try:
        parse_graph(text, policies=Counting)
    except (ParseError, VerifierError) as error:
        assert error.loc is not None and error.loc.line >= 1 and error.loc.column >= 1
        # The end of the text may be a line below the last one that has characters.
        assert error.loc.line <= text.count("\n") + 1


def test_text_cut_at_any_character_is_refused_with_a_place() -> None:
    text = middle()
    assert len(parse_graph(text, policies=Counting).equations) == 6
    for end in range(len(text.rstrip())):
        with pytest.raises((ParseError, VerifierError)) as caught:
            parse_graph(text[:end], policies=Counting)
        assert caught.value.loc is not None and caught.value.loc.line <= text.count("\n", 0, end) + 1
    for start in range(1, len(text)):
        read_or_refused(text[start:])


@pytest.mark.parametrize("text", [middle(), MIDDLE], ids=["right", "wrong"])
def test_text_with_any_character_replaced_is_read_or_refused(text: str) -> None:
    for at in range(len(text)):
        for other in ("", '"', "9é"):
            read_or_refused(text[:at] + other + text[at + 1 :])


@given(st.text(st.characters() | st.sampled_from('graph@%:[]{}()=,"\\->loc0123.\n '), max_size=200))
def test_any_text_at_all_is_refused_with_a_place(text: str) -> None:
    for whole in (text, f"graph @g(%x: f32[4]) -> (f32[4]) {{\n  %0: f32[4] = negate %x\n{text}"):
        read_or_refused(whole)


def test_twice_as_many_equations_are_twice_the_work_to_print_and_to_parse() -> None:
    def work(pairs: int) -> tuple[int, int]:
        b = Builder()
        x = b.parameter(VECTOR)
        for line in range(pairs):
            b.loc = Location("model.py", line % 1000 + 1, 8, "layer")
            x = b.reverse(b.emit1(Negate(), x), [0])
        graph = b.build(x)
        text = print_graph(graph)
        assert parse_graph(text) == graph
        return lines_run(lambda: print_graph(graph)), lines_run(lambda: parse_graph(text))

    assert all(twice < 2.5 * once for twice, once in zip(work(5_000), work(2_500), strict=True))
