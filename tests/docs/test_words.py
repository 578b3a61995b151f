"""Pages that somebody reads first explain refold's own words where they first use them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = (
    "README.md",
    "docs/index.md",
    "docs/quickstart/agent.md",
    "docs/quickstart/claude-code-or-codex.md",
    "docs/quickstart/team-gateway.md",
    "docs/quickstart/tutorial.md",
    "docs/how-to/library.md",
    "docs/how-to/page.md",
)
# Each word in the forms in which a page may use it. At its first use it is emphasised, and the sentence explains it.
WORDS = {
    "view": r"(?:in |the |its |a |out of )views?\b(?!er)",
    "room": r"(?<!more )(?<!no )\brooms?\b",
    "rung": r"\brungs?\b",
    "law": r"\blaws?\b",
    "fold": r"\b(?:un)?fold(?:s|ed|ing)?\b",
}
EXPLAINED = re.compile(r"\*[\w ]+\*")


def read_prose(page: str) -> str:
    """The text of a page without blocks, code, pictures and the names of links."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|!\[[^\]]*\]\([^)]*\)|`[^`\n]*`", " ", page, flags=re.S | re.M)
    return re.sub(r"\[[^\]]*\]\([^)]*\)", " ", text)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("page", ENTRIES)
def test_a_private_word_is_explained_at_its_first_use(page: str, word: str) -> None:
    prose = read_prose((ROOT / page).read_text(encoding="utf-8"))
    found = re.search(WORDS[word], prose, re.I)
    if found is None:
        return
    around = prose[max(0, found.start() - 2) : found.end() + 2]
    assert EXPLAINED.search(around), f"explain {found[0]!r}: … {prose[max(0, found.start() - 60) : found.end() + 60]} …"


@pytest.mark.parametrize("page", ENTRIES)
def test_an_entry_page_speaks_of_no_documents(page: str) -> None:
    assert "one of the five documents" not in (ROOT / page).read_text(encoding="utf-8")
