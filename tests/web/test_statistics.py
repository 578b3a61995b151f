"""The statistics in a real browser: figures that the ledger bears out, charts that can be hovered and saved."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.records import Event
from refold.manager.usage import read_figures
from tests.rigs.web import PAYLOAD, TIMEOUT_MS, Browser, is_harmless, is_within, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.
MODEL = "gpt-5"
TURNS = 26


def fill(workspace: Path, session: str, turns: int) -> None:
    """Write a session with reported usage that grows until it is compressed, again and again."""
    with ContextCompressionManager(CompressionConfig(model=MODEL, window=12_000), workspace) as manager:
        for turn in range(turns):
            manager.append(session, [{"role": "user", "content": f"question {turn}"}], format="openai-chat")
            prepared = manager.prepare_context_sync(session, None, "be brief", model=MODEL, format="openai-chat")
            cached = {"cached_tokens": prepared.total_tokens // 2}
            usage = {"prompt_tokens": prepared.total_tokens, "completion_tokens": 40, "prompt_tokens_details": cached}
            manager.observe_usage(session, usage)
            words = f"{turn}: " + "the pump of hall nine was mended with a new valve and two bolts; " * 50
            manager.append(session, [{"role": "assistant", "content": words}], format="openai-chat")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("statistics")
    leave_no_sample(folder)
    fill(folder, "pumps", TURNS)
    fill(folder, PAYLOAD[:120], 2)
    with ContextCompressionManager(CompressionConfig(), folder) as manager:
        for number in range(30):
            manager.ledger.add_event("pumps", Event("warned", 1_000_000.0 + number, {"reason": f"{number} {PAYLOAD}"}))
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui/statistics"


def read_chart(page: Any, number: int) -> dict[str, Any]:
    """Return the names and figures of a chart's curves, as the chart itself has them."""
    script = """at => { const box = document.querySelectorAll('.chart')[at];
        const chart = getElement(Number(box.id.slice(1))).chart;
        return Object.fromEntries(chart.getOption().series.map(one => [one.name, one.data])); }"""
    page.wait_for_function("at => document.querySelectorAll('.chart canvas').length > at", arg=number)
    return dict(page.evaluate(script, number))


def test_s3_9_the_statistics_show_what_was_sent_beside_what_it_would_have_been(
    browser: Browser, url: str, workspace: Path
) -> None:
    with ContextCompressionManager(CompressionConfig(), workspace) as manager:
        figures = read_figures(manager.ledger, "pumps")
    page = browser.open(f"{url}?name=pumps")
    page.wait_for_selector(".tiles")
    assert f"{figures.bill.tokens:,}" in page.inner_text(".tiles")
    assert f"instead of about {figures.bill.tokens_raw:,}" in page.inner_text(".tiles")
    assert "50%" in page.inner_text(".tiles")
    curves = read_chart(page, 0)
    assert curves["Sent"] == [one.tokens for one in figures.requests]
    assert curves["Without refold (estimated)"] == [one.tokens_raw for one in figures.requests]
    assert len(curves["Compression"]) == len({bisect(figures, fold.created_at) for fold in figures.folds})
    bill = read_chart(page, 1)
    assert bill["With refold"][-1] == pytest.approx(figures.bill.dollars, abs=1e-5)
    assert "estimated" in page.inner_text(".notes")


def bisect(figures: Any, time: float) -> int:
    return next((at for at, one in enumerate(figures.requests) if one.time >= time), -1)


def test_a_chart_can_be_hovered_and_saved_as_a_picture(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}?name=pumps")
    read_chart(page, 0)
    box = page.locator(".chart").first.bounding_box()
    assert box is not None
    before = page.locator(".chart canvas").first.screenshot()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    until = time.monotonic() + TIMEOUT_MS / 1_000
    while page.locator(".chart canvas").first.screenshot() == before:
        assert time.monotonic() < until, "no tooltip is drawn"
    place = page.evaluate(
        """() => { const chart = getElement(Number(document.querySelector('.chart').id.slice(1))).chart;
        const icon = chart.getZr().storage.getDisplayList().find(one => one.__title === 'Save as picture');
        const size = icon.getBoundingRect().clone(); size.applyTransform(icon.getComputedTransform());
        return [size.x + size.width / 2, size.y + size.height / 2]; }"""
    )
    with page.expect_download() as saved:
        page.mouse.click(box["x"] + place[0], box["y"] + place[1])
    assert saved.value.suggested_filename == "refold-tokens.png"


def test_over_all_sessions_each_has_a_row_and_an_address(browser: Browser, url: str) -> None:
    page = browser.open(url)
    page.wait_for_selector(".tiles")
    rows = page.locator("table[aria-label='By session'] tbody tr")
    assert rows.count() == 2
    page.click("table[aria-label='By session'] a[href*='name=pumps']")
    page.wait_for_url(re.compile(r"statistics\?name=pumps"))
    page.wait_for_selector(".tiles")


def test_events_sort_and_turn_pages(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}?name=pumps")
    table = page.locator("table[aria-label='Events']")
    table.wait_for()
    first = table.locator("tbody tr").first.inner_text()
    assert table.locator("tbody tr").count() == 12
    page.get_by_role("button", name="Next page").click()
    page.wait_for_selector("text=13 to 24 of")
    assert table.locator("tbody tr").first.inner_text() != first
    # Two quick clicks: the second one comes before the first has been shown.
    page.get_by_role("button", name="Previous page").click()
    page.wait_for_selector("text=1 to 12 of")
    page.get_by_role("button", name="Next page").evaluate("button => { button.click(); button.click(); }")
    page.wait_for_selector("text=/25 to \\d+ of/")
    table.get_by_role("button", name="Tokens").click()
    page.wait_for_selector("text=1 to 12 of")
    assert table.locator("th", has_text="Tokens").get_attribute("aria-sort") == "descending"
    freed = [_freed(words) for words in table.locator("td.num").all_inner_texts()]
    assert freed == sorted(freed, reverse=True)
    assert freed[0] > 0


def _freed(words: str) -> int:
    figures = [int(figure.replace(",", "")) for figure in re.findall(r"[\d,]+", words)]
    return figures[0] - figures[1] if len(figures) == 2 else 0


def test_names_and_reasons_of_anybody_stay_text(browser: Browser, url: str) -> None:
    for page in (browser.open(url), browser.open(f"{url}?name=pumps")):
        page.wait_for_selector("table[aria-label='Events']")
        assert is_harmless(page)
        assert "<script>" in page.inner_text("main")


@pytest.mark.parametrize("width", [390, 1600])
def test_the_page_fits_a_phone_and_a_wide_screen(browser: Browser, url: str, width: int) -> None:
    page = browser.open(url, width=width, height=844)
    page.wait_for_selector("table[aria-label='Events']")
    assert is_within(page)


def test_with_nothing_sent_yet_it_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    leave_no_sample(tmp_path)
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/ui/statistics", language="zh-CN")
        page.wait_for_selector("text=还没有任何请求")
        assert page.is_visible("text=开始对话")
        browser.close_pages()


def test_a_missing_session_gets_a_message(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}?name=nobody")
    page.wait_for_selector("text=there is no session 'nobody'")
