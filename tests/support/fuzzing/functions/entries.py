"""Ways to a second derivative: through each of rematc's entries, and JAX's own, which says what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc
import rematc.jax
from rematc.ir.interpreter import evaluate
from tests.support.fuzzing.functions import eager
from tests.support.fuzzing.functions.libraries import Library, in_jax, in_numpy, plain
from tests.support.fuzzing.functions.source import Function, Written

Call = Callable[..., Any]
Arrays = Sequence[Any]
#: Orders of two derivatives: reverse over reverse, forward over reverse, forward over forward, reverse over forward.
KINDS = ("grad of grad", "jvp of grad", "jvp of jvp", "grad of jvp")
REVERSE_FIRST = KINDS[:2]
POLICIES = (None, "nothing", "everything", "dots", "names=a", "except=a", "auto")


@dataclass(frozen=True, slots=True)
class Point:
    """Where, and along what, a function is differentiated.

    Attributes:
        args: x, w, i.
        along: a direction for x and w.
        across: another.
    """

    args: tuple[Any, Any, Any]
    along: tuple[Any, Any]
    across: tuple[Any, Any]

    @staticmethod
    def of(seed: int) -> Point:
        random = np.random.default_rng(seed)
        x, w, *rest = [random.normal(0, 0.7, shape) for shape in ((3,), (3, 3)) * 3]
        return Point((x, w, random.integers(0, 3, 3).astype(np.int32)), (rest[0], rest[1]), (rest[2], rest[3]))


def second(function: Call, kind: str, point: Point, np_: Any, jvp: Call, inner: Call, outer: Call) -> Any:
    """A function of (x, w, i) to a second derivative in x and w.

    `inner` and `outer` take gradients with respect to the first two arguments.
    """
    v, u = point.along, point.across

    def inner_product(pair: Any) -> Any:
        return np_.sum(pair[0] * v[0]) + np_.sum(pair[1] * v[1])

    def pushed(function: Call, along: Any, x: Any, w: Any, i: Any) -> Any:
        return jvp(lambda x, w: function(x, w, i), (x, w), along)[1]

    if kind == "grad of grad":
        return outer(lambda x, w, i: inner_product(inner(function)(x, w, i)))
    if kind == "jvp of grad":
        return lambda x, w, i: pushed(inner(function), u, x, w, i)
    if kind == "jvp of jvp":
        return lambda x, w, i: pushed(lambda x, w, i: pushed(function, v, x, w, i), u, x, w, i)
    return outer(lambda x, w, i: pushed(function, v, x, w, i))


def expected(function: Function | Written, kind: str, point: Point) -> list[Any]:
    """What JAX says; with loops unrolled where there are custom rules, which it forgets in one differentiated twice.

    Raises what JAX does where it refuses the function: unrolled, a loop may change its carry's type.
    """
    jax.eval_shape(function.made(plain()), *point.args)
    made = second(function.made(plain()), kind, point, jnp, jax.jvp, _jax, _jax)
    with jax.disable_jit() if "L.with_" in function.text() else nullcontext():
        jaxpr = jax.make_jaxpr(made)(*point.args)
    return eager.evaluate(jaxpr, point.args)


@dataclass(frozen=True, slots=True)
class Entry:
    """A way to second derivatives.

    Attributes:
        name: what it is called in finds.
        of: (function, kind, point, random) to the derivative's leaves.
        kinds: the orders of derivatives that it has.
        share: how often it is tried.
        in_jax: the same in JAX alone, in one way or several, where JAX differentiates what we give it, or traces it
            first, and its faults are there, too: what it does with its own loops, branches, checkpoints and calls,
            wrong or refused as it may be.
    """

    name: str
    of: Callable[[Function | Written, str, Point, Random], list[Any]]
    kinds: tuple[str, ...] = KINDS
    share: float = 1.0
    in_jax: tuple[Callable[[Function | Written, str, Point], list[Any]], ...] = ()


def _by_reference(made: Call, point: Point) -> list[Any]:
    graph = rematc.trace(made, *point.args)
    with np.errstate(all="ignore"):
        return list(evaluate(graph, [np.asarray(arg) for arg in point.args]))


def _by_jax(made: Call, point: Point) -> list[Any]:
    found: list[Any] = jax.tree.leaves(eager.run(made, *point.args))
    return found


def _ours(policy: object) -> Call:
    return lambda f: rematc.grad(f, argnums=(0, 1), policy=policy)


def _ours_of_jax(policy: object) -> Call:
    return lambda f: rematc.jax.grad(f, argnums=(0, 1), policy=policy)


def _jax(f: Call) -> Call:
    return jax.grad(f, argnums=(0, 1))


def _pulled(policy: object) -> Call:
    """A gradient by `rematc.jax.vjp`."""

    def grad(f: Call) -> Call:
        def of(x: Any, w: Any, i: Any) -> Any:
            value, back = rematc.jax.vjp(f, x, w, i, policy=policy)
            return back(jnp.ones_like(value))[:2]

        return of

    return grad


def _mixed(random: Random) -> Library:
    """JAX with checkpoints and inner gradients that are ours, or JAX's own."""
    checkpoint = random.choice((rematc.jax.checkpoint, rematc.jax.checkpoint, _checkpoint_of_jax))
    return in_jax(checkpoint, random.choice((jax.grad, jax.grad, rematc.jax.grad)))


