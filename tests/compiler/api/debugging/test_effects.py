"""Prints and callbacks happen exactly as often as their lines are executed, whatever becomes of the program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import rematc
from rematc import debug
from rematc.cli.report import report_tables
from rematc.ir.interpreter import evaluate
from rematc.ir.printer import print_graph
from rematc.lowering.xla_errors import explain_xla
from rematc.passes.accounting import Effects

X = np.array([0.5, 1.0, 2.0], np.float32)


def shown(result: Any, fmt: str, *args: Any) -> Any:
    """`result`; on the way something is printed."""
    debug.print(fmt, *args, ordered=True)
    return result


def straight(x: Any) -> Any:
    y = np.sin(x)
    debug.print("first {:.1f}", x[0], ordered=True)
    debug.print("second", ordered=True)
    debug.print("third {:.1f} {name:.1f}", x[1], name=x[2], ordered=True)
    return np.sum(np.sin(y) * y)


def scanned(x: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        debug.print("step {:.1f}", x, ordered=True)
        return np.sin(carry * x), np.cos(carry)

    outcome: Any = rematc.scan(step, x[0], x)
    debug.print("after", ordered=True)
    return outcome[0] + np.sum(outcome[1])


def scanned_in_scan(x: Any) -> Any:
    def outer(carry: Any, x: Any) -> Any:
        debug.print("outer {:.1f}", x, ordered=True)
        inner = rematc.fori_loop(0, 2, lambda i, c: shown(np.sin(c * x), "inner {}", i), carry)
        return inner, None

    return rematc.scan(outer, x[0], x)[0]


def with_snapshots(x: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        debug.print("step {:.1f}", x, ordered=True)
        return np.sin(carry * x), None

    return rematc.scan(step, x[0], x, snapshots=1)[0]


def branching(x: Any) -> Any:
    def one(x: Any) -> Any:
        debug.print("positive {:.1f}", x, ordered=True)
        return np.sin(x)

    def other(x: Any) -> Any:
        debug.print("negative {:.1f}", x, ordered=True)
        return np.cos(x) * x

    return sum(rematc.cond(x[i] > 0.7, one, other, x[i]) for i in range(3))


def unused(x: Any) -> Any:
    rematc.cond(x[0] > 0, lambda: debug.print("yes", ordered=True), lambda: debug.print("no", ordered=True))
    rematc.map(lambda x: debug.print("each {:.1f}", x, ordered=True), x)
    return np.sum(x * x)


def called(x: Any) -> Any:
    @rematc.jit
    def function(x: Any) -> Any:
        debug.print("called {:.1f}", x, ordered=True)
        return np.sin(x)

    return function(x[0]) * function(x[1]) + function(x[0])


def nested(x: Any) -> Any:
    @rematc.checkpoint
    def inner(x: Any) -> Any:
        debug.print("inner {:.1f}", x, ordered=True)
        return np.sin(np.sin(x))

    @rematc.checkpoint
    def outer(x: Any) -> Any:
        y = inner(x)
        debug.print("outer {:.1f}", x, ordered=True)
        return np.sin(y) * y

    return outer(x[0]) + outer(x[2])


def looped_while(x: Any) -> Any:
    def is_running(count: Any) -> Any:
        debug.print("test {}", count, ordered=True)
        return count < 2

    def step(count: Any) -> Any:
        debug.print("count {}", count, ordered=True)
        return count + 1

    return rematc.while_loop(is_running, step, 0) * np.sum(x)


def alike(x: Any) -> Any:
    for _ in range(3):
        debug.print("again", ordered=True)
    return np.sum(np.sin(x))


@dataclass(frozen=True)
class Case:
    function: Callable[[Any], Any]
    lines: tuple[str, ...]


CASES = {
    case.function.__name__: case
    for case in (
        Case(straight, ("first 0.5", "second", "third 1.0 2.0")),
        Case(scanned, ("step 0.5", "step 1.0", "step 2.0", "after")),
        Case(scanned_in_scan, tuple(f"outer {x}|inner 0|inner 1" for x in X)),
        Case(with_snapshots, ("step 0.5", "step 1.0", "step 2.0")),
        Case(branching, ("negative 0.5", "positive 1.0", "positive 2.0")),
        Case(unused, ("yes", "each 0.5", "each 1.0", "each 2.0")),
        Case(called, ("called 0.5", "called 1.0", "called 0.5")),
        Case(nested, ("inner 0.5", "outer 0.5", "inner 2.0", "outer 2.0")),
        Case(looped_while, ("test 0", "count 0", "test 1", "count 1", "test 2")),
        Case(alike, ("again", "again", "again")),
    )
}


def lines_of(case: Case) -> list[str]:
    return [line for group in case.lines for line in group.split("|")]


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    jax.effects_barrier()  # type: ignore[no-untyped-call]
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_programs_print_what_they_say(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    graph = rematc.trace(case.function, X)
    evaluate(graph, [X])
    assert printed(capsys) == lines_of(case)
    rematc.jit(case.function)(X)
    assert printed(capsys) == lines_of(case)


Transform = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def pulled_back(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        pull: Any = rematc.vjp(f, x)[1]
        return pull(np.float32(1))

    return function


def pushed_forward(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        push: Any = rematc.linearize(f, x)[1]
        return push(x)

    return function


def twice(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    inner: Any = rematc.grad(rematc.checkpoint(f))
    return rematc.grad(lambda x: np.sum(inner(x)))


TRANSFORMED: dict[str, Transform] = {
    "grad": rematc.grad,
    "checkpoint": lambda f: rematc.grad(rematc.checkpoint(f)),
    "checkpoint-dots": lambda f: rematc.grad(rematc.checkpoint(f, policy="dots")),
    "policy": lambda f: rematc.value_and_grad(f, policy="nothing"),
    "everything": lambda f: rematc.grad(rematc.checkpoint(f, policy="everything")),
    "jvp": lambda f: lambda x: rematc.jvp(f, (x,), (x,)),
    "vjp": pulled_back,
    "linearize": pushed_forward,
    "second": twice,
}


@pytest.mark.parametrize("transform", TRANSFORMED.values(), ids=TRANSFORMED)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_derivatives_print_once(case: Case, transform: Transform, capsys: pytest.CaptureFixture[str]) -> None:
    function = transform(case.function)
    graph = rematc.trace(function, X)
    evaluate(graph, [X])
    assert printed(capsys) == lines_of(case)


@pytest.mark.parametrize("name", ["straight", "scanned", "with_snapshots", "branching", "nested"])
def test_compiled_derivatives_print_once_and_in_order(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rematc.grad(rematc.checkpoint(CASES[name].function))(X)
    assert printed(capsys) == lines_of(CASES[name])


def test_loop_of_unknown_length_prints_once_when_linearized(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        def step(state: Any) -> Any:
            count, y = state
            debug.print("known {}", count, ordered=True)
            return count + 1, np.sin(x * y)

        return rematc.while_loop(lambda state: state[0] < 3, step, (0, x))[1]

    expected = ["known 0", "known 1", "known 2"]
    pushed_forward(function)(0.5)
    assert printed(capsys) == expected
    rematc.jvp(function, (0.5,), (1.0,))
    assert printed(capsys) == expected
    pushed_forward(rematc.checkpoint(function))(0.5)
    assert printed(capsys) == expected


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_element_of_a_batch_prints(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    def unordered(function: Callable[..., Any]) -> Counter[str]:
        evaluate(rematc.trace(function, batch), [batch])
        return Counter(printed(capsys))

    batch = np.stack([X, X])
    once, twice = Counter(lines_of(case)), unordered(rematc.vmap(case.function))
    # What no element has for itself is printed for the whole batch.
    assert set(twice) == set(once)
    shared = {line for line in once if not re.search(r"\d\.\d", line)}
    for line, count in once.items():
        assert twice[line] in ((count, 2 * count) if line in shared else (2 * count,))


def test_elements_print_what_they_choose(capsys: pytest.CaptureFixture[str]) -> None:
    def chosen(x: Any) -> Any:
        return rematc.cond(
            x > 0.7,
            lambda: shown(x, "high {:.1f}", x),
            lambda: shown(-x, "low {:.1f}", x),
        )

    np.testing.assert_array_equal(rematc.vmap(chosen)(X), [-0.5, 1.0, 2.0])
    assert printed(capsys) == ["low 0.5", "high 1.0", "high 2.0"]
    np.testing.assert_array_equal(
        rematc.grad(lambda x: np.sum(rematc.vmap(rematc.checkpoint(chosen))(x)))(X), [-1, 1, 1]
    )
    assert printed(capsys) == ["low 0.5", "high 1.0", "high 2.0"]


def test_elements_that_are_done_print_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    def count_up(start: Any) -> Any:
        return rematc.while_loop(lambda count: count < 3, lambda count: shown(count + 1, "{}", count), start)

    np.testing.assert_array_equal(rematc.vmap(count_up)(np.array([1, 2, 5])), [3, 3, 5])
    assert printed(capsys) == ["1", "2", "2"]


def test_unordered_prints_are_neither_lost_nor_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        for index in range(3):
            debug.print("same")
            debug.print("{} {:.1f}", index, x[index])
        rematc.map(lambda i: debug.print("loop {}", i), np.arange(3))
        rematc.cond(x[0] > 0, lambda: debug.print("branch"), lambda: None)
        return np.sum(np.sin(x))

    expected = Counter(
        {"same": 3, "0 0.5": 1, "1 1.0": 1, "2 2.0": 1, "loop 0": 1, "loop 1": 1, "loop 2": 1, "branch": 1}
    )
    for called in (rematc.jit(function), rematc.grad(rematc.checkpoint(function)), rematc.compile(function, X)):
        called(X)
        assert Counter(printed(capsys)) == expected


def test_programs_print_in_the_order_of_their_calls(capsys: pytest.CaptureFixture[str]) -> None:
    first = rematc.jit(lambda x: debug.print("first {:.1f}", x, ordered=True))
    second = rematc.jit(lambda x: debug.print("second {:.1f}", x, ordered=True))
    for x in X:
        first(x)
        second(x)
    expected = [line for x in X for line in (f"first {x}", f"second {x}")]
    assert printed(capsys) == expected

    @jax.jit
    def outer(xs: Any) -> None:
        for x in xs:
            first(x)
            second(x)

    outer(X)
    assert printed(capsys) == expected


def test_prints_happen_in_jax_loops(capsys: pytest.CaptureFixture[str]) -> None:
    @rematc.jit
    def program(x: Any) -> Any:
        debug.print("step {:.1f}", x)
        return np.sin(x)

    jax.jit(lambda xs: jax.lax.scan(lambda carry, x: (carry, program(x)), 0, xs))(X)
    assert Counter(printed(capsys)) == Counter({"step 0.5": 1, "step 1.0": 1, "step 2.0": 1})


def test_backward_rule_prints_cotangents(capsys: pytest.CaptureFixture[str]) -> None:
    @rematc.custom_vjp
    def function(x: Any) -> Any:
        return np.sin(x)

    def forward(x: Any) -> Any:
        debug.print("forward", ordered=True)
        return np.sin(x), x

    def backward(x: Any, ct: Any) -> Any:
        debug.print("ct {:.1f}", ct, ordered=True)
        return (np.cos(x) * ct,)

    function.defvjp(forward, backward)

    def twofold(x: Any) -> Any:
        return 2 * function(x)

    rematc.grad(rematc.checkpoint(twofold))(0.5)
    assert printed(capsys) == ["forward", "ct 2.0"]


def test_a_tangent_cannot_be_printed_backwards(capsys: pytest.CaptureFixture[str]) -> None:
    @rematc.custom_jvp
    def function(x: Any) -> Any:
        return np.sin(x)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        debug.print("tangent {:.1f}", tangents[0])
        return np.sin(primals[0]), np.cos(primals[0]) * tangents[0]

    rematc.jvp(function, (0.5,), (2.0,))
    assert printed(capsys) == ["tangent 2.0"]
    with pytest.raises(
        rematc.CompileError, match=r"'debug_print' of a tangent cannot happen in a backward pass"
    ) as caught:
        rematc.grad(function)(0.5)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_callbacks_get_numpy_arrays_in_their_trees() -> None:
    seen: list[Any] = []

    def note(tree: Any, flag: bool, *, scale: Any) -> None:
        seen.append((tree, flag, scale))

    rematc.jit(lambda x: debug.callback(note, {"x": x, "y": (2 * x, "text")}, True, scale=x[0]))(X)
    ((tree, flag, scale),) = seen
    assert isinstance(tree["x"], np.ndarray)
    np.testing.assert_array_equal(tree["y"][0], 2 * X)
    assert (tree["y"][1], flag, scale) == ("text", True, 0.5)


def test_what_a_callback_raises_is_raised_by_the_call() -> None:
    def fails(x: Any) -> None:
        raise ValueError(f"not {x}")

    def function(x: Any) -> Any:
        debug.callback(fails, x[0])
        return np.sin(x)

    for called in (
        rematc.jit(function),
        rematc.compile(function, X),
        lambda x: evaluate(rematc.trace(function, x), [x]),
    ):
        with pytest.raises(
            rematc.CompileError, match=r"debug.callback of 'fails' raised ValueError: not 0.5"
        ) as caught:
            called(X)
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.loc is not None
        assert caught.value.loc.file == __file__
        assert caught.value.loc.function == "function"
    # Nothing is left of the failure.
    np.testing.assert_allclose(rematc.jit(lambda x: rematc.pure_callback(np.sin, x, x))(X), np.sin(X))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("policy", [None, "nothing", "auto"])
def test_what_an_io_callback_gives_is_saved(policy: str | None, ordered: bool) -> None:
    given = iter(range(1, 100))

    def loss(x: Any) -> Any:
        y = rematc.io_callback(lambda: np.float32(next(given)), np.zeros((), np.float32), ordered=ordered)
        return np.sum(np.sin(x * y))

    step: Any = rematc.value_and_grad(loss, policy=policy)
    for count in (1.0, 2.0):
        value, gradient = step(X)
        np.testing.assert_allclose(value, np.sum(np.sin(X * count)), rtol=1e-5)
        np.testing.assert_allclose(gradient, np.cos(X * count) * count, rtol=1e-5)

    def counted(x: Any) -> Any:
        return rematc.io_callback(lambda x: x * next(given), x, x, ordered=True)

    batch: Any = rematc.vmap(counted)
    np.testing.assert_allclose(batch(np.ones((3, 2), np.float32)), np.asarray([[3, 3], [4, 4], [5, 5]], np.float32))
    np.testing.assert_allclose(counted(X), 6 * X)


def test_numbers_of_python_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rematc.jit(lambda x: debug.print("{} {!r} {}", x.shape, 2.5, x[1]))(X)
    assert printed(capsys) == ["(3,) 2.5 1.0"]


def test_a_failure_that_was_seen_elsewhere_is_not_raised_again() -> None:
    def fails(x: Any) -> None:
        raise ValueError("seen elsewhere")

    program = rematc.jit(lambda x: debug.callback(fails, x))
    with pytest.raises(jax.errors.JaxRuntimeError, match="seen elsewhere"):
        jax.block_until_ready(jax.jit(lambda x: (program(x), x)[1])(X))  # type: ignore[no-untyped-call]
        jax.effects_barrier()  # type: ignore[no-untyped-call]
    with pytest.raises(rematc.CompileError, match="out of memory"):
        rematc.jit(lambda x: np.broadcast_to(x[0], (2**24, 2**24)))(X)


def test_each_error_of_xla_is_told_by_the_failure_behind_it() -> None:
    def fails(x: Any) -> None:
        raise ValueError(f"of {x[0]}")

    program = rematc.jit(lambda x: debug.callback(fails, x))

    def raised_elsewhere(x: float) -> Any:
        with pytest.raises(jax.errors.JaxRuntimeError) as raised:
            jax.block_until_ready(jax.jit(lambda x: (program(x), x)[1])(x * X))  # type: ignore[no-untyped-call]
            jax.effects_barrier()  # type: ignore[no-untyped-call]
        return raised.value

    first, second = raised_elsewhere(2.0), raised_elsewhere(4.0)
    with pytest.raises(rematc.CompileError, match="out of memory"):
        rematc.jit(lambda x: np.broadcast_to(x[0], (2**24, 2**24)))(X)
    for error, message in ((second, "of 2.0"), (first, "of 1.0")):
        with pytest.raises(rematc.CompileError, match=f"'fails' raised ValueError: {message}"):
            explain_xla(error, "program")
    explain_xla(first, "program")  # nothing is left of it


def test_printing_and_calling_outside_of_traces(capsys: pytest.CaptureFixture[str]) -> None:
    debug.print("{} {y}", X, y=1)
    debug.callback(lambda x: print("called", x), 3)
    assert printed(capsys) == ["[0.5 1.  2. ] 1", "called 3"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: debug.print("{} {}", x), r"debug.print cannot format '{} {}': "),
        (lambda x: debug.print("{}", x, x), r"there is no place for argument 1"),
        (lambda x: debug.print("{y}", x=x), r"there is no argument 'y'"),
        (lambda x: debug.print("{:.2f}", x), r"unsupported format string"),
        (lambda x: debug.print(x, x), r"debug.print takes a text with a place for each value"),
        (lambda x: debug.callback(x, x), r"debug.callback takes a function first"),
        (lambda x: rematc.pure_callback(x, x), r"pure_callback takes a function first"),
        (lambda x: rematc.pure_callback(np.sin, 3, x), r"takes the types of the results second, .*, got a int"),
        (lambda x: rematc.io_callback(x, x), r"io_callback takes a function first"),
        (
            lambda x: rematc.io_callback(np.sin, 3, x),
            r"io_callback takes the types of the results second, .*, got a int",
        ),
        (lambda x: rematc.pure_callback(np.sin, x, x, vmap_method="each"), r"no vmap_method 'each'; there is"),
    ],
)
def test_errors_name_the_users_line(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(rematc.CompileError) as caught:
        rematc.jit(call)(X)
    assert re.search(message, caught.value.message)
    assert caught.value.loc is not None
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, call.__code__.co_firstlineno)


def test_functions_of_reductions_have_no_effects() -> None:
    text = """
    graph @sum(%x: f32[3], %zero: f32[]) -> (f32[]) {
      %0: f32[] = reduce %x, %zero {dimensions=[0], body=graph @add(%a: f32[], %b: f32[]) -> (f32[]) {
        debug_print %a {format="{}"}
        %0: f32[] = add %a, %b
        return %0
      }}
      return %0
    }
    """
    with pytest.raises(rematc.CompileError, match=r"'reduce' applies 'add' in any order, .* but 'add' prints"):
        rematc.parse(text)


def test_segments_of_a_staged_program_keep_their_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def network(x: Any) -> Any:
        for layer in range(8):
            x = np.sin(np.tanh(x @ x) @ x)
            debug.print("layer {}", layer, ordered=True)
            debug.print("{0.shape}", x, ordered=True)
        return np.sum(x)

    wide = np.full((192, 192), 0.01, np.float32)
    graph = rematc.trace(rematc.grad(network, policy="auto"), wide)
    assert any(eqn.op.name == "checkpoint" for eqn in graph.equations)
    evaluate(graph, [wide])
    assert printed(capsys) == [line for layer in range(8) for line in (f"layer {layer}", "(192, 192)")]


def test_programs_that_call_python_are_not_saved(tmp_path: Any) -> None:
    compiled = rematc.compile(lambda x: shown(x, "{}", x), X)
    with pytest.raises(rematc.CompileError, match=r"calls Python functions .*, which a file cannot hold"):
        compiled.save(tmp_path / "program")
    assert not list(tmp_path.iterdir())


# -- pure callbacks ----------------------------------------------------------------------------------------------------


def doubled(x: Any) -> Any:
    return 2 * x


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
def test_pure_callback_computes(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(jax.numpy.dtype(dtype))
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)  # type: ignore[no-untyped-call]  # JAX

    def function(x: Any) -> Any:
        # A scalar and an empty array beside it.
        return rematc.pure_callback(lambda x: {"a": -x if x.dtype != bool else ~x, "b": x[0, 0], "c": x[:0]}, types, x)

    types = {"a": like, "b": x[0, 0], "c": x[:0]}
    expected = {"a": -x if dtype != "bool" else ~x, "b": x[0, 0], "c": x[:0]}
    for found in (rematc.jit(function)(x), function(x)):
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("method", "shapes"),
    [("sequential", [(3,), ()]), ("expand_dims", [(2, 3), (1,)]), ("broadcast_all", [(2, 3), (2,)])],
)
def test_pure_callback_on_batches(method: str, shapes: list[tuple[int, ...]]) -> None:
    seen = []

    def function(x: Any, y: Any) -> Any:
        seen.append([x.shape, y.shape])
        return x * (y if y.ndim == 0 else y[:, None])

    batch = np.stack([X, 2 * X])
    found = rematc.vmap(lambda x, y: rematc.pure_callback(function, X, x, y, vmap_method=method), (0, None))(
        batch, np.float32(2)
    )
    np.testing.assert_array_equal(found, 2 * batch)
    assert set(map(tuple, seen)) == {tuple(shapes)}


def test_pure_callback_has_no_derivative_but_one_may_be_given() -> None:
    def sine(x: Any) -> Any:
        return rematc.pure_callback(np.sin, x, x)

    with pytest.raises(
        rematc.CompileError, match=r"jvp of 'pure_callback' does not exist.*rematc.custom_jvp"
    ) as caught:
        rematc.grad(lambda x: np.sum(sine(x)))(X)
    assert caught.value.loc is not None
    with_rule = rematc.custom_jvp(sine)
    with_rule.defjvp(lambda primals, tangents: (sine(*primals), np.cos(primals[0]) * tangents[0]))
    for function in (with_rule, rematc.checkpoint(with_rule)):
        slope: Any = rematc.grad(lambda x, f=function: np.sum(f(x)))(X)
        np.testing.assert_allclose(slope, np.cos(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.astype(np.float64), r"gave float64\[3\] as result 0, announced was f32\[3\]"),
        (lambda x: x[:2], r"gave float32\[2\] as result 0, announced was f32\[3\]"),
        (lambda x: (x, x), r"raised TypeError: '<lambda>' gave the structure .*, announced was"),
    ],
)
def test_pure_callback_must_give_what_it_announced(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(rematc.CompileError, match=message):
        rematc.jit(lambda x: rematc.pure_callback(function, X, x))(X)


def test_pure_callbacks_may_be_merged_and_left_out() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return x

    def function(x: Any) -> Any:
        rematc.pure_callback(counted, X, x + 1)
        return rematc.pure_callback(counted, X, x) + rematc.pure_callback(counted, X, x)

    np.testing.assert_array_equal(rematc.jit(function)(X), 2 * X)
    assert len(calls) == 1


def test_functions_of_modules_have_text() -> None:
    graph = rematc.trace(lambda x: debug.callback(doubled, x, ordered=True), X)
    text = print_graph(graph)
    assert f'function="{__name__}:doubled", is_ordered=true' in text
    assert rematc.parse(text) == graph
    with pytest.raises(rematc.CompileError, match=r"expected the name of a Python function"):
        rematc.parse(text.replace("doubled", "tripled"))


def test_reports_say_what_recomputation_leaves_out() -> None:
    def function(x: Any) -> Any:
        debug.print("outside")
        return np.sum(rematc.checkpoint(lambda x: shown(np.sin(x), "{}", x))(x))

    report = rematc.compile(rematc.grad(function), X).report()
    assert report.derivatives[0].effects == Effects(all=2, in_regions=1)
    titles = [table.title for table in report_tables("", "none", report, None)]
    assert (
        "2 effects (prints and callbacks), in the forward pass alone; "
        "recomputation leaves out the 1 in checkpoint regions"
    ) in titles
