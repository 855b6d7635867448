"""The forms of a class's fields, found from its annotations: what makes an op printable without a line of its own."""

from __future__ import annotations

import dataclasses
import types
import typing

from rematc.ir import compound_forms, forms
from rematc.ir.compound_forms import Field, Record
from rematc.ir.core import Graph, Op
from rematc.ir.forms import Form
from rematc.ir.host_functions import HostFunction
from rematc.ir.types import DType, TensorType

_FORMS: dict[object, Form] = {
    int: forms.Integer(),
    bool: forms.Boolean(),
    float: forms.Float(),
    str: forms.String(),
    bytes: compound_forms.Data(),
    types.NoneType: forms.Nothing(),
    DType: forms.ElementType(),
    TensorType: forms.Tensor(),
    Graph: forms.Region(),
    HostFunction: forms.Function(),
}


class _NoRegions:
    def region(self, graph: Graph) -> str:
        raise TypeError("a field's default cannot be a graph")


_RECORDS: dict[type[Op], Record] = {}


def record_of(cls: type[Op]) -> Record:
    """The form of an op's fields. Raises TypeError for a field whose type has no form."""
    record = _RECORDS.get(cls)
    if record is None:
        record = _RECORDS[cls] = _record(cls)
    return record


def _record(cls: type) -> Record:
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        if not field.init or not field.metadata.get("is_written", True):
            continue
        form = _form(hints[field.name], f"{cls.__name__}.{field.name}")
        has_default = field.default is not dataclasses.MISSING
        default = form.write(field.default, cls, _NoRegions()) if has_default else None
        found.append(Field(field.name, form, default))
    return Record(cls, tuple(found))


def _form(annotation: typing.Any, where: str) -> Form:
    found = _FORMS.get(annotation)
    if found is not None:
        return found
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return compound_forms.Either(tuple(_form(argument, where) for argument in arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return compound_forms.Sequential(_form(arguments[0], where))
    if origin is tuple:
        return compound_forms.Product(tuple(_form(argument, where) for argument in arguments))
    if hasattr(annotation, "spec"):
        return forms.BySpec()
    if dataclasses.is_dataclass(annotation):
        return _record(typing.cast(type, annotation))
    raise TypeError(f"{where} is of type {annotation}, which has no text form (ir/forms.py)")
