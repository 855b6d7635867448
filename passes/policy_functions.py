"""Policies that are functions of the user's, and which of the two kinds a function is.

A function of ops is called with (op, operand_types, name). A function of JAX's primitives is called as `jax.checkpoint`
calls it, with (primitive, *avals, **params). What cannot be told apart is an error, which `of_ops` and `of_primitives`
mend.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rematc.ir.collecting import users_code
from rematc.ir.core import Op
from rematc.ir.errors import CompileError, InternalError
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy, Recompute, Save, is_private
from rematc.ir.values import Types
from rematc.passes.policy_base import BuiltinPolicy, combined

PolicyFunction = Callable[..., object]


@dataclass(frozen=True, slots=True)
class UserPolicy(BuiltinPolicy):
    """A user's function `(op, operand_types, name) -> bool | SAVE | RECOMPUTE | Offload | one of them per result`.

    For a value with several names the function is asked for each, and the strongest answer counts.
    """

    function: PolicyFunction
    source: str

    @property
    def spec(self) -> str:
        return self.source

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        own = [name for name in names if not is_private(name)]
        answer = self._ask(op, operands, own[0] if own else None)
        for name in own[1:]:
            answer = combined(answer, self._ask(op, operands, name))
        return answer

    def _ask(self, op: Op, operands: Types, name: str | None) -> tuple[Decision, ...]:
        with users_code():
            answer = self.function(op, tuple(operands), name)
        answers = answer if isinstance(answer, tuple) else (answer,)
        return tuple(self._decision(one) for one in answers)

    def _decision(self, answer: object) -> Decision:
        if isinstance(answer, bool):
            return SAVE if answer else RECOMPUTE
        if isinstance(answer, (Save, Recompute, Offload)):
            return answer
        raise CompileError(
            f"the policy {self.source} returned {answer!r}; a policy returns True, False, SAVE, RECOMPUTE or "
            "Offload(src, dst), or a tuple of them with one entry per result of the op"
        )


@dataclass(frozen=True, slots=True)
class PrimitivePolicy(BuiltinPolicy):
    """A function `(primitive, *avals, **params)` as `jax.checkpoint` takes it, not yet made one of the IR.

    The IR knows no primitives: whoever takes policies from users and knows JAX makes it one that can be asked
    (`rematc.compiler.frontends.jax.policies.adopted`).
    """

    function: PolicyFunction
    source: str

    @property
    def spec(self) -> str:
        return self.source

    def decide(self, op: Op, operands: Types, names: Sequence[str]) -> tuple[Decision, ...]:
        raise InternalError(f"the policy {self.source} of JAX's primitives was asked about the op '{op.name}'")


def of_ops(function: PolicyFunction) -> Policy:
    """The policy of a function that is called with (op, operand_types, name), whatever its signature looks like."""
    return UserPolicy(function, source_of(function))


def of_primitives(function: PolicyFunction) -> Policy:
    """The policy of a function that is called as `jax.checkpoint` calls it, with (primitive, *avals, **params)."""
    return PrimitivePolicy(function, source_of(function))


def policy_of_function(function: PolicyFunction) -> Policy:
    """The policy that a function is, by what it can be called with.

    A function of JAX's primitives takes any number of operands and any parameters: `(prim, *_, **params)`, or
    `(*_, **_)`. All of JAX's own are of this kind. A function of ops takes three arguments.

    Raises CompileError for a function that takes neither, and for one that does not say which it takes.
    """
    if str(getattr(function, "__module__", "")).startswith(("jax.", "jaxlib.")):
        return of_primitives(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise _ambiguous(name, "does not say what it takes") from None
    parameters = list(signature.parameters.values())
    kinds = {one.kind for one in parameters}
    if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds and _takes(signature, 1):
        if parameters[0].name == "op":
            raise _ambiguous(name, f"takes {signature}")
        return of_primitives(function)
    if not _takes(signature, 3):
        raise CompileError(
            f"the policy '{name}' is called with (op, operand_types, name), but takes {signature}; a function written "
            "for jax.checkpoint takes (primitive, *avals, **params)"
        )
    return of_ops(function)


def load_policy(spec: str) -> Policy:
    """The policy in a file, `mine.py:function`. Raises CompileError where there is none."""
    file, _, function_name = spec.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise CompileError(f"the policy {spec} names a file that is not there: {path}")
    name = f"rematc_policy_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise CompileError(f"the policy {spec} names a file that Python cannot import: {path}")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except (SyntaxError, ImportError, NameError, AttributeError, TypeError, ValueError) as error:
        raise CompileError(f"the policy {spec} cannot be loaded: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        found = ", ".join(name for name, value in vars(module).items() if inspect.isfunction(value)) or "none"
        raise CompileError(f"the policy {spec} names no function of {path} (functions there: {found})")
    if isinstance(function, BuiltinPolicy) and not isinstance(function, (UserPolicy, PrimitivePolicy)):
        return function
    policy = function if isinstance(function, (UserPolicy, PrimitivePolicy)) else policy_of_function(function)
    assert isinstance(policy, (UserPolicy, PrimitivePolicy)), "what functions become"
    return replace(policy, source=spec)


def source_of(function: PolicyFunction) -> str:
    """A function's file and name."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{code.co_filename}:{name}" if code else name


def _takes(signature: inspect.Signature, count: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _ambiguous(name: str, what: str) -> CompileError:
    return CompileError(
        f"the policy '{name}' {what}, which tells not whether it is a function of ops or of JAX's primitives; mark it: "
        "rematc.policies.of_ops(function) is called with (op, operand_types, name), "
        "rematc.policies.of_primitives(function) with (primitive, *avals, **params), as jax.checkpoint does"
    )
