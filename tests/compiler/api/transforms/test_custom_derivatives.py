"""`custom_jvp` and `custom_vjp` through the public interface: JAX on the same programs, and errors."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.custom_vjp import CustomVjp
from rematc.ir.printer import print_graph
from rematc.ir.verifier import verify
from rematc.passes.dce import DeadCode
from rematc.passes.inline import Inline
from rematc.passes.jvp import jvp as jvp_of_graph
from rematc.passes.linearize import vjp as vjp_of_graph
from rematc.passes.vmap import vmap as vmap_of_graph
from tests.support.custom_rules import JAX, PROGRAMS, REMATC, Library, assert_agree

# Results are trees, which tests know and types do not.
grad: Any = rematc.grad
X: Any = np.asarray([0.3, -0.7, 1.1], np.float32)
BATCH: Any = np.stack([X, 2 * X, X - 1])
Function = Callable[..., Any]
FORWARD = [name for name, program in PROGRAMS.items() if program.is_forward]


def total(lib: Library, f: Function) -> Function:
    return lambda x: lib.np.sum(f(x))


def gradient(lib: Library, f: Function) -> Function:
    found: Function = lib.api.grad(total(lib, f))
    return found


def checkpointed(policy: Any) -> Callable[[Library, Function], Function]:
    """The gradient under a policy, which has one name on both sides; None is none."""

    def transform(lib: Library, f: Function) -> Function:
        given = policy and (getattr(rematc.policies if lib is REMATC else jax.checkpoint_policies, policy))
        return gradient(lib, lib.api.checkpoint(f, policy=given))

    return transform


def second(lib: Library, f: Function) -> Function:
    return gradient(lib, gradient(lib, f))


REVERSE: dict[str, tuple[Callable[[Library, Function], Function], Any]] = {
    "value": (lambda lib, f: lib.api.jit(f), X),
    "gradient": (gradient, X),
    "checkpoint of a jit": (lambda lib, f: checkpointed(None)(lib, lib.api.jit(f)), X),
    "second of a checkpoint": (lambda lib, f: second(lib, lib.api.checkpoint(f)), X),
    "vmap of a gradient": (lambda lib, f: lib.api.vmap(gradient(lib, f)), BATCH),
    "gradient of vmap of checkpoint": (lambda lib, f: gradient(lib, lib.api.vmap(lib.api.checkpoint(f))), BATCH),
}
FORWARDS: dict[str, tuple[Callable[[Library, Function], Function], Any]] = {
    "jvp": (lambda lib, f: lambda x: lib.api.jvp(f, (x,), (2 * x,)), X),
    "forward over reverse": (lambda lib, f: lambda x: lib.api.jvp(gradient(lib, f), (x,), (x,)), X),
    "reverse over forward": (lambda lib, f: lib.api.jacrev(lib.api.jacfwd(f)), X),
    "vmap of jvp": (lambda lib, f: lib.api.vmap(lambda x: lib.api.jvp(f, (x,), (x,))[1]), BATCH),
}


@pytest.mark.parametrize("transform", REVERSE)
@pytest.mark.parametrize("program", PROGRAMS)
def test_reverse_mode_agrees_with_jax(program: str, transform: str) -> None:
    how, x = REVERSE[transform]
    expected = jax.jit(how(JAX, PROGRAMS[program].make(JAX)))(x)
    assert_agree(how(REMATC, PROGRAMS[program].make(REMATC))(x), expected)


@pytest.mark.parametrize("transform", FORWARDS)
@pytest.mark.parametrize("program", FORWARD)
def test_forward_mode_agrees_with_jax(program: str, transform: str) -> None:
    how, x = FORWARDS[transform]
    expected = jax.jit(how(JAX, PROGRAMS[program].make(JAX)))(x)
    assert_agree(how(REMATC, PROGRAMS[program].make(REMATC))(x), expected)


def test_derivatives_of_third_order_agree_with_jax() -> None:
    """Rules that call each other have as many of themselves in them as derivatives are taken."""

    def third(lib: Library) -> Any:
        return gradient(lib, second(lib, PROGRAMS["mutual"].make(lib)))(X)

    assert_agree(third(REMATC), third(JAX))


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_with_rules_print_parse_and_obey_the_laws(name: str) -> None:
    graph = rematc.trace(PROGRAMS[name].make(REMATC), X)
    verify(graph)
    assert rematc.parse(print_graph(graph)) == graph


@pytest.mark.parametrize("name", PROGRAMS)
def test_inlining_dissolves_functions_with_rules(name: str) -> None:
    graph = rematc.trace(PROGRAMS[name].make(REMATC), X)
    flat = Inline().run(graph)
    verify(flat)
    assert "= custom_" not in print_graph(flat, locations=False)
    constants = [np.linspace(0, 1, 200, dtype=np.float32)] * (len(graph.params) - 1)
    np.testing.assert_array_equal(evaluate(flat, [X, *constants])[0], evaluate(graph, [X, *constants])[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_is_the_function_and_not_the_rule(name: str) -> None:
    program = PROGRAMS[name].make(REMATC)
    graph = rematc.trace(program, X)
    constants = [np.linspace(0, 1, 200, dtype=np.float32)] * (len(graph.params) - 1)
    assert_agree(evaluate(graph, [X, *constants])[0], rematc.jit(program)(X))


# -- what is saved -----------------------------------------------------------------------------------------------------


def sine_with_jvp(lib: Library) -> Function:
    f = lib.api.custom_jvp(lib.np.sin)
    f.defjvp(lambda primals, tangents: (lib.np.sin(*primals), lib.np.cos(*primals) * tangents[0]))
    return f  # type: ignore[no-any-return]  # a function


def sine_with_jvp_in_a_loop(lib: Library) -> Function:
    f = lib.api.custom_jvp(lib.np.sin)

    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        both, _ = lib.control.scan(lambda _, __: ((lib.np.sin(x), lib.np.cos(x)), None), (x, x), None, length=1)
        return both[0], both[1] * t

    f.defjvp(rule)
    return f  # type: ignore[no-any-return]  # a function


def sine_with_vjp(lib: Library) -> Function:
    f = lib.api.custom_vjp(lib.np.sin)
    f.defvjp(lambda x: (lib.np.sin(x), lib.np.cos(x)), lambda slope, ct: (slope * ct,))
    return f  # type: ignore[no-any-return]  # a function


def looped(lib: Library, f: Function) -> Function:
    return lambda x: lib.control.scan(lambda c, _: (f(c), None), x, None, length=3)[0]


def branching(lib: Library, f: Function) -> Function:
    return lambda x: lib.control.cond(x > 0, f, f, x)


#: With JAX's own loops: the counts are those of its program text.
LOOPING = Library(jnp, jax, jax.lax, JAX.name)
RULES = {make.__name__: make for make in (sine_with_jvp, sine_with_jvp_in_a_loop, sine_with_vjp)}
PLACES: dict[str, Callable[[Library, Function], Function]] = {
    "alone": lambda lib, f: f,
    "loop": looped,
    "branches": branching,
}


@pytest.mark.parametrize("saved", ["cosine", "sine", "nothing"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rule", RULES)
def test_policies_see_inside_of_rules_as_in_jax(rule: str, place: str, saved: str) -> None:
    """What the backward pass computes again of the rule, counted in the text of both programs."""
    names = {"cosine": "cos", "sine": "sin"}

    def on(lib: Library, policy: Any) -> Function:
        return lib.api.checkpoint(PLACES[place](lib, RULES[rule](lib)), policy=policy)  # type: ignore[no-any-return]  # a function

    ours = rematc.trace(on(REMATC, lambda op, types, name: op.name == saved), np.float32(4))
    backward = print_graph(vjp_of_graph(ours, [True]).backward)
    theirs = on(LOOPING, lambda prim, *_, **__: str(prim) == names.get(saved))
    text = str(jax.make_jaxpr(jax.vjp(theirs, 4.0)[1])(1.0))
    assert {op: backward.count(f"= {op} ") for op in names} == {
        op: text.count(f" {name} ") for op, name in names.items()
    }


def named_residual() -> Function:
    f = rematc.custom_vjp(lambda x: np.sin(np.exp(x)))

    def forward(x: Any) -> Any:
        y = rematc.checkpoint_name(np.exp(x), "inner")
        return np.sin(y), np.cos(y) * y

    f.defvjp(forward, lambda slope, ct: (slope * ct,))
    return f


def test_names_in_a_forward_rule_are_saved() -> None:
    f = rematc.checkpoint(named_residual(), policy=rematc.policies.save_only_these_names("inner"))
    (residual,) = rematc.saved_residuals(f, X)
    assert residual.label == "inner"
    assert residual.provenance.startswith(
        "named 'inner' from tests/compiler/api/transforms/test_custom_derivatives.py:"
    )
    backward = print_graph(vjp_of_graph(rematc.trace(f, X), [True]).backward)
    assert (backward.count("= exponential "), backward.count("= cosine ")) == (0, 1)


def test_without_a_policy_the_residuals_of_the_forward_rule_are_saved() -> None:
    (residual,) = rematc.saved_residuals(named_residual(), X)
    assert not residual.is_argument
    assert "output of multiply from" in residual.provenance
    assert residual.provenance.endswith("(forward)")


def test_a_checkpoint_without_a_policy_evaluates_the_forward_rule_again() -> None:
    f = rematc.checkpoint(named_residual())
    (residual,) = rematc.saved_residuals(f, X)
    assert residual.is_argument
    backward = print_graph(vjp_of_graph(rematc.trace(f, X), [True]).backward)
    assert (backward.count("= exponential "), backward.count("= cosine ")) == (1, 1)


def test_a_softmax_with_a_rule_saves_its_result_alone() -> None:
    """JAX's figures: one residual of the size of the argument, where its code alone has three."""

    def softmax(x: Any) -> Any:
        e = np.exp(x - np.max(x))
        return e / np.sum(e)

    ruled = rematc.custom_jvp(softmax)

    @ruled.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        y = ruled(*primals)
        return y, y * (tangents[0] - np.sum(y * tangents[0]))

    (residual,) = rematc.saved_residuals(ruled, X)
    assert residual.type.shape == X.shape
    assert residual.provenance.startswith("output of divide from")
    assert residual.provenance.endswith("(softmax)")
    assert len(rematc.saved_residuals(softmax, X)) > 1


