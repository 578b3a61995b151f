"""Reads code blocks out of Markdown and runs them as a reader would, so that no document can promise what is not so.

A block is left out only by an HTML comment right before it that gives the reason: ``<!-- not run: needs a key -->``.
In a console block ``$ refold ...`` is a command and the lines under it are its output, up to the next command; a line
that is only ``...`` stands for any number of lines. ``# exit 4`` after a command says which status it ends with.
``<!-- figures within 20% -->`` before a block lets each figure of its output differ by so much, and no word.
"""

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

CONSOLE_LANGUAGES = {"console", "sh", "bash", "shell"}
TIMEOUT_S = 120
_OPT_OUT = re.compile(r"^<!--\s*not run:(?P<reason>.*?)-->\s*$", re.S)
_RUNS_REFOLD = re.compile(r"(?:^|[|;&(]\s*|\bpython -m )(?:\w+=\S*\s+)*refold\b")
_TOLERANCE = re.compile(r"^<!--\s*figures within (?P<percent>\d+)%\s*-->\s*$")
_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")
_PROGRESS = re.compile(r"\w+:(?: [\d,]+ of [\d,]+,)? \d+ s")
_EXIT_STATUS = re.compile(r"#\s*exit (\d+)\s*$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line in the file where the text starts."""

    language: str
    text: str
    line: int
    reason_not_run: str | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class Command:
    """One command of a console block, the output the document shows for it, and the status it should end with."""

    text: str
    expected: tuple[str, ...]
    line: int
    status: int = 0
    tolerance: float = 0.0


def read_blocks(markdown: str) -> list[Block]:
    """Every fenced block in order. An opt-out comment without a reason is an error."""
    blocks = []
    reason: str | None = None
    tolerance = 0.0
    for token in MarkdownIt().parse(markdown):
        if token.type == "fence":
            language = (token.info.split() or [""])[0].lower()
            start = token.map[0] + 2 if token.map else 0
            blocks.append(Block(language, token.content, start, reason, tolerance))
        opt_out = _OPT_OUT.match(token.content) if token.type == "html_block" else None
        if opt_out and not opt_out["reason"].strip():
            raise ValueError(f"line {token.map[0] + 1 if token.map else 0}: 'not run:' must be followed by a reason")
        reason = opt_out["reason"].strip() if opt_out else None
        within = _TOLERANCE.match(token.content) if token.type == "html_block" else None
        tolerance = int(within["percent"]) / 100 if within else 0.0
    return blocks


def read_commands(block: Block) -> list[Command]:
    """The refold commands of a console block; its other commands (``$ make test``) are not run from here."""
    commands: list[Command] = []
    lines = block.text.splitlines()
    position = 0
    while position < len(lines):
        start, line = position, lines[position]
        position += 1
        if not line.startswith("$ "):
            if re.match(r"refold\b", line):
                raise ValueError(f"line {block.line + start}: write '$ {line}', so that it is run")
            continue
        text = line[2:]
        while text.endswith("\\") and position < len(lines):
            text += "\n" + lines[position]
            position += 1
        shown = position
        while position < len(lines) and not lines[position].startswith("$ "):
            position += 1
        if _RUNS_REFOLD.search(text):
            status = _EXIT_STATUS.search(text)
            expected = tuple(lines[shown:position])
            ends = int(status[1]) if status else 0
            commands.append(Command(text, expected, block.line + start, ends, block.tolerance))
    return commands


def match_output(expected: list[str], actual: list[str], tolerance: float = 0.0) -> bool:
    """Whether the lines agree; a line ``...`` stands for any lines, ``...`` within a line for any text.

    Space at line ends does not count, and with a tolerance neither does space that aligns figures.
    """
    # fits[j]: the expected lines read so far can stand for exactly the first j actual lines.
    fits = [True] + [False] * len(actual)
    for want in expected:
        if want.strip() == "...":
            first = fits.index(True) if True in fits else len(fits)
            fits = [j >= first for j in range(len(fits))]
        else:
            fits = [False] + [fits[j] and match_line(want, actual[j], tolerance) for j in range(len(actual))]
    return fits[-1]


def match_line(want: str, line: str, tolerance: float = 0.0) -> bool:
    if tolerance:
        words = [" ".join(_FIGURE.sub("0", one).split()) for one in (want, line)]
        figures = [[float(figure.replace(",", "")) for figure in _FIGURE.findall(one)] for one in (want, line)]
        return words[0] == words[1] and all(
            abs(shown - real) <= tolerance * max(abs(shown), abs(real)) for shown, real in zip(*figures, strict=True)
        )
    pattern = ".*".join(re.escape(piece) for piece in want.rstrip().split("..."))
    return re.fullmatch(pattern, line.rstrip()) is not None


def strip_blank_ends(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").split("\n") if any(line.strip() for line in lines) else []


def run_command(command: Command, cwd: Path, environment: Mapping[str, str]) -> None:
    """Run one documented command and compare its status and, where the document shows one, its output."""
    # A failure inside a pipe counts, but `head` may close it early, and then the writer is right to stop.
    pipes = "+o" if re.search(r"\|\s*head\b", command.text) else "-o"
    ran = subprocess.run(
        ["bash", pipes, "pipefail", "-c", command.text],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    said = f"$ {command.text}\n{ran.stdout}"
    assert ran.returncode == command.status, f"exit status {ran.returncode}, not {command.status}:\n{said}"
    expected = strip_blank_ends(list(command.expected))
    if expected:
        # On a slow machine a command shows its progress, a line every ten seconds.
        lines = [line for line in ran.stdout.splitlines() if not _PROGRESS.fullmatch(line)]
        actual = strip_blank_ends(lines)
        shown = "\n".join(expected)
        agrees = match_output(expected, actual, command.tolerance)
        assert agrees, f"the document shows\n{shown}\n\nbut this is what happens:\n{said}"


def run_python(block: Block, namespace: dict[str, object], name: str) -> None:
    """Execute a block in the file's namespace; a traceback names the document and its line."""
    code = compile("\n" * (block.line - 1) + block.text, name, "exec", dont_inherit=True)
    exec(code, namespace)  # noqa: S102 - running our own documents is the purpose


def name_make_targets(markdown: str) -> set[str]:
    """Targets a reader is told to type: ``make x`` as inline code or as a line of a block."""
    inline = re.findall(r"`make ([a-z][\w-]*)", markdown)
    lines = re.findall(r"^(?:\$ )?make ([a-z][\w-]*)", markdown, re.M)
    return {*inline, *lines}


def read_make_targets(makefile: str) -> set[str]:
    targets = re.findall(r"^([a-z][\w -]*):(?!=)", makefile, re.M)
    return {name for target in targets for name in shlex.split(target)}
