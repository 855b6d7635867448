"""np.einsum, planned onto transposes, diagonals, sums, `dot_general` and products.

Operands are combined two at a time, in the order that `np.einsum_path` finds for three and more. A label that only
one operand has, and the output lacks, is summed before the product. Where the two operands share no label to sum,
the step is an elementwise product and no `dot_general`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from rematc.compiler.frontends.numpy.operands import ArrayLike, as_ir_dtype, fail, here, promote, wrap
from rematc.compiler.frontends.numpy.products import contract_values
from rematc.compiler.frontends.numpy.views import perhaps_view_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.values import Value

Labels = tuple[str, ...]
_ELLIPSIS = "..."


class _Term:
    """An operand with one label for each of its dimensions, all different."""

    __slots__ = ("labels", "value")

    def __init__(self, labels: Labels, value: Value) -> None:
        self.labels = labels
        self.value = value


def einsum(*operands: object, out: None = None, optimize: object = None, dtype: object = None) -> Tracer:
    """As np.einsum, with subscripts as text or as lists."""
    text, arrays = _as_text(operands)
    inputs, output = _parse(text, arrays)
    values, computed = promote(*arrays)
    if dtype is not None:
        computed = as_ir_dtype(dtype)
        values = [here().convert(value, computed) for value in values]
    labels, output = _settle_ellipsis(inputs, output, values, text)
    sizes = _sizes(labels, values, text)
    for label in output:
        if label not in sizes:
            fail(f"np.einsum('{text}'): the output has '{label}', which no operand has")
    terms = [_one_each(_stretched(_Term(own, value), sizes)) for own, value in zip(labels, values, strict=True)]
    for first, second in _order(text, inputs, terms, output, sizes):
        x, y = terms.pop(max(first, second)), terms.pop(min(first, second))
        if first < second:
            x, y = y, x
        terms.append(_combine(x, y, _needed(terms, output)))
    result = _summed(terms[0], set(output))
    assert result.value.type.dtype is computed
    value = here().transpose(result.value, [result.labels.index(label) for label in output])
    # Of one array without a sum NumPy returns a view, or an array that is computed, by what it recognizes.
    is_rearranged = len(arrays) == 1 and set(labels[0]) == set(output)
    return perhaps_view_of(arrays[0], value) if is_rearranged else wrap(value)


# -- subscripts ------------------------------------------------------------------------------------------------------


def _as_text(operands: Sequence[object]) -> tuple[str, list[ArrayLike]]:
    """Subscripts as text, and the arrays: np.einsum also takes them interleaved with lists of integers."""
    if not operands:
        fail("np.einsum takes subscripts and arrays; got nothing")
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), list(operands[1:])
    arrays, lists = list(operands[: len(operands) // 2 * 2 : 2]), list(operands[1::2])
    text = ",".join(_letters(item) for item in lists)
    return (f"{text}->{_letters(operands[-1])}" if len(operands) % 2 else text), arrays


def _letters(numbers: object) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "".join(_ELLIPSIS if n is Ellipsis else alphabet[n] for n in numbers)  # type: ignore[attr-defined]  # a list


def _parse(text: str, arrays: Sequence[object]) -> tuple[list[Labels], Labels]:
    inputs_text, arrow, output_text = text.partition("->")
    inputs = [_labels(term, text) for term in inputs_text.split(",")]
    if len(inputs) != len(arrays):
        fail(f"np.einsum('{text}') has subscripts for {len(inputs)} operands, got {len(arrays)}")
    if arrow:
        output = _labels(output_text, text)
    else:
        counts = Counter(label for labels in inputs for label in labels)
        once = sorted(label for label, number in counts.items() if number == 1 and label != _ELLIPSIS)
        output = (*([_ELLIPSIS] if _ELLIPSIS in counts else []), *once)
    if len(set(output)) != len(output):
        fail(f"np.einsum('{text}') repeats a label in the output")
    return inputs, output


def _labels(term: str, text: str) -> Labels:
    head, dots, tail = term.partition(_ELLIPSIS)
    if not (head + tail).isalpha() and head + tail:
        fail(f"np.einsum('{text}'): '{term}' is not made of letters and one '...'")
    return (*head, *([_ELLIPSIS] if dots else []), *tail)


def _settle_ellipsis(
    inputs: Sequence[Labels], output: Labels, values: Sequence[Value], text: str
) -> tuple[list[Labels], Labels]:
    """Labels with '...' replaced by one label for each dimension that it stands for."""
    labels, longest = [], 0
    for own, value in zip(inputs, values, strict=True):
        hidden = value.type.rank - len(own) + (_ELLIPSIS in own)
        if hidden < 0 or (hidden > 0 and _ELLIPSIS not in own):
            fail(
                f"np.einsum('{text}'): '{''.join(own)}' names {len(own)} dimensions "
                f"of an array of shape {value.type.shape}"
            )
        longest = max(longest, hidden if _ELLIPSIS in own else 0)
        labels.append(_expanded(own, hidden))
    if longest and _ELLIPSIS not in output:
        fail(f"np.einsum('{text}') drops the dimensions of '...'; write '...' in the output, or sum them yourself")
    return labels, _expanded(output, longest)


def _expanded(labels: Labels, hidden: int) -> Labels:
    # Dimensions under '...' are paired from the right.
    stand_in = tuple([f"...{d}" for d in range(hidden - 1, -1, -1)])
    return tuple([new for label in labels for new in (stand_in if label == _ELLIPSIS else (label,))])


def _sizes(labels: Sequence[Labels], values: Sequence[Value], text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for own, value in zip(labels, values, strict=True):
        for label, size in zip(own, value.type.shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                fail(f"np.einsum('{text}'): '{label.strip('.')}' has size {known} in one place and {size} in another")
    return sizes


# -- terms -----------------------------------------------------------------------------------------------------------


def _stretched(term: _Term, sizes: dict[str, int]) -> _Term:
    """Dimensions of size 1 repeated to the size of their label."""
    shape = [sizes[label] for label in term.labels]
    return _Term(term.labels, here().broadcast_in_dim(term.value, shape, range(len(shape))))


def _one_each(term: _Term) -> _Term:
    """The diagonal over dimensions that share a label."""
    labels, value, b = term.labels, term.value, here()
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    while repeated is not None:
        first, second = [d for d, label in enumerate(labels) if label == repeated][:2]
        value = diagonal_value(value, first, second)
        labels = (*[label for d, label in enumerate(labels) if d not in (first, second)], repeated)
        repeated = next((label for label in labels if labels.count(label) > 1), None)
    assert value.type.rank == len(labels)
    return _Term(labels, b.reshape(value, value.type.shape))


def diagonal_value(x: Value, first: int, second: int, offset: int = 0) -> Value:
    """The diagonal of two dimensions, as the last dimension.

    Element (i, i + offset) of an n by m matrix lies at flat position i (m + 1) + offset: a strided slice.
    """
    b = here()
    rest = [d for d in range(x.type.rank) if d not in (first, second)]
    x = b.transpose(x, [*rest, first, second])
    outer, (rows, columns) = x.type.shape[:-2], x.type.shape[-2:]
    top, left = max(-offset, 0), max(offset, 0)
    size = max(min(rows - top, columns - left), 0)
    none = [0] * len(outer)
    x = b.slice(x, [*none, min(top, rows), min(left, columns)], [*outer, min(top, rows) + size, columns])
    width = x.type.shape[-1]
    flat = b.reshape(x, (*outer, size * width))
    # One element of padding makes every row one longer: then the diagonal is the first column.
    flat = b.pad(flat, b.zeros(x.type.with_shape(())), [*none, 0], [*none, size])
    square = b.reshape(flat, (*outer, size, width + 1))
    column = b.slice(square, [0] * square.type.rank, [*outer, size, 1])
    return b.reshape(column, (*outer, size))


def _needed(others: Sequence[_Term], output: Labels) -> set[str]:
    return set(output).union(*[term.labels for term in others])


def _summed(term: _Term, keep: Collection[str]) -> _Term:
    """The sum over the dimensions whose label is not in `keep`."""
    axes = [d for d, label in enumerate(term.labels) if label not in keep]
    if not axes:
        return term
    b, value = here(), term.value
    # On booleans, whether any is true.
    summed = b.reduce_max(value, axes) if value.type.dtype.is_bool else b.reduce_sum(value, axes)
    return _Term(tuple([label for label in term.labels if label in keep]), summed)


def _combine(x: _Term, y: _Term, needed: set[str]) -> _Term:
    """The product of two terms, summed over the labels that nobody needs."""
    x, y = _summed(x, needed.union(y.labels)), _summed(y, needed.union(x.labels))
    shared = [label for label in x.labels if label in y.labels]
    contract = [label for label in shared if label not in needed]
    batch = [label for label in shared if label in needed]
    if not contract:
        return _multiply(x, y)
    rest = [label for label in (*x.labels, *y.labels) if label not in shared]
    value = contract_values(
        x.value,
        y.value,
        ([x.labels.index(label) for label in contract], [y.labels.index(label) for label in contract]),
        ([x.labels.index(label) for label in batch], [y.labels.index(label) for label in batch]),
    )
    return _Term((*batch, *rest), value)


def _multiply(x: _Term, y: _Term) -> _Term:
    labels = (*x.labels, *[label for label in y.labels if label not in x.labels])
    sizes = dict(zip((*x.labels, *y.labels), (*x.value.type.shape, *y.value.type.shape), strict=True))
    shape, b = [sizes[label] for label in labels], here()
    left = b.broadcast_in_dim(x.value, shape, range(len(x.labels)))
    order = sorted(range(len(y.labels)), key=lambda d: labels.index(y.labels[d]))
    right = b.broadcast_in_dim(b.transpose(y.value, order), shape, [labels.index(y.labels[d]) for d in order])
    return _Term(labels, b.multiply(left, right))


# -- order -----------------------------------------------------------------------------------------------------------


def _order(
    text: str, inputs: Sequence[Labels], terms: Sequence[_Term], output: Labels, sizes: dict[str, int]
) -> list[tuple[int, int]]:
    """Which two terms to combine, step by step; the result of each goes to the end."""
    if len(terms) == 1:
        return []
    if len(terms) == 2:
        return [(0, 1)]
    names = {label: chr(ord("a") + i) if i < 26 else chr(ord("A") + i - 26) for i, label in enumerate(sizes)}
    subscripts = ",".join("".join(names[label] for label in term.labels) for term in terms)
    subscripts += "->" + "".join(names[label] for label in output)
    # Arrays without storage: only the shapes matter.
    shapes = [np.broadcast_to(np.float32(0), term.value.type.shape) for term in terms]
    path = np.einsum_path(subscripts, *shapes, optimize="greedy")[0][1:]
    steps: list[tuple[int, int]] = []
    remaining = len(terms)
    for group in path:
        steps.extend(_pairwise(sorted(group), remaining))
        remaining -= len(group) - 1
    return steps


def _pairwise(group: Sequence[int], remaining: int) -> list[tuple[int, int]]:
    """Steps that combine the terms at positions `group`, sorted, of `remaining` terms."""
    if len(group) < 2:
        return []
    steps = [(group[0], group[1])]
    for taken, position in enumerate(group[2:], start=2):
        # The terms before `position` are fewer by those taken; the last result stands at the end.
        steps.append((remaining - taken, position - taken))
    return steps


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {np.einsum: einsum}
