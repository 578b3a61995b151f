"""Recall and memory in a real browser: what is found leads to its message; pages are rendered and stay harmless."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.web import PAYLOAD, Browser, is_harmless, is_within, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recall")
    leave_no_sample(folder)
    with ContextCompressionManager(CompressionConfig(model="gpt-5", window=8_000), folder) as manager:
        messages = [{"role": "user", "content": "The vault of the harbour opens with code 7741-Q."}]
        for turn in range(40):
            messages.append({"role": "assistant", "content": f"Noted {turn}. " + "The tide was calm that day. " * 30})
            messages.append({"role": "user", "content": f"And what of day {turn}?"})
        manager.append("harbour", messages, format="openai-chat")
        manager.compress("harbour")
        manager.append("danger", [{"role": "user", "content": f"zebra {PAYLOAD}"}], format="openai-chat")
        manager.append(
            "中文会话", [{"role": "user", "content": "部署在周五失败，因为磁盘已满。"}], format="openai-chat"
        )
        half = "half \ud800 a character"
        manager.append(half, [{"role": "user", "content": f"okapi {half}"}], format="openai-chat")
        manager.prepare_context_sync(half, None, model=half)
        manager.observe_usage(half, 100)
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui"


def test_what_was_folded_long_ago_is_found_and_leads_to_its_message(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall")
    page.fill("input[type=search]", "7741-Q")
    page.press("input[type=search]", "Enter")
    page.wait_for_selector(".result mark")
    assert page.url.endswith("recall?query=7741-Q&name=")
    user = page.locator(".result", has=page.locator(".chip", has_text="User")).first
    handle = user.locator(".mono").inner_text()
    user.get_by_text("Open in the session").click()
    page.wait_for_url(re.compile(r"/ui/session\?name=harbour&at="))
    page.wait_for_selector(f"text={handle}")
    page.get_by_text("opens with code 7741-Q").first.wait_for()
    page.wait_for_function("(CSS.highlights.get('recall')?.size ?? 0) > 0")


def test_chinese_words_are_found_in_chinese(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall?query=磁盘", language="zh-CN")
    page.wait_for_selector(".result mark")
    assert page.inner_text(".result mark") == "磁盘"
    assert "找到" in page.inner_text(".results")


def test_what_is_found_never_runs(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall?query=zebra")
    page.wait_for_selector(".result mark")
    assert is_harmless(page)
    assert "<script>" in page.inner_text(".result")


def test_a_query_is_text_and_never_a_pattern_or_markup(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall?query=%3Cscript%3Ewindow.hacked%3D1%3C%2Fscript%3E%22%20.*%5B(")
    page.wait_for_selector(".result, .empty")
    assert is_harmless(page)
    assert page.input_value("input[type=search]").startswith("<script>")


def test_half_a_character_in_a_name_a_model_and_a_message_breaks_no_page(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall?query=okapi")
    page.wait_for_selector(".result")
    assert "okapi half" in page.inner_text(".results")
    page.goto(f"{url}/statistics")
    page.locator("table[aria-label='By session'] a", has_text="half").wait_for()
    page.goto(f"{url}/")
    page.locator(".session-link", has_text="okapi half").wait_for()


def test_nothing_found_says_what_to_try(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall?query=%3F%3F%3F&name=harbour", width=390)
    page.wait_for_selector("text=Nothing was found")
    assert is_within(page)


def test_words_that_were_never_said_are_not_passed_off_as_found(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/recall?query=xylophone")
    page.wait_for_selector("text=/Nothing was found|No exact match/")
    assert page.locator(".result").count() <= 5


def test_the_page_of_the_newest_day_is_rendered(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}/memory")
    page.wait_for_selector(".entry h3")
    assert "archived" not in page.inner_text(".entry >> nth=0"), "the words of the file are not those of the page"
    assert page.locator(".day-link[aria-current=page]").count() == 1
    said = page.locator(".entry > p").first
    assert "this was the record then" in said.inner_text(), "the record of all that was folded, not of these alone"
    assert said.evaluate("one => getComputedStyle(one).textAlign") != "right", "a sentence begins where the others do"
    page.locator(".entry h3 a").first.click()
    page.wait_for_selector(".timeline")


def test_the_page_of_a_day_is_in_the_readers_language(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}/memory", language="zh-CN")
    page.wait_for_selector(".entry h3 a")
    assert "条消息离开了模型的视野" in page.inner_text(".entry >> nth=0")


def test_a_page_with_anything_in_it_stays_harmless(browser: Browser, url: str, workspace: Path) -> None:
    page_of_day = (
        f"---\nid: x\n---\n\n## A day\n\nU> Keep `__init__`\nA> Done\n\n{PAYLOAD}\n\n<b>raw</b>\n\n"
        "* one\n* two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    (workspace / "memory" / "2020-02-02.md").write_text(page_of_day, encoding="utf-8")
    page = browser.open(f"{url}/memory?date=2020-02-02")
    page.wait_for_selector(".entry table")
    assert is_harmless(page)
    assert page.locator(".entry b").count() == 0
    assert page.locator(".entry li").count() == 2
    assert page.locator(".entry strong").all_inner_texts()[:2] == ["User:", "Assistant:"]


@pytest.mark.parametrize("date", ["../../etc/passwd", "2031-01-01", "<script>"])
def test_a_day_that_is_not_there_is_reported(browser: Browser, url: str, date: str) -> None:
    page = browser.open(f"{url}/memory?date={date}", width=390)
    page.wait_for_selector("text=There is no page for")
    assert is_harmless(page)
    assert is_within(page)
