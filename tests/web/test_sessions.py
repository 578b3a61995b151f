"""The list of sessions in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.llm.choose import GATEWAY
from tests.rigs.web import Browser, is_within, need_browser, serve
from tests.web.stories import leave_no_sample, open_manager

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sessions")
    leave_no_sample(folder)
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui/"


def write(workspace: Path, name: str, words: str) -> None:
    with open_manager(workspace) as manager:
        manager.append(name, [{"role": "user", "content": words}, {"role": "assistant", "content": "Done."}])


def list_titles(page: Any) -> list[str]:
    return [str(one) for one in page.locator(".session-link").all_inner_texts()]


def test_an_empty_workspace_says_what_to_do_next(browser: Browser, url: str) -> None:
    page = browser.open(url)
    page.get_by_role("heading", name="No sessions yet").wait_for()
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:" in page.locator("#main").inner_text()
    page.get_by_role("link", name="Start a chat").wait_for()


def test_a_session_of_another_process_appears_by_itself(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(url)
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()
    write(workspace, "g-1234", "Paint the north wall of the boathouse")
    page.get_by_text("Paint the north wall of the boathouse").wait_for()
    row = page.locator("tr", has_text="boathouse")
    assert "g-1234" in row.inner_text()
    assert row.locator("[data-label=Messages]").inner_text() == "2"


def test_the_list_names_the_client_of_a_session(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "g-codex", "Mend the gutter")
    with open_manager(workspace) as manager:
        manager.ledger.change_setting("g-codex", GATEWAY, lambda _: {"client": "codex"}, 0)
    page = browser.open(url)
    page.locator("tr", has_text="Mend the gutter").locator(".chip", has_text="codex").wait_for()


def test_search_finds_by_words_and_says_when_nothing_matches(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "one", "Sharpen the adze")
    write(workspace, "two", "Oil the hinges")
    page = browser.open(url)
    page.get_by_text("Oil the hinges").wait_for()
    page.get_by_role("searchbox").fill("ADZE")
    page.get_by_text("Oil the hinges").wait_for(state="detached")
    assert list_titles(page) == ["Sharpen the adze"]
    page.get_by_role("searchbox").fill("no such <b>thing</b>")
    page.get_by_role("heading", name="Nothing matches “no such <b>thing</b>”").wait_for()


def test_a_session_is_renamed_and_keeps_the_name_that_clients_know(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "client-name", "Count the oars")
    page = browser.open(url)
    page.get_by_role("button", name="Rename: Count the oars").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("The oars, 船桨")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="The oars, 船桨", exact=True).wait_for()
    assert "client-name" in page.locator("tr", has_text="The oars").inner_text()
    with open_manager(workspace) as manager:
        assert manager.ledger.read_session("client-name") is not None


def test_deleting_asks_first(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "doomed", "Burn after reading")
    page = browser.open(url)
    page.get_by_role("button", name="Delete: Burn after reading").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("2 messages are deleted permanently").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="detached")
    with open_manager(workspace) as manager:
        assert manager.ledger.read_session("doomed") is not None
    page.get_by_role("button", name="Delete: Burn after reading").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("Burn after reading").first.wait_for(state="detached")
    with open_manager(workspace) as manager:
        assert manager.ledger.read_session("doomed") is None


def test_a_dialog_that_is_confirmed_twice_acts_once(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "hasty", "Ring the bell")
    page = browser.open(url)
    page.get_by_role("button", name="Rename: Ring the bell").click()
    field = page.get_by_role("dialog").get_by_role("textbox")
    field.fill("zhong")
    press = "field => field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: %s}))"
    field.evaluate(press % "true")  # An input method takes the word over.
    field.fill("钟")
    field.evaluate(f"field => {{ for (const press of [1, 2]) ({press % 'false'})(field); }}")
    page.get_by_role("link", name="钟", exact=True).wait_for()
    assert not page.locator(".q-notification__badge").count(), "the same notification twice"
    page.locator(".q-notification").wait_for(state="detached")
    page.get_by_role("button", name="Delete: 钟").click()
    delete = page.get_by_role("dialog").get_by_role("button", name="Delete")
    delete.evaluate("button => { button.click(); setTimeout(() => button.click(), 100); }")
    page.get_by_text("Deleted", exact=True).wait_for()
    page.wait_for_timeout(500)
    assert page.locator(".q-notification").all_inner_texts() == ["Deleted"]


def test_a_click_on_a_row_that_changes_at_that_moment_is_not_lost(browser: Browser, url: str, workspace: Path) -> None:
    """The server has already shown the change; the browser, behind a slow line, has not when the reader clicks."""
    write(workspace, "busy", "Watch the tide")
    page = browser.open(url)
    held: list[str | bytes] = []
    is_slow = False

    def join(line: Any) -> None:
        server = line.connect_to_server()
        server.on_message(lambda message: held.append(message) if is_slow else line.send(message))
        line.on_message(server.send)
        lines.append(line)

    lines: list[Any] = []
    page.route_web_socket(lambda _: True, join)
    page.reload()
    page.get_by_role("button", name="Delete: Watch the tide").wait_for()
    page.wait_for_function("window.did_handshake")
    is_slow = True
    write(workspace, "busy", "And the wind")
    for _ in range(600):
        if any('"text":"4"' in str(message) for message in held):
            break
        page.wait_for_timeout(100)
    page.get_by_role("button", name="Delete: Watch the tide").evaluate("button => button.click()")
    page.wait_for_timeout(100)
    is_slow = False
    for message in held:
        lines[-1].send(message)
    page.get_by_role("dialog").get_by_text("4 messages are deleted permanently").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()


def test_rows_keep_the_order_of_the_list_and_dialogs_leave_nothing_behind(
    browser: Browser, url: str, workspace: Path
) -> None:
    write(workspace, "early", "Haul the nets")
    write(workspace, "late", "Salt the catch")
    page = browser.open(url)
    page.get_by_text("Salt the catch").wait_for()
    assert list_titles(page)[:2] == ["Salt the catch", "Haul the nets"]
    elements = "Object.keys(mounted_app.elements).length"
    before = page.evaluate(elements)
    for button in ("Delete: Haul the nets", "Rename: Haul the nets"):
        page.get_by_role("button", name=button).click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").wait_for(state="detached")
    page.wait_for_function(f"{elements} <= {before}")
    write(workspace, "early", "And mend them")
    page.wait_for_function("document.querySelector('.session-link').innerText === 'Haul the nets'")
    assert list_titles(page)[:2] == ["Haul the nets", "Salt the catch"]
    page.get_by_role("searchbox").fill("salt")
    page.get_by_text("Haul the nets").wait_for(state="detached")
    assert page.get_by_role("searchbox").input_value() == "salt"
    page.get_by_role("searchbox").fill("")
    page.get_by_text("Haul the nets").wait_for()
    assert list_titles(page)[:2] == ["Haul the nets", "Salt the catch"]


def test_what_is_exported_is_what_the_command_line_exports(browser: Browser, url: str, workspace: Path) -> None:
    from refold.manager.status import export_session

    write(workspace, "to/take away", "Pack the lantern")
    page = browser.open(url)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Export: Pack the lantern").click()
    with open_manager(workspace) as manager:
        expected = export_session(manager.ledger, "to/take away")
    assert json.loads(Path(waiting.value.path()).read_text()) == json.loads(json.dumps(expected))


def test_on_a_phone_the_list_fits_and_the_menu_is_below(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "small", "A title that is a good deal longer than a phone is wide, and then some more of it")
    page = browser.open(url, width=390, height=844)
    page.get_by_text("A title that is").wait_for()
    assert is_within(page)
    menu = page.get_by_role("navigation").bounding_box()
    assert menu["y"] + menu["height"] == pytest.approx(844, abs=2)


def test_the_page_speaks_chinese_to_a_chinese_browser_and_remembers_a_choice(browser: Browser, url: str) -> None:
    page = browser.open(url, language="zh-CN")
    page.get_by_role("heading", name="会话", exact=True).wait_for()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.get_by_role("button", name="Switch to English").click()
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()
    page.reload()
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()


def test_colours_follow_the_system_until_somebody_chooses(browser: Browser, url: str) -> None:
    page = browser.open(url, color_scheme="dark")
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()
    assert page.evaluate("document.documentElement.dataset.colours") == "dark"
    page.get_by_role("button", name="Colours: system").click()
    page.get_by_role("button", name="Colours: light").wait_for()
    assert page.evaluate("document.documentElement.dataset.colours") == "light"


def test_the_first_look_after_a_start_shows_own_sessions(browser: Browser, tmp_path: Path) -> None:
    with serve(tmp_path) as address:
        write(tmp_path, "own", "Tar the hull")
        page = browser.open(f"{address}/ui/")
        page.locator(".session-link, .empty").first.wait_for()
        assert "Tar the hull" in list_titles(page)
        assert page.locator("details.start").evaluate("one => one.open") is False


def test_a_session_is_opened_with_the_keyboard_alone(browser: Browser, url: str, workspace: Path) -> None:
    write(workspace, "by-keyboard", "Coil the ropes")
    page = browser.open(url)
    page.get_by_text("Coil the ropes").wait_for()
    page.get_by_role("searchbox").fill("coil")
    page.get_by_role("link", name="Coil the ropes", exact=True).wait_for()
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className").startswith("session-link"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/session?name=by-keyboard")


def test_a_missing_page_gets_a_message_and_a_way_back(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}session?name=nobody")
    page.get_by_role("alert").get_by_text("there is no session 'nobody'").wait_for()
    page.get_by_role("link", name="Go to the sessions").click()
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()
