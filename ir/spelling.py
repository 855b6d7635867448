"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: How alike two names must be, from 0 to 1, and how many are offered that are equally so.
_ALIKE, _MOST = 0.6, 3


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names that are spelled most nearly like this one, whatever the case; () where none is near."""
    alike = [(_likeness(name.lower(), one.lower()), one) for one in dict.fromkeys(known)]
    best = max(alike, default=(0.0, ""))[0]
    return tuple([one for likeness, one in alike if likeness == best][:_MOST]) if best >= _ALIKE else ()


def _likeness(name: str, other: str) -> float:
    matcher = difflib.SequenceMatcher(None, name, other)
    return matcher.ratio() if matcher.real_quick_ratio() >= _ALIKE else 0.0


def question(name: str, known: Iterable[str]) -> str:
    """`did you mean 'dots'?`, or "" where nothing is near."""
    found = nearest(name, known)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The same behind what was said: `; did you mean 'dots'?`."""
    asked = question(name, known)
    return f"; {asked}" if asked else ""
