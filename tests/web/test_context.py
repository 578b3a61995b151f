"""The context indicator and compressing by hand, in a real browser."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.testing import ScriptedProvider, drip
from tests.rigs.web import Browser, need_browser, serve
from tests.web.stories import leave_no_sample, open_manager, sample_messages

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("context")
    leave_no_sample(folder)
    with open_manager(folder) as manager:
        manager.append("agent", sample_messages()[:120])
        manager.prepare_context_sync("agent", system_prompt="Be brief.", model="gpt-5.2")
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui/session?name="


def read_parts(page: Any) -> dict[str, int]:
    rows = page.locator(".context-gauge .part-row")
    return {
        row.locator("dt").inner_text().strip(): int(row.locator("dd").inner_text().replace(",", ""))
        for row in rows.all()
    }


def test_the_parts_add_up_to_what_the_gauge_says(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}agent")
    page.locator(".gauge-share").wait_for()
    used, hard = (int(one.replace(",", "")) for one in re.findall(r"[\d,]+", page.locator(".gauge-of").inner_text()))
    parts = read_parts(page)
    free = parts.pop("Free")
    assert sum(parts.values()) == used
    assert used + free == hard
    assert {"Task", "Records", "Recent messages"} <= parts.keys()
    shares = page.locator(".gauge-track .part").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().width)"
    )
    assert max(shares) > 100, "the parts are a picture, not a line"
    meter = page.get_by_role("meter")
    assert meter.get_attribute("aria-valuenow") == str(used)
    assert page.locator(".tick").count() == 3


@pytest.mark.parametrize(("share", "state"), [(0.2, "good"), (0.85, "warn"), (0.995, "bad")])
def test_the_gauge_is_green_amber_or_red(browser: Browser, url: str, workspace: Path, share: float, state: str) -> None:
    name = f"filled-{state}"
    with open_manager(workspace) as manager:
        manager.append(name, [{"role": "user", "content": "go"}])
        hard = manager.status(name).hard
        words = int(hard * share) // 12
        manager.append(name, [{"role": "assistant", "content": "oak " * words} for _ in range(12)])
    page = browser.open(f"{url}{name}")
    page.locator(f".gauge-share.is-{state}").wait_for()


def test_a_preview_says_what_would_go_and_changes_nothing(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        before = manager.status("agent")
    page = browser.open(f"{url}agent")
    page.locator(".gauge-share").wait_for()
    page.get_by_role("button", name="Compress now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("keep every invoice")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("heading", name="What would go").wait_for()
    said = dialog.inner_text()
    assert re.search(r"[\d,]+ → [\d,]+ tokens; [\d,]+ would go", said)
    assert re.search(r"folded: \d+ messages", said)
    assert re.search(r"\d+ messages stay as they are", said)
    dialog.locator("summary", has_text="folded:").click()
    assert dialog.locator("details[open] .goes-list li").first.inner_text()
    with open_manager(workspace) as manager:
        assert manager.status("agent") == before


def test_compress_now_folds_and_the_figures_follow(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        manager.append("to-fold", sample_messages()[:100])
        before = manager.status("to-fold").tokens
    page = browser.open(f"{url}to-fold")
    page.locator(".gauge-share").wait_for()
    page.get_by_role("button", name="Compress now").click()
    page.get_by_role("dialog").get_by_role("button", name="Compress now").click()
    page.locator(".q-notification", has_text="tokens").wait_for()
    with open_manager(workspace) as manager:
        after = manager.status("to-fold").tokens
    assert after < before
    page.locator(".gauge-of", has_text=f"{after:,} of").wait_for()


def test_while_it_runs_every_tab_says_that_the_context_is_being_optimised(browser: Browser, tmp_path: Path) -> None:
    leave_no_sample(tmp_path)
    (tmp_path / ".git").mkdir()
    with open_manager(tmp_path) as manager:
        manager.append("slow", [*sample_messages()[:80], {"role": "user", "content": "slow, please"}])
    seen = threading.Event()
    slow = drip("The summary says little. " * 12, pause_s=0.01, until=seen)
    with ScriptedProvider(lambda _: slow, seconds_max=600) as provider:
        variables = {"OPENAI_API_KEY": "sk-scripted", "OPENAI_BASE_URL": provider.openai_url}
        variables["REFOLD_COMPACT_MODEL"] = "gpt-5.2"
        (tmp_path / "refold.yaml").write_text("summariser: llm\ncompact_timeout_s: 600\n")
        with serve(tmp_path, **variables) as address:
            one, other = (browser.open(f"{address}/ui/session?name=slow") for _ in range(2))
            for page in (one, other):
                page.locator(".gauge-share").wait_for()
            one.get_by_role("button", name="Compress now").click()
            one.get_by_role("dialog").get_by_role("button", name="Compress now").click()
            for page in (one, other):
                page.get_by_role("status").filter(has_text="Optimising context").wait_for()
            seen.set()
            for page in (one, other):
                page.get_by_role("status").filter(has_text="Optimising context").wait_for(state="hidden")
                page.close()  # Before the server goes: a page that cannot connect complains.


def test_what_another_process_compresses_is_told_too(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        manager.append("elsewhere", sample_messages()[:20])
        page = browser.open(f"{url}elsewhere")
        page.locator(".gauge-share").wait_for()
        chip = page.get_by_role("status").filter(has_text="Optimising context")
        assert chip.is_hidden()
        # Every compression holds a lease while it runs, in whichever process; the lease of a dead process expires.
        assert manager.ledger.acquire_lease("elsewhere", "a command", seconds=60, now=time.time())
        chip.wait_for()
        manager.ledger.release_lease("elsewhere", "a command")
        chip.wait_for(state="hidden")


def test_automatic_compression_is_switched_off_and_on(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}agent")
    page.locator(".gauge-share").wait_for()
    page.get_by_role("button", name="Switch automatic compression off").click()
    page.get_by_role("button", name="Switch automatic compression on").wait_for()
    with open_manager(workspace) as manager:
        assert manager.status("agent").stopped
    page.get_by_role("button", name="Switch automatic compression on").click()
    page.get_by_role("button", name="Switch automatic compression off").wait_for()
    with open_manager(workspace) as manager:
        assert not manager.status("agent").stopped
