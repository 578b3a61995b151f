"""The generated reference is current, every link leads somewhere, and every page can be reached."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")


def list_pages() -> list[Path]:
    return [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "llms.txt"]


def read_links(page: Path) -> list[tuple[str, str]]:
    """Return (path, anchor) of every relative link of a page, outside code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    return _LINK.findall(text)


@cache
def read_anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    headings = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "heading_open"]
    texts = ["".join(child.content for child in heading.children or []) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def test_the_reference_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.PAGE.read_text(encoding="utf-8") == made.write_page(), "run 'make reference'"


def test_every_link_leads_somewhere() -> None:
    dead = []
    for page in list_pages():
        for path, anchor in read_links(page):
            target = (page.parent / path).resolve() if path else page.resolve()
            if not target.exists() or (anchor and anchor not in read_anchors(target)):
                dead.append(f"{page.relative_to(ROOT)}: {path}#{anchor}")
    assert dead == []


def test_every_page_can_be_reached_from_the_first() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen:
            continue
        seen.add(page)
        if page.is_dir():
            waiting += page.glob("*.md")
        elif page.suffix == ".md":
            waiting += [page.parent / path for path, _ in read_links(page) if path]
    assert sorted(page.name for page in DOCS.rglob("*.md") if page.resolve() not in seen) == []


def test_llms_txt_follows_the_convention_and_lists_every_page_but_translations() -> None:
    lines = (ROOT / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# refold"
    assert lines[2].startswith("> ")
    listed = {(ROOT / path).resolve() for path, _ in read_links(ROOT / "llms.txt")}
    pages = {
        page.resolve()
        for page in DOCS.rglob("*.md")
        if page.name != "index.md" and "zh" not in page.parts and "stages" not in page.parts
    }
    # A folder that is listed stands for its pages.
    assert sorted(page.name for page in pages - listed if not listed & set(page.parents)) == []
    for line in lines[lines.index("## Quickstart") :]:
        assert not line or line.startswith("## ") or re.fullmatch(r"- \[[^\]]+\]\([^)]+\): .+", line), line
