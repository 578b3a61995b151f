"""Files for people about past sessions: daily memory pages, and the folder ``.compression``.

A daily page is ``memory/YYYY-MM-DD.md``, with front matter once and one section per compression, in Chinese or English.
An append is atomic and safe between processes. A person's own changes stay. Text of a session cannot break the layout:
no heading above the fourth level, no front matter, no open code fence or HTML block, no control characters.

The folder has ``config.json``, in which a person's change takes effect, and ``summaries.json``. The ledger is
authoritative, so a missing or broken file loses nothing else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import orjson

from refold.conversation.reason import Language
from refold.errors import FormatError, LedgerError
from refold.ledger.records import ContextSummary
from refold.offload import lock_folder, make_folder, remove_leftovers, write_whole

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#])")
_SECTION = re.compile(r"^(?=## )", re.M)
PAGE_BYTES_MAX = 64 * 1024 * 1024
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAK = re.compile("\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")
_HEADING = re.compile(r"^ {0,3}(#{1,6})(?=[ \t]|$)")
# Quotes and list items may contain the same openers.
_MARKER = re.compile(r"(?:>|[-*+]|\d{1,9}[.)])[ \t]*")
_OPENER = re.compile(
    r"`{3}|~{3}|<[A-Za-z/!?]|#{1,6}(?:[ \t]|$)|=+[ \t]*$|(?:-[ \t]*)+$|(?:\*[ \t]*){3,}$|(?:_[ \t]*){3,}$"
)
_FACTS_MAX = 50
_FACT_CHARS_MAX = 500
SHOWN_ID_CHARS = 8

_WORDS: dict[Language, tuple[str, str, str, str, str]] = {
    "zh": ("会话 {} 上下文压缩归档", "时间", "归档消息数", "摘要", "关键事实"),
    "en": ("Session {} context archived", "Time", "Messages archived", "Summary", "Key facts"),
}


# When a compression writes pages and summaries: before its request continues; pages alone, in a thread; never.
PageWriting = Literal["now", "later", "off"]
_Entry = TypeVar("_Entry")


class WriteTogether(Generic[_Entry]):
    """Lets threads that rewrite the same file do it together: one writes for all that wait."""

    def __init__(self, write_all: Callable[[Sequence[_Entry]], None]) -> None:
        self._write_all = write_all
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._waiting: list[tuple[_Entry, Future[None]]] = []

    def write(self, entry: _Entry) -> None:
        """Return when the entry is written; raise the error that writing it raised."""
        done: Future[None] = Future()
        with self._guard:
            self._waiting.append((entry, done))
        with self._turn:
            if not done.done():
                with self._guard:
                    batch, self._waiting = self._waiting, []
                self._write_batch(batch)
        done.result()

    def _write_batch(self, batch: Sequence[tuple[_Entry, Future[None]]]) -> None:
        error: BaseException | None = None
        try:
            self._write_all([entry for entry, _ in batch])
        except BaseException as raised:  # noqa: BLE001 - every thread of the batch raises it, also an interrupt
            error = raised
        for _, done in batch:
            done.set_exception(error) if error is not None else done.set_result(None)


class MarkdownSync:
    """The daily pages of a workspace. Nothing is created before the first entry."""

    def __init__(self, workspace_path: str | Path, folder: str = "memory") -> None:
        self.folder = Path(workspace_path) / folder
        self._together = WriteTogether(self.append_all)

    async def append_to_daily_log(self, date: str, entry: str) -> None:
        """Add an entry to the page of a date; a new page gets front matter."""
        await asyncio.to_thread(self.append, date, entry)

    def append(self, date: str, entry: str) -> Path:
        """Add an entry to the page of a date; return the path of the page."""
        page = self._page(date)
        self._together.write((date, entry))
        return page

    def append_all(self, entries: Sequence[tuple[str, str]]) -> None:
        """Add entries, given as dates and texts, each page in one write."""
        for date in dict.fromkeys(date for date, _ in entries):
            bodies = [body.strip("\n") + "\n" for other, body in entries if other == date]
            self._rewrite(self._page(date), partial(_add_bodies, date, bodies))

    def read(self, date: str) -> str | None:
        """Return the page of a date, or None."""
        page = self._page(date)
        return _read(page) if page.is_file() else None

    def list_dates(self) -> list[str]:
        """Return the dates that have a page, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(page.stem for page in self.folder.glob("*.md") if _DATE.fullmatch(page.stem))

    def remove_sections(self, date: str, is_gone: Callable[[str], bool]) -> int:
        """Remove the sections of a page for which ``is_gone`` is true; return how many. For ``forget`` only."""
        page = self._page(date)
        if not page.is_file():
            return 0
        removed = 0

        def cut(text: str) -> str:
            nonlocal removed
            head, *sections = _SECTION.split(text)
            kept = [section for section in sections if not is_gone(section)]
            removed = len(sections) - len(kept)
            return "".join([head, *kept])

        self._rewrite(page, cut)
        return removed

    def _page(self, date: str) -> Path:
        if not _DATE.fullmatch(date):
            raise FormatError("{date!r} is not a date; write it as 2026-02-16", date=date[:40])
        return self.folder / f"{date}.md"

    def _rewrite(self, page: Path, change: Callable[[str], str]) -> None:
        try:
            make_folder(self.folder)
            with lock_folder(self.folder):
                remove_leftovers(self.folder)
                text = _read(page) if page.exists() else ""
                changed = change(text)
                if changed != text:
                    write_whole(page, changed.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise LedgerError(
                "the memory page {page} cannot be written: {why}", page=page, why=error.strerror or error
            ) from error


def _add_bodies(date: str, bodies: Sequence[str], text: str) -> str:
    pieces = [text or _write_front_matter(date)]
    for body in bodies:
        pieces.append("" if pieces[-1].endswith("\n\n") else "\n" if pieces[-1].endswith("\n") else "\n\n")
        pieces.append(body)
    return "".join(pieces)


def _read(page: Path) -> str:
    with page.open("rb") as file:
        return file.read(PAGE_BYTES_MAX).decode("utf-8", "surrogatepass")


def _write_front_matter(date: str) -> str:
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'---\nid: "{uuid.uuid4()}"\ndate: "{date}"\ncreated_at: "{created}"\n---\n\n'


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of a section. ``time`` is local, in ISO format."""

    session_id: str
    time: str
    archived_count: int
    summary: str
    key_facts: Sequence[str] = ()
    language: Language = "zh"


def write_entry(entry: Entry) -> str:
    """Return the section as Markdown."""
    _, time, archived, summary, facts = _WORDS[entry.language]
    lines = [
        write_heading(entry.session_id, entry.language),
        "",
        f"**{time}**: {entry.time}",
        f"**{archived}**: {entry.archived_count}",
        "",
        f"### {summary}",
        quiet_text(entry.summary),
        "",
        f"### {facts}",
        *(_quiet_markup(f"- {fact}") for fact in map(quiet_line, entry.key_facts[:_FACTS_MAX]) if fact),
    ]
    return "\n".join(lines) + "\n"


def write_heading(session_id: str, language: Language) -> str:
    """Return the heading of a session's section."""
    shown = _MARKDOWN.sub(r"\\\1", quiet_line(session_id[:SHOWN_ID_CHARS]))
    return f"## {_WORDS[language][0].format(f'{shown}...')}"


def read_entry(section: str) -> tuple[str, int, str, str] | None:
    """Return a section's time, count of messages, summary and facts; None if its frame is not ours."""
    for words in _WORDS.values():
        _, time, archived, summary, facts = map(re.escape, words)
        head = rf"\A## [^\n]+\n\n\*\*{time}\*\*: (\S+)\n\*\*{archived}\*\*: (\d{{1,9}})\n\n"
        body = rf"### {summary}\n(.*?)(?:\n### {facts}\s*(.*))?"
        if found := re.fullmatch(head + body, section.strip(), re.S):
            return found[1], int(found[2]), found[3].strip(), (found[4] or "").strip()
    return None


def is_section_of(section: str, session_id: str, time: str) -> bool:
    """Return whether a section was written for this session at this time."""
    lines = section.split("\n", 3)
    return len(lines) > 2 and any(
        lines[0] == write_heading(session_id, language) and lines[2] == f"**{words[1]}**: {time}"
        for language, words in _WORDS.items()
    )


def quiet_text(text: str) -> str:
    """Return text of a session as Markdown that stays within its section."""
    lines = [_quiet_markup(_CONTROL.sub("", line)) for line in _BREAK.split(text)]
    return "\n".join(lines).strip("\n")


def quiet_line(text: str) -> str:
    """Return text of a session as one line."""
    line = " ".join(_CONTROL.sub("", _BREAK.sub(" ", text[: _FACT_CHARS_MAX * 2])).split())
    return line if len(line) <= _FACT_CHARS_MAX else f"{line[: _FACT_CHARS_MAX - 1]}…"


def _quiet_markup(line: str) -> str:
    heading = _HEADING.match(line)
    if heading:
        level = max(4, min(6, len(heading[1]) + 2))
        return "#" * level + line[heading.end() :]
    start = len(line) - len(line.lstrip(" \t"))
    while not _OPENER.match(line, start):
        marker = _MARKER.match(line, start)
        if marker is None:
            return line
        start = marker.end()
    return f"{line[:start]}\\{line[start:]}"


SUMMARIES_MAX = 1_000
FOLDER_PLACE = ".compression/config.json"
# Of one session in the file; the ledger has all of them.
HISTORY_MAX = 50
BYTES_MAX = 32 * 1024 * 1024
# The names in the file, and ours.
SETTINGS = {
    "maxTurns": "max_turns",
    "keepRecent": "keep_recent",
    "maxToolOutput": "max_tool_output",
    "summaryMaxChars": "summary_max_chars",
    "autoCompress": "auto_compress",
    "importanceThreshold": "importance_threshold",
}
# Beside the settings: which of them were changed, and what we wrote last, to detect changes by hand.
_CHANGED = "changed"
_WRITTEN = "written"


class CompressionFolder:
    """Reads and writes the two files of a workspace. Nothing is created before the first write."""

    def __init__(self, workspace_path: str | Path) -> None:
        self.folder = Path(workspace_path) / ".compression"
        self._together = WriteTogether(self._write_sessions)

    def read_config(self) -> dict[str, object]:
        """Return the settings that a person changed in ``config.json``, under our names."""
        stored = self._load("config.json")
        if not isinstance(stored, dict):
            return {}
        written, changed = stored.get(_WRITTEN), stored.get(_CHANGED)
        written = written if isinstance(written, dict) else {}
        changed = changed if isinstance(changed, list) else []
        return {
            ours: stored[name]
            for name, ours in SETTINGS.items()
            if name in stored and (name in changed or stored[name] != written.get(name))
        }

    def write_config(self, values: Mapping[str, object], *, changes: Mapping[str, object] | None = None) -> None:
        """Write the current settings under the names of the file; keep ``changes`` and a person's own changes."""
        with self._locked():
            kept = {**self.read_config(), **(changes or {})}
            plain = {name: values.get(ours) for name, ours in SETTINGS.items()}
            shown = {name: kept.get(ours, plain[name]) for name, ours in SETTINGS.items()}
            changed = [name for name, ours in SETTINGS.items() if ours in kept]
            written = {**shown, _CHANGED: changed, _WRITTEN: plain}
            if written != self._load("config.json"):
                self._store("config.json", written)

    def release_config(self, names: Iterable[str]) -> None:
        """Drop a person's changes of these settings (our names), so that the other settings files decide again."""
        released = {name for name, ours in SETTINGS.items() if ours in set(names)}
        if not released or not (self.folder / "config.json").is_file():
            return
        with self._locked():
            stored = self._load("config.json")
            if isinstance(stored, dict):
                changed, written = stored.get(_CHANGED), stored.get(_WRITTEN)
                changed = changed if isinstance(changed, list) else []
                stored[_CHANGED] = [name for name in changed if name not in released]
                plain = written if isinstance(written, dict) else {}
                self._store("config.json", stored | {name: plain.get(name) for name in released} | {_WRITTEN: plain})

    @property
    def has_summaries(self) -> bool:
        """Whether a program has written the summaries of this workspace."""
        return (self.folder / "summaries.json").exists()

    def read_summaries(self, session_id: str | None = None) -> list[dict[str, Any]]:
        """Return the summaries of a session, or all, the newest first."""
        stored = self._load("summaries.json")
        rows = [row for row in stored if isinstance(row, dict)] if isinstance(stored, list) else []
        return [row for row in rows if session_id is None or row.get("sessionId") == session_id]

    def write_summaries(self, session_id: str, summaries: Iterable[ContextSummary]) -> None:
        """Replace the summaries of a session."""
        self._together.write((session_id, [{**summary.to_dict(), "sessionId": session_id} for summary in summaries]))

    def _write_sessions(self, sessions: Sequence[tuple[str, list[dict[str, Any]]]]) -> None:
        newest = dict(sessions)
        with self._locked():
            remove_leftovers(self.folder)
            rows = self.read_summaries()
            others = [row for row in rows if row.get("sessionId") not in newest]
            own = [row for added in newest.values() for row in added]
            changed = sorted([*others, *own], key=_timestamp_of, reverse=True)[:SUMMARIES_MAX]
            if changed != rows:
                self._store("summaries.json", changed)

    def _load(self, name: str) -> object:
        path = self.folder / name
        try:
            if path.exists() and not path.is_file():
                raise OSError(f"{path} is not a file")  # Opening a pipe would wait for ever.
            with path.open("rb") as file:
                return json.loads(file.read(BYTES_MAX).decode("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            # The ledger has all of it; an unreadable file is moved aside, not overwritten.
            with suppress(OSError):
                path.replace(path.with_name(f"{name}.unreadable"))
                logging.getLogger("refold").warning("%s cannot be read; it is now %s.unreadable", path, name)
            return None

    def _store(self, name: str, value: object) -> None:
        try:
            content = orjson.dumps(value, option=orjson.OPT_INDENT_2)  # Twenty times as fast as json with an indent.
        except orjson.JSONEncodeError:  # A lone surrogate.
            content = json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")
        write_whole(self.folder / name, content + b"\n")

    def _locked(self) -> Any:
        try:
            make_folder(self.folder)
        except OSError as error:
            raise LedgerError(
                "{folder} cannot be made: {why}", folder=self.folder, why=error.strerror or error
            ) from error
        return lock_folder(self.folder)


def _timestamp_of(row: dict[str, Any]) -> float:
    stamp = row.get("timestamp")
    return float(stamp) if isinstance(stamp, int | float) else 0.0
