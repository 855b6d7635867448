"""`custom_root` and `closure_convert`: derivatives of what an equation defines, against JAX and closed forms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.ir.errors import CompileError
from rematc.ir.printer import print_graph
from rematc.ir.verifier import verify
from rematc.passes.linearize import vjp as vjp_of_graph
from rematc.passes.vmap import vmap as vmap_of_graph
from tests.support.custom_rules import JAX, REMATC, Library, assert_agree

Function = Callable[..., Any]
#: JAX with its own loops; `custom_root` stands in another module there.
LOOPING = Library(jnp, jax, lax, JAX.name)
LIBRARIES = (REMATC, LOOPING)
A = np.float32(2)


def root_of(lib: Library) -> Function:
    found: Function = rematc.custom_root if lib is REMATC else lax.custom_root
    return found


def square_root(lib: Library) -> Function:
    """By Newton's method, in a while loop, which has no reverse derivative."""

    def sqrt(a: Any) -> Any:
        def newton(f: Function, guess: Any) -> Any:
            def step(carry: Any) -> Any:
                count, x = carry
                value, slope = lib.api.jvp(f, (x,), (lib.np.ones_like(x),))
                return count + 1, x - value / slope

            return lib.control.while_loop(lambda carry: carry[0] < 12, step, (0, guess))[1]

        return root_of(lib)(lambda x: x * x - a, lib.np.ones_like(a), newton, lambda g, y: y / g(1.0))

    return sqrt


def equilibrium(lib: Library) -> Function:
    """The fixed point of a layer, as a model has it: z = tanh(w z + x). Parameters are a tree."""

    def fixed_point(f: Function, guess: Any) -> Any:
        def step(carry: Any) -> Any:
            count, z = carry
            return count + 1, jax.tree.map(lib.np.add, z, f(z))

        return lib.control.while_loop(lambda carry: carry[0] < 60, step, (0, guess))[1]

    def layer(params: Any, x: Any) -> Any:
        def residual(z: Any) -> Any:
            return lib.np.tanh(params["w"] @ z + x * params["scale"][0]) - z

        def solve(g: Function, y: Any) -> Any:
            return lib.np.linalg.solve(lib.api.jacrev(g)(y), y)

        return root_of(lib)(residual, lib.np.zeros_like(x), fixed_point, solve)

    return layer


def minimum(lib: Library) -> Function:
    """The argument that makes a quadratic least: the root of its gradient."""

    def argmin(h: Any, b: Any) -> Any:
        def quadratic(x: Any) -> Any:
            return x @ h @ x / 2 - b @ x

        def descend(f: Function, guess: Any) -> Any:
            return lib.control.while_loop(
                lambda carry: carry[0] < 200, lambda carry: (carry[0] + 1, carry[1] - 0.3 * f(carry[1])), (0, guess)
            )[1]

        def solve(g: Function, y: Any) -> Any:
            return lib.np.linalg.solve(lib.api.jacfwd(g)(y), y)

        return root_of(lib)(lib.api.grad(quadratic), lib.np.zeros_like(b), descend, solve)

    return argmin