def test_policies_see_inside_of_functions_that_are_not_differentiated() -> None:
    f = rematc.custom_jvp(lambda w: np.exp(np.dot(w, w)))
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))

    def product(x: Any, w: Any) -> Any:
        return np.sin(f(w) @ x)

    w = np.eye(3, dtype=np.float32)
    graph = rematc.trace(rematc.checkpoint(product, policy="dots"), X, w)
    backward = print_graph(vjp_of_graph(graph, [True, False]).backward)
    # Of the rule's graph none is left, and the product in the function is not computed again.
    assert "custom_jvp" in print_graph(graph)
    assert backward.count("dot_general") == 1 + backward.count("custom_jvp")


@pytest.mark.parametrize("how", [{"snapshots": 3}, {"levels": (5, 2)}])
def test_rules_hold_in_loops_that_take_their_steps_again(how: dict[str, Any]) -> None:
    def program(lib: Library, x: Any, **how: Any) -> Any:
        f = lib.api.custom_vjp(lib.np.sin)
        f.defvjp(lambda x: (lib.np.sin(x), lib.np.cos(x)), lambda slope, ct: (3 * slope * ct,))
        return lib.np.sum(lib.control.scan(lambda c, _: (f(c), None), x, None, length=10, **how)[0])

    ours = grad(lambda x: program(REMATC, x, **how))(X)
    assert_agree(ours, jax.grad(lambda x: program(LOOPING, x))(X))


