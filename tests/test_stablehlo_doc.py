"""docs/stablehlo.md says what the importer's registry says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_table_of_operations_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_stablehlo", ROOT / "docs/generate_stablehlo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "docs/stablehlo.md").read_text(encoding="utf-8")
    assert module.page(text) == text, "run python docs/generate_stablehlo.py"
