"""Amounts in units that people read."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """`4.0 MiB`: binary units, one decimal."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def format_each(size: int, count: int) -> str:
    """`2 x 1.5 MiB` for several things of so many bytes; of one, the bytes alone."""
    return f"{count} x {format_bytes(size)}" if count > 1 else format_bytes(size)


def format_flops(count: float) -> str:
    """`12.3 GFLOP`: decimal units, three digits."""
    if count < 1000:
        return f"{count:.0f} FLOP"
    amount = float(count)
    for prefix in ("", "k", "M", "G", "T"):
        if amount < 999.5:
            return f"{_three_digits(amount)} {prefix}FLOP"
        amount /= 1000
    return f"{_three_digits(amount)} PFLOP"


def format_seconds(seconds: float) -> str:
    """`12.3 ms`: three digits."""
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(amount: float) -> str:
    if amount < 9.995:
        return f"{amount:.2f}"
    return f"{amount:.1f}" if amount < 99.95 else f"{amount:.0f}"


def format_ratio(amount: float, base: float) -> str:
    """`0.48x`; `-` where there is nothing to compare with."""
    return f"{amount / base:.2f}x" if base else "-"


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 value`, `3 values`; `3 branches` with a plural of its own."""
    return f"{count} {singular}" if count == 1 else f"{count} {plural or f'{singular}s'}"