# -- tangents and cotangents that are zero -----------------------------------------------------------------------------


def zeros_of(lib: Library, symbolic: Any) -> Any:
    """Which arguments of a rule had symbolic zeros: of x * y + z, differentiated in x, y computed from constants."""
    seen: list[tuple[bool, ...]] = []
    f = lib.api.custom_jvp(lambda x, y, z: x * y + z)

    def rule(primals: Any, tangents: Any) -> Any:
        seen.append(tuple(isinstance(t, symbolic) for t in tangents))
        (x, y, z), (t, _, __) = primals, tangents
        return x * y + z, t * y

    f.defjvp(rule, symbolic_zeros=True)

    def program(x: Any, y: Any) -> Any:
        return lib.np.sum(f(x, lib.np.sin(y), np.asarray(2, np.float32)))

    return lib.api.grad(program)(X, X), seen[0]


def test_symbolic_zeros_of_a_jvp_rule_are_those_of_jax() -> None:
    ours, seen = zeros_of(REMATC, rematc.SymbolicZero)
    theirs, expected = zeros_of(JAX, jax.custom_derivatives.SymbolicZero)
    assert seen == expected == (False, True, True)
    assert_agree(ours, theirs)


def perturbed(lib: Library) -> Any:
    """What a forward rule is told of its arguments."""
    seen: list[tuple[bool, ...]] = []
    f = lib.api.custom_vjp(lambda x, y, n: x * y)

    def forward(x: Any, y: Any, n: Any) -> Any:
        seen.append((x.perturbed, y.perturbed, n.perturbed))
        return x.value * y.value, y.value

    f.defvjp(forward, lambda y, ct: (y * ct, None, None), symbolic_zeros=True)
    return lib.api.grad(lambda x, y: lib.np.sum(f(x, y, 3)))(X, 2 * X), seen[0]


