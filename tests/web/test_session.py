"""One session in a real browser: folds as cards, three ways of looking, live from other tabs and processes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation import because
from refold.manager.session_state import HELD
from tests.rigs.web import (
    TIMEOUT_MS,
    Browser,
    is_within,
    keep_notices,
    need_browser,
    read_notices,
    serve,
    wait_for_rows,
)
from tests.web.stories import LINES, leave_no_sample, open_manager, sample_messages, write_folded

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.

# The row with this key begins within a finger's width of the conversation's upper edge.
IS_AT_TOP = """key => {
  const row = document.querySelector(`[data-key="${key}"]`);
  const box = document.querySelector(".talk-scroll").getBoundingClientRect();
  return row && Math.abs(row.getBoundingClientRect().top - box.top) < 60;
}"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    leave_no_sample(folder)
    write_folded(folder)
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    # A model is named, so that the box to write in is there on every machine; nothing is ever sent to it.
    with serve(workspace, OPENAI_API_KEY="unused", OPENAI_BASE_URL="http://127.0.0.1:9/v1") as address:
        yield f"{address}/ui/session?name="


def find_folds(workspace: Path, name: str = "folded") -> list[Any]:
    with open_manager(workspace) as manager:
        return [one.edit for one in manager.ledger.read_edits(name) if one.edit.kind == "fold"]


def count_view(workspace: Path, name: str = "folded") -> int:
    with open_manager(workspace) as manager:
        return len(manager.read_view(name))


def test_a_fold_is_a_card_with_its_figures_facts_and_exact_values(browser: Browser, url: str, workspace: Path) -> None:
    fold = find_folds(workspace)[0]
    page = browser.open(f"{url}folded&at={fold.fold.handle}")
    card = page.locator(".fold").first
    card.wait_for()
    said = card.inner_text()
    assert f"{len(fold.covers)} messages" in said
    assert f"{fold.tokens_original:,} → {fold.tokens_after:,} tokens" in said
    assert re.search(r"\(\d+(\.\d)?×\)", said), "how much smaller it is"
    assert "## Exact values" not in said
    assert "requested manually" in said
    assert re.search(r"\b\d\d:\d\d\b", said)
    assert fold.fold.facts[0].text in said
    assert fold.fold.handle in said
    assert not card.locator(".value-groups").count(), "exact values are closed"
    card.get_by_role("button", name="Exact values").click()
    assert "quayline/billing/nights.py" in card.locator(".value-groups").inner_text()
    card.get_by_role("button", name="Exactly what the model reads").click()
    card.get_by_text(f"{len(fold.covers)} earlier messages, folded into this record").wait_for()


def test_a_fold_opens_to_its_originals_and_closes_again(browser: Browser, url: str, workspace: Path) -> None:
    fold = find_folds(workspace)[0]
    page = browser.open(f"{url}folded&at={fold.fold.handle}")
    page.get_by_role("button", name="Unfold all").first.click()
    page.locator(".turn.inside").first.wait_for()
    # However tall the card is: its end and the first original are in the window.
    page.wait_for_function(
        """() => {
          const box = document.querySelector(".talk-scroll").getBoundingClientRect();
          const first = document.querySelector(".turn.inside").getBoundingClientRect();
          const end = document.querySelector(".fold.is-open .fold-end")?.getBoundingClientRect();
          return end && end.top >= box.top && first.top >= end.bottom && first.top < box.bottom - 40;
        }"""
    )
    assert count_view(workspace) < 120, "looking changes nothing"
    page.get_by_role("button", name="Hide the originals").first.click()
    page.locator(".turn.inside").first.wait_for(state="detached")


def test_undo_this_compression_steps_back_once_and_redo_puts_it_back(
    browser: Browser, url: str, workspace: Path
) -> None:
    write_folded(workspace, "unfold me")
    before = count_view(workspace, "unfold me")
    with open_manager(workspace) as manager:
        compressions = len(manager.figures("unfold me").folds)
    fold = find_folds(workspace, "unfold me")[-1]
    page = browser.open(f"{url}unfold+me&at={fold.fold.handle}")
    page.locator(".fold", has_text=fold.fold.handle).get_by_role("button", name="Undo this compression").click()
    again = page.locator(".undone", has_text="The compression of").first
    again.wait_for()
    assert compressions == 1
    assert count_view(workspace, "unfold me") == len(sample_messages()), "all that the compression did is undone"
    page.get_by_role("button", name="Redo", exact=True).first.click()
    again.wait_for(state="detached")
    assert count_view(workspace, "unfold me") == before
    page.get_by_role("button", name="Undo the last compression").click()
    again.wait_for()


