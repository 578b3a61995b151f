"""Questions of one's own: what somebody who continues a session must be able to answer from the view alone.

A file of YAML, JSON or JSON Lines, one entry for each question: ``session`` (its id, or the beginning of it; without
one every session), ``question``, and ``answer`` (exact text), ``pattern`` (a regular expression) or both, and
optionally ``after`` (the number of messages after which it is asked; without it, at the end).
``absent: true`` asks that the text is *not* in view: a value that no longer holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from refold.errors import FormatError, Sentence

QUESTIONS_MAX = 10_000
BYTES_MAX = 20_000_000
_FIELDS = frozenset(("session", "question", "answer", "pattern", "after", "absent"))


@dataclass(frozen=True, slots=True)
class OwnQuestion:
    """One question. At least one of ``answer`` and ``pattern`` is set."""

    question: str
    session: str = ""
    answer: str = ""
    pattern: re.Pattern[str] | None = None
    after: int | None = None
    is_absent: bool = False

    def concerns(self, session_id: str) -> bool:
        """Return whether the question is about a session."""
        return session_id.startswith(self.session)

    def is_answered(self, text: str) -> bool:
        """Return whether a view's text holds the answer, or lacks what must be absent."""
        flat = " ".join(text.split())
        found = bool(self.answer) and " ".join(self.answer.split()) in flat
        found = found or (self.pattern is not None and self.pattern.search(text) is not None)
        return found != self.is_absent


def read_questions(path: str) -> tuple[OwnQuestion, ...]:
    """Read a file of questions; FormatError names the entry that is wrong."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FormatError("cannot read the questions in {path}: {error}", path=path, error=error.strerror) from error
    if len(content) > BYTES_MAX:
        raise FormatError("{path} has more than {limit:,} bytes of questions", path=path, limit=BYTES_MAX)
    try:
        text = content.decode("utf-8")
        is_lines = path.endswith(".jsonl")
        entries = [json.loads(line) for line in text.splitlines() if line.strip()] if is_lines else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise FormatError("{path} is neither YAML nor JSON: {error}", path=path, error=error) from error
    entries = entries.get("questions") if isinstance(entries, dict) else entries
    if not isinstance(entries, list) or len(entries) > QUESTIONS_MAX:
        raise FormatError("{path} must hold a list of at most {limit:,} questions", path=path, limit=QUESTIONS_MAX)
    return tuple(_read_question(entry, number, path) for number, entry in enumerate(entries, 1))


def _read_question(entry: object, number: int, path: str) -> OwnQuestion:
    def refuse(why: str) -> FormatError:
        return FormatError("{path}, question {number}: {why}", path=path, number=number, why=why)

    if not isinstance(entry, Mapping):
        raise refuse("it is not a mapping with question and answer")
    if unknown := sorted(str(key) for key in entry if key not in _FIELDS):
        raise refuse(Sentence("unknown field {name!r}", name=unknown[0][:40]))
    texts = {name: entry.get(name, "") for name in ("question", "session", "answer", "pattern")}
    texts = {name: str(value) if isinstance(value, int | float) else value for name, value in texts.items()}
    if not all(isinstance(value, str) for value in texts.values()) or not texts["question"]:
        raise refuse("question, session, answer and pattern are texts, and question is not empty")
    if not texts["answer"] and not texts["pattern"]:
        raise refuse("give an answer or a pattern")
    after = entry.get("after")
    if after is not None and (not isinstance(after, int) or isinstance(after, bool) or after < 1):
        raise refuse("after is a number of messages, 1 or more")
    try:
        pattern = re.compile(texts["pattern"]) if texts["pattern"] else None
    except (re.error, RecursionError) as error:
        raise refuse(Sentence("the pattern is invalid: {error}", error=error)) from error
    return OwnQuestion(
        texts["question"], texts["session"], texts["answer"], pattern, after, bool(entry.get("absent", False))
    )