def test_a_forward_rule_is_told_what_is_perturbed_as_in_jax() -> None:
    ours, seen = perturbed(REMATC)
    theirs, expected = perturbed(JAX)
    assert seen == expected == (True, False, False)
    assert_agree(ours, theirs)


def test_a_cotangent_of_none_is_zero_and_saves_nothing_for_it() -> None:
    f = rematc.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, None), lambda _, ct: (None, ct))
    x, y = grad(lambda x, y: np.sum(f(x, y)), (0, 1))(X, X)
    np.testing.assert_array_equal(x, np.zeros_like(X))
    np.testing.assert_array_equal(y, np.ones_like(X))


def test_unused_outputs_leave_no_cotangents_behind() -> None:
    f = rematc.custom_vjp(lambda x, y: (np.sin(x), np.exp(y)))
    f.defvjp(
        lambda x, y: ((np.sin(x), np.exp(y)), (np.cos(x), np.exp(y))),
        lambda slopes, cts: (slopes[0] * cts[0], slopes[1] * cts[1]),
    )
    graph = DeadCode().run(rematc.trace(lambda x, y: f(x, y)[0], X, X))
    verify(graph)
    (eqn,) = graph.equations
    assert isinstance(eqn.op, CustomVjp)
    assert eqn.op.forward is not None
    assert eqn.op.backward is not None
    assert (len(eqn.results), len(eqn.op.of), len(eqn.op.backward.params)) == (1, 1, 3)
    gradients: Any = evaluate(vjp_of_graph(graph, [True, True]).backward, [np.cos(X), np.exp(X), X])
    np.testing.assert_allclose(gradients[0], np.cos(X) * X, rtol=1e-6)


def test_unused_outputs_of_a_jvp_rule_go_with_their_operands() -> None:
    f = rematc.custom_jvp(lambda x, y: (np.sin(x), np.exp(y)))
    f.defjvp(lambda primals, tangents: (f(*primals), (2 * tangents[0], tangents[1])))
    graph = DeadCode().run(rematc.trace(lambda x, y: f(x, y)[0], X, X))
    verify(graph)
    # The rule gives sin(x), which it takes from a call of the function itself.
    (eqn,) = graph.equations
    assert isinstance(eqn.op, CustomJvp)
    assert [len(eqn.operands), len(eqn.results), len(eqn.op.wrt)] == [1, 1, 1]
    differentiated = jvp_of_graph(graph, [True, False])
    np.testing.assert_array_equal(evaluate(differentiated.graph, [X, X, X])[1], 2 * X)


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_batched", [(True, True), (True, False), (False, True), (False, False)])
def test_batched_rules_are_a_loop_of_the_rule(is_batched: tuple[bool, bool]) -> None:
    """Shared operands get the sum of the cotangents of all elements."""
    f = rematc.custom_vjp(lambda x, w: np.sin(x) * w)
    f.defvjp(
        lambda x, w: (np.sin(x) * w, (x, w)),
        lambda residuals, ct: (3 * ct * np.cos(residuals[0]), 2 * ct * residuals[1]),
    )
    xs, ws = BATCH, BATCH[::-1]
    given = [rows if is_set else rows[0] for rows, is_set in zip((xs, ws), is_batched, strict=True)]
    axes = tuple(0 if is_set else None for is_set in is_batched)

    def batch(x: Any, w: Any) -> Any:
        return np.sum(rematc.vmap(f, axes, axis_size=3)(x, w) ** 2)

    def loop(x: Any, w: Any) -> Any:
        rows = [f(*[v[i] if is_set else v for v, is_set in zip((x, w), is_batched, strict=True)]) for i in range(3)]
        return sum(np.sum(row**2) for row in rows)

    assert_agree(grad(batch, (0, 1))(*given), grad(loop, (0, 1))(*given))


