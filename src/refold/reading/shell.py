"""Command lines of a shell, taken apart: simple commands with their words, redirections and here-documents.

This is no shell. It knows quotes, chains, pipes, comments, here-documents and the wrappers that agents use
(``bash -lc``, ``sudo``, ``timeout 60``); it expands nothing and runs nothing. Text that no shell would accept is read
as far as possible. The work is linear in the length of the text, and what is kept of it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from refold.patterns import lazy_regex
from refold.reading.rules import find_rule, find_words

# What no agent types by hand in one call; the rest of such a line is not read.
COMMANDS_MAX = 200
WORDS_MAX = 400
NESTED_MAX = 4

_BLANK = lazy_regex(r"(?:[ \t\r\f\v]|\\\n)++")
_OPERATOR = lazy_regex(r"\|\||&&|;;|\|&|[;|&\n()]")
_REDIRECT = lazy_regex(r"(?:\d{1,2}|&)?(?:>>|>\||>&|<<<|<<-|<<|<>|<&|>|<)")
_PLAIN = lazy_regex(r"[^\s'\"\\;|&<>()$`]++")
# A string without an end is read to the end of the text, once.
_DOUBLE = lazy_regex(r'"((?:[^"\\]++|\\[\s\S])*+)("?)')
_SINGLE = lazy_regex(r"'([^']*+)('?)")
_SUBSTITUTED = lazy_regex(r"[()'\"\\]")
_ASSIGNMENT = lazy_regex(r"[A-Za-z_]\w{0,80}\+?=")
_ESCAPED = lazy_regex(r'\\([$`"\\\n])')


@dataclass(slots=True)
class SimpleCommand:
    """One command of a line: its words without quotes, where its output goes, and the text that is fed to it."""

    words: list[str] = field(default_factory=list)
    # (operator, target), such as (">", "out.txt"); here-documents are in ``fed``.
    redirects: list[tuple[str, str]] = field(default_factory=list)
    fed: str = ""
    # It reads what the command before it printed.
    is_piped: bool = False

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def line(self) -> str:
        """The words with single blanks, the program without its folder."""
        return " ".join((self.name, *self.words[1:40]))[:600]


class _LineReader:
    """Reads one line of commands; a place in it only moves forward."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        # A quote that was never closed is an ordinary sign, and so is each later one.
        self.open_quotes: set[str] = set()
        self.waiting: list[tuple[SimpleCommand, str, bool]] = []

    def read(self) -> list[SimpleCommand]:
        found: list[SimpleCommand] = []
        command = SimpleCommand()
        while self.at < len(self.text) and len(found) < COMMANDS_MAX:
            if skipped := _BLANK.match(self.text, self.at):
                self.at = skipped.end()
            elif self.text[self.at] == "#":
                border = self.text.find("\n", self.at)
                self.at = len(self.text) if border < 0 else border
            elif redirect := _REDIRECT.match(self.text, self.at):
                self._read_redirect(command, redirect)
            elif operator := _OPERATOR.match(self.text, self.at):
                self.at = operator.end()
                if command.words or command.redirects:
                    found.append(command)
                is_piped = operator[0] in ("|", "|&") and bool(command.words)
                if operator[0] == "\n":
                    self._read_documents()
                command = SimpleCommand(is_piped=is_piped)
            else:
                word = self._read_word()
                if len(command.words) < WORDS_MAX:
                    command.words.append(word)
        if command.words or command.redirects:
            found.append(command)
        self._read_documents()
        return found

    def _read_redirect(self, command: SimpleCommand, redirect: re.Match[str]) -> None:
        self.at = redirect.end()
        if skipped := _BLANK.match(self.text, self.at):
            self.at = skipped.end()
        operator = redirect[0].lstrip("0123456789")
        word = self._read_word() if self.at < len(self.text) and self.text[self.at] not in "\n;|()" else ""
        if operator in ("<<", "<<-") and word:
            self.waiting.append((command, word, operator == "<<-"))
        elif operator == "<<<":
            command.fed += word
        # Where errors go says nothing of a file that is written.
        elif redirect[0][:1] != "2" and word and operator not in (">&", "<&"):
            command.redirects.append((operator.lstrip("&"), word))

    def _read_documents(self) -> None:
        """Take the here-documents whose operators were on the line that ends here."""
        for command, mark, is_indented in self.waiting:
            start = self.at
            # The line break before the document belongs to the search: a document may be empty.
            ending = _find_ending(self.text, mark, start - 1, is_indented=is_indented)
            command.fed += self.text[start : max(start, ending[0])]
            self.at = ending[1]
        self.waiting.clear()

    def _read_word(self) -> str:
        pieces: list[str] = []
        text = self.text
        while self.at < len(text):
            sign = text[self.at]
            if plain := _PLAIN.match(text, self.at):
                pieces.append(plain[0])
                self.at = plain.end()
            elif sign in "'\"" and sign not in self.open_quotes:
                quoted = (_SINGLE if sign == "'" else _DOUBLE).match(text, self.at)
                if quoted is None or not quoted[2]:
                    self.open_quotes.add(sign)
                    continue
                pieces.append(quoted[1] if sign == "'" else _ESCAPED.sub(r"\1", quoted[1]))
                self.at = quoted.end()
            elif sign == "\\":
                pieces.append(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif sign == "$" and text[self.at + 1 : self.at + 2] == "(":
                pieces.append(self._read_substitution())
            elif sign in "'\"`$":
                pieces.append(sign)
                self.at += 1
            else:
                break
        if not pieces and self.at < len(text):
            # A sign that belongs nowhere: it must be passed, or reading would not end.
            pieces.append(text[self.at])
            self.at += 1
        return "".join(pieces)

    def _read_substitution(self) -> str:
        """Return ``$( … )`` whole: what it prints is not known."""
        start, depth = self.at, 0
        self.at += 1
        while self.at < len(self.text):
            sign = _SUBSTITUTED.search(self.text, self.at)
            if sign is None:
                self.at = len(self.text)
                break
            self.at = sign.end()
            if sign[0] == "\\":
                self.at += 1
            elif sign[0] in "'\"":
                if sign[0] not in self.open_quotes:
                    quoted = (_SINGLE if sign[0] == "'" else _DOUBLE).match(self.text, sign.start())
                    if quoted is None or not quoted[2]:
                        self.open_quotes.add(sign[0])
                    else:
                        self.at = quoted.end()
            else:
                depth += 1 if sign[0] == "(" else -1
                if depth == 0:
                    break
        return self.text[start : self.at]


def _find_ending(text: str, mark: str, at: int, *, is_indented: bool) -> tuple[int, int]:
    """Return where a here-document ends and where the text goes on behind its last line."""
    if is_indented:
        found = re.compile(rf"\n\t*+{re.escape(mark[:200])}(?=[\s)'\"]|\Z)").search(text, max(0, at))
        return (found.start() + 1, found.end()) if found else (len(text), len(text))
    border = at
    while (border := text.find(f"\n{mark}", max(0, border))) >= 0:
        stop = border + 1 + len(mark)
        if text[stop : stop + 1] in ("", "\n", "\r", ")", "'", '"'):
            return border + 1, stop
        border = stop
    return len(text), len(text)


def split_commands(text: str) -> list[SimpleCommand]:
    """Return the simple commands of a line or a script in order, without the wrappers around them."""
    return list(_unwrap(_LineReader(text).read(), NESTED_MAX))


def _unwrap(commands: Sequence[SimpleCommand], depth: int) -> Iterator[SimpleCommand]:
    for command in commands:
        command.words = _drop_wrappers(command.words)
        if not command.words:
            if command.redirects:
                yield command
            continue
        script = _find_script(command.words)
        if script and depth:
            yield from _unwrap(_LineReader(script).read(), depth - 1)
        elif (
            command.name in find_words("tools", "shell", "shells") and command.fed and len(command.words) == 1 and depth
        ):
            yield from _unwrap(_LineReader(command.fed).read(), depth - 1)
        else:
            yield command


def _drop_wrappers(words: list[str]) -> list[str]:
    """Return a command without assignments, keywords and wrappers before it."""
    at = 0
    wrappers = find_rule("tools", "shell", "wrappers")
    while at < len(words):
        name = words[at].rpartition("/")[2]
        if words[at] in find_words("tools", "shell", "keywords") or _ASSIGNMENT.match(words[at]):
            at += 1
        elif name in wrappers and at + 1 < len(words):
            valued, at = wrappers[name], at + 1
            while at < len(words) and words[at].startswith("-"):
                at += 2 if len(words[at]) == 2 and words[at][1] in valued else 1
            if name == "timeout":
                at += 1
        else:
            break
    return words[at:]


def _find_script(words: Sequence[str]) -> str:
    """Return the script of ``bash -lc SCRIPT`` and its like."""
    if words[0].rpartition("/")[2].removesuffix(".exe") not in find_words("tools", "shell", "shells"):
        return ""
    for at, word in enumerate(words[1:-1], 1):
        if word.startswith("-") and word.lower().lstrip("-") in ("c", "lc", "cl", "ic", "lic", "command"):
            return words[at + 1]
        if not word.startswith("-"):
            break
    return ""
