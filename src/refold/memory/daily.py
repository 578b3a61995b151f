"""Daily memory pages (S0.8): ``memory/YYYY-MM-DD.md``, front matter once, one section per compression.

Pages are for people. An append is atomic and safe from two processes: under the folder's lock the page is written
anew beside itself and renamed. Text of a session cannot break the layout: it is written by ``entry.py``. A page that a
person wrote or changed is kept as it is, and added to.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from refold.errors import FormatError, LedgerError
from refold.memory.locking import lock_folder
from refold.offload.writing import make_folder, remove_leftovers, write_whole

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_SECTION = re.compile(r"^(?=## )", re.M)
PAGE_BYTES_MAX = 64 * 1024 * 1024


class MarkdownSync:
    """The daily pages of a workspace. Nothing is created before the first entry."""

    def __init__(self, workspace_path: str | Path, folder: str = "memory") -> None:
        self.folder = Path(workspace_path) / folder

    async def append_to_daily_log(self, date: str, entry: str) -> None:
        """Add an entry to the page of a date, made with its front matter if it is not there yet."""
        await asyncio.to_thread(self.append, date, entry)

    def append(self, date: str, entry: str) -> Path:
        """Add an entry to the page of a date; return where the page is."""
        page = self._page(date)
        body = entry.strip("\n") + "\n"

        def add(text: str) -> str:
            head = text or _write_front_matter(date)
            gap = "" if head.endswith("\n\n") else "\n" if head.endswith("\n") else "\n\n"
            return f"{head}{gap}{body}"

        self._rewrite(page, add)
        return page

    def read(self, date: str) -> str | None:
        """Return the page of a date; None if there is none."""
        page = self._page(date)
        return _read(page) if page.is_file() else None

    def list_dates(self) -> list[str]:
        """Return the dates that have a page, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(page.stem for page in self.folder.glob("*.md") if _DATE.fullmatch(page.stem))

    def remove_sections(self, date: str, is_gone: Callable[[str], bool]) -> int:
        """Take the sections out of a page for which ``is_gone`` is true; return how many. For ``forget`` only."""
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
            raise FormatError(f"{date[:40]!r} is not a date; pages are called by dates such as 2026-02-16")
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
            raise LedgerError(f"the memory page {page} cannot be written: {error.strerror or error}") from error


def _read(page: Path) -> str:
    with page.open("rb") as file:
        return file.read(PAGE_BYTES_MAX).decode("utf-8", "surrogatepass")


def _write_front_matter(date: str) -> str:
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'---\nid: "{uuid.uuid4()}"\ndate: "{date}"\ncreated_at: "{created}"\n---\n\n'
