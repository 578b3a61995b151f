"""The panel that shows where the work stands, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.web.state_panel import MESSAGES_AT_ONCE
from tests.rigs.web import Browser, need_browser, serve
from tests.web.stories import leave_no_sample, open_manager, sample_messages, write_long

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    leave_no_sample(folder)
    with open_manager(folder) as manager:
        manager.append("agent", sample_messages()[:120])
    write_long(folder, count=MESSAGES_AT_ONCE + 2)
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui/session?name="


def test_the_panel_shows_task_rules_and_files_and_leads_to_their_messages(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}agent")
    panel = page.locator(".state-panel")
    panel.locator("h3").first.wait_for()
    titles = panel.locator("h3").all_inner_texts()
    assert {"Task", "Rules in force", "Files", "Checks"} <= set(titles)
    assert "Ticket QL-2217" in panel.inner_text()
    panel.locator("button.state-line", has_text="Ticket QL-2217").first.click()
    page.locator(".turn", has_text="Two rules before you start").wait_for()


def test_what_another_process_adds_changes_the_panel(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}agent")
    page.locator(".state-panel h3").first.wait_for()
    with open_manager(workspace) as manager:
        manager.append("agent", [{"role": "user", "content": "From now on answer in French."}])
    page.locator(".state-panel", has_text="From now on answer in French.").wait_for()


def test_a_long_session_is_read_when_its_panel_is_opened(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}long")
    panel = page.locator(".state-panel")
    panel.locator("summary").wait_for()
    assert panel.get_attribute("open") is None
    assert panel.locator("h3").count() == 0
    panel.locator("summary").click()
    panel.locator("h3, .faint").first.wait_for()