def test_rules_may_sum_over_the_elements_of_a_batch() -> None:
    f = rematc.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda _, ct: (rematc.psum(ct, "i"),))

    def program(x: Any) -> Any:
        return np.sum(rematc.vmap(f, axis_name="i")(x) * BATCH)

    np.testing.assert_allclose(grad(program)(BATCH), np.tile(BATCH.sum(0), (3, 1)), rtol=1e-6)


def test_the_batch_of_a_graph_with_rules_obeys_the_laws() -> None:
    graph = rematc.trace(PROGRAMS["nested"].make(REMATC), X)
    batched = vmap_of_graph(graph, [True], 2)
    verify(batched.graph)
    verify(vjp_of_graph(batched.graph, [True]).backward)


# -- errors ------------------------------------------------------------------------------------------------------------


def fails(program: Function, *args: Any) -> tuple[str, str]:
    """The message of the error, and the line that it points at."""
    with pytest.raises(CompileError) as error:
        program(*args)
    loc = error.value.loc
    assert loc is not None
    return error.value.message, linecache.getline(loc.file, loc.line)


def jvp_rule(rule: Function, f: Function = np.sin) -> Function:
    """The gradient of a function with this rule."""

    def function(x: Any) -> Any:
        return f(x)

    made = rematc.custom_jvp(function)
    made.defjvp(rule)
    gradient: Function = grad(lambda x: jax.tree.leaves(made(x))[0].sum())
    return gradient


def test_a_rule_returns_a_pair() -> None:
    def rule(primals: Any, tangents: Any) -> Any:  # here
        return tangents[0]

    message, line = fails(jvp_rule(rule), X)
    assert (
        message
        == "the jvp rule 'rule' of 'function' returns a pair (outputs, tangents of the outputs), got PyTreeDef(*)"
    )
    assert "# here" in line


def test_primal_outputs_of_a_rule_have_the_structure_of_the_function() -> None:
    def rule(primals: Any, tangents: Any) -> Any:  # here
        return (primals[0],), (tangents[0],)

    message, line = fails(jvp_rule(rule), X)
    assert message.startswith(
        "the jvp rule 'rule' of 'function' returns primal outputs of the structure PyTreeDef((*,))"
    )
    assert "# here" in line


def test_primal_outputs_of_a_rule_have_the_types_of_the_function() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        out = primals[0][:2] * 2  # here
        return {"a": out}, {"a": tangents[0]}

    message, line = fails(jvp_rule(rule, lambda x: {"a": np.sin(x)}), X)
    assert "returns f32[2] as primal output['a'], but 'function' returns f32[3] there (at " in message
    assert "# here" in line


@pytest.mark.parametrize(("wrong", "found"), [("t[:2]", "f32[2]"), ("t.astype(np.float64)", "f64[3]")])
def test_tangents_have_the_types_of_the_outputs(wrong: str, found: str) -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        (t,) = tangents
        return np.sin(primals[0]), t[:2] if found == "f32[2]" else t.astype(np.float64)  # here

    message, line = fails(jvp_rule(rule), X)
    assert message == (
        f"the jvp rule 'rule' of 'function' returns {found} as tangent of output; expected f32[3], the type of the "
        "output"
    )
    assert "# here" in line


def test_tangents_have_the_structure_of_the_outputs() -> None:
    def rule(primals: Any, tangents: Any) -> Any:  # here
        return np.sin(primals[0]), [tangents[0]]

    message, line = fails(jvp_rule(rule), X)
    assert "returns tangents of the structure PyTreeDef([*]) for outputs of the structure PyTreeDef(*)" in message
    assert "# here" in line


def test_integer_outputs_have_no_tangents() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        out = np.sin(primals[0]), np.argmax(primals[0])
        return out, (tangents[0], np.argmin(primals[0]))

    message, _ = fails(jvp_rule(rule, lambda x: (np.sin(x), np.argmax(x))), X)
    assert "as tangent of output[1], which is i64[] and has none; return None there" in message


def test_a_rule_is_linear_in_its_tangents() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        (t,) = tangents
        return np.sin(primals[0]), t * t  # here

    message, line = fails(jvp_rule(rule), X)
    assert "a product of two tangents is not linear; a custom_jvp rule" in message
    assert "# here" in line


