"""`rematc.jax.jit`: `jax.jit`, with what makes recomputation hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from rematc.compiler.functions.policies import by_default, whole_policy
from rematc.compiler.tracing.options import KEYWORDS, Options
from rematc.lowering.jax_compiling import compiled, is_outermost
from rematc.lowering.signature import Owners
from rematc.lowering.targeting import current_target, target_of


def jit(fun: Callable[..., Any], *, policy: object = None, **options: Any) -> Callable[..., Any]:
    """`jax.jit`, with the compiler options that make recomputation hold where XLA would undo it.

        train_step = rematc.jax.jit(train_step, donate_argnums=0)    # calls rematc.jax.value_and_grad, or checkpoint

    It need not be used: without it functions that XLA does not inline keep the recomputation of
    `rematc.jax.value_and_grad` and `rematc.jax.checkpoint` in its place on CPUs before jaxlib 0.12. That of
    `jax.checkpoint` is undone there by XLA unless the program is compiled like this. Everywhere else it is `jax.jit`,
    but that arguments which are Python's booleans are flags, on which `fun` may branch, as without `jit`.

    Args:
        fun: a JAX function.
        policy: of the derivatives of `rematc.jax` in `fun` that have no policy of their own. Those of `jax` have none.
        options: arguments of `jax.jit`; `compiler_options` are merged with ours. Inside of another `jax.jit` there can
            be no options.
    """
    decided = whole_policy(policy)

    @functools.wraps(fun, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        with by_default(decided):
            return fun(*args, **kwargs)

    plain = _Compiled(fun if decided is None else traced, options)
    flagged: dict[Any, _Compiled] = {}

    @functools.wraps(fun, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(value is True or value is False for value in (*args, *kwargs.values())):
            return plain(*args, **kwargs)
        return with_flags(args, kwargs)(*args, **kwargs)

    def with_flags(args: Any, kwargs: Any) -> _Compiled:
        positions = tuple([index for index, value in enumerate(args) if isinstance(value, bool)])
        names = tuple([name for name, value in kwargs.items() if isinstance(value, bool)])
        if not positions and not names:
            return plain
        found = flagged.get((positions, names))
        if found is None:
            found = flagged.setdefault((positions, names), plain.with_static(positions, names))
        return found

    def lower(*args: Any, **kwargs: Any) -> Any:
        return with_flags(args, kwargs).ahead(args, kwargs).lower(*args, **kwargs)

    def trace(*args: Any, **kwargs: Any) -> Any:
        return with_flags(args, kwargs).ahead(args, kwargs).trace(*args, **kwargs)

    call.lower, call.trace = lower, trace  # type: ignore[attr-defined]  # as the functions that jax.jit returns have
    return call


class _Compiled:
    """A function compiled by itself, or as a part of another program."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        self._by_platform: dict[str, Callable[..., Any]] = {}
        inside = {name: value for name, value in options.items() if name != "compiler_options"}
        self._inside: Callable[..., Any] = jax.jit(function, **inside)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.outermost(args, kwargs) if is_outermost() else self._inside)(*args, **kwargs)

    def outermost(self, args: Any, kwargs: Any) -> Any:
        """What serves a call that compiles a program of its own: what `jax.jit` returns."""
        target = current_target((args, kwargs))
        found = self._by_platform.get(target.platform)
        if found is None:
            made = compiled(self._function, target, **self._options)
            found = self._by_platform.setdefault(target.platform, made)
        return found

    def ahead(self, args: Any, kwargs: Any) -> Any:
        """What lowers a call ahead of time: for the devices that its arguments lie on, here or not."""
        target = target_of((args, kwargs))
        return self.outermost(args, kwargs) if target.is_here else compiled(self._function, target, **self._options)

    def with_static(self, positions: tuple[int, ...], names: tuple[str, ...]) -> _Compiled:
        """The same, with these arguments static, too."""
        chosen = Options.of(self._function, *[self._options.get(name) for name in KEYWORDS])
        wanted = chosen.with_static(Owners(frozenset(positions), frozenset(names)))
        return _Compiled(self._function, {**self._options, **wanted.keywords()})