def _checkpoint_of_jax(function: Call, policy: object = None, prevent_cse: bool = True) -> Call:
    chosen = jax.checkpoint_policies.dots_saveable if policy == "dots" else None
    return jax.checkpoint(function, policy=chosen, prevent_cse=prevent_cse)


def _numpy(function: Function | Written, kind: str, point: Point, random: Random) -> list[Any]:
    inner, outer = _ours(random.choice(POLICIES)), _ours(random.choice(POLICIES))
    return _by_reference(second(function.made(in_numpy()), kind, point, np, rematc.jvp, inner, outer), point)


def _imported(function: Function | Written, kind: str, point: Point, random: Random) -> list[Any]:
    inner, outer = _ours(random.choice(POLICIES)), _ours(random.choice(POLICIES))
    made = rematc.from_jax(function.made(_mixed(random)))
    return _by_reference(second(made, kind, point, np, rematc.jvp, inner, outer), point)


def _checkpointed(function: Function | Written, kind: str, point: Point, random: Random) -> list[Any]:
    library = in_jax(rematc.jax.checkpoint, jax.grad)
    made = rematc.jax.checkpoint(function.made(library), policy=random.choice(POLICIES))
    return _by_jax(second(made, kind, point, jnp, jax.jvp, _jax, _jax), point)


def _twice(function: Function | Written, kind: str, point: Point, random: Random) -> list[Any]:
    inner, outer = _ours_of_jax(random.choice(POLICIES)), _ours_of_jax(random.choice(POLICIES))
    return _by_jax(second(function.made(_mixed(random)), kind, point, jnp, jax.jvp, inner, outer), point)


def _under_jax(function: Function | Written, kind: str, point: Point, random: Random) -> list[Any]:
    inner = random.choice((_ours_of_jax, _pulled))(random.choice(POLICIES))
    return _by_jax(second(function.made(_mixed(random)), kind, point, jnp, jax.jvp, inner, _jax), point)


def _hessian(function: Function | Written, kind: str, point: Point, random: Random) -> list[Any]:
    """All of the second derivative at once, and then along a direction."""
    if random.random() < 0.5:
        blocks = _by_reference(rematc.hessian(function.made(in_numpy()), argnums=(0, 1)), point)
    else:
        made = rematc.jax.checkpoint(function.made(_mixed(random)), policy=random.choice(POLICIES))
        blocks = _by_jax(jax.hessian(made, argnums=(0, 1)), point)
    return _along(blocks, point)


def _along(blocks: Sequence[Any], point: Point) -> list[Any]:
    x, w = point.across
    rows = (blocks[:2], blocks[2:])
    return [np.tensordot(of_x, x, 1) + np.tensordot(of_w, w, 2) for of_x, of_w in rows]


def _of_jax(function: Function | Written, kind: str, point: Point) -> list[Any]:
    return _by_jax(second(function.made(plain()), kind, point, jnp, jax.jvp, _jax, _jax), point)


def _traced_by_jax(function: Function | Written, kind: str, point: Point) -> list[Any]:
    """Differentiated behind `jax.jit`: what a batch made of a rule is traced before there are tangents."""
    return _by_jax(second(jax.jit(function.made(plain())), kind, point, jnp, jax.jvp, _jax, _jax), point)


def _saved_by_jax(function: Function | Written, kind: str, point: Point) -> list[Any]:
    """In a checkpoint that saves everything, also what JAX has no name for the precision of."""
    made = jax.checkpoint(function.made(plain()), policy=jax.checkpoint_policies.everything_saveable)
    return _by_jax(second(made, kind, point, jnp, jax.jvp, _jax, _jax), point)


def _hessian_of_jax(function: Function | Written, kind: str, point: Point) -> list[Any]:
    return _along(_by_jax(jax.hessian(function.made(plain()), argnums=(0, 1)), point), point)


ENTRIES = (
    Entry("numpy", _numpy, share=0.7),
    Entry("checkpoint", _checkpointed, share=0.5, in_jax=(_of_jax, _saved_by_jax)),
    Entry("from_jax", _imported, share=0.25, in_jax=(_traced_by_jax,)),
    Entry("jax.grad", _twice, REVERSE_FIRST[:1], share=0.15, in_jax=(_traced_by_jax,)),
    Entry("under jax", _under_jax, REVERSE_FIRST, share=0.15, in_jax=(_of_jax, _traced_by_jax, _saved_by_jax)),
    Entry("hessian", _hessian, REVERSE_FIRST[1:], share=0.15, in_jax=(_hessian_of_jax, _saved_by_jax)),
)
