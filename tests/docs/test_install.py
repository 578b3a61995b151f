"""Until the package is published, every page shows first what works from a checkout; what needs the index is marked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "llms.txt", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
INSTALLS = re.compile(r"\b(?:pip3? install|pipx install|uv tool install|uv pip install|uv add)\b[^`\n#;&]*")
BY_NAME = re.compile(r"(?<![\w./-])'?refold(?:\[[\w,-]+\])?'?(?![\w./=-])")
RUNS_BY_NAME = re.compile(r"\b(?:pipx run|uvx|uv tool run) refold\b")
MARKED = re.compile(r"[Oo]nce\s(?:refold\sis\s)?published|发布之后")
EXTRAS = re.compile(r"(?:refold|\.)\[([\w,-]+)\]")


def find_unmarked(text: str) -> list[str]:
    """The commands that take refold from the index by its name, in a paragraph that nowhere before them says so."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        for match in (*INSTALLS.finditer(paragraph), *RUNS_BY_NAME.finditer(paragraph)):
            needs_index = RUNS_BY_NAME.match(match[0]) or BY_NAME.search(match[0])
            if needs_index and not MARKED.search(paragraph, 0, match.start()):
                found.append(match[0])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_shows_a_command_that_fails_before_publication(page: Path) -> None:
    assert find_unmarked(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_extra_that_a_page_names_exists(page: Path) -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    text = page.read_text(encoding="utf-8")
    named = {
        extra for match in INSTALLS.finditer(text) for group in EXTRAS.findall(match[0]) for extra in group.split(",")
    }
    assert named <= declared


@pytest.mark.parametrize("name", ["agent", "claude-code-or-codex", "team-gateway"])
@pytest.mark.parametrize("folder", ["docs/quickstart", "docs/zh/quickstart"])
def test_a_quickstart_begins_with_an_install_from_the_checkout(folder: str, name: str) -> None:
    first = INSTALLS.search((ROOT / folder / f"{name}.md").read_text(encoding="utf-8"))
    assert first is not None
    assert re.search(r" '?\.(?:\[|'| |$)", first[0]), first[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`pip install refold`", True),
        ("pip install 'refold[web]' openai", True),
        ("`uvx refold look`", True),
        ("in a checkout: `pip install '.[web]'`; once published: `pip install 'refold[web]'`", False),
        ("`pip install refold`; once published", True),
        ("`pip install openai` before refold", False),
    ],
)
def test_the_check_sees_a_name_that_needs_the_index(text: str, found: bool) -> None:
    assert bool(find_unmarked(text)) is found


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "docs/index.md", "docs/zh/index.md"])
def test_an_entry_page_names_the_three_names_that_are_enough(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (paragraph,) = [
        one for one in re.split(r"\n\s*\n|\n(?=```)", text) if re.search("nine of ten users|十个用户里有九个", one)
    ]
    assert all(name in paragraph for name in ("`refold.compress(...)`", "`refold.wrap(...)`", "`refold.Session`"))
