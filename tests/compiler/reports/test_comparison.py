"""Products of equal size are told apart by the names of their operations, in XLA's module too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rematc
from rematc.compiler.reports.check import KEPT, UNDONE, UNKNOWN, judge
from rematc.compiler.reports.comparison import Comparison, compare_modules
from rematc.ir.builder import Builder
from rematc.ir.locations import Location
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.lowering.hlo.module import SourceLine
from rematc.lowering.module import stablehlo_text
from rematc.lowering.runtime import compile_program
from tests.support.programs import program

MATRIX = TensorType(F32, (32, 32))
KEEPS, MERGES = Location("model.py", 3, 1, "kept"), Location("model.py", 7, 1, "merged")

Again = Callable[[Builder, Value], Value]


def compared(again: Again, places: tuple[Location, Location] = (KEEPS, MERGES)) -> Comparison:
    """Of x·v and x·w the first computed again behind a barrier, the second of what `again` makes of x."""

    def body(b: Builder, x: Value, v: Value, w: Value) -> list[Value]:
        def product(left: Value, right: Value, place: Location) -> Value:
            with b.at(place):
                return b.dot_general(left, right, ((1,), (0,)))

        first = [product(x, v, places[0]), product(x, w, places[1])]
        held = b.emit1(OptimizationBarrier(), x)
        second = [product(held, v, places[0]), product(again(b, x), w, places[1])]
        return [b.negate(value) for value in (*first, *second)]

    executable = compile_program(program([MATRIX] * 3, body))
    return compare_modules(executable.hlo_with_lines(), executable.hlo_optimized())


def negated_twice(b: Builder, x: Value) -> Value:
    return b.negate(b.negate(x))


@pytest.mark.parametrize("places", [(KEEPS, MERGES), (KEEPS, KEEPS)])
def test_a_product_that_xla_finds_equal_to_another_is_no_lost_recomputation(places: tuple[Location, Location]) -> None:
    """It is none of ours: by size alone three of four are there, and one of the recomputed ones seems to be gone."""
    found = compared(negated_twice, places)
    assert (found.planned, found.recomputed, found.found) == (4, 1, "3")
    assert (found.merged, found.rewritten, found.unseen, found.where) == (0, 1, 0, ())
    assert judge(found)[0] == KEPT


@pytest.mark.parametrize("places", [(KEEPS, MERGES), (KEEPS, KEEPS)])
def test_of_two_recomputed_products_of_one_size_the_merged_one_is_named(places: tuple[Location, Location]) -> None:
    found = compared(lambda b, x: x, places)
    assert (found.planned, found.recomputed, found.found, found.merged) == (4, 2, "3", 1)
    (row,) = found.where
    assert row.source == SourceLine("model.py", places[1].line)
    assert (row.count, row.planned) == (1, 1 if places[0] != places[1] else 2)
    assert judge(found)[0] == UNDONE


def test_products_have_names_of_their_own_in_locations_and_stay_on_the_users_line() -> None:
    b = Builder("f")
    x = b.parameter(MATRIX, "x")
    values = [x]
    for place in (KEEPS, KEEPS, Location("model.py", 9), None):
        b.loc = place
        values.append(b.dot_general(values[-1], x, ((1,), (0,))))
    graph = b.build(values[-1])
    text = stablehlo_text(graph)
    assert [line.partition(" = ")[2] for line in text.splitlines() if line.startswith("#loc")] == [
        'loc("kept"("model.py":3:1))',
        'loc("kept#1"(#loc1))',
        'loc("kept#2"(#loc1))',
        'loc("model.py":9:0)',
        'loc("#3"(""(#loc4)))',
        'loc("#4")',
    ]
    read = rematc.from_stablehlo(text)
    assert [eqn.loc for eqn in read.equations][:3] == [eqn.loc for eqn in graph.equations][:3]


# -- modules in which XLA computes products in other forms, as it does for TPUs ----------------------------------------

_GIVEN = """
HloModule given
ENTRY main {
  x = f32[32,32] parameter(0)
  w = f32[32,32] parameter(1)
  first = f32[32,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="loss#1"}
  held = f32[32,32] opt-barrier(x)
  second = f32[32,32] dot(held, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="loss#2"}
  ROOT both = (f32[32,32], f32[32,32]) tuple(first, second)
}
"""


def running(*products: tuple[str, int]) -> str:
    """A module of products with these names, of so many terms each."""
    lines = ["HloModule running", "ENTRY main {"]
    for index, (name, terms) in enumerate(products):
        lines += [
            f"  x{index} = f32[32,{terms}] parameter({2 * index})",
            f"  w{index} = f32[{terms},32] parameter({2 * index + 1})",
            f"  product{index} = f32[32,32] dot(x{index}, w{index}), lhs_contracting_dims={{1}}, "
            f'rhs_contracting_dims={{0}}, metadata={{op_name="{name}"}}',
        ]
    return "\n".join([*lines, "}"])


def verdict(*products: tuple[str, int]) -> tuple[str, Comparison]:
    found = compare_modules(_GIVEN, running(*products))
    assert (found.planned, found.recomputed, found.barriers, found.unread) == (2, 1, 1, "")
    return judge(found)[0], found


def test_products_of_other_sizes_are_there_by_their_names() -> None:
    assert verdict(("loss#1", 32), ("loss#2", 32))[0] == KEPT
    kept, found = verdict(("loss#1", 128), ("loss#2", 96))
    assert kept == KEPT and (found.rewritten, found.unseen, found.merged) == (2, 0, 0)
    kept, found = verdict(("loss#1", 32), ("loss#2", 48))
    assert kept == KEPT and (found.rewritten, found.unseen, found.merged) == (1, 0, 0)


def test_where_a_name_is_missing_beside_other_sizes_nothing_can_be_told() -> None:
    unknown, found = verdict(("loss#1", 96))
    assert unknown == UNKNOWN and (found.rewritten, found.unseen, found.merged) == (2, 1, 0)
    assert verdict(("loss#1", 32))[0] == UNDONE


def test_of_products_that_are_made_of_many_all_names_must_be_there() -> None:
    kept, found = verdict(*[("loss#1", 32)] * 8, *[("loss#2", 32)] * 8)
    assert kept == KEPT and found.duplicated == 14
    assert verdict(*[("loss#1", 32)] * 8)[0] == UNKNOWN


def test_what_cannot_be_told_of_some_is_said_beside_those_that_are_kept() -> None:
    kept, message, _ = judge(Comparison(planned=6, recomputed=3, unseen=2, barriers=1, found="6", rewritten=2))
    assert kept == KEPT and "3 recomputed products, 6 executed in all; whether 2 of them were cannot be told" in message
