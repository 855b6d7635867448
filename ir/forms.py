"""The text of an op's fields: one form for each type a field can have, with both directions side by side.

What a field looks like follows from its annotation alone, so an op is printed and parsed without a line of its own:

    int, float, bool    3   -0.5   true          DType               f32
    str                 "rows"                   TensorType          f32[4,8]
    tuple               [[1],[0]]                a frozen dataclass  {low=1, high=2}
    None                none                     Graph               graph @body(...) -> (...) {...}
    bytes               the elements of the field `type` beside it: [1.0,2.0], or as they lie in memory: 0x0000803f
    a policy            "dots", its `spec`
    a Python function   "module:function"

Forms of what has no parts are here, those of what has parts in `rematc.ir.compound_forms`.
"""

from __future__ import annotations

import math
import typing
from dataclasses import dataclass
from typing import ClassVar, NoReturn, Protocol

from rematc.ir.core import Graph
from rematc.ir.host_functions import HostFunction, host_function
from rematc.ir.literals import FLOAT, INTEGER, quoted, unquoted
from rematc.ir.types import DTYPES, DType, TensorType


class Writer(Protocol):
    """What a form needs of the printer."""

    def region(self, graph: Graph) -> str:
        """A graph inside an equation."""


class Reader(Protocol):
    """What a form needs of the parser: the next token, and the productions that stand outside this file."""

    def peek(self) -> str:
        """The next token; "" at the end of the text."""

    def take(self) -> str:
        """The next token, consumed."""

    def expect(self, token: str) -> None:
        """Consume this token, or fail."""

    def fail(self, expected: str) -> NoReturn:
        """Raise ParseError at the next token, saying what was found there and what was expected."""

    def type(self) -> TensorType:
        """A tensor type."""

    def region(self) -> Graph:
        """A graph inside an equation."""

    def policy(self, spec: str) -> object:
        """The policy with this spec."""


Known = dict[str, object]


def expect_comma(r: Reader, closing: str) -> None:
    """Consume the comma before another item of a list, or fail."""
    if r.peek() != ",":
        r.fail(f"',' or '{closing}'")
    r.take()


