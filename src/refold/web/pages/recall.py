"""Recall and memory: search everything in the caller's sessions, and read the daily pages.

Results are exact originals, each with a link to its message. Anybody may have written them, so they become text nodes
in which the searched words are marked. The Markdown of daily pages contains conversation text, too, and becomes
harmless nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from nicegui import ui

from refold.memory import read_entry, write_heading
from refold.recall.search import Recalled
from refold.server.api.interface import Access
from refold.web.data import name_session
from refold.web.markup import show_markdown
from refold.web.shell import button, empty, frame, guarded, heading, link, text
from refold.web.visit import LANGUAGES, clean, find_visit, page_link, say, session_link, split_query

QUERY_CHARS_MAX = 1_000
SESSIONS_MAX = 200
RESULTS_MAX = 30
TOKENS_MAX = 8_000
SHOWN_CHARS = 420
MARKS_MAX = 200
# Below this score a text contains none of the searched words; it is only similar in meaning.
SCORE_WORDS = 0.5
NEAR_MAX = 5
_ROLES = frozenset(("user", "assistant", "tool", "system", "document"))
ENTRIES_SHOWN = 20
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)
_ENTRY = re.compile(r"^(?=## )", re.M)
# The speaker that a line of a summary quotes.
_QUOTED = re.compile(r"^([UA])> ", re.M)
_EMPTY_END = re.compile(r"\n#{3,6} [^\n]*\Z")


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """The result of a search: ``done`` of ``total`` sessions are indexed; the others are in the background."""

    results: tuple[Recalled, ...]
    names: dict[str, str]
    done: int
    total: int


async def show(query: str = "", name: str = "") -> None:
    query, source = query[:QUERY_CHARS_MAX].strip(), find_visit().source
    names = await source.run(list_names)
    with frame("recall"):
        heading(say("recall.title"))
        text("p", say("recall.intro"), "soft below-head")
        _draw_form(query, name, names)
        body = ui.element("div").classes("stack results").props("aria-live=polite")
        with body:
            if not names:
                with empty(say("recall.empty"), say("recall.empty_next")):
                    link(say("shell.chat"), page_link("/chat"), "button primary")
            elif query:
                text("p", say("recall.searching"), "faint").props("role=status")

        async def fill() -> None:
            found = await source.run(search, query, name)
            body.clear()
            with body:
                _draw_found(found, query)

        if names and query:
            ui.timer(0.01, guarded(fill), once=True)


def _draw_form(query: str, name: str, names: dict[str, str]) -> None:
    # A plain form works with the keyboard and has an address, so the browser's back button works too.
    with ui.element("form").classes("search-form").props(f'method=get action="{page_link("/recall")}" role=search'):
        field = ui.element("input").classes("input").props("type=search name=query autofocus")
        field.props.update(
            {
                "^value": query,  # An attribute: a value would be reset while the user types.
                "placeholder": say("recall.placeholder"),
                "aria-label": say("recall.label"),
                "maxlength": QUERY_CHARS_MAX,
            }
        )
        if names:
            with ui.element("select").classes("input choice").props("name=name") as choice:
                choice.props["aria-label"] = say("recall.in")
                for one in ("", *names):
                    option = text("option", clean(names[one] if one else say("recall.all"))[:120])
                    option.props.update({"value": clean(one), "selected": one == name})
        with ui.element("button").classes("button primary").props("type=submit"):
            text("span", say("recall.go"))


def list_names(access: Access) -> dict[str, str]:
    """Return the caller's sessions by name, with their titles."""
    rows = access.list_rows(SESSIONS_MAX, 0)
    return {access.name(row.id): name_session(access, row) for row in rows if row.messages}


def search(access: Access, query: str, name: str) -> FoundPassages:
    """Search one session with its family, or all of the caller's."""
    rows = [access.need(name)] if name else [row for row in access.list_rows(SESSIONS_MAX, 0) if row.messages]
    recall = access.manager.recalling
    if name:
        results = access.manager.recall(rows[0].id, query, RESULTS_MAX, tokens_max=TOKENS_MAX)
    else:
        results = recall.search_sessions(rows, query, RESULTS_MAX, tokens_max=TOKENS_MAX)
    found = {result.session_id for result in results}
    relatives = [row for row in access.list_rows(SESSIONS_MAX, 0) if row.id in found] if name else rows
    names = {row.id: name_session(access, row) for row in (*rows, *relatives)}
    return FoundPassages(tuple(results), names, recall.count_ready(rows), len(rows))


def _draw_found(found: FoundPassages, query: str) -> None:
    shown = [result for result in found.results if result.score >= SCORE_WORDS]
    if shown:
        sessions = len({one.session_id for one in shown})
        count = len(shown)
        summary = (
            say("recall.found_one", count=count)
            if sessions == 1
            else say("recall.found", count=count, sessions=sessions)
        )
        text("p", summary, "faint").props("role=status")
    elif found.results:
        shown = list(found.results[:NEAR_MAX])
        text("p", say("recall.near"), "faint").props("role=status")
    else:
        with empty(say("recall.nothing"), say("recall.nothing_next")):
            pass
    for one in shown:
        _draw_result(one, found.names.get(one.session_id, ""), query)
    if found.done < found.total:
        text("p", say("recall.late", done=found.done, total=found.total), "faint")