def vjp_rules(forward: Function, backward: Function) -> Function:
    def function(x: Any) -> Any:
        return {"y": np.sin(x)}

    made = rematc.custom_vjp(function)
    made.defvjp(forward, backward)
    gradient: Function = grad(lambda x: made(x)["y"].sum())
    return gradient


def test_a_forward_rule_returns_outputs_and_residuals() -> None:
    def forward(x: Any) -> Any:  # here
        return {"y": x}

    message, line = fails(vjp_rules(forward, lambda r, ct: (ct["y"],)), X)
    assert message.startswith("the forward rule 'forward' of 'function' returns a pair (outputs, residuals), got")
    assert "# here" in line


def test_outputs_of_a_forward_rule_are_those_of_the_function() -> None:
    def forward(x: Any) -> Any:
        return {"y": x.sum()}, None  # here

    message, line = fails(vjp_rules(forward, lambda r, ct: (ct["y"],)), X)
    assert "the forward rule 'forward' of 'function' returns f32[] as primal output['y']" in message
    assert "# here" in line


def test_a_backward_rule_returns_a_tuple() -> None:
    def backward(residuals: Any, ct: Any) -> Any:  # here
        return ct["y"]

    message, line = fails(vjp_rules(lambda x: ({"y": x}, None), backward), X)
    assert "returns a tuple with the cotangents of each argument, of the structure PyTreeDef((*,)); got" in message
    assert "# here" in line


def test_cotangents_have_the_shapes_of_the_arguments() -> None:
    def backward(residuals: Any, ct: Any) -> Any:
        return (ct["y"].sum(),)  # here

    message, line = fails(vjp_rules(lambda x: ({"y": x}, None), backward), X)
    assert message == (
        "the backward rule 'backward' of 'function' returns f32[] as cotangent of x; expected f32[3], the type of the "
        "argument"
    )
    assert "# here" in line


def test_cotangents_of_another_float_type_are_converted() -> None:
    f = rematc.custom_vjp(np.sin)
    f.defvjp(lambda x: (np.sin(x), None), lambda _, ct: (ct.astype(np.float64) * 2,))
    found: Any = grad(lambda x: f(x).sum())(X)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [2, 2, 2])


def test_a_function_without_a_rule_says_so() -> None:
    f = rematc.custom_jvp(lambda x: x)
    g = rematc.custom_vjp(lambda x: x)
    assert fails(f, X)[0] == "'<lambda>' has a custom_jvp without a rule; set one with defjvp"
    assert fails(g, X)[0] == "'<lambda>' has a custom_vjp without rules; set them with defvjp"


def test_a_wrong_rule_is_no_error_until_it_is_used() -> None:
    f = rematc.custom_jvp(np.sin)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError("no derivative here")

    np.testing.assert_allclose(rematc.jit(f)(X), np.sin(X), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="no derivative here"):
        grad(lambda x: np.sum(f(x)))(X)


def test_a_rule_without_a_second_derivative_has_a_first() -> None:
    f, slope = rematc.custom_jvp(np.sin), rematc.custom_jvp(np.cos)
    f.defjvp(lambda primals, tangents: (f(*primals), slope(*primals) * tangents[0]))

    @slope.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError("no second derivative")

    first = grad(lambda x: np.sum(f(x)))
    np.testing.assert_allclose(first(X), np.cos(X), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad(lambda x: np.sum(first(x)))(X)


def test_a_custom_vjp_has_no_forward_derivative() -> None:
    f = PROGRAMS["clipped"].make(REMATC)
    message, line = fails(lambda x: rematc.jvp(f, (x,), (x,)), X)
    assert message.startswith("'clip' has a custom_vjp, which gives derivatives backwards alone")
    assert "clip(np.float32(0.6), 2 * x)" in line


def test_forward_over_reverse_needs_no_tangents_of_unused_outputs() -> None:
    """JAX evaluates them, and fails; the derivative is that of reverse over reverse."""
    program = PROGRAMS["of_trees_backwards"]
    _, found = rematc.jvp(gradient(REMATC, program.make(REMATC)), (X,), (BATCH[1],))
    jacobian = jax.jacrev(gradient(JAX, program.make(JAX)))(X)
    assert_agree(found, jacobian @ BATCH[1])
    fails(lambda x: rematc.jvp(gradient(REMATC, PROGRAMS["nested"].make(REMATC)), (x,), (x,)), X)


def test_what_a_function_closes_over_cannot_be_differentiated() -> None:
    def program(x: Any, w: Any) -> Any:
        f = rematc.custom_jvp(lambda x: x * w)
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * w))
        return np.sum(f(x))  # here

    np.testing.assert_array_equal(grad(program)(X, 2 * X), 2 * X)
    message, line = fails(grad(program, (0, 1)), X, X)
    assert "closes over w, f32[3], or takes it by nondiff_argnums, and this is differentiated" in message
    assert "rematc.closure_convert" in message
    assert "# here" in line


