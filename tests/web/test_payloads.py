"""Whatever a conversation says, it stays text: payloads in every field that comes from one, in every way of looking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.conversation.reason import text_reason
from refold.conversation.view import Artifact, Edit, Fact, FoldRecord
from refold.ledger.records import Batch
from tests.rigs.web import PAYLOAD, Browser, is_harmless, need_browser, serve, wait_for_rows
from tests.web.stories import leave_no_sample, open_manager

need_browser()
MORE = "`${window.hacked=1}` \u2028 \u2029 \ud800 </script> <!-- {{ 7*7 }} ${7*7} `\\` \x00\x1b[31m"
HOSTILE = f"{PAYLOAD} {MORE}"
MARKDOWN = (
    f"# {PAYLOAD}\n\n| {PAYLOAD} | b |\n|---|---|\n| <b onclick='window.hacked=1'>x</b> | y |\n\n"
    "[a](javascript:window.hacked=1) [b]( JaVaScRiPt:window.hacked=1) [c](data:text/html,<script>alert(1)</script>)\n"
    "<javascript:window.hacked=1> [d](vbscript:x) ![e](//evil.example/a.png) ![f](data:image/png;base64,PHN2Zy8+)\n\n"
    "[g]: javascript:window.hacked=1\n[g] <details open ontoggle='window.hacked=1'>\n```html\n"
    + PAYLOAD
    + "\n```\n"
    + "> " * 200
    + "deep\n"
    + "*" * 500
    + "\n"
)


def make_messages() -> list[dict[str, Any]]:
    call = {
        "id": HOSTILE,
        "type": "function",
        "function": {"name": HOSTILE, "arguments": json.dumps({HOSTILE: HOSTILE})},
    }
    image = {"type": "image_url", "image_url": {"url": "http://evil.example/picture.png"}}
    return [
        {"role": "system", "content": HOSTILE},
        {"role": "user", "content": MARKDOWN, "name": HOSTILE},
        {"role": "assistant", "content": HOSTILE, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": HOSTILE, "content": HOSTILE},
        {"role": "user", "content": [{"type": "text", "text": HOSTILE}, image]},
        {"role": "assistant", "content": MARKDOWN},
        {"role": "user", "content": HOSTILE},
    ]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("payloads")
    leave_no_sample(folder)
    with open_manager(folder) as manager:
        manager.append("plain", make_messages())
        manager.append(f"fold {PAYLOAD}"[:120], make_messages())
        plant_fold(manager, f"fold {PAYLOAD}"[:120])
        manager.ledger.update_session("plain", {"model": PAYLOAD[:100], "settings": {"title": HOSTILE[:200]}}, 1.0)
    return folder


def plant_fold(manager: Any, name: str) -> None:
    """Commit a fold and a placeholder whose every field is hostile."""
    ids = manager.ledger.read_path(name).ids
    hostile = HOSTILE.replace("\ud800", "")
    fold = FoldRecord(
        "f:deadbeef",
        f"## {hostile}\n{hostile}",
        (Fact("decision", hostile, "m:deadbeef"),),
        (Artifact("file", hostile, "m:deadbeef", hostile, 1.0),),
        (hostile,),
        (1, 2),
        hostile,
    )
    why = text_reason(hostile)
    edits = (
        Edit(
            "fold",
            "fold",
            ids[1:4],
            text=hostile,
            reason=why,
            tokens_before=900,
            tokens_after=90,
            fold=fold,
        ),
        Edit(
            "replace",
            "mask",
            (ids[5],),
            part=0,
            text=hostile,
            reason=why,
            tokens_before=50,
            tokens_after=5,
        ),
    )
    assert manager.ledger.commit(name, Batch("b1", edits, why, fold.facts, (), 900, 90, 1.0), now=1.0)


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui/"


# Presses each button of a kind once, and is true when none of that kind is left: each has another name when it is open.
PRESS = """([kind, name]) => {
  window.pressed ??= new WeakSet();
  const left = [...document.querySelectorAll(kind)].filter((one) => !name || one.textContent.trim() === name);
  for (const one of left) if (!window.pressed.has(one)) { window.pressed.add(one); one.click(); }
  return !left.length;
}"""


def open_all(page: Any) -> None:
    """Open whatever can be opened, in the page itself: a row may go away with what the last click opened."""
    wait_for_rows(page)
    for name in ("Unfold all", "Open the record", "Exactly what the model reads", "Open in full"):
        page.wait_for_function(PRESS, arg=[".talk button", name])
        wait_for_rows(page)
    page.wait_for_function(PRESS, arg=[".talk .block-head[aria-expanded=false]", ""])
    wait_for_rows(page)


@pytest.mark.slow  # A browser and a server are started for it; see tests/web/test_door.py for pages without.
def test_the_list_shows_titles_names_and_models_as_text(browser: Browser, url: str) -> None:
    page = browser.open(url)
    page.locator(".session-link").first.wait_for()
    assert "<script>window.hacked=1</script>" in page.locator(".sessions").inner_text()
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("dialog").wait_for()
    assert is_harmless(page)
    assert page.evaluate("!document.querySelector('.q-dialog iframe, .q-dialog img, .q-dialog script')")


@pytest.mark.slow
def test_messages_calls_results_and_pictures_are_text_in_every_look(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}session?name=plain")
    page.locator(".turn").first.wait_for()
    looks = {"What the model sees": "look-sees", "What was said": "look-said", "Difference": "look-difference"}
    for look, kind in looks.items():
        page.get_by_role("button", name=look).click()
        page.locator(f".talk.{kind}").wait_for()
        page.evaluate("document.querySelector('.talk-scroll').scrollTop = 0")
        open_all(page)
        said = page.locator(".talk").inner_text()
        assert "<script>window.hacked=1</script>" in said
        assert is_harmless(page)
    links = page.evaluate("[...document.querySelectorAll('.talk a')].map(a => a.href)")
    assert links == []


@pytest.mark.slow
def test_summaries_facts_values_reasons_and_placeholders_are_text(browser: Browser, url: str) -> None:
    from urllib.parse import quote

    page = browser.open(f"{url}session?name={quote(f'fold {PAYLOAD}'[:120])}")
    page.locator(".fold").wait_for()
    open_all(page)
    # The page draws only what is near; whatever opened last may have moved the fold out of sight.
    page.evaluate("document.querySelector('.talk-scroll').scrollTop = 0")
    said = page.locator(".fold").inner_text()
    assert said.count("<script>window.hacked=1</script>") >= 4
    for look, kind in (("Difference", "look-difference"), ("What was said", "look-said")):
        page.get_by_role("button", name=look).click()
        page.locator(f".talk.{kind}").wait_for()
        open_all(page)
        assert is_harmless(page)


@pytest.mark.slow
def test_the_preview_of_a_compression_shows_words_as_text(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        talk = [{"role": role, "content": f"{HOSTILE} {at}"} for at in range(40) for role in ("user", "assistant")]
        manager.append("to-preview", talk)
    page = browser.open(f"{url}session?name=to-preview")
    page.locator(".gauge-share").wait_for()
    page.get_by_role("button", name="Compress now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill(PAYLOAD)
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("heading", name="What would go").wait_for()
    for one in dialog.locator("summary").all():
        one.click()
    assert "<script>" in dialog.inner_text()
    assert is_harmless(page)


@pytest.mark.slow
def test_an_error_that_quotes_a_name_quotes_it_as_text(browser: Browser, url: str) -> None:
    from urllib.parse import quote

    page = browser.open(f"{url}session?name={quote(PAYLOAD)}&at={quote(PAYLOAD)}")
    page.get_by_role("alert").wait_for()
    assert "<script>" in page.get_by_role("alert").inner_text()
    assert is_harmless(page)
    page.goto(f"{url}{quote('<script>window.hacked=1</script>')}")
    assert page.evaluate("window.hacked === undefined")
    browser.problems.clear()  # A page that is not there is logged by the browser itself.
