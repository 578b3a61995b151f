"""The page against what nobody should do to it: odd names, giant answers, two hands at once, a server that dies."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from refold.errors import RefoldError
from refold.testing import Fault, RecordedRequest, ScriptedProvider, ScriptedReply, drip, never_end, say
from refold.testing.postgres import find_port
from tests.rigs.web import (
    PAYLOAD,
    Browser,
    is_harmless,
    is_within,
    keep_notices,
    need_browser,
    read_notices,
    serve,
)
from tests.web.stories import leave_no_sample, open_manager, sample_messages

need_browser()
pytestmark = pytest.mark.slow
# Turned around, invisible, joined: characters that make one text look like another.
ODD = "safe \u202egnp.exe\u202c \u200b\u200d\ufeff\u2066 مرحبا \u0301\u0301\u0301 end"
BAD_MARKDOWN = (
    "![pixel](https://evil.example/p.png) [go](javascript:window.hacked=1) [data](data:text/html,<script>) "
    "<a href='javascript:window.hacked=1'>x</a> <style>body{display:none}</style> [ref]: javascript:window.hacked=1\n\n"
    "| a | b |\n|---|---|\n| <img src=x onerror=window.hacked=1> | `</script>` |\n\n"
)
# The second half of the harmful answer comes once a test has looked at the first.
SEEN = threading.Event()
NAMES = ["../../x", "..\\..\\x", "/etc/passwd", "a\u202eb", "?name=x&at=m:0", "%2e%2e%2f", "x" * 180, "<b>bold</b>"]


def answer(request: RecordedRequest) -> ScriptedReply | Fault:
    if "payload" in request.prompt:
        return drip(BAD_MARKDOWN + PAYLOAD + ODD, pause_s=0.02, until=SEEN)
    if "megabyte" in request.prompt:
        return say("word " * 200_000 + "the very end")
    if "endless" in request.prompt:
        return never_end(pause_s=0.05)
    return say("Well.")


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(answer, seconds_max=600) as made:
        yield made


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    leave_no_sample(folder)
    with open_manager(folder) as manager:
        for name in NAMES:
            manager.append(name, [{"role": "user", "content": f"I am {name[:20]} {ODD}"}])
        manager.append("agent", sample_messages()[:120])
    return folder


def list_variables(provider: ScriptedProvider) -> dict[str, str]:
    return {"OPENAI_API_KEY": "sk-scripted", "OPENAI_BASE_URL": provider.openai_url}


@pytest.fixture(scope="module")
def url(workspace: Path, provider: ScriptedProvider) -> Iterator[str]:
    with serve(workspace, **list_variables(provider)) as address:
        yield address


def send(page: Any, words: str) -> None:
    page.wait_for_selector(".picker:visible")
    page.fill(".composer-field", words)
    page.keyboard.press("Enter")


def test_markdown_and_markup_are_harmless_while_they_are_streamed_and_after(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    send(page, "payload, please")
    page.wait_for_url("**/session?name=*")
    page.locator(".live-text", has_text="pixel").wait_for()
    assert is_harmless(page)
    SEEN.set()
    page.locator(".turn.by-assistant", has_text="end").wait_for()
    page.get_by_role("button", name="Send").wait_for()
    assert is_harmless(page)
    assert page.evaluate("getComputedStyle(document.body).display") != "none"
    assert page.locator(".turn a[href^='javascript'], .turn a[href^='data'], .turn img, .turn style").count() == 0
    assert is_within(page)


def test_an_answer_of_a_megabyte_is_shown_in_part_and_the_page_stays_usable(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    send(page, "a megabyte, please")
    page.locator(".turn.by-assistant").wait_for()
    page.get_by_role("button", name=re.compile("Show more")).wait_for()
    assert page.evaluate("document.querySelector('main, #main').innerText.length") < 500_000
    send(page, "and now?")
    page.locator(".turn", has_text="Well.").wait_for()


@pytest.mark.parametrize("name", NAMES)
def test_a_session_of_any_name_is_listed_opened_talked_to_and_exported(
    browser: Browser, url: str, workspace: Path, name: str
) -> None:
    before = {path.name for path in workspace.parent.iterdir()}
    page = browser.open(f"{url}/ui/session?name={quote(name, safe='')}")
    page.locator(".turn", has_text="I am").wait_for()
    page.get_by_role("button", name="Continue this conversation").click()
    send(page, "hello")
    page.locator(".turn.by-assistant", has_text="Well.").wait_for()
    assert is_within(page)
    assert is_harmless(page)
    told = page.request.get(f"{url}/ui/export?name={quote(name, safe='')}")
    assert told.status == 200
    assert re.fullmatch(r"[ -~]+", told.headers["content-disposition"])
    assert "/" not in told.headers["content-disposition"].split("filename", 1)[-1].split(";")[0]
    assert {path.name for path in workspace.parent.iterdir()} == before, "nothing is written beside the workspace"


def test_the_list_of_odd_names_keeps_its_shape(browser: Browser, url: str) -> None:
    for width in (390, 1280):
        page = browser.open(f"{url}/ui/", width=width)
        page.locator(".session-link").first.wait_for()
        assert page.locator(".session-link").count() >= len(NAMES)
        assert is_within(page)
        assert is_harmless(page)


def test_a_name_of_ten_thousand_characters_is_refused_in_words(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager, pytest.raises(RefoldError):
        manager.append("n" * 10_000, [{"role": "user", "content": "too long"}])
    page = browser.open(f"{url}/ui/session?name={'n' * 10_000}")
    page.get_by_role("alert").filter(has_text="there is no session").wait_for()
    assert is_within(page)


def test_two_tabs_that_compress_at_once_end_in_one_sound_session(browser: Browser, url: str, workspace: Path) -> None:
    pages = [browser.open(f"{url}/ui/session?name=agent") for _ in range(2)]
    for page in pages:
        page.locator(".gauge-share").wait_for()
        keep_notices(page)
        page.get_by_role("button", name="Compress now").click()
    for page in pages:
        page.get_by_role("dialog").get_by_role("button", name="Compress now").click(no_wait_after=True)
    for page in pages:
        assert re.search("tokens|Nothing was compressed", read_notices(page))
    with open_manager(workspace) as manager:
        assert manager.ledger.verify("agent") == []
        tokens = manager.status("agent").tokens
        shown = [page.locator(".gauge-of") for page in pages]
        for gauge in shown:
            gauge.filter(has_text=f"{tokens:,}").wait_for()


def test_settings_saved_in_two_tabs_are_both_kept(browser: Browser, url: str, workspace: Path) -> None:
    (workspace / "refold.yaml").write_text("# mine\nwarn_ratio: 0.7\n", encoding="utf-8")
    one, two = (browser.open(f"{url}/ui/settings") for _ in range(2))
    for page, name, value in ((one, "warn_ratio", "0.6"), (two, "target_ratio", "0.3"), (one, "warn_ratio", "0.5")):
        field = page.locator(f"[data-setting={name}] input")
        field.wait_for()
        page.wait_for_timeout(300)
        field.fill(value)
        page.click(".save-bar .primary:enabled")
        page.wait_for_selector("text=Saved in refold.yaml")
        page.wait_for_selector(".save-bar", state="hidden")
    text = (workspace / "refold.yaml").read_text("utf-8")
    assert yaml.safe_load(text) == {"warn_ratio": 0.5, "target_ratio": 0.3}
    assert text.startswith("# mine")


def test_a_server_killed_in_the_middle_of_an_answer_is_reported_and_the_page_comes_back(
    browser: Browser, tmp_path: Path, provider: ScriptedProvider
) -> None:
    leave_no_sample(tmp_path)
    port = find_port()
    started: list[subprocess.Popen[str]] = []
    with serve(tmp_path, port, started, **list_variables(provider)) as address:
        page = browser.open(f"{address}/ui/session?name=shaken")
        page.get_by_role("alert").wait_for()  # There is no such session yet.
        page.goto(f"{address}/ui/chat")
        send(page, "endless, please")
        page.wait_for_url("**/session?name=*")
        page.locator(".live-text").wait_for()
        started[0].kill()
        started[0].wait(60)
        page.locator("#popup:visible", has_text="The connection to refold is lost").wait_for()
    with serve(tmp_path, port, **list_variables(provider)):
        page.locator(".turn.by-user", has_text="endless, please").wait_for()
        page.locator("#popup").wait_for(state="hidden")
        send(page, "still there?")
        page.locator(".turn.by-assistant", has_text="Well.").wait_for()
        page.close()
    browser.problems.clear()  # A browser logs that it could not connect.
    with open_manager(tmp_path) as manager:
        assert manager.ledger.verify() == []
