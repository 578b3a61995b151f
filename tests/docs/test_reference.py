"""The reference is what the code says, and every page can be reached."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_the_reference_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert (DOCS / "reference.md").read_text(encoding="utf-8") == made.write_page(), "run 'make reference'"


def test_every_link_leads_somewhere() -> None:
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "ARCHITECTURE.md"]
    dead = [
        f"{page.name}: {link}"
        for page in pages
        for link in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S))
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_every_page_can_be_reached_from_the_first() -> None:
    seen: set[Path] = set()
    waiting = [DOCS.parent / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen:
            continue
        seen.add(page)
        if page.is_dir():
            waiting += page.glob("*.md")
        elif page.suffix == ".md":
            waiting += [page.parent / link for link in _LINK.findall(page.read_text(encoding="utf-8"))]
    assert sorted(page.name for page in DOCS.rglob("*.md") if page.resolve() not in seen) == []
