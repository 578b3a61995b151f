"""The ways to begin: dropped files become sessions, and a light turns green at an agent's first request."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.conversation.reason import shorten_number
from refold.testing import ScriptedProvider
from refold.web.pages.sessions import read_clients
from tests.rigs.web import Browser, is_within, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider("Noted.") as made:
        yield made


@pytest.fixture
def url(tmp_path: Path, provider: ScriptedProvider) -> Iterator[str]:
    leave_no_sample(tmp_path)
    (tmp_path / "refold.yaml").write_text("window: 16000\nreserve: 2000\n")
    with serve(tmp_path, REFOLD_OPENAI_UPSTREAM=provider.openai_url) as address:
        yield address


@pytest.mark.slow
def test_dropped_files_are_replayed_and_the_saving_is_reported(url: str, browser: Browser, project_root: Path) -> None:
    folder = project_root / "examples" / "sessions"
    page = browser.open(f"{url}/ui/")
    page.locator("input[type=file]").first.set_input_files(
        [folder / "coding_agent.json", folder / "anthropic_thinking.json", folder / "coding_agent.facts.json"]
    )
    result = page.locator(".brought")
    result.wait_for()
    said = result.inner_text()
    assert "Your last 2 sessions" in said
    assert "→" in said
    assert "less" in said
    assert "the whole bill is" in said
    assert "coding_agent.facts.json" in said, "what could not be read is named"
    assert not re.search(r"refold-import-|\b0000/", said), "no path of the server is shown"
    row = page.locator("tr", has_text="coding_agent")
    row.locator("[data-label=Compressions]", has_text=re.compile("[1-9]")).wait_for()
    row.locator("[data-label=Tokens]").click()  # The whole row is a link.
    page.wait_for_url("**/session?name=coding_agent")
    page.locator(".fold").first.wait_for()
    page.get_by_role("slider", name="Request to show").wait_for()


@pytest.mark.slow
def test_a_folder_is_dropped_anywhere_on_the_page(
    url: str, browser: Browser, project_root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "old sessions" / "deep"
    folder.mkdir(parents=True)
    shutil.copy(project_root / "examples" / "sessions" / "chat_zh.jsonl", folder)
    page = browser.open(f"{url}/ui/")
    page.get_by_role("heading", name="No sessions yet").wait_for()
    drag = page.context.new_cdp_session(page)  # A synthetic event cannot carry a folder.
    carried = {"items": [], "files": [str(folder.parent)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver"):
        drag.send("Input.dispatchDragEvent", {"type": kind, "x": 600, "y": 700, "data": carried})
    page.locator(".drop.over").wait_for()
    drag.send("Input.dispatchDragEvent", {"type": "drop", "x": 600, "y": 700, "data": carried})
    page.locator(".brought", has_text="Your last session").wait_for()
    page.locator("tr", has_text="chat_zh").wait_for()


@pytest.mark.slow
def test_files_that_hold_no_conversation_are_refused_in_words(url: str, browser: Browser, tmp_path: Path) -> None:
    strange = tmp_path / "strange.json"
    strange.write_text(json.dumps({"recipe": "soup <script>window.hacked=1</script>"}))
    page = browser.open(f"{url}/ui/")
    page.locator("input[type=file]").first.set_input_files([strange])
    page.locator(".brought", has_text="Nothing was imported").wait_for()
    page.get_by_role("heading", name="No sessions yet").wait_for()
    assert page.evaluate("window.hacked") is None


@pytest.mark.slow
def test_the_light_turns_green_at_the_first_request(url: str, browser: Browser) -> None:
    page = browser.open(f"{url}/ui/", width=390, height=844)
    page.get_by_text("Waiting for the first request").wait_for()
    assert is_within(page)
    page.get_by_role("combobox").first.select_option("*")
    page.get_by_text(f"export OPENAI_BASE_URL={url}/v1").wait_for()
    body = {"model": "scripted-1", "messages": [{"role": "user", "content": "Hello"}]}
    asked = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.status == 200
    page.locator(".light.good", has_text="Connected").wait_for()


def test_every_client_of_the_guide_has_a_line(project_root: Path) -> None:
    guide = (project_root / "docs" / "how-to" / "clients.md").read_text("utf-8")
    for name in read_clients().keys() - {"*", "Python"}:
        assert name in guide
    for lines in read_clients().values():
        for line in lines:
            assert "{url}" in line


@pytest.mark.parametrize(
    ("tokens", "told"),
    [(0, "0"), (9_999, "10k"), (999_999, "1M"), (41_000_000, "41M"), (1_250_000, "1.25M"), (84_400, "84.4k")],
)
def test_tokens_are_written_as_people_say_them(tokens: int, told: str) -> None:
    assert shorten_number(tokens) == told
