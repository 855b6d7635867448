"""Errors: the user's to mend (`CompileError`) and ours (`InternalError`)."""

from __future__ import annotations

from rematc.ir.locations import Location


class CompileError(Exception):
    """Something in the user's program, policy or command that the user can mend.

    Attributes:
        message: what was found, what was expected, one way out.
        loc: the user's file, line and column, where known.
    """

    def __init__(self, message: str, loc: Location | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc

    def __str__(self) -> str:
        return f"{self.loc}: error: {self.message}" if self.loc else self.message


class TypeMismatchError(CompileError):
    """Operands, shapes or element types that an op does not take."""


class MissingRuleError(CompileError):
    """An op without the rule that a transformation asks for; the message says where to write it."""


class ParseError(CompileError):
    """Text that is not the IR's grammar; `loc` is the place in the text."""


class VerifierError(CompileError):
    """A graph that breaks a law of the IR (single assignment, types, scoping)."""


class InternalError(Exception):
    """A fault of rematc itself."""


def missing_rule(name: str, op: type, rule: str, reason: str) -> MissingRuleError:
    """For an op, by name and class, that lacks a rule: the reason why, or without one where to write it."""
    where = f"{op.__module__.removeprefix('rematc.').replace('.', '/')}.py"
    return MissingRuleError(f"{rule} of '{name}' {reason or f'needs {op.__name__}.{rule} ({where})'}")
