"""The ops, a file a family. Importing the package registers all of them, so that text can be parsed."""

from rematc.ir.ops import (  # noqa: F401  # imported for what they register
    arithmetic,
    conversion,
    convolution,
    dot,
    dynamic,
    factorization,
    indexing,
    inverse,
    logical,
    reduction,
    regions,
    rounding,
    shape,
    solving,
    special,
    spectral,
    structural,
    transcendental,
    triangular,
    window,
)