def test_undo_and_redo_stay_at_the_fold_that_was_pressed(browser: Browser, url: str, workspace: Path) -> None:
    write_folded(workspace, "stay here")
    with open_manager(workspace) as manager:
        manager.append("stay here", [{"role": "user", "content": "And now?"}, *sample_messages()[1:60]])
        manager.compress("stay here")
    fold = find_folds(workspace, "stay here")[-1]
    page = browser.open(f"{url}stay+here&at={fold.fold.handle}", height=700)
    card = page.locator(".fold", has_text=fold.fold.handle)
    card.get_by_role("button", name="Undo this compression").click()
    trace = page.locator(f'[data-key="u:{fold.id}"]')
    trace.wait_for()
    page.wait_for_function(IS_AT_TOP, arg=f"u:{fold.id}")
    trace.get_by_role("button", name="Redo").click()
    page.wait_for_function(IS_AT_TOP, arg=f"f:{fold.id}")
    page.get_by_role("button", name="To the newest").click()
    page.get_by_role("button", name="To the newest").wait_for(state="detached")


def test_the_scrubber_shows_a_request_as_it_was_sent(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}folded")
    scrubber = page.get_by_role("slider", name="Request to show")
    scrubber.wait_for()
    scrubber.evaluate("e => { e.value = 3; e.dispatchEvent(new Event('input')) }")
    page.locator(".timeline-figures", has_text=re.compile(r"Request 3 of \d+.* instead of")).wait_for()
    page.locator(".fold").first.wait_for(state="detached")
    page.get_by_role("heading", name="Context of request 3").wait_for()
    sent = page.locator(".timeline-figures").inner_text()
    figure = page.locator(".gauge-of").inner_text().split()[0]
    assert f" {figure} tokens" in sent, "the gauge shows the same request"
    assert not page.get_by_role("button", name="Compress now").is_visible()
    page.get_by_role("button", name="Newest", exact=True).click()
    page.get_by_role("button", name="Compress now").wait_for()
    page.locator(".timeline-figures", has_text="Now, after").wait_for()


def test_back_from_the_past_the_gauge_shows_what_happened_meanwhile(
    browser: Browser, url: str, workspace: Path
) -> None:
    write_folded(workspace, "gauged")
    page = browser.open(f"{url}gauged")
    scrubber = page.get_by_role("slider", name="Request to show")
    scrubber.wait_for()
    scrubber.evaluate("e => { e.value = 3; e.dispatchEvent(new Event('input')) }")
    page.get_by_role("heading", name="Context of request 3").wait_for()
    with open_manager(workspace) as manager:
        manager.append("gauged", [{"role": "user", "content": "Meanwhile: " + "one more thing " * 200}])
        tokens = manager.status("gauged").tokens
    page.get_by_role("button", name="Newest", exact=True).click()
    page.locator(".gauge-of", has_text=f"{tokens:,} of").wait_for()


def test_before_and_after_stand_side_by_side_with_tokens(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}folded", width=1440)
    page.get_by_role("slider", name="Request to show").wait_for()
    page.get_by_role("button", name="Before / after").click()
    page.locator(".pane-before .turn:not(.waiting)").first.wait_for()
    page.locator(".pane-after .fold").first.wait_for()
    page.locator(".pane-after .pane-head p", has_text="tokens").wait_for()
    raw, sent = (
        int(page.locator(f".pane-{side} .pane-head p").inner_text().split()[0].replace(",", ""))
        for side in ("before", "after")
    )
    assert raw > 1.5 * sent > 0
    # What the model does not read has no place in the column of what was sent.
    fold = find_folds(workspace)[0]
    beside = [one.text for one in fold.fold.facts if one.text not in fold.text]
    said = page.locator(".pane-after").inner_text()
    assert not [one for one in beside if one in said]
    assert not page.locator(".pane-after .chip", has_text="not sent").count()


