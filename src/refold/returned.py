"""Records that come back: a history that ``compress`` shortened is passed to it again, as a chat loop does.

Such a record is a message among others to the caller. Here it becomes a fold again, and the words that it quotes stand
for the originals, which nobody kept: the next fold takes it in, and one record replaces both. Only what has the frame
of a record and its handle is one; anyone may write such a message, and then it is shortened like a record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.message import RECORD_OPENS, Format, Message, Role, find_marks
from refold.conversation.view import Edit, FoldRecord
from refold.formats import parse_messages
from refold.stages.record.frame import CLOSING, INDEX_TITLES, TOLD
from refold.stages.stage import BARE, FOLD

# The presets' openings. A record ends with its handle, or with the frame that names it at the beginning.
OPENINGS = ("[历史对话摘要]", "[Compressed History]", "[Context Summary]", "[COMPACTED_CONTEXT]")
_FRAME = re.compile(r"⟦[^⟦⟧]{0,600}⟨f:[0-9a-f]{4,}⟩[^⟦⟧]{0,600}⟧")
_ENDS = re.compile(r"\n⟨f:[0-9a-f]{4,}⟩\s*\Z")
_LINE = re.compile(r"\[(?:较早的对话共 )?(\d{1,6}) [^\n]{1,300}⟨f:[0-9a-f]{4,}⟩\]\Z")
_COUNT = re.compile(r"⟦\D{0,40}(\d{1,6})\b")
_QUOTED = re.compile(r"(?:(U|A)> |\[?(user|assistant|tool|system)\]?: )")
_ROLES: dict[str, Role] = {"U": "user", "user": "user"}
_LEFT_OUT = re.compile(r"\[\D{0,3}\d[\d,]* [^\[\]]{1,60}\]\Z")
# Of the messages behind a record so many are counted, at most.
_BEHIND_MAX = 2_000


@dataclass(frozen=True, slots=True)
class OpenedHistory:
    """A history with what its records quote in their place, and the edits that show the records as they came.

    ``origins`` is the position of each message in the history that was passed.
    """

    messages: list[Message]
    edits: tuple[Edit, ...] = ()
    origins: tuple[int, ...] = ()


def open_records(
    form: Format, messages: Sequence[Message], opening: str = "", edits: tuple[Edit, ...] = ()
) -> OpenedHistory:
    """Return a history with its records opened; ``opening`` is that of the settings in use.

    With ``edits`` of an earlier call the history is the original one, which has no records to open.
    """
    openings = tuple(filter(None, (*OPENINGS, opening.strip())))
    found = {at: text for at, one in enumerate(messages) if not edits and (text := _read_record(one, openings))}
    if not found:
        return OpenedHistory(list(messages), edits)
    raws: list[object] = []
    origins: list[int] = []
    for at, message in enumerate(messages):
        quoted = [form.write_summary(*one) for one in _list_quoted(found[at], openings)] if at in found else []
        raws += quoted or [message.raw]
        origins += [at] * max(1, len(quoted))
    opened = parse_messages(form, raws)
    folds = tuple(
        _make_fold(text, messages[at].role, [one for one, origin in zip(opened, origins, strict=True) if origin == at])
        for at, text in found.items()
    )
    return OpenedHistory(opened, folds, tuple(origins))


def _read_record(message: Message, openings: tuple[str, ...]) -> str:
    """Return the text of a record; empty for any other message."""
    if message.role == "tool" or len(message.parts) != 1 or message.parts[0].kind != "text":
        return ""
    text = message.parts[0].text
    is_framed = text.startswith(RECORD_OPENS) and _FRAME.match(text)
    is_prefixed = text.startswith(openings) and _ENDS.search(text)
    return text if is_framed or is_prefixed or _LINE.match(text) else ""


def _list_quoted(text: str, openings: tuple[str, ...]) -> list[tuple[str, Role]]:
    """Return what a record quotes, by speaker, after a blank for each message that it only counts; values as code."""
    quoted: list[tuple[str, Role]] = []
    is_value = False
    for line in strip_record(text, openings).splitlines():
        mark = _QUOTED.match(line)
        words = f"```\n{line}\n```" if is_value else line[mark.end() :] if mark else TOLD + line
        if line.startswith("#"):
            is_value = line.strip("# ") in INDEX_TITLES.values()
        elif words.strip() and not _LEFT_OUT.match(line):
            quoted.append((words, _ROLES.get(mark[1] or mark[2], "assistant") if mark else "assistant"))
    count = _COUNT.match(text) or _LINE.match(text)
    missing = min(_BEHIND_MAX, int(count[1])) - len(quoted) if count else 0
    blank: list[tuple[str, Role]] = [("…", "assistant")]
    return blank * max(missing, not quoted) + quoted


def strip_record(text: str, openings: Sequence[str]) -> str:
    """Return the body of a record, without its frame, opening, closing sentence and handle."""
    if _LINE.match(text):
        return ""
    body = _ENDS.sub("", re.sub(r"⟦[^⟦⟧]{0,2000}⟧", "", text)).strip()
    for start in (*openings, "[Truncated Summary]"):
        body = body.removeprefix(start).strip()
    for closing in CLOSING.values():
        body = body.removesuffix(closing).strip()
    return body


def _make_fold(text: str, role: Role, behind: Sequence[Message]) -> Edit:
    handle = find_marks(text)[0 if text.startswith(RECORD_OPENS) else -1]
    record = FoldRecord(handle, strip_record(text, OPENINGS), by=BARE)
    return Edit("fold", FOLD, tuple(one.id for one in behind), text=text, role=role, fold=record)
