"""The server goes away and comes back: open pages find it again, and what was said is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.testing.postgres import find_port
from tests.rigs.web import Browser, need_browser, serve
from tests.web.stories import leave_no_sample, open_manager

need_browser()
pytestmark = pytest.mark.slow


def test_an_open_session_continues_after_the_server_was_restarted(browser: Browser, tmp_path: Path) -> None:
    leave_no_sample(tmp_path)
    with open_manager(tmp_path) as manager:
        manager.append("steady", [{"role": "user", "content": "Before the storm"}])
        port = find_port()
        with serve(tmp_path, port=port) as address:
            page = browser.open(f"{address}/ui/session?name=steady")
            page.locator(".turn").get_by_text("Before the storm").wait_for()
        page.locator("#popup:visible").wait_for()
        with serve(tmp_path, port=port):
            manager.append("steady", [{"role": "assistant", "content": "After the storm"}])
            page.locator(".turn").get_by_text("After the storm").wait_for()
            page.close()
    browser.problems.clear()  # A browser logs that it could not connect.


def test_the_sample_is_there_on_the_first_start_and_stays_deleted_after_it_was_deleted(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/")
        page.get_by_role("link", name="An agent fixes a billing bug and adds retries", exact=True).wait_for()
        row = page.locator("tr", has_text="An agent fixes")
        assert row.locator(".chip", has_text="sample").is_visible()
        assert int(row.locator("[data-label=Compressions]").inner_text()) > 1
        page.get_by_role("button", name="Delete: An agent fixes").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.get_by_role("heading", name="No sessions yet").wait_for()
        page.close()
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/")
        page.get_by_role("heading", name="No sessions yet").wait_for()
        page.wait_for_timeout(2_500)
        page.get_by_role("heading", name="No sessions yet").wait_for()
        page.close()


def test_the_sample_plays_on_and_folds_before_the_readers_eyes(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/")
        page.locator(".session-link", has_text="An agent fixes").click()
        page.locator(".gauge-share.is-warn").wait_for()
        page.get_by_role("button", name="Play on").click()
        page.locator(".q-notification", has_text="Folded:").wait_for()
        page.locator(".gauge-share.is-good").wait_for()
        page.get_by_role("button", name="Play on").wait_for()
        page.close()
