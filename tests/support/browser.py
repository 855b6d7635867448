"""A headless Chromium for tests of pages: the system's, or the one that `playwright install chromium` brought."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def headless() -> Iterator[Any]:
    """A browser of playwright's; the test is skipped where there is none, or the package is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    with playwright.sync_playwright() as started:
        own = next(filter(None, map(shutil.which, _NAMES)), None)
        if own is None and not Path(started.chromium.executable_path).exists():
            pytest.skip("there is no Chromium; `playwright install chromium` brings one")
        browser = started.chromium.launch(executable_path=own, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def opened(
    browser: Any, file: Path, *, width: int = 1280, height: int = 900, scheme: str = "light"
) -> tuple[Any, list[str]]:
    """A page that shows a file, without a network, once it is drawn; and what goes wrong in it, as it does."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type != "log" else None)
    page.on("request", lambda request: faults.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=120_000)
    return page, faults