def _draw_result(one: Recalled, title: str, query: str) -> None:
    access, words = find_visit().source.access, split_query(query)
    target = session_link(access.name(one.session_id), one.handle, query)
    with ui.element("article").classes("panel result"):
        with ui.element("div").classes("row wrap result-head"):
            role = say(f"recall.role_{one.role}") if one.role in _ROLES else one.role[:40]
            text("span", role, "chip")
            text("span", clean(title)[:120], "cut soft result-name")
            if one.created_at:
                text("span", datetime.fromtimestamp(one.created_at).strftime("%Y-%m-%d %H:%M"), "faint num")
            link(say("recall.open"), target, "result-open").props["aria-label"] = say("recall.open")
        for said in one.said:
            # What belongs to a result stands where it was said: a question above its answer, a call above its result.
            with ui.element("p").classes("result-text" if said.handle == one.handle else "result-text soft"):
                draw_marked(cut_around(clean(said.text), words), words)
        with ui.element("div").classes("row"):
            text("span", one.handle[:60], "mono faint")
            if not one.is_whole:
                text("span", say("recall.part"), "faint")


def cut_around(content: str, words: list[str]) -> str:
    """Return a text; a long one is cut to the part around the first searched word."""
    if len(content) <= SHOWN_CHARS:
        return content
    places = [place for word in words if (place := content.lower().find(word.lower())) >= 0]
    start = max(0, (min(places) if places else 0) - SHOWN_CHARS // 3)
    start = content.rfind(" ", max(0, start - 30), start) + 1 or start
    stop = start + SHOWN_CHARS
    return f"{'… ' if start else ''}{content[start:stop]}{' …' if stop < len(content) else ''}"


def draw_marked(content: str, words: list[str]) -> None:
    """Draw a text with the searched words marked."""
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pieces = re.split(f"({pattern})", content, maxsplit=MARKS_MAX, flags=re.IGNORECASE) if pattern else [content]
    for number, piece in enumerate(pieces):
        if piece:
            text("mark" if number % 2 else "span", piece)


async def show_memory(date: str = "") -> None:
    """Draw the memory page of a day; the newest one by default."""
    source = find_visit().source
    if source.access.tenant:
        with frame("memory"), empty(say("memory.title"), say("memory.operator")):
            link(say("memory.recall"), page_link("/recall"), "button primary")
        return
    dates = await source.run(lambda access: access.manager.md_sync.list_dates()[::-1])
    chosen = date if date in dates else (dates[0] if dates and not date else "")
    page = await source.run(lambda access: access.manager.md_sync.read(chosen) or "") if chosen else ""
    sessions = await source.run(list_headings) if chosen else {}
    with frame("memory"):
        heading(say("memory.title"))
        text("p", say("memory.intro"), "soft below-head")
        if not dates:
            with empty(say("memory.empty"), say("memory.empty_next")):
                pass
            return
        with ui.element("div").classes("memory"):
            with ui.element("nav").classes("days") as days:
                days.props["aria-label"] = say("memory.days")
                for one in dates:
                    item = link(one, page_link("/memory", date=one), "num day-link")
                    if one == chosen:
                        item.props["aria-current"] = "page"
            with ui.element("div").classes("stack day"):
                if chosen:
                    _draw_day(chosen, page, sessions)
                else:
                    text("p", say("memory.none", date=date[:10]), "problem")


def split_entries(page: str) -> list[str]:
    """Return the entries of a page, newest first; text above the first entry comes last.

    A heading at the end of an entry with nothing below it is left out: the file has all headings in every entry.
    """
    body = _FRONT.sub("", page.replace("\r\n", "\n"), count=1)
    return [_EMPTY_END.sub("", entry.strip()) for entry in reversed(_ENTRY.split(body)) if entry.strip()]


def list_headings(access: Access) -> dict[str, tuple[str, str]]:
    """Return name and title of the newest session for every heading that the pages have for one."""
    rows = [row for row in access.list_rows(SESSIONS_MAX, 0) if row.messages]
    return {
        write_heading(row.id, language): (access.name(row.id), name_session(access, row))
        for row in reversed(rows)
        for language in LANGUAGES
    }


def _draw_entry(entry: str, sessions: dict[str, tuple[str, str]]) -> None:
    """Draw an entry in the reader's language, with a link to its session; what a person wrote, as it is."""
    speakers = {"U": say("session.talk_by_user"), "A": say("session.talk_by_assistant")}
    quoted = _QUOTED.sub(lambda found: f"**{speakers[found[1]]}:** ", entry)
    read = read_entry(quoted)
    if read is None:
        show_markdown(quoted)
        return
    time, count, summary, facts = read
    name, title = sessions.get(entry.partition("\n")[0], ("", ""))
    with ui.element("h3"):
        if name:
            link(clean(title)[:120], session_link(name))
        else:
            text("span", say("memory.gone"))
    text("p", say("memory.folded", time=time[11:16], count=count), "faint")
    show_markdown(summary)
    if facts:
        heading(say("memory.facts"), 4)
        show_markdown(facts)


def _draw_day(date: str, page: str, sessions: dict[str, tuple[str, str]]) -> None:
    entries = split_entries(page)
    with ui.element("div").classes("row spread"):
        heading(date, 2).classes("num")
        text("span", say("memory.entries", count=len(entries)), "faint")
    listed = ui.element("div").classes("stack")

    def draw_more(start: int) -> None:
        with listed:
            for entry in entries[start : start + ENTRIES_SHOWN]:
                with ui.element("article").classes("panel prose entry"):
                    _draw_entry(entry, sessions)
            left = len(entries) - start - ENTRIES_SHOWN
            if left > 0:

                def go_on() -> None:
                    older.delete()
                    draw_more(start + ENTRIES_SHOWN)

                older = button(say("memory.older", count=left), go_on)

    draw_more(0)
