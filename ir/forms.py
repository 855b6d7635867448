"""The text of an op's fields: one form for each type a field can have, with both directions side by side.

What a field looks like follows from its annotation alone, so an op is printed and parsed without a line of its own:

    int, float, bool    3   -0.5   true          DType               f32
    str                 "rows"                   TensorType          f32[4,8]
    tuple               [[1],[0]]                a frozen dataclass  {low=1, high=2}
    None                none                     Graph               graph @body(...) -> (...) {...}
    bytes               the elements of the field `type` beside it: [1.0,2.0], or as they lie in memory: 0x0000803f
    a policy            "dots", its `spec`
    a Python function   "module:function"
"""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn, Protocol

from rematc.ir.core import Graph
from rematc.ir.host_functions import HostFunction, host_function
from rematc.ir.literals import FLOAT, HEX, INTEGER, components, decimal, encode, is_element, number, quoted, unquoted
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


@dataclass(frozen=True, slots=True)
class Data(Form):
    """Elements of the field `type` beside this one: in decimal where they are few and that is exact, else in memory's
    order as hexadecimal digits. Complex elements are pairs.
    """

    expected = "elements"

    def holds(self, value: object) -> bool:
        return isinstance(value, bytes)

    def starts(self, token: str) -> bool:
        return True

    def write(self, value: bytes, owner: object, w: Writer) -> str:
        type = getattr(owner, "type", None)
        text = decimal(value, type) if isinstance(type, TensorType) else None
        return "0x" + value.hex() if text is None else text

    def read(self, r: Reader, known: Known) -> bytes:
        type = known.get("type")
        if r.peek().startswith("0x"):
            return _read_hex(r, type if isinstance(type, TensorType) else None)
        if not isinstance(type, TensorType):
            r.fail("hexadecimal data, or the field 'type' before elements")
        found: list[int | float] = []
        dtype, shape = components(type)
        _read_elements(r, dtype, shape, found)
        return encode(found, dtype)


@dataclass(frozen=True, slots=True)
class Sequential(Form):
    """A tuple of any length."""

    expected = "'['"

    element: Form

    def holds(self, value: object) -> bool:
        return isinstance(value, tuple)

    def starts(self, token: str) -> bool:
        return token == "["

    def write(self, value: tuple[object, ...], owner: object, w: Writer) -> str:
        write = self.element.write
        return f"[{','.join([write(item, owner, w) for item in value])}]"

    def read(self, r: Reader, known: Known) -> tuple[object, ...]:
        r.expect("[")
        found: list[object] = []
        while r.peek() != "]":
            if found:
                expect_comma(r, "]")
            found.append(self.element.read(r, known))
        r.take()
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Product(Form):
    """A tuple of fixed length, each entry of its own type."""

    expected = "'['"

    elements: tuple[Form, ...]

    def holds(self, value: object) -> bool:
        return isinstance(value, tuple) and len(value) == len(self.elements)

    def starts(self, token: str) -> bool:
        return token == "["

    def write(self, value: tuple[object, ...], owner: object, w: Writer) -> str:
        items = [form.write(item, owner, w) for form, item in zip(self.elements, value, strict=True)]
        return f"[{','.join(items)}]"

    def read(self, r: Reader, known: Known) -> tuple[object, ...]:
        r.expect("[")
        found: list[object] = []
        for form in self.elements:
            if found:
                r.expect(",")
            found.append(form.read(r, known))
        r.expect("]")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Either(Form):
    """One of several forms, told apart by their first token."""

    forms: tuple[Form, ...]

    def holds(self, value: object) -> bool:
        return any(form.holds(value) for form in self.forms)

    def starts(self, token: str) -> bool:
        return any(form.starts(token) for form in self.forms)

    def write(self, value: object, owner: object, w: Writer) -> str:
        for form in self.forms:
            if form.holds(value):
                return form.write(value, owner, w)
        raise TypeError(f"{type(owner).__name__} holds {value!r}, which is of none of its field's types")

    def read(self, r: Reader, known: Known) -> object:
        for form in self.forms:
            if form.starts(r.peek()):
                return form.read(r, known)
        r.fail(" or ".join(form.expected for form in self.forms))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a dataclass with its form; `default` is the text of its default, which is left out."""

    name: str
    form: Form
    default: str | None


@dataclass(frozen=True, slots=True)
class Record(Form):
    """A frozen dataclass."""

    expected = "'{'"
    of: type
    fields: tuple[Field, ...]

    def holds(self, value: object) -> bool:
        return isinstance(value, self.of)

    def starts(self, token: str) -> bool:
        return token == "{"

    def write(self, value: object, owner: object, w: Writer) -> str:
        return "{" + self.write_fields(value, w) + "}"

    def read(self, r: Reader, known: Known) -> object:
        return self.of(**self.read_fields(r))

    def write_fields(self, value: object, w: Writer) -> str:
        """`a=1, b=[2,3]`: the fields but those at their defaults."""
        parts = []
        for field in self.fields:
            text = field.form.write(getattr(value, field.name), value, w)
            if text != field.default:
                parts.append(f"{field.name}={text}")
        return ", ".join(parts)

    def read_fields(self, r: Reader) -> Known:
        """The fields in braces, in any order. Fails for unknown, repeated and missing ones."""
        forms = {field.name: field.form for field in self.fields}
        known: Known = {}
        r.expect("{")
        while r.peek() != "}":
            if known:
                expect_comma(r, "}")
            name = r.peek()
            if name not in forms or name in known:
                rest = ", ".join(field for field in forms if field not in known)
                r.fail(f"a field of {self.of.__name__} ({rest})" if rest else "'}'")
            r.take()
            r.expect("=")
            known[name] = forms[name].read(r, known)
        missing = [field.name for field in self.fields if field.default is None and field.name not in known]
        if missing:
            r.fail(f"the fields {', '.join(missing)} of {self.of.__name__}")
        r.take()
        return known


def _read_elements(r: Reader, dtype: DType, shape: Sequence[int], found: list[int | float]) -> None:
    if not shape:
        token = r.peek()
        if not is_element(token, dtype):
            r.fail(f"an element of type {dtype}")
        found.append(number(r.take(), dtype))
        return
    r.expect("[")
    for index in range(shape[0]):
        if index:
            r.expect(",")
        _read_elements(r, dtype, shape[1:], found)
    r.expect("]")


def _read_hex(r: Reader, type: TensorType | None) -> bytes:
    token = r.peek()
    if HEX.fullmatch(token) is None:
        r.fail("hexadecimal digits in pairs after 0x")
    data = bytes.fromhex(token[2:])
    if type is not None and len(data) != type.size * type.dtype.numpy.itemsize:
        r.fail(f"{type.size * type.dtype.numpy.itemsize} bytes of {type}")
    r.take()
    return data
