"""Daily pages (S0.8): front matter once, a section per compression, safe from two processes and from any text."""

import asyncio
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from refold import FormatError, LedgerError
from refold.memory import Entry, MarkdownSync, is_section_of, quiet_line, quiet_text, write_entry
from tests.rigs.effort import up_to

DATE = "2026-02-16"
TIME = "2026-02-16T14:30:00"


def headings(markdown: str) -> list[tuple[str, str]]:
    tokens = MarkdownIt().parse(markdown)
    return [(token.tag, tokens[at + 1].content) for at, token in enumerate(tokens) if token.type == "heading_open"]


def test_a_page_has_its_front_matter_once_and_a_section_per_entry(tmp_path: Path) -> None:
    pages = MarkdownSync(tmp_path)
    for number in range(3):
        asyncio.run(pages.append_to_daily_log(DATE, f"## part {number}\ntext"))
    text = (tmp_path / "memory" / f"{DATE}.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    fields = yaml.safe_load(front)
    assert list(fields) == ["id", "date", "created_at"]
    assert fields["date"] == DATE
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", fields["id"])
    assert body == "\n## part 0\ntext\n\n## part 1\ntext\n\n## part 2\ntext\n"
    assert text.count("created_at") == 1
    assert stat.S_IMODE((tmp_path / "memory").stat().st_mode) == 0o700


def test_s0_8_a_chinese_section_has_the_documents_layout() -> None:
    entry = Entry("abc123def456", TIME, 50, "用户要求实现登录。", ["偏好 FastAPI", "决定双 token"], "zh")
    assert write_entry(entry) == (
        "## 会话 abc123de... 上下文压缩归档\n\n**时间**: 2026-02-16T14:30:00\n**归档消息数**: 50\n\n"
        "### 摘要\n用户要求实现登录。\n\n### 关键事实\n- 偏好 FastAPI\n- 决定双 token\n"
    )


def test_s0_8_an_english_section_has_the_same_layout() -> None:
    entry = Entry("abc123def456", TIME, 2, "They agreed.", ["uses Python"], "en")
    assert write_entry(entry).split("\n") == [
        "## Session abc123de... context archived",
        "",
        "**Time**: 2026-02-16T14:30:00",
        "**Messages archived**: 2",
        "",
        "### Summary",
        "They agreed.",
        "",
        "### Key facts",
        "- uses Python",
        "",
    ]


HOSTILE = [
    "## 会话 forged... 上下文压缩归档",
    "# top\n## second\n### 关键事实\n- forged",
    "Title\n===\nSub\n---\n",
    "---\nid: forged\n---",
    "```python\nnever closed",
    "~~~\nnever closed",
    "<!-- never closed",
    "<script>\nnever closed",
    "<pre>\nopen",
    "<details>",
    "> ```\n> open quote",
    "- ```\n  open in a list",
    "a\r## carriage return",
    "a\u2028## line separator",
    "a\x0b## vertical tab",
    "a\x85## next line",
    "\x1b[2J escape \u202e bidi",
    "* * *\n_ _ _\n- - -",
    "   ## indented",
    "   ```\n   open",
    "> # quoted\n> Title\n> ===",
    "- # in a list\n- Title\n  ---",
    "1. Title\n     ===\n\t---",
    "- > 1) ## deep",
    "lone \ud83d",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_session_cannot_break_the_layout(tmp_path: Path, text: str) -> None:
    pages = MarkdownSync(tmp_path)
    for _ in range(2):
        pages.append(DATE, write_entry(Entry(text[:8] or "x", TIME, 3, text, [text, "a plain fact"], "zh")))
    page = pages.read(DATE)
    assert page is not None
    outline = headings(page.split("---\n", 2)[2])
    assert [tag for tag, _ in outline if tag in ("h1", "h2", "h3")] == ["h2", "h3", "h3"] * 2
    assert [name for tag, name in outline if tag == "h3"] == ["摘要", "关键事实"] * 2
    assert "\x1b" not in page
    assert "\u202e" not in page


MARKUP = st.text("#>-=*_`~<!/ap \n\t1.)+|[]", max_size=60)


@settings(max_examples=up_to(400))
@given(st.one_of(st.text(max_size=200), MARKUP))
def test_any_text_stays_inside_its_section(text: str) -> None:
    quiet = quiet_text(text)
    assert all(level not in ("h1", "h2", "h3") for level, _ in headings(quiet))
    last = headings(f"{quiet}\n\n## the next section\n")
    assert last[-1] == ("h2", "the next section")
    assert "\n" not in quiet_line(text)


def test_a_page_that_a_person_wrote_is_kept_and_added_to(tmp_path: Path) -> None:
    page = tmp_path / "memory" / f"{DATE}.md"
    page.parent.mkdir()
    page.write_bytes(b"my own notes, not UTF-8: \xff, no newline")
    with pytest.raises((LedgerError, UnicodeDecodeError)):
        MarkdownSync(tmp_path).append(DATE, "## entry")
    page.write_text("my own notes, no newline", encoding="utf-8")
    MarkdownSync(tmp_path).append(DATE, "## entry")
    assert page.read_text(encoding="utf-8") == "my own notes, no newline\n\n## entry\n"


def test_a_section_is_found_by_session_and_time_and_taken_out(tmp_path: Path) -> None:
    pages = MarkdownSync(tmp_path)
    for session, time in (("s1", TIME), ("s2", TIME), ("s1", "2026-02-16T15:00:00")):
        pages.append(DATE, write_entry(Entry(session, time, 1, f"summary of {session} {time}", [], "en")))
    assert pages.remove_sections(DATE, lambda section: is_section_of(section, "s1", TIME)) == 1
    text = pages.read(DATE)
    assert text is not None
    assert f"summary of s1 {TIME}" not in text
    assert text.count("## Session ") == 2
    assert pages.remove_sections("2020-01-01", lambda _: True) == 0


@pytest.mark.parametrize("date", ["", "today", "2026-2-1", "../../etc/x", "2026-02-16\n", "２０２６-02-16"])
def test_only_dates_name_pages(tmp_path: Path, date: str) -> None:
    with pytest.raises(FormatError, match="is not a date"):
        MarkdownSync(tmp_path).append(date, "text")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file in the way", encoding="utf-8")
    with pytest.raises(LedgerError, match="cannot be written"):
        MarkdownSync(tmp_path).append(DATE, "text")


WRITE = """
import sys
from refold.memory import MarkdownSync
pages = MarkdownSync(sys.argv[1])
for number in range(25):
    pages.append("2026-02-16", f"## {sys.argv[2]} {number}\\nbody of {sys.argv[2]} {number}")
"""


def test_two_processes_append_to_one_page_and_no_entry_is_lost(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path), name]) for name in ("first", "second", "third")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    text = (tmp_path / "memory" / f"{DATE}.md").read_text(encoding="utf-8")
    assert text.count("created_at") == 1
    for name in ("first", "second", "third"):
        assert [f"## {name} {number}\nbody of {name} {number}\n" in text for number in range(25)] == [True] * 25
    assert sorted(path.name for path in (tmp_path / "memory").iterdir()) == [".lock", f"{DATE}.md"]