def test_a_message_is_pinned_and_unpinned(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        manager.append("pins", [{"role": "user", "content": "Keep this rule"}, {"role": "assistant", "content": "Yes"}])
    page = browser.open(f"{url}pins")
    turn = page.locator(".turn", has_text="Keep this rule")
    turn.hover()
    turn.get_by_role("button", name="Pin: keep this message in view").click()
    turn.locator(".chip", has_text="pinned").wait_for()
    with open_manager(workspace) as manager:
        assert len(manager.pinned("pins")) == 1
    turn.get_by_role("button", name="Unpin this message").click()
    turn.locator(".chip", has_text="pinned").wait_for(state="detached")


def test_a_folded_message_that_is_pinned_comes_back_into_view(browser: Browser, url: str, workspace: Path) -> None:
    write_folded(workspace, "pin-folded")
    fold = find_folds(workspace, "pin-folded")[0]
    page = browser.open(f"{url}pin-folded&at={fold.fold.handle}")
    page.get_by_role("button", name="Unfold all").first.click()
    turn = page.locator(".turn.inside").nth(2)
    turn.wait_for()
    keep_notices(page)
    before = count_view(workspace, "pin-folded")
    turn.hover()
    turn.get_by_role("button", name="Pin: keep this message in view").click()
    assert "it is back in view" in read_notices(page)
    page.locator(".turn:not(.inside) .pin.on").first.wait_for()
    assert count_view(workspace, "pin-folded") > before


IS_MARKED = """words => {
  const box = document.querySelector(".talk-scroll").getBoundingClientRect();
  return [...(CSS.highlights.get("recall") ?? [])].some((one) => {
    const range = document.createRange();
    range.setStart(one.startContainer, one.startOffset);
    range.setEnd(one.endContainer, one.endOffset);
    const place = range.getBoundingClientRect();
    const isSeen = place.height && place.top >= box.top && place.bottom <= box.bottom;
    return isSeen && range.toString().toLowerCase() === words.toLowerCase();
  });
}"""


def test_find_opens_the_row_and_marks_the_words(browser: Browser, url: str, workspace: Path) -> None:
    log = "".join(f"line {number}: nothing to see\n" for number in range(2_000)) + "the needle of the stack\n"
    with open_manager(workspace) as manager:
        call = {"id": "c1", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
        manager.append(
            "haystack",
            [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": log},
                *(
                    {"role": role, "content": f"{role} goes on, {at}"}
                    for at in range(30)
                    for role in ("assistant", "user")
                ),
            ],
        )
    page = browser.open(f"{url}haystack")
    find = page.get_by_role("searchbox", name="Find in session")
    find.fill("needle of the stack")
    find.press("Enter")
    page.get_by_text("1 of 1").wait_for()
    page.wait_for_function(IS_MARKED, arg="needle of the stack")


def test_every_line_of_a_record_leads_to_its_source(browser: Browser, url: str, workspace: Path) -> None:
    fold = find_folds(workspace)[0]
    line = next(one for one in fold.fold.summary.splitlines() if one.startswith("A> ") and len(one) > 40)
    page = browser.open(f"{url}folded&at={fold.fold.handle}")
    card = page.locator(".fold").first
    card.wait_for()
    assert not card.get_by_role("button", name=line[3:40]).count(), "the record is closed"
    card.get_by_role("button", name="Open the record").click()
    card.get_by_role("button", name=line[3:40]).first.click()
    page.wait_for_function(IS_MARKED, arg=line[3:].replace("`", ""))
    assert page.locator(".turn.inside", has_text=line[3:40].replace("`", "")).count()


def test_the_difference_looks_different_at_once(browser: Browser, url: str, workspace: Path) -> None:
    write_folded(workspace, "differs")
    fold = find_folds(workspace, "differs")[0]
    page = browser.open(f"{url}differs&at={fold.fold.handle}", height=1100)
    page.locator(".fold").first.wait_for()
    page.get_by_role("button", name="Difference").click()
    page.wait_for_function(
        """() => {
          const box = document.querySelector(".talk-scroll").getBoundingClientRect();
          const isSeen = (one) => {
            const place = one.getBoundingClientRect();
            return place.top < box.bottom - 40 && place.bottom > box.top;
          };
          const has = (kind) => [...document.querySelectorAll(`.look-difference ${kind}`)].some(isSeen);
          return has(".turn.gone") && has(".fold");
        }"""
    )


def test_a_session_is_searched_and_filtered_by_role(browser: Browser, url: str, workspace: Path) -> None:
    page = browser.open(f"{url}folded")
    page.locator(".turn").first.wait_for()
    field = page.get_by_role("searchbox", name="Find in session")
    field.fill("oriane")
    field.press("Enter")
    page.get_by_text(re.compile(r"^1 of \d+$")).wait_for()
    page.locator(".turn-place.found").wait_for()
    field.press("Enter")
    page.get_by_text(re.compile(r"^2 of \d+$")).wait_for()
    page.wait_for_timeout(300)
    assert page.get_by_text(re.compile(r"^2 of \d+$")).count(), "one press is one step"
    page.get_by_role("combobox", name="Show the messages of").select_option("user")
    page.locator(".turn.by-tool").first.wait_for(state="detached")
    page.locator(".turn.by-user").first.wait_for()


def test_an_earlier_fold_is_folded_again_though_another_was_undone_later(workspace: Path) -> None:
    write_folded(workspace, "out of order")
    first, second = find_folds(workspace, "out of order")
    with open_manager(workspace) as manager:
        before = [item.raw for item in manager.read_view("out of order")]
        manager.undo("out of order", first.id)
        manager.undo("out of order", second.id)
        manager.redo("out of order", first.id)
        active = {one.edit.id for one in manager.ledger.read_edits("out of order")}
        assert first.id in active
        assert second.id not in active
        manager.redo("out of order")
        assert [item.raw for item in manager.read_view("out of order")] == before


def test_what_was_said_and_the_difference_show_what_the_model_does_not_see(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}folded")
    page.locator(".turn").first.wait_for()
    page.get_by_role("button", name="What was said").click()
    scroll_until(page, ".look-said .turn.behind .chip")
    assert page.locator(".fold").count() == 0
    page.get_by_role("button", name="Difference").click()
    scroll_until(page, ".look-difference .turn.gone .chip.bad")


def scroll_until(page: Any, wanted: str) -> None:
    """Scroll up as a reader does until something is there."""
    page.locator(".talk-scroll").hover()
    until = time.monotonic() + TIMEOUT_MS / 1_000
    while time.monotonic() < until:
        wait_for_rows(page)
        if page.locator(wanted).count():
            return
        page.mouse.wheel(0, -1_500)
        page.wait_for_timeout(120)
    raise AssertionError(f"{wanted} never came")


def test_a_shortened_output_shows_its_mark_and_opens_in_full(browser: Browser, url: str, workspace: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_log", "arguments": '{"day": 3}'}}
    with ContextCompressionManager(CompressionConfig().cut_on_arrival(), workspace) as manager:
        manager.append(
            "shortened",
            [
                {"role": "user", "content": "Read the log"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": LINES},
                {"role": "assistant", "content": "Read."},
            ],
        )
        shown = manager.read_view("shortened")[2].parts[0].text
    lost = next(line for line in LINES.splitlines() if line not in shown)
    page = browser.open(f"{url}shortened")
    page.locator(".mark .chip", has_text="truncated").wait_for()
    page.get_by_role("button", name="Open in full").click()
    whole = page.locator(".whole")
    whole.get_by_text("line 0: the pump").wait_for()
    while page.locator(".whole").get_by_role("button", name="Show more").count():
        seen = len(whole.inner_text())
        page.locator(".whole").get_by_role("button", name="Show more").click()
        page.wait_for_function("seen => document.querySelector('.whole').innerText.length > seen", arg=seen)
    assert lost in whole.inner_text()


def test_two_tabs_see_what_another_process_adds(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        manager.append("shared", [{"role": "user", "content": "Who is there?"}])
        one, other = browser.open(f"{url}shared"), browser.open(f"{url}shared")
        for page in (one, other):
            page.locator(".turn").get_by_text("Who is there?").wait_for()
        manager.append("shared", [{"role": "assistant", "content": "It is the harbour master."}])
        for page in (one, other):
            page.locator(".turn").get_by_text("It is the harbour master.").wait_for()


def test_a_compression_in_one_tab_is_a_card_in_the_other(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        talk = [
            {"role": role, "content": f"{role} {at}: " + "words of no weight " * 60}
            for at in range(30)
            for role in ("user", "assistant")
        ]
        manager.append("both", talk)
    one, other = browser.open(f"{url}both"), browser.open(f"{url}both")
    for page in (one, other):
        page.locator(".gauge-share").wait_for()
    one.get_by_role("button", name="Compress now").click()
    one.get_by_role("dialog").get_by_role("button", name="Compress now").click()
    one.locator(".session-talk .fold").first.wait_for()
    scroll_until(other, ".session-talk .fold")


def test_a_handle_in_the_address_leads_to_its_message_even_within_a_fold(
    browser: Browser, url: str, workspace: Path
) -> None:
    fold = find_folds(workspace)[0]
    with open_manager(workspace) as manager:
        stored = manager.ledger.read_messages("folded", [fold.covers[len(fold.covers) // 2]])[0]
    page = browser.open(f"{url}folded&at=m:{stored.digest[:8]}")
    place = page.locator(".turn-place", has_text=f"m:{stored.digest[:8]}").first
    place.wait_for()
    page.wait_for_function(
        "e => { const r = e.getBoundingClientRect(); return r.top > 0 && r.top < innerHeight }",
        arg=place.element_handle(),
    )


def test_a_fact_leads_to_where_it_was_said(browser: Browser, url: str, workspace: Path) -> None:
    fold = find_folds(workspace)[0]
    fact = next(fact for fact in fold.fold.facts if fact.handle)
    page = browser.open(f"{url}folded&at={fold.fold.handle}")
    page.locator(".facts").get_by_role("button", name=fact.handle).first.click()
    page.locator(".turn-place.found .handle", has_text=fact.handle).wait_for()


def test_a_session_that_is_deleted_elsewhere_leads_back_to_the_list(
    browser: Browser, url: str, workspace: Path
) -> None:
    with open_manager(workspace) as manager:
        manager.append("short-lived", [{"role": "user", "content": "Not for long"}])
        page = browser.open(f"{url}short-lived")
        page.get_by_text("Not for long").first.wait_for()
        manager.delete_session("short-lived")
    page.wait_for_url("**/ui/")


def test_on_a_phone_the_session_fits_and_its_context_opens(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}folded", width=390, height=844)
    page.locator(".gauge-share").wait_for()
    assert is_within(page)
    assert not page.locator(".context-body").is_visible()
    page.get_by_role("button", name="Details of the context").click()
    page.locator(".context-body").wait_for()
    assert is_within(page)


def test_everything_in_a_session_is_reached_with_the_keyboard(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}folded")
    page.locator(".turn").first.wait_for()
    reached = set()
    page.get_by_role("button", name="Continue this conversation").click()
    page.locator(".composer-field:enabled").wait_for()
    page.locator("body").press("Tab")
    for _ in range(80):
        reached.add(page.evaluate("document.activeElement.className.split(' ')[0] || document.activeElement.tagName"))
        page.keyboard.press("Tab")
    assert {"skip", "brand", "talk-scroll", "block-head", "button", "composer-field"} <= reached


def test_a_name_of_any_letters_opens(browser: Browser, url: str, workspace: Path) -> None:
    name = '../a b?&#"<i>é船/%2e'
    with open_manager(workspace) as manager:
        manager.append(name, [{"role": "user", "content": "Strange name"}])
    page = browser.open(url.split("session?")[0])
    page.get_by_role("link", name="Strange name", exact=True).click()
    page.locator(".turn").get_by_text("Strange name").wait_for()


def test_reasons_are_chinese_on_the_chinese_page(browser: Browser, url: str, workspace: Path) -> None:
    fold = find_folds(workspace)[0]
    page = browser.open(f"{url}folded&at={fold.fold.handle}", language="zh-CN")
    card = page.locator(".fold").first
    card.wait_for()
    said = card.inner_text()
    assert "手动要求" in said
    assert "requested manually" not in said


def test_a_session_whose_requests_pass_through_says_why(browser: Browser, url: str, workspace: Path) -> None:
    with open_manager(workspace) as manager:
        manager.append("conv_1", [{"role": "user", "content": "Hello."}])
        manager.ledger.update_session("conv_1", {"settings": {HELD: because.CONVERSATION().to_json()}}, 1.0)
    page = browser.open(f"{url}conv_1")
    note = page.get_by_role("note").filter(has_text="the provider holds the conversation")
    note.wait_for()
    assert "pass through" in note.inner_text()