class Form:
    """How values of one type are written.

    `owner` is the object whose field is written, `known` its fields read so far: the elements of `bytes` have the
    type that stands beside them.
    """

    __slots__ = ()
    expected: ClassVar[str]

    def holds(self, value: object) -> bool:
        """Whether a value is of this form; asked where a field has several."""
        raise NotImplementedError

    def starts(self, token: str) -> bool:
        """Whether text of this form can begin with this token; asked where a field has several."""
        raise NotImplementedError

    def write(self, value: typing.Any, owner: object, w: Writer) -> str:
        raise NotImplementedError

    def read(self, r: Reader, known: Known) -> object:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Integer(Form):
    """An int, in decimal."""

    expected = "an integer"

    def holds(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def starts(self, token: str) -> bool:
        return INTEGER.fullmatch(token) is not None

    def write(self, value: int, owner: object, w: Writer) -> str:
        return f"{value:d}"

    def read(self, r: Reader, known: Known) -> int:
        # int() refuses thousands of digits; nothing that an op means has more than a shape or a key of 64 bits.
        if not self.starts(r.peek()) or len(r.peek()) > 1000:
            r.fail(self.expected)
        return int(r.take())


@dataclass(frozen=True, slots=True)
class Boolean(Form):
    """true or false."""

    expected = "true or false"

    def holds(self, value: object) -> bool:
        return isinstance(value, bool)

    def starts(self, token: str) -> bool:
        return token in ("true", "false")

    def write(self, value: bool, owner: object, w: Writer) -> str:
        return "true" if value else "false"

    def read(self, r: Reader, known: Known) -> bool:
        if not self.starts(r.peek()):
            r.fail(self.expected)
        return r.take() == "true"


@dataclass(frozen=True, slots=True)
class Float(Form):
    """A float, in the shortest decimal that reads back exactly, or inf, -inf, nan."""

    expected = "a number with a decimal point or an exponent, inf or nan"

    def holds(self, value: object) -> bool:
        return isinstance(value, float)

    def starts(self, token: str) -> bool:
        return FLOAT.fullmatch(token) is not None

    def write(self, value: float, owner: object, w: Writer) -> str:
        return repr(float(value))

    def read(self, r: Reader, known: Known) -> float:
        if not self.starts(r.peek()):
            r.fail(self.expected)
        token = r.take()
        # One object for every nan: fields are compared by identity first, so that ops read alike are equal.
        return math.nan if token == "nan" else float(token)


@dataclass(frozen=True, slots=True)
class String(Form):
    """A quoted string."""

    expected = "a quoted string"

    def holds(self, value: object) -> bool:
        return isinstance(value, str)

    def starts(self, token: str) -> bool:
        return token.startswith('"')

    def write(self, value: str, owner: object, w: Writer) -> str:
        return quoted(value)

    def read(self, r: Reader, known: Known) -> str:
        text = unquoted(r.peek())
        if text is None:
            r.fail(self.expected)
        r.take()
        return text


@dataclass(frozen=True, slots=True)
class Nothing(Form):
    """None."""

    expected = "none"

    def holds(self, value: object) -> bool:
        return value is None

    def starts(self, token: str) -> bool:
        return token == "none"

    def write(self, value: None, owner: object, w: Writer) -> str:
        return "none"

    def read(self, r: Reader, known: Known) -> None:
        r.expect("none")


@dataclass(frozen=True, slots=True)
class ElementType(Form):
    """An element type by its short name."""

    expected = "an element type such as f32"

    def holds(self, value: object) -> bool:
        return isinstance(value, DType)

    def starts(self, token: str) -> bool:
        return token in DTYPES

    def write(self, value: DType, owner: object, w: Writer) -> str:
        return value.name

    def read(self, r: Reader, known: Known) -> DType:
        if not self.starts(r.peek()):
            r.fail(self.expected)
        return DTYPES[r.take()]


@dataclass(frozen=True, slots=True)
class Tensor(Form):
    """A tensor type."""

    expected = "a type such as f32[4,8]"

    def holds(self, value: object) -> bool:
        return isinstance(value, TensorType)

    def starts(self, token: str) -> bool:
        return token.endswith("]")

    def write(self, value: TensorType, owner: object, w: Writer) -> str:
        return str(value)

    def read(self, r: Reader, known: Known) -> TensorType:
        return r.type()


@dataclass(frozen=True, slots=True)
class Region(Form):
    """A graph."""

    expected = "graph"

    def holds(self, value: object) -> bool:
        return isinstance(value, Graph)

    def starts(self, token: str) -> bool:
        return token == "graph"

    def write(self, value: Graph, owner: object, w: Writer) -> str:
        return w.region(value)

    def read(self, r: Reader, known: Known) -> Graph:
        return r.region()


@dataclass(frozen=True, slots=True)
class BySpec(Form):
    """An object that is written as its `spec`, and found again by it: a policy."""

    expected = "a policy in quotes"

    def holds(self, value: object) -> bool:
        return hasattr(value, "spec")

    def starts(self, token: str) -> bool:
        return token.startswith('"')

    def write(self, value: typing.Any, owner: object, w: Writer) -> str:
        return quoted(value.spec)

    def read(self, r: Reader, known: Known) -> object:
        spec = unquoted(r.peek())
        if spec is None:
            r.fail(self.expected)
        return r.policy(spec)


@dataclass(frozen=True, slots=True)
class Function(Form):
    """A Python function by the name of its module and its own; others are named, but cannot be read back."""

    expected = 'the name of a Python function, as in "module:function", of a module that is loaded'

    def holds(self, value: object) -> bool:
        return isinstance(value, HostFunction)

    def starts(self, token: str) -> bool:
        return token.startswith('"')

    def write(self, value: HostFunction, owner: object, w: Writer) -> str:
        return quoted(value.text)

    def read(self, r: Reader, known: Known) -> HostFunction:
        text = unquoted(r.peek())
        function = None if text is None else host_function(text)
        if function is None:
            r.fail(self.expected)
        r.take()
        return function
