"""Your last week on the page: figures of this machine's histories, for the person at this machine alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.server.auth import KeyRing
from tests.cli.test_look import SECRET, fill_home
from tests.rigs.web import Browser, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()
pytestmark = pytest.mark.slow


def test_one_click_shows_what_the_agents_cost_and_saves_it_without_a_word_of_theirs(
    browser: Browser, tmp_path: Path
) -> None:
    leave_no_sample(tmp_path)
    fill_home(tmp_path)
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/ui/statistics")
        page.click("text=Your last week")
        page.wait_for_selector(".sheet >> text=Sessions: 1 ·")
        page.select_option(".sheet select", "36500")
        page.wait_for_selector(".sheet >> text=Sessions: 6 ·")
        shown = page.inner_text(".sheet")
        assert "claude-code" in shown
        assert "200k" in shown
        assert SECRET not in shown
        with page.expect_download() as saved:
            page.click("text=Save as a file to share")
        written = Path(saved.value.path()).read_text("utf-8")
    assert "The most expensive habits" in written
    assert SECRET not in written


def test_who_needs_a_key_sees_no_history_of_the_machine(browser: Browser, tmp_path: Path) -> None:
    leave_no_sample(tmp_path)
    fill_home(tmp_path)
    _, key = KeyRing(tmp_path).add("alice")
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/ui/login")
        page.fill("input[name=key]", key)
        page.press("input[name=key]", "Enter")
        page.wait_for_selector(".menu")
        page.goto(f"{address}/ui/statistics")
        page.wait_for_selector("text=Nothing happened yet.")
        assert page.query_selector("text=Your last week") is None
