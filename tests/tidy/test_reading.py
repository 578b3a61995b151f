"""A text is read in one place: one splitter of sentences, one detector of outcomes, one classifier of calls and values.

Each job has signs by which a second implementation shows: the borders of sentences in a pattern, totals of tests, names
of tools, the shape of a hash. ``STILL`` lists the modules that have not moved to ``refold.reading`` yet; a module that
no longer has the sign must leave the list.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.source import SRC, list_modules, walk_module

SIGNS = {
    "sentences": r"\(\?<=\[[^\]]*[.。][^\]]*[!！]|"
    r"\[(?!\^)[^\]]*[.。][^\]]*[!！?？][^\]]*\]\+{0,2}(?:\[[^\]]*\]\S{0,6})?(?:\\s|\(\?=\\s)",
    "outcomes": r"(?=.*\bpassed\b)(?=.*\bfailed\b).*[|\\(]|"
    r"Traceback \\|exit (?:code|status).*[|\\(]|returncode.*[|\\(]",
    "calls": r"(?:\||^)(?:grep|glob|cat|ls)\|(?:grep|glob|cat|ls|tree)\||"
    r"(?=.*(?:str_replace|apply_patch|edit_file)\|)(?=.*(?:write_file|create_file|read_file)\|)|"
    r"(?:pip|npm|yarn|git)\|(?:pip|npm|yarn|docker|make)\|",
    "values": r"\[0-9a-fA-F\]\{7,|\[0-9a-f\]\{7,64|Jan(?:uary)?\b.*\|Feb|https\?://\[\^|"
    r"\\d\{4\}\[?[-/.]{1,3}\]?\\d\{(?:1,)?2\}",
}
HOMES = {
    "sentences": ("reading/sentences.py",),
    "outcomes": ("reading/outcomes.py", "reading/outputs.py"),
    "calls": ("reading/tools.py",),
    "values": ("reading/values.py",),
}
STILL = {
    "sentences": set(),
    # Results that a framework sends as a user's text are recognised below reading.
    "outcomes": {"conversation/message.py"},
    "calls": set(),
    # Dates in the names and headings of refold's own files.
    "values": {"memory.py", "server/api/workspace.py"},
}


def find_literals(path: Path) -> Iterator[str]:
    """Yield the texts of a module, those of documentation left out."""
    for node in walk_module(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n\n" not in node.value:
            yield node.value


@pytest.mark.parametrize("job", SIGNS)
def test_a_text_is_read_in_one_place(job: str) -> None:
    sign = re.compile(SIGNS[job], re.S)
    found = {path.relative_to(SRC).as_posix() for path in list_modules() if any(map(sign.search, find_literals(path)))}
    elsewhere = found - set(HOMES[job])
    assert elsewhere <= STILL[job], f"refold.reading has this already: {sorted(elsewhere - STILL[job])}"
    assert elsewhere >= STILL[job], f"moved; take off the list: {sorted(STILL[job] - elsewhere)}"


@pytest.mark.parametrize(
    ("job", "literal"),
    [
        ("sentences", r"(?<=[.!?;])\s+|(?<=[。！？；])"),
        ("sentences", r"[.!?][\"']?\s+"),
        ("outcomes", r"\d+ (?:passed|failed)"),
        ("outcomes", r"Traceback \(most recent call last\)"),
        ("calls", "get|list|read|view|cat|ls|grep|glob|tree"),
        ("calls", r"(?:sudo|git|pip|npm|npx|yarn|docker|make)\s"),
        ("values", r"(?:0x)?[0-9a-fA-F]{7,64}"),
        ("values", r"\d{4}-\d{2}-\d{2}"),
        ("values", r"https?://[^\s]+"),
    ],
)
def test_a_second_reader_is_recognised(job: str, literal: str) -> None:
    assert re.compile(SIGNS[job], re.S).search(literal)
