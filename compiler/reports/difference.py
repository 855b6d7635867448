"""Two reports beside each other: what is kept and computed again in one of them and not in the other, and what that
takes.

Both are documents, as `Report.as_dict` makes them, so that one may have been written on another machine or with another
version of jax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rematc.ir.errors import CompileError
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import counted, format_bytes, format_flops, format_ratio

_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+)(?: \((?P<function>.*)\))?")

#: Whether it is kept, what it is, its type, its size, and where: values of which all are alike.
_Alike = tuple[bool, str, str, int, str]


@dataclass(frozen=True, slots=True)
class Changed:
    """Values that are alike, of which the two programs keep, or compute again, a different number.

    Attributes:
        is_kept: whether it is about what is kept.
        what: what they are.
        type: element type and shape, as text.
        place: the line, in the program that has it; in both, in the second.
        size: bytes of one.
        counts: how many there are in each program.
    """

    is_kept: bool
    what: str
    type: str
    place: str
    size: int
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReportDiff:
    """What two reports say differently. Its text is tables.

    Attributes:
        names: what the programs are called.
        documents: the reports.
    """

    names: tuple[str, str]
    documents: tuple[Mapping[str, Any], Mapping[str, Any]]

    def __post_init__(self) -> None:
        """Raise CompileError for documents that are no reports."""
        for name, document in zip(self.names, self.documents, strict=True):
            if not isinstance(document.get("decisions"), list) or not isinstance(document.get("xla"), dict):
                raise CompileError(
                    f"{name} is no report; it is what `remat-compile model.py --json` prints, of this version of "
                    "rematc, or a plan that --save-plan wrote"
                )

    @property
    def changed(self) -> tuple[Changed, ...]:
        """What is kept, or computed again, by different numbers, what takes most first."""
        first, second = [dict(self._counted(document)) for document in self.documents]
        found = []
        for key in dict.fromkeys([*first, *second]):
            counts = first.get(key, (0, ""))[0], second.get(key, (0, ""))[0]
            if counts[0] != counts[1]:
                is_kept, what, type, size, _ = key
                place = second.get(key, first.get(key, (0, "")))[1]
                found.append(Changed(is_kept, what, type, place, size, counts))
        return tuple(sorted(found, key=lambda one: (not one.is_kept, -one.size * abs(one.counts[1] - one.counts[0]))))

    def _counted(
        self, document: Mapping[str, Any]
    ) -> Iterator[tuple[tuple[bool, str, str, int, str], tuple[int, str]]]:
        """How many there are of what is alike, and where: of one model by line, of several by function."""
        models = [one.get("model") for one in self.documents]
        counts: dict[_Alike, tuple[int, str]] = {}
        for one in document["decisions"]:
            place = str(one["place"])
            known = _PLACE.fullmatch(place)
            block = (known["function"] or "") if known and models[0] != models[1] else place
            key = bool(one["is_kept"]), str(one["what"]), str(one["type"]), int(one["size"]), block
            counts[key] = counts.get(key, (0, place))[0] + int(one["count"]), place
        yield from counts.items()

    @property
    def is_empty(self) -> bool:
        """Whether the same is kept and computed again, and XLA takes the same memory."""
        return not self.changed and len({document["xla"]["temp_bytes"] for document in self.documents}) == 1

    def as_dict(self) -> dict[str, object]:
        """The difference as JSON-able data: figures of both, and what changed."""
        return {
            "names": list(self.names),
            "figures": {name: list(amounts) for name, amounts in self._figures().items()},
            "changed": [
                {"is_kept": one.is_kept, "what": one.what, "type": one.type, "size": one.size, "place": one.place}
                | {"counts": list(one.counts)}
                for one in self.changed
            ],
        }

    def _figures(self) -> dict[str, tuple[Any, Any]]:
        rows = [_figures_of(document) for document in self.documents]
        return {name: (rows[0][name], rows[1][name]) for name in rows[0]}

    def tables(self) -> list[Table]:
        """The figures of both, then what one of them keeps, or computes again, and the other not."""
        rows = []
        for key, amounts in self._figures().items():
            name, form = _FIGURES[key]
            cells = ["-" if amount is None else (form or str)(amount) for amount in amounts]
            is_compared = form is not None and None not in amounts
            ratio = format_ratio(amounts[1], amounts[0]) if is_compared else ""
            if amounts != (None, None):
                rows.append((name, *cells, ratio))
        head = Table("", ("", *self.names, "second / first"), (False, True, True, True), tuple(rows))
        changed = self.changed
        tables = [head]
        for is_kept, title in ((True, "kept"), (False, "computed again")):
            found = [one for one in changed if one.is_kept is is_kept]
            if found:
                more = sum(one.size * (one.counts[1] - one.counts[0]) for one in found)
                amount = f"{'+' if more >= 0 else '-'}{format_bytes(abs(more))}"
                tables.append(_changed_table(f"{title} differently: {counted(len(found), 'row')}, {amount}", found))
        if not changed:
            tables.append(Table("the same values are kept and computed again", (), (), ()))
        return tables

    def __str__(self) -> str:
        return plain_text(self.tables()).rstrip()


#: What figures are called, and how amounts are written; what has no form is text.
_FIGURES: Mapping[str, tuple[str, Callable[[Any], str] | None]] = {
    "policy": ("policy", None),
    "target": ("target", None),
    "jax": ("jax", None),
    "temp_bytes": ("temporary memory", format_bytes),
    "predicted_bytes": ("predicted", format_bytes),
    "kept_bytes": ("kept", format_bytes),
    "flops": ("FLOPs, by XLA", format_flops),
    "recomputed_flops": ("computed again", format_flops),
    "products": ("products", str),
    "recomputed_products": ("products recomputed", str),
    "verdict": ("check", None),
}


def _figures_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a report, by the names of `_FIGURES`."""
    xla, check = document["xla"], document.get("check") or {}
    products, versions = check.get("comparison") or {}, document.get("versions") or {}
    kept = [one for one in document["decisions"] if one["is_kept"]]
    amounts = (
        *(document.get("policy"), document.get("target"), versions.get("jax")),
        *(xla.get("temp_bytes"), xla.get("predicted_bytes")),
        sum(one["size"] * one["count"] for one in kept),
        xla.get("flops"),
        sum(one["flops"] for one in document["decisions"]),
        *(products.get("planned"), products.get("recomputed"), check.get("verdict")),
    )
    return dict(zip(_FIGURES, amounts, strict=True))


def _changed_table(title: str, found: list[Changed]) -> Table:
    rows = tuple(
        (one.what, one.type, format_bytes(one.size), str(one.counts[0]), str(one.counts[1]), one.place) for one in found
    )
    columns = ("", "type", "each", "first", "second", "line")
    return Table(title, columns, (False, False, True, True, True, False), rows)
