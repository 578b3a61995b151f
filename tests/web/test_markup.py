"""Markdown becomes nodes of a few kinds, and never HTML."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

if importlib.util.find_spec("nicegui") is None:
    pytest.skip("nicegui is not installed; the page's tests need it", allow_module_level=True)

from refold.web.markup import _TAGS, CHARS_MAX, is_safe_link, to_lines, to_tree
from refold.web.pages.recall import split_entries
from refold.web.visit import clean

PIECES = st.sampled_from(
    [
        "<script>",
        "</b>",
        "[a](",
        "javascript:x",
        ")",
        "![p](http://e/x)",
        "`",
        "```\n",
        "**",
        "| a |\n|---|\n",
        "> ",
        "- ",
        "\ud800",
        "&lt;",
    ]
)


def walk(nodes: list[Any]) -> Iterator[list[Any]]:
    for node in nodes:
        if isinstance(node, list):
            yield node
            yield from walk(node[2])


def all_text(nodes: list[Any]) -> str:
    return "".join(node if isinstance(node, str) else all_text(node[2]) for node in nodes)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map("".join))
def test_whatever_is_written_only_harmless_nodes_come_out(text: str) -> None:
    for tag, attributes, _ in walk(to_tree(text)):
        assert tag in _TAGS
        assert set(attributes or {}) <= {"href", "start", "class"}
        assert "href" not in (attributes or {}) or is_safe_link(attributes["href"])
    all_text(to_tree(text)).encode("utf-8")


def test_raw_html_stays_text() -> None:
    assert (
        all_text(to_tree("<img src=x onerror=alert(1)> and <b>bold</b>"))
        == "<img src=x onerror=alert(1)> and <b>bold</b>"
    )


@pytest.mark.parametrize(
    "target",
    [
        "javascript:x",
        " JAVASCRIPT:x",
        "data:text/html,x",
        "vbscript:x",
        "//host/x",
        "/api/x",
        "x",
        "file:///etc",
        "http//x",
        "[::1",
    ],
)
def test_a_link_elsewhere_than_the_web_is_not_a_link(target: str) -> None:
    assert not is_safe_link(target)
    assert all("href" not in (attributes or {}) for _, attributes, _ in walk(to_tree(f"[a]({target})")))


def test_a_picture_is_named_and_not_fetched() -> None:
    tree = to_tree("![a plan](https://example.org/plan.png)")
    assert [tag for tag, _, _ in walk(tree)] == ["p", "span"]
    assert all_text(tree) == "[a plan] https://example.org/plan.png"


def test_tables_lists_and_code_are_what_they_are() -> None:
    tags = [tag for tag, _, _ in walk(to_tree("1. a\n2. b\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```py\nz\n```"))]
    assert tags == ["ol", "li", "li", "table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "pre", "code"]


def test_a_text_without_end_stays_plain() -> None:
    long = "*" * (CHARS_MAX + 1)
    assert to_tree(long) == [["pre", None, [long]]]


def test_a_summary_keeps_its_lines_and_headings() -> None:
    assert to_lines("## Status\nU> first\nA> second\n\n## Next\n$ make") == [
        {"title": "Status"},
        {"at": 1, "tree": ["U>", " first"]},
        {"at": 2, "tree": ["A>", " second"]},
        {"title": "Next"},
        {"at": 5, "tree": ["$ make"]},
    ]


def test_a_summary_names_who_is_quoted_and_shows_code() -> None:
    assert to_lines("U> run `make`\nA> a> b, `open\n", {"U": "User", "A": "Assistant"}) == [
        {"at": 0, "tree": [["strong", None, ["User:"]], " run ", ["code", None, ["make"]]]},
        {"at": 1, "tree": [["strong", None, ["Assistant:"]], " a> b, `open"]},
    ]


def test_half_a_character_becomes_a_mark() -> None:
    assert clean("a\ud800b") == "a\ufffdb"


def test_a_python_name_between_underscores_stays_as_it_is() -> None:
    assert to_tree("reads __init__ first") == [["p", None, ["reads ", "__init__", " first"]]]
    assert to_tree("it is __very bold__ here") == [["p", None, ["it is ", ["strong", None, ["very bold"]], " here"]]]


def test_a_heading_with_nothing_below_it_is_not_shown() -> None:
    page = "## One\n\n### Summary\nsaid\n\n### Key facts\n\n## Two\n\n### Key facts\n- a fact\n"
    assert split_entries(page) == ["## Two\n\n### Key facts\n- a fact", "## One\n\n### Summary\nsaid\n"]
