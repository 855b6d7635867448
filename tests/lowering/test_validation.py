"""Validation accepts StableHLO and CHLO, and names the user's line for what it refuses."""

from __future__ import annotations

import pytest

from rematc.ir.errors import InternalError
from rematc.lowering.validation import validate

MODULE = """module @g {{
  func.func public @main(%arg0: tensor<4xf32> loc("x")) -> (tensor<4xf32>) {{
    {line} loc(#loc1)
    func.return %0 : tensor<4xf32> loc(unknown)
  }} loc(unknown)
}} loc(unknown)
#loc1 = loc({loc})
"""


def module(line: str, loc: str = '"loss"("model.py":12:8)') -> str:
    return MODULE.format(line=line, loc=loc)


@pytest.mark.parametrize(
    "line",
    [
        "%0 = stablehlo.negate %arg0 : tensor<4xf32>",
        "%0 = chlo.erf %arg0 : tensor<4xf32> -> tensor<4xf32>",
    ],
)
def test_valid_text_is_accepted(line: str) -> None:
    validate(module(line))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        # The first is refused by the parser, in the text; the second by the op's verifier, at the op's location.
        ("%0 = stablehlo.sort %arg0 : tensor<4xf32>", "no custom assembly form"),
        ("%0 = stablehlo.reverse %arg0, dims = [3] : tensor<4xf32>", "dimensions"),
        ("%0 = stablehlo.negate %1 : tensor<4xf32>", "undeclared SSA value"),
    ],
)
def test_invalid_text_names_the_users_line(line: str, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        validate(module(line))
    text = str(caught.value)
    assert text.startswith("model.py:12:8: error: invalid StableHLO was emitted: ")
    assert message in text


def test_the_emitted_line_is_shown() -> None:
    with pytest.raises(InternalError, match=r"line 3 column 1\d of the module: %0 = stablehlo\.sort %arg0"):
        validate(module("%0 = stablehlo.sort %arg0 : tensor<4xf32>"))


@pytest.mark.parametrize(
    ("loc", "place"),
    [
        ('"gr\\C3\\B6\\C3\\9Fe \\22.py":3:0', 'größe ".py:3: error'),
        ('"a(b"("dir/a (1).py":3:4)', "dir/a (1).py:3:4: error"),
        ("unknown", "invalid StableHLO"),
    ],
)
def test_locations_of_any_spelling_are_read(loc: str, place: str) -> None:
    with pytest.raises(InternalError) as caught:
        validate(module("%0 = stablehlo.reverse %arg0, dims = [3] : tensor<4xf32>", loc))
    assert str(caught.value).startswith(place)


def test_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(InternalError, match="invalid StableHLO was emitted"):
        validate("module {")
