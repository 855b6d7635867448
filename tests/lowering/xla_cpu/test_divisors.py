"""What a program divides by, across the functions it calls. What XLA makes of it is held in test_prediction."""

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.arithmetic import Divide
from rematc.ir.ops.regions import Call
from rematc.lowering.xla_cpu.divisors import Divisors

#: Functions that sum up, take a root, and divide by a number; each is called for several values.
FUNCTIONS = """
func.func private @sum(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @root(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sqrt %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @quotient(%x: tensor<4xf32>, %n: tensor<f32>) -> tensor<4xf32> {
  %0 = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.divide %x, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) {
  %0 = func.call @sum(%x) : (tensor<4xf32>) -> tensor<f32>
  %1 = func.call @quotient(%x, %0) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = func.call @sum(%y) : (tensor<4xf32>) -> tensor<f32>
  %3 = func.call @quotient(%y, %2) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = func.call @root(%2) : (tensor<f32>) -> tensor<f32>
  %5 = func.call @quotient(%x, %4) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
"""  # noqa: E501
RESULTS = "  return %1, %3, %5, {} : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>\n}}\n"


def inverted(graph: Graph) -> list[tuple[bool, bool]]:
    """Of each quotient in turn, whether it is one by a reciprocal, and whether that is a cheap one."""
    divisors, found = Divisors(graph), list[tuple[bool, bool]]()

    def walk(graph: Graph) -> None:
        for eqn in graph.equations:
            match eqn.op:
                case Call(body=body):
                    divisors.enter_body(body, eqn)
                    walk(body)
                case Divide():
                    divisor = eqn.operands[1]
                    found.append((divisors.is_inverted(divisor), divisors.is_cheap(divisor)))
                    if found[-1][0]:
                        divisors.invert(divisor)
                case _:
                    pass

    walk(graph)
    return found


def test_what_reads_a_divisor_is_counted_through_calls() -> None:
    """The second sum is read by a quotient and by a root; that root, or else the first sum, is a result as well."""
    root_kept, sum_kept = (rematc.from_stablehlo(FUNCTIONS + RESULTS.format(value)) for value in ("%4", "%0"))
    assert inverted(root_kept) == [(True, False), (False, False), (False, False)]
    assert inverted(sum_kept) == [(False, False), (False, False), (True, True)]


#: A column that is repeated once for two quotients, and once more for a third.
COLUMN = """
func.func @main(%x: tensor<4x8xf32>, %n: tensor<4x1xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>) {
  %0 = stablehlo.sine %n : tensor<4x1xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.divide %x, %1 : tensor<4x8xf32>
  %3 = stablehlo.divide %2, %1 : tensor<4x8xf32>
  %4 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
  %5 = stablehlo.divide %3, %4 : tensor<4x8xf32>
  return %2, %3, %5, %0 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>
}
"""  # noqa: E501


def test_a_column_is_reshaped_for_each_broadcast_and_read_once_there() -> None:
    """Whatever else reads it; but of two quotients by one broadcast only the first is a product."""
    assert [is_inverted for is_inverted, _ in inverted(rematc.from_stablehlo(COLUMN))] == [True, False, True]