TRANSFORMS: dict[str, Callable[[Library, Function], Function]] = {
    "value": lambda lib, f: f,
    "jit": lambda lib, f: lib.api.jit(f),
    "grad": lambda lib, f: lib.api.grad(f),
    "grad of a checkpoint": lambda lib, f: lib.api.grad(lib.api.checkpoint(f)),
    "jvp": lambda lib, f: lambda a: lib.api.jvp(f, (a,), (a,)),
    "second": lambda lib, f: lib.api.grad(lib.api.grad(f)),
    "jacfwd of jacfwd": lambda lib, f: lib.api.jacfwd(lib.api.jacfwd(f)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_derivatives_of_a_square_root_agree_with_jax(transform: str) -> None:
    ours, theirs = (TRANSFORMS[transform](lib, square_root(lib))(A) for lib in LIBRARIES)
    assert_agree(ours, theirs)


def test_the_third_derivative_of_a_square_root() -> None:
    f = square_root(REMATC)
    for _ in range(3):
        f = rematc.grad(f)
    np.testing.assert_allclose(f(A), 3 / 8 * 2**-2.5, rtol=1e-5)


@pytest.mark.parametrize("transform", ["value", "grad"])
def test_roots_of_a_batch_agree_with_jax(transform: str) -> None:
    """The loop goes on until the last element is done."""
    batch = np.asarray([0.5, 2, 9], np.float32)
    ours, theirs = (lib.api.vmap(TRANSFORMS[transform](lib, square_root(lib)))(batch) for lib in LIBRARIES)
    assert_agree(ours, theirs)


def layer_arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    w = random.normal(0, 0.2, (4, 4)).astype(np.float32)
    return {"w": w, "scale": [np.float32(1.5)]}, random.normal(size=4).astype(np.float32)


def test_gradients_of_an_equilibrium_agree_with_jax() -> None:
    params, x = layer_arguments()

    def gradients(lib: Library) -> Any:
        layer = equilibrium(lib)
        return lib.api.grad(lambda params, x: lib.np.sum(layer(params, x) ** 2), (0, 1))(params, x)

    assert_agree(gradients(REMATC), gradients(LOOPING))


def test_the_hessian_of_an_equilibrium_agrees_with_jax() -> None:
    params, x = layer_arguments()

    def hessian(lib: Library) -> Any:
        layer = equilibrium(lib)
        found = lib.api.hessian(lambda x: lib.np.sum(layer(params, x) ** 2))
        return jax.jit(found)(x) if lib is LOOPING else found(x)

    # Two solutions of linear systems, one in the derivative of the other, in single precision.
    assert_agree(hessian(REMATC), hessian(LOOPING), relative=2e-4)


def test_a_checkpointed_equilibrium_finds_its_root_again() -> None:
    """The backward pass has the loop of the solver, and no residual but the arguments."""
    params, x = layer_arguments()
    layer = rematc.checkpoint(equilibrium(REMATC))
    assert all(row.is_argument for row in rematc.saved_residuals(layer, params, x))
    graph = rematc.trace(layer, params, x)
    assert "while" in print_graph(vjp_of_graph(graph, [True] * 3).backward)
    plain = rematc.trace(equilibrium(REMATC), params, x)
    assert "while" not in print_graph(vjp_of_graph(plain, [True] * 3).backward)


def test_derivatives_of_a_minimum_are_those_of_its_closed_form() -> None:
    """argmin of x h x / 2 - b x is the solution of h x = b, for symmetric h."""
    random = np.random.default_rng(4)
    h: Any = (np.eye(3) + 0.2 * random.normal(size=(3, 3))).astype(np.float32)
    h, b = (h + h.T) / 2, random.normal(size=3).astype(np.float32)
    argmin = minimum(REMATC)
    ours = rematc.grad(lambda h, b: np.sum(argmin(h, b) ** 3), (0, 1))(h, b)
    closed = jax.grad(lambda h, b: jnp.sum(jnp.linalg.solve((h + h.T) / 2, b) ** 3), (0, 1))(h, b)
    assert_agree(ours, closed, relative=1e-4)


def test_auxiliary_data_have_no_derivative() -> None:
    def program(lib: Library, a: Any) -> Any:
        def solve(f: Function, guess: Any) -> Any:
            x = lib.np.sqrt(a)
            return x, {"residual": f(x), "steps": np.float32(3)}

        root, aux = root_of(lib)(lambda x: x * x - a, a, solve, lambda g, y: y / g(1.0), has_aux=True)
        return root * 2 + aux["residual"] * 100 + aux["steps"]

    ours, theirs = (lib.api.value_and_grad(functools.partial(program, lib))(A) for lib in LIBRARIES)
    assert_agree(ours, theirs)


def test_roots_in_a_scan_are_differentiated() -> None:
    def program(lib: Library, a: Any) -> Any:
        sqrt = square_root(lib)
        return lib.control.scan(lambda c, _: (sqrt(c + a), None), a, None, length=3)[0]

    ours, theirs = (lib.api.value_and_grad(functools.partial(program, lib))(A) for lib in LIBRARIES)
    assert_agree(ours, theirs)


def test_guesses_are_floats() -> None:
    with pytest.raises(CompileError, match=r"initial_guess of custom_root is i64\[\], expected floating-point values"):
        rematc.custom_root(lambda x: x, np.int64(3), lambda f, x: x, lambda g, y: y)


def test_a_root_has_the_types_of_the_guess() -> None:
    guess = np.ones(3, np.float32)
    with pytest.raises(
        CompileError, match=r"output of '<lambda>', the f of custom_root, is f32\[2\]; expected f32\[3\]"
    ):
        rematc.custom_root(lambda x: x[:2], guess, lambda f, x: x, lambda g, y: y)
    with pytest.raises(CompileError, match="the solve of custom_root, returns PyTreeDef"):
        rematc.custom_root(lambda x: x, guess, lambda f, x: (x, x), lambda g, y: y)
    with pytest.raises(CompileError, match=r"with has_aux solve returns \(root, aux\)"):
        rematc.custom_root(lambda x: x, guess, lambda f, x: x, lambda g, y: y, has_aux=True)


# -- custom_linear_solve -----------------------------------------------------------------------------------------------

MATRIX: Any = np.asarray([[2, 0.3, -0.1], [0.5, 1.8, 0.2], [-0.4, 0.1, 2.2]], np.float32)
RIGHT: Any = np.asarray([1, -2, 0.5], np.float32)


def richardson(lib: Library, is_symmetric: bool) -> Function:
    """Solutions by an iteration in a while loop, which has no transpose; right-hand sides are trees."""
    solve_system: Function = rematc.custom_linear_solve if lib is REMATC else lax.custom_linear_solve

    def iterate(matvec: Function, b: Any) -> Any:
        def step(carry: Any) -> Any:
            count, x = carry
            rows = zip(jax.tree.leaves(x), jax.tree.leaves(b), jax.tree.leaves(matvec(x)), strict=True)
            return count + 1, jax.tree.unflatten(jax.tree.structure(x), [x + 0.3 * (y - z) for x, y, z in rows])

        return lib.control.while_loop(lambda carry: carry[0] < 80, step, (0, jax.tree.map(lib.np.zeros_like, b)))[1]

    def solved(a: Any, b: Any) -> Any:
        matrix = (a + a.T) / 2 if is_symmetric else a
        transposed = {"symmetric": True} if is_symmetric else {"transpose_solve": iterate}
        return solve_system(lambda x: {"x": matrix @ x["x"]}, {"x": b}, iterate, **transposed)["x"]

    return solved


SOLVERS: dict[str, Callable[[Library, Function], Function]] = {
    "value": lambda lib, f: f,
    "jvp": lambda lib, f: lambda a, b: lib.api.jvp(f, (a, b), (b * a, a @ b)),
    "gradients": lambda lib, f: lib.api.grad(lambda a, b: lib.np.sum(f(a, b) ** 2), (0, 1)),
    "checkpoint": lambda lib, f: lib.api.grad(lib.api.checkpoint(lambda a, b: lib.np.sum(f(a, b) ** 2)), (0, 1)),
    "second": lambda lib, f: lib.api.grad(
        lambda a, b: lib.np.sum(lib.api.grad(lambda a: lib.np.sum(f(a, b) ** 3))(a) ** 2), (0, 1)
    ),
    "batch of right sides": lambda lib, f: lib.api.grad(
        lambda a, b: lib.np.sum(lib.api.vmap(f, (None, 0))(a, lib.np.stack([b, 2 * b])) ** 3), (0, 1)
    ),
    "batch of maps": lambda lib, f: lib.api.grad(
        lambda a, b: lib.np.sum(lib.api.vmap(f, (0, None))(lib.np.stack([a, a + 0.1]), b) ** 3), (0, 1)
    ),
}


@pytest.mark.parametrize("transform", SOLVERS)
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_solutions_of_linear_systems_agree_with_jax(is_symmetric: bool, transform: str) -> None:
    how = SOLVERS[transform]
    ours = how(REMATC, richardson(REMATC, is_symmetric))(MATRIX, RIGHT)
    theirs = jax.jit(how(LOOPING, richardson(LOOPING, is_symmetric)))(MATRIX, RIGHT)
    assert_agree(ours, theirs, relative=1e-4)


def test_graphs_with_solutions_print_parse_and_obey_the_laws() -> None:
    graph = rematc.trace(richardson(REMATC, False), MATRIX, RIGHT)
    verify(graph)
    assert rematc.parse(print_graph(graph)) == graph
    verify(vmap_of_graph(graph, [True, False], 2).graph)
    verify(vjp_of_graph(graph, [True, True]).backward)


def test_solutions_have_no_auxiliary_derivatives() -> None:
    def program(lib: Library, b: Any) -> Any:
        def solve(matvec: Function, b: Any) -> Any:
            x = lib.np.linalg.solve(MATRIX, b)
            return x, lib.np.sum(matvec(x))

        solve_system: Function = rematc.custom_linear_solve if lib is REMATC else lax.custom_linear_solve
        x, total = solve_system(lambda x: MATRIX @ x, b, solve, has_aux=True)
        return x * total

    ours, theirs = (lib.api.jvp(functools.partial(program, lib), (RIGHT,), (RIGHT,)) for lib in LIBRARIES)
    assert_agree(ours, theirs, relative=1e-4)


def test_a_linear_map_has_the_types_of_the_right_side() -> None:
    with pytest.raises(CompileError, match=r"the matvec of custom_linear_solve, is f32\[2\]; expected f32\[3\]"):
        rematc.custom_linear_solve(lambda x: x[:2], RIGHT, lambda f, b: b)
    with pytest.raises(CompileError, match=r"the b of custom_linear_solve is i64\[\], expected floating-point values"):
        rematc.custom_linear_solve(lambda x: x, np.int64(1), lambda f, b: b)


# -- closure_convert ---------------------------------------------------------------------------------------------------


def by_descent(lib: Library) -> Function:
    """A minimizer with a custom rule, of a function that closes over what is differentiated."""

    @functools.partial(lib.api.custom_vjp, nondiff_argnums=(0,))
    def minimize(f: Function, x: Any, *values: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return x - 0.3 * lib.api.grad(f)(x, *values)

        return lib.control.fori_loop(0, 60, step, x)

    def forward(f: Function, x: Any, *values: Any) -> Any:
        found = minimize(f, x, *values)
        return found, (found, values)

    def backward(f: Function, residuals: Any, ct: Any) -> Any:
        found, values = residuals
        curvature = lib.api.hessian(f)(found, *values)
        _, pull = lib.api.vjp(lambda *values: lib.api.grad(f)(found, *values), *values)
        return lib.np.zeros_like(found), *[-one for one in pull(lib.np.linalg.solve(curvature, ct))]

    minimize.defvjp(forward, backward)

    def program(x: Any, target: Any) -> Any:
        def objective(x: Any) -> Any:
            return lib.np.sum((x - lib.np.sin(target)) ** 2) + 0.1 * lib.np.sum(x**4)

        converted, hoisted = lib.api.closure_convert(objective, x)
        assert len(hoisted) == 1
        return lib.np.sum(minimize(converted, x, *hoisted) ** 2)

    return program


def test_rules_of_functions_with_converted_closures_agree_with_jax() -> None:
    x, target = np.zeros(3, np.float32), np.asarray([0.1, 0.8, -2], np.float32)
    ours, theirs = (lib.api.grad(by_descent(lib), 1)(x, target) for lib in LIBRARIES)
    assert_agree(ours, theirs, relative=1e-4)


def test_integers_are_not_hoisted() -> None:
    def program(x: Any, n: Any, w: Any) -> Any:
        converted, hoisted = rematc.closure_convert(lambda x: x[n] * w, x)
        assert [value.dtype for value in hoisted] == [np.float32]  # type: ignore[attr-defined]  # arrays
        return converted(x, 2 * hoisted[0])  # type: ignore[operator]  # an array

    found = rematc.jit(program)(np.arange(3, dtype=np.float32), np.int32(2), np.float32(5))
    assert found == 20


def test_outside_of_traces_nothing_is_hoisted() -> None:
    w = np.float32(3)
    converted, hoisted = rematc.closure_convert(lambda x: x * w, A)
    assert hoisted == []
    assert converted(A) == 6


def test_a_converted_function_takes_the_hoisted_values() -> None:
    def program(w: Any) -> Any:
        converted, _ = rematc.closure_convert(lambda x: x * w, A)
        return converted()

    with pytest.raises(CompileError, match="takes its arguments and then the 1 hoisted values; got 0 arguments"):
        rematc.jit(program)(A)
