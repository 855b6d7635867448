"""Source locations: where in the user's code a value comes from."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Location:
    """A position in the user's source.

    Attributes:
        file: path of the source file as Python knows it.
        line: line, from 1.
        column: column, from 1; 0 where it is not known.
        function: name of the function that holds the line; "" where it is not known.
        is_backward: whether what comes from there is of the backward pass of a derivative. It is no part of the
            position: locations that differ in it alone are equal.
    """

    file: str
    line: int
    column: int = 0
    function: str = ""
    is_backward: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"

    def describe(self) -> str:
        """`FILE:LINE (function)`, the form of residual reports."""
        return f"{self.file}:{self.line} ({self.function})" if self.function else f"{self.file}:{self.line}"

    def backward(self) -> Location:
        """The same position, of the backward pass."""
        return self if self.is_backward else replace(self, is_backward=True)

    def from_here(self) -> Location:
        """The same with its file relative to the working directory, if it is below."""
        return Location(relative(self.file), self.line, self.column, self.function)


def relative(file: str) -> str:
    """A path relative to the working directory where it lies below it; of a cell of a notebook `In[3]`."""
    if cell := _cell(file):
        return cell
    try:
        inside = os.path.relpath(file) if os.path.isabs(file) else file
    except OSError:  # the working directory is gone
        return file
    return file if inside.startswith("..") else inside


def _cell(file: str) -> str:
    """What IPython calls the cell whose code it compiled under this name, as in its own tracebacks; "" for files."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = shell.compile.format_code_name(file) if shell is not None else None
    return "" if named is None else str(named[1])
