"""Amounts in units that people read. Bytes are `rematc.compiler.residuals.format_bytes`."""

from __future__ import annotations


def format_flops(count: float) -> str:
    """`12.3 GFLOP`: decimal units, one decimal."""
    if count < 1000:
        return f"{count:.0f} FLOP"
    amount = float(count)
    for prefix in ("", "k", "M", "G", "T"):
        if amount < 999.95:
            return f"{amount:.1f} {prefix}FLOP"
        amount /= 1000
    return f"{amount:.1f} PFLOP"


def format_seconds(seconds: float) -> str:
    """`12.3 ms`: three digits that count."""
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def format_ratio(amount: float, base: float) -> str:
    """`0.48x`; `-` where there is nothing to compare with."""
    return f"{amount / base:.2f}x" if base else "-"


def counted(count: int, singular: str) -> str:
    """`1 value`, `3 values`."""
    return f"{count} {singular}" if count == 1 else f"{count} {singular}s"
