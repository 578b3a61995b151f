"""Conversation Markdown as a tree of harmless nodes. No HTML is sent to the browser.

A node is text or ``[tag, attributes, children]``. Tags and attributes come from fixed lists, checked here and again in
``parts/tree.js``: raw HTML stays text, links lead to http, https or mail only, and images are named but never fetched.
``show_markdown`` draws such a tree on a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from nicegui import ui

from refold.web.visit import clean

Node = str | list[Any]
CHARS_MAX = 200_000
DEPTH_MAX = 40
_SAFE = ("http", "https", "mailto")
_TAGS = frozenset(
    (
        *("p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "hr", "div"),
        *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
        *("em", "strong", "s", "code", "br", "a", "span"),
    )
)


@lru_cache(1)
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "maxNesting": DEPTH_MAX}).enable(["table", "strikethrough"])


def to_tree(text: str) -> list[Node]:
    """Return Markdown as nodes; a text that is too long becomes plain text."""
    cleaned = clean(text)
    if len(cleaned) > CHARS_MAX:
        return [["pre", None, [cleaned]]]
    return _nest(_reader().parse(cleaned))


def _keep_names(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens in which ``__init__`` is a name and not the bold word "init"."""
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        token, inside = tokens[at], tokens[at + 1 : at + 3]
        if token.type == "strong_open" and token.markup == "__" and len(inside) == 2:
            word, end = inside
            if word.type == "text" and re.fullmatch(r"\w+", word.content) and end.type == "strong_close":
                kept.append(Token("text", "", 0, content=f"__{word.content}__"))
                at += 3
                continue
        kept.append(token)
        at += 1
    return kept


def _nest(tokens: Sequence[Token]) -> list[Node]:
    root: list[Node] = []
    open_lists = [root]
    for token in _keep_names(tokens):
        here = open_lists[-1]
        if token.nesting == 1:
            children: list[Node] = []
            # A hidden paragraph is one in a tight list.
            if token.hidden or token.tag not in _TAGS or len(open_lists) > DEPTH_MAX:
                open_lists.append(here)
            else:
                here.append([token.tag, _attributes(token), children])
                open_lists.append(children)
        elif token.nesting == -1:
            if len(open_lists) > 1:
                open_lists.pop()
        else:
            here.extend(_leaf(token))
    return root


def _attributes(token: Token) -> dict[str, str] | None:
    if token.tag == "a":
        target = str(token.attrs.get("href", ""))
        return {"href": target} if is_safe_link(target) else None
    if token.tag == "ol" and str(token.attrs.get("start", "")).isdecimal():
        return {"start": str(token.attrs["start"])[:9]}
    return None


def _leaf(token: Token) -> list[Node]:
    kind = token.type
    if kind == "inline":
        return _nest(token.children or [])
    if kind in ("fence", "code_block"):
        return [["pre", None, [["code", None, [token.content]]]]]
    if kind == "code_inline":
        return [["code", None, [token.content]]]
    if kind == "hardbreak":
        return [["br", None, []]]
    if kind == "softbreak":
        return ["\n"]
    if kind == "hr":
        return [["hr", None, []]]
    if kind == "image":
        return [["span", {"class": "picture"}, [f"[{token.content or '…'}] {token.attrs.get('src', '')}"[:500]]]]
    return [token.content] if token.content else []


def is_safe_link(target: str) -> bool:
    try:
        return urlsplit(target.strip()).scheme.lower() in _SAFE
    except ValueError:
        return False


def to_lines(text: str, speakers: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return a summary line by line: a title, or the nodes of a line with its number, by which its source is found.

    ``speakers`` names who ``U>`` and ``A>`` quote. Text in backticks is code; nothing else is interpreted.
    """
    lines: list[dict[str, Any]] = []
    for at, line in enumerate(clean(text).splitlines()):
        heading = re.fullmatch(r"#{1,6} (.*)", line)
        if heading is not None:
            lines += [{"title": heading[1].strip()}] if heading[1].strip() else []
        elif line.strip():
            lines.append({"at": at, "tree": _mark_words(line, speakers or {})})
    return lines


def _mark_words(body: str, speakers: Mapping[str, str]) -> list[Node]:
    """Split lines into text, code and the names of speakers."""
    nodes: list[Node] = []
    for at, piece in enumerate(re.split(r"(?m)(^[UA]>(?= )|`[^`\n]+`)", body)):
        if not piece:
            continue
        if at % 2 == 0:
            nodes.append(piece)
        elif piece.startswith("`"):
            nodes.append(["code", None, [piece[1:-1]]])
        else:
            name = speakers.get(piece[0])
            nodes.append(["strong", None, [f"{name}:"]] if name else piece)
    return nodes


class Markup(ui.element, component="parts/markup.js"):
    """Nodes on a page."""

    def __init__(self, tree: list[Node]) -> None:
        super().__init__()
        self.props["tree"] = tree


def show_markdown(text: str) -> Markup:
    """Draw Markdown from an untrusted source."""
    return Markup(to_tree(text))
