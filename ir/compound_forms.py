"""Forms of fields that are made of others: elements of arrays, tuples, alternatives, dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.forms import Form, Known, Reader, Writer, expect_comma
from rematc.ir.literals import HEX, components, decimal, encode, is_element, number
from rematc.ir.types import DType, TensorType


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
