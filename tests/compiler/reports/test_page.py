"""The report as a page: what is in it, and what it does in a browser."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.reports.decisions import decisions, line_costs
from rematc.compiler.reports.html.contents import Contents
from rematc.compiler.reports.html.data import page_data
from rematc.compiler.reports.report import Report
from rematc.ir.errors import CompileError
from tests.support.browser import headless, opened

LAYERS, WIDTH = 6, 128


def layer(weights: Any, x: Any) -> Any:
    hidden = np.tanh(x @ weights[0])
    return x + hidden @ weights[1]


def loss(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = layer(weights, x)
    return np.mean(x * x)


ARGUMENTS = np.full((LAYERS, 2, WIDTH, WIDTH), 1e-3, np.float32), np.ones((512, WIDTH), np.float32)


@pytest.fixture(scope="module")
def report() -> Report:
    compiled = rematc.compile(rematc.value_and_grad(loss, policy="dots"), *ARGUMENTS)
    return compiled.report(rematc.compile(rematc.value_and_grad(loss), *ARGUMENTS))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with headless() as started:
        yield started


@pytest.fixture(scope="module")
def file(report: Report, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = tmp_path_factory.mktemp("page") / "report.html"
    written.write_text(report.to_html(curve=rematc.pareto(rematc.value_and_grad(loss), *ARGUMENTS, points=3)))
    return written


# -- the data ----------------------------------------------------------------------------------------------------------


def test_what_is_alike_is_one_decision(report: Report) -> None:
    """Six layers are one line for each of their values."""
    kept = [one for one in report.decisions if one.is_kept]
    assert sum(one.count for one in kept) == len(report.derivatives[0].residuals)
    assert sum(one.bytes for one in kept) == report.derivatives[0].saved_bytes
    assert max(one.count for one in kept) == LAYERS
    again = [one for one in report.decisions if not one.is_kept]
    assert sum(one.flops for one in again) == report.derivatives[0].recompute.flops
    assert {one.block for one in report.decisions} == {"layer", "loss"}


def test_lines_cost_what_their_values_do(report: Report) -> None:
    costs = line_costs(report.decisions)
    assert sum(cost.kept for cost in costs) == report.derivatives[0].saved_bytes
    assert sum(cost.flops for cost in costs) == report.derivatives[0].recompute.flops
    first = layer.__code__.co_firstlineno + 1
    (own,) = [cost for cost in costs if cost.loc.line == first]
    assert own.kept > 0 and own.again > 0 and Path(own.loc.file).name == Path(__file__).name


def test_a_plan_takes_the_place_of_the_policy() -> None:
    budget = rematc.compile(rematc.value_and_grad(loss), *ARGUMENTS, budget="50%")
    report = budget.report()
    assert report.plan is not None
    kept = [one for one in report.decisions if one.is_kept]
    assert sum(one.bytes for one in kept) == sum(one.size for one in report.plan.kept)
    assert sum(one.flops for one in report.decisions) == report.plan.extra_flops
    assert {one.block for one in report.decisions} <= {"layer", "loss"}, "functions are known, too"
    assert decisions((), None) == ()


def test_the_data_has_both_timelines_and_the_source(report: Report) -> None:
    data: Any = page_data(Contents("t", "dots", "cpu", report.figures, None, None, None, report.decisions, None))
    assert data["timelines"] == [] and data["curve"] is None
    (source,) = data["files"]
    lines = {line[0]: line for line in source["lines"] if line}
    row = lines[layer.__code__.co_firstlineno + 1]
    assert row[1].strip().startswith("hidden = np.tanh") and row[2] > 0


def test_without_the_library_a_page_is_an_error_that_says_how_to_get_it(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match=re.escape("pip install 'rematc[html]'")):
        report.to_html()
    assert report._repr_html_() == f"<pre>{escape(str(report))}</pre>"


@pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="vl-convert-python is not installed")
def test_a_page_needs_nothing_else_and_is_small(report: Report) -> None:
    page = report.to_html(title="a <b>")
    assert "<title>a &lt;b&gt;</title>" in page
    assert not re.search(r'(?:src|href)="(?!#)', page.split("<script", 1)[0])
    assert len(page) < 2_000_000
    assert report._repr_html_().startswith("<iframe srcdoc=")


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.mark.each_case
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (800, "dark")])
def test_it_renders(browser: Any, file: Path, width: int, scheme: str) -> None:
    page, faults = opened(browser, file, width=width, scheme=scheme)
    assert page.locator(".plot canvas").count() == 2
    assert page.locator("#curve-chart canvas").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing stands out of the page"
    assert "MiB" in page.locator("#figures").inner_text()
    assert page.locator(".file td.cost i").count() > 0
    colours = page.evaluate(
        """() => [...document.querySelectorAll('.plot canvas')].map((canvas) => {
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            const found = new Set();
            for (let at = 0; at < data.length; at += 4)
                if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
            return found.size; })"""
    )
    assert all(count > 4 for count in colours), "something is drawn"
    assert faults == []


def test_pointing_at_a_chart_says_what_is_there(browser: Any, file: Path) -> None:
    page, faults = opened(browser, file)
    panel = page.locator(".chart[data-name=xla] .step")
    before = panel.inner_text()
    assert "the peak" in before
    assert re.search(r"written at step \d+, needed by \S+", before), "who makes it and who needs it"
    assert "test_page.py" in before and "f32[512,128]" in before
    box = page.locator(".chart[data-name=xla] canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5)
    page.wait_for_function("!document.querySelector('.chart[data-name=xla] .step').innerText.includes('the peak')")
    assert faults == []


def test_a_chart_zooms_and_bands_are_taken_out(browser: Any, file: Path) -> None:
    page, faults = opened(browser, file)
    box = page.locator(".chart[data-name=predicted] canvas").bounding_box()
    pixels = "document.querySelector('.chart[data-name=predicted] canvas').toDataURL()"
    first = page.evaluate(pixels)
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 100, steps=4)
    page.mouse.up()
    page.wait_for_function(f"{pixels} !== {first!r}")
    button = page.locator("#legend button[data-band=kept]")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert faults == []


def test_rows_are_folded_and_filtered(browser: Any, file: Path) -> None:
    page, faults = opened(browser, file)
    rows = page.locator("#rows tbody tr.row")
    assert rows.count() == 0 and page.locator("#rows tbody tr.block").count() == 2
    page.locator("#rows tbody tr.block").first.click()
    assert rows.count() > 0
    assert f"x {LAYERS}" in page.locator("#rows").inner_text()
    page.fill("#filter", "tanh")
    assert all("tanh" in text for text in rows.all_inner_texts()) and rows.count() > 0
    page.locator("[data-which=kept]").click()
    assert all("kept" in text for text in rows.all_inner_texts())
    page.fill("#filter", "nothing has this name")
    assert page.locator("#rows tbody tr").count() == 0
    assert faults == []


def test_the_program_is_there_at_each_stage(browser: Any, file: Path) -> None:
    page, faults = opened(browser, file)
    names = page.locator("#stage-names button").all_inner_texts()
    assert names == ["primal", "linear", "forward", "backward", "ir", "stablehlo", "hlo", "hlo-optimized", "buffers"]
    page.locator("#stage-names button", has_text="stablehlo").click()
    page.wait_for_function("document.getElementById('stage-text').innerText.startsWith('module @')")
    page.fill("#find", "stablehlo.dot_general")
    shown = page.locator("#stage-text").inner_text().strip().splitlines()
    assert shown and all("stablehlo.dot_general" in line for line in shown)
    assert faults == []


def test_it_prints(browser: Any, file: Path) -> None:
    page, faults = opened(browser, file, scheme="dark")
    printed = page.pdf()
    assert printed.startswith(b"%PDF") and len(printed) > 20_000
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible() and page.locator(".plot canvas").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert faults == []


def test_twenty_thousand_equations_do_not_freeze_it(browser: Any, report: Report, tmp_path: Path) -> None:
    inspection = report.inspection
    assert inspection is not None and inspection.predicted is not None
    timeline = inspection.predicted
    times = -(-20_000 // len(timeline.steps))
    count = len(timeline.steps)
    buffers = [
        replace(
            one,
            begin=one.begin + at * count,
            end=one.end + at * count,
            readers=tuple([reader + at * count for reader in one.readers]),
        )
        for at in range(times)
        for one in timeline.buffers
    ]
    long = replace(timeline, steps=timeline.steps * times, buffers=tuple(buffers))

    class Long:
        name, predicted, assigned = "long", long, long

        def stages(self) -> dict[str, str]:
            return {"ir": "\n".join(f"%{at} = tanh %{at - 1}" for at in range(20_000))}

    written = tmp_path / "long.html"
    written.write_text(replace(report, inspection=Long()).to_html())
    start = time.perf_counter()
    page, faults = opened(browser, written)
    assert time.perf_counter() - start < 30
    took = page.evaluate(
        """async () => { const start = performance.now();
            const chart = document.querySelector('.plot'); chart.focus();
            for (let at = 0; at < 20; at++) chart.dispatchEvent(new KeyboardEvent('keydown', {key: 'PageDown'}));
            await new Promise(requestAnimationFrame); return performance.now() - start; }"""
    )
    assert took < 4000, "twenty moves of the cursor"
    assert faults == []
