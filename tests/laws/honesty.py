"""What makes a text honest: every line is a verbatim piece of a source, or is inside something marked.

The checker of law L3 for tests and for the benchmark. Blocks of densify must read back; a record lies between its
frame's lines; a difference between its marked lines; any other line that is not verbatim carries a handle.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from refold.conversation import Edit, View
from refold.conversation.message import Message, find_marks
from refold.ladder.run import answer_nothing, drive, take_edits
from refold.stages import STAGES
from refold.stages.clamp import Clamp
from refold.stages.densify import expand_text, find_blocks
from refold.stages.record.frame import neutralise
from refold.stages.stage import Goal, Stage
from tests.rigs.engine import make_view

_GAP = re.compile(
    r"^\.\.\. \[(?:truncated (\d+) characters|截断 (\d+) 字符)\] \.\.\. ⟨[^⟩]+⟩(?: \(no room[^\n]+\))?$", re.M
)
_VALUES = re.compile(r"(?:; in it: |；其中：)(.*) ⟨m:[0-9a-f]{8}(?:\.\d+)?⟩\]$")
_SAID = re.compile(r"^(?:- )?([UA])> (.*?)(?: ?⟨[^⟩]+⟩)*$")
_STATUS = re.compile(r"^(?:exit code|退出码) (-?\d+)(?:: |$)")
_OUTCOME = re.compile(r"^\$ (.*) → (.*?)(?: m:[0-9a-f]{6}(?:\.\d+)?)?$")


def make_steps(content: str, copies: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A conversation in which a tool output, and perhaps changed copies of it, are old; the newest step is small."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Please look into it."}]
    outputs = [content, *copies, "ok", "ok", "ok", "done"]
    for output in outputs:
        command = "look" if output in (content, *copies) else "check"
        call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"cmd": command})}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "c", "content": output})
    return messages


def change_copy(content: str) -> str:
    """The same output a little later: a line more, and one in the middle gone."""
    lines = content.split("\n")
    del lines[len(lines) // 2]
    return "\n".join([*lines, "one more line at the end"])


def make_cases(content: str) -> Iterator[tuple[str, Stage, View, Goal]]:
    """Every stage with a conversation in which it has something to do with this output."""
    plain = make_view("openai-chat", make_steps(content))
    copied = make_view("openai-chat", make_steps(content, [change_copy(content), content]))
    for name, kind in STAGES.items():
        if name == "clamp":
            newest = make_view("openai-chat", make_steps(content)[:3])
            for room in (newest.tokens // 2, newest.tokens // 10):
                yield name, Clamp(), newest, Goal(target=room, hard=room)
            continue
        view = copied if name == "dedupe" else plain
        for share in (0.5, 0.1):
            room = int(view.tokens * share)
            yield name, kind(), view, Goal(target=room, hard=max(room, 1_500))


def run_stage(stage: Stage, view: View, goal: Goal) -> tuple[View, tuple[Edit, ...]]:
    """Apply what a stage proposes, the laws raising; return the view and what was accepted."""
    proposed = stage.propose(view, goal)
    edits = proposed if isinstance(proposed, list) else drive(proposed, answer_nothing)
    after, report = take_edits(view, edits, stage.name, is_last=stage.name == "clamp", strict=True)
    return after, report.edits


def find_dishonest(edit: Edit, view: View) -> list[str]:
    """Return what is neither verbatim nor marked in the text of an edit, and every false count or quotation."""
    by_id = {message.id: message for message in view.messages}
    covered = [by_id[message_id] for message_id in edit.covers]
    parts = [part for message in covered for part in message.parts]
    if edit.part is not None:
        parts = [covered[0].parts[edit.part]]
    sources = [part.text for part in parts]
    if edit.kind == "drop":
        return []
    if edit.kind == "fold":
        return _check_record(edit, covered)
    rest, wrong = _check_blocks(edit.text, sources[0])
    if edit.stage == "dedupe":
        rest = re.sub(r":\n@@ (?:.|\n)*\n(?=.*⟨[^⟩]+⟩\]$)", "", rest)
    wrong += _check_gaps(rest, sources[0]) if edit.stage == "truncate" else []
    lines = [line for line in rest.split("\n") if line not in sources[0]]
    wrong += [f"not verbatim, not marked: {line[:120]}" for line in lines if not find_marks(line)]
    return wrong + [said for line in lines for said in _check_values(line, sources[0])]


def _check_blocks(text: str, source: str) -> tuple[str, list[str]]:
    """Return a text without its blocks, and what is wrong with those."""
    rest, wrong, at = [], [], 0
    for block in find_blocks(text):
        rest.append(text[at : block.start])
        at = block.stop
    rest.append(text[at:])
    if len(rest) > 1:
        same = expand_text(text)
        if same != source and _strip_json(same) != _strip_json(source):
            wrong.append("a block does not read back")
    return "".join(rest), wrong


def _strip_json(text: str) -> str:
    """The text with all that JSON may write in two ways left out: spaces and escapes."""
    unescaped = re.sub(r"\\u([0-9a-fA-F]{4})|\\/", lambda m: chr(int(m[1], 16)) if m[1] else "/", text)
    return "".join(unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass").split())


def _check_gaps(text: str, source: str) -> list[str]:
    """Counts of what is not shown are exact: with what is shown they make up the whole."""
    if _GAP.search(source):
        return []  # Its own markers cannot be told from ours here.
    markers = list(_GAP.finditer(text))
    gaps = [int(marker[1] or marker[2]) for marker in markers]
    shown = len(text) - sum(len(marker[0]) + 2 for marker in markers)  # A line break before and after each.
    return [] if not gaps or shown + sum(gaps) == len(source) else [f"{shown} + {gaps} is not {len(source)}"]


def _check_values(line: str, source: str) -> list[str]:
    """The exact values that a placeholder names occur in the source exactly so."""
    found = _VALUES.search(line)
    return [f"not in the source: {value}" for value in found[1].split(" ") if value not in source] if found else []


def _check_record(edit: Edit, covered: Sequence[Message]) -> list[str]:
    """A record is framed or one marked line; its facts and its index quote what was there, and each side its own."""
    wrong = []
    sources = [part.text for message in covered for part in message.parts]
    lines = edit.text.split("\n")
    if not find_marks(lines[0]):
        wrong.append(f"a record that names no handle: {lines[0][:120]}")
    is_small = lines[0].startswith(("⟦record of ", "⟦较早 "))
    if len(lines) > 1 and not (lines[0].startswith("⟦") and (is_small or lines[-1].startswith("⟦"))):
        wrong.append("a record without its frame")
    whole = "\n".join(sources)
    values = [artifact.value for artifact in edit.fold.artifacts] if edit.fold else []
    escaped = [json.dumps(value, ensure_ascii=False)[1:-1] for value in values]
    both = zip(values, escaped, strict=True)
    wrong += [f"not in the source: {value[:120]}" for value, form in both if value not in whole and form not in whole]
    facts = [fact.text.rstrip("…") for fact in edit.fold.facts] if edit.fold else []
    wrong += [f"not said: {fact[:120]}" for fact in facts if fact not in whole]
    return wrong + _check_words(lines, covered) + _check_outcomes(lines, sources)


def _check_words(lines: Sequence[str], covered: Sequence[Message]) -> list[str]:
    """A person said the words after U>, the assistant those after A>; a tool's words are neither's."""
    wrong = []
    for line in lines:
        match = _SAID.match(line)
        if match:
            role = "user" if match[1] == "U" else "assistant"
            said = [p.text for message in covered if message.role == role for p in message.parts if p.kind == "text"]
            # Brackets that make a frame or a handle are written as plain ones wherever they are quoted.
            if not _holds(neutralise("\n".join(said)), match[2]):
                wrong.append(f"the {role} did not say: {match[2][:120]}")
    return wrong


def _check_outcomes(lines: Sequence[str], sources: Sequence[str]) -> list[str]:
    """A command is one that was given, and its outcome what a tool gave back."""
    whole = neutralise("\n".join(sources))
    plain = f"{whole}\n" + whole.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
    found = [match for line in lines if (match := _OUTCOME.match(line))]
    # The words before an exit status are ours, its number is the tool's.
    pieces = [piece for match in found for piece in (match[1], *_STATUS.sub(r"\1: ", match[2]).split(": "))]
    return [f"not in the source: {piece[:120]}" for piece in pieces if not _holds(plain, re.sub(r" ×\d+$", "", piece))]


def _holds(source: str, text: str) -> bool:
    return all(piece.strip() in source for piece in text.split("…"))


def read_outputs(folder: Path) -> list[dict[str, Any]]:
    """The recorded tool outputs."""
    with gzip.open(folder / "tool_outputs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