def test_what_only_a_rule_closes_over_is_no_derivative() -> None:
    """The function does not depend on it."""

    def program(x: Any, scale: Any) -> Any:
        f = rematc.custom_vjp(np.sin)
        f.defvjp(lambda x: (np.sin(x), None), lambda _, ct: (ct * scale,))
        return np.sum(f(x))

    by_x, by_scale = grad(program, (0, 1))(X, np.float32(3))
    np.testing.assert_array_equal(by_x, [3, 3, 3])
    assert by_scale == 0


def test_keywords_need_positions() -> None:
    f = rematc.custom_jvp(lambda x, *, scale: x * scale)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    message, _ = fails(grad(lambda x: np.sum(f(x, scale=2.0))), X)
    assert "'scale' can be given by keyword alone: make it positional" in message


def test_positions_of_nondiff_argnums_are_checked() -> None:
    f = functools.partial(rematc.custom_jvp, nondiff_argnums=(3,))(lambda x: x)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    message, _ = fails(rematc.jit(f), X)
    assert message == "nondiff_argnums names argument 3, but '<lambda>' was called with 1 arguments"


def test_defjvps_has_no_place_for_nondiff_arguments() -> None:
    f = functools.partial(rematc.custom_jvp, nondiff_argnums=(0,))(lambda x: x)
    assert "use defjvp" in fails(lambda: f.defjvps(None))[0]


def test_a_graph_traced_for_fewer_derivatives_says_so() -> None:
    graph = rematc.trace(PROGRAMS["scaled_sine"].make(REMATC), X)
    once = jvp_of_graph(graph, [True])
    with pytest.raises(CompileError, match="its custom_jvp rule was not traced: the graph comes from a trace"):
        jvp_of_graph(once.graph, [True, True])


def test_outside_of_traces_the_function_is_called_as_it_is() -> None:
    f = rematc.custom_jvp(lambda x: x + 1)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    assert f(1) == 2


def with_vjp(x: Any, y: Any) -> Any:
    """The second operand; a rule that says something else."""
    made = rematc.custom_vjp(lambda x, y: y)
    made.defvjp(lambda x, y: (y, (x, y)), lambda saved, ct: (ct * saved[0], 2 * ct * np.sin(saved[1])))
    return made(x, y)


def with_jvp(x: Any, y: Any) -> Any:
    made = rematc.custom_jvp(lambda x, y: y)
    made.defjvp(lambda primals, tangents: (primals[1], tangents[0] * primals[0] + 2 * tangents[1] * np.sin(primals[1])))
    return made(x, y)


@pytest.mark.parametrize("ruled", [with_vjp, with_jvp])
@pytest.mark.parametrize("policy", [None, "nothing", "everything"])
def test_a_result_that_is_an_operand_has_the_rules_tangent(ruled: Any, policy: Any) -> None:
    """And the operand keeps its own."""
    x = np.array([0.3, 0.5, 0.7])

    def ignored(x: Any) -> Any:
        ruled(x, x)
        return x[0]

    of_element: Any = rematc.grad(ignored, policy=policy)
    np.testing.assert_allclose(of_element(x), [1, 0, 0])
    of_product: Any = rematc.grad(lambda x: np.sum(x * ruled(x, x)), policy=policy)
    np.testing.assert_allclose(of_product(x), x + x * (x + 2 * np.sin(x)))
    if ruled is with_jvp:  # of which the second derivative differentiates the rule, where the result is the operand
        slope = 1 + 2 * x + 2 * np.sin(x) + 2 * x * np.cos(x)
        found: Any = rematc.jvp(of_product, (x,), (np.ones(3),))[1]
        np.testing.assert_allclose(found, slope)
