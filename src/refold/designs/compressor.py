"""``ContextCompressor``: archive all but the newest messages behind one summary.

The smallest form of a fold, for callers who keep their own history: messages in, a named result out. With a model it
asks for the summary and the facts; without one, or when the model fails, both are extracted. It stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from refold.conversation import because
from refold.conversation.message import Format, Message, mark
from refold.conversation.reason import NO_REASON, Reason, detect_language
from refold.conversation.turn import find_cuts
from refold.errors import ConfigError
from refold.formats import detect, parse_messages
from refold.ladder.plan import detect_said
from refold.llm.choose import need_model
from refold.llm.port import Completes
from refold.returned import strip_record
from refold.stages.ground import Ground
from refold.stages.prompts import Question, write_archive_prompt, write_facts_prompt
from refold.stages.record.frame import CLOSING, neutralise
from refold.stages.record.record import RecordOptions
from refold.stages.record.source import write_messages
from refold.stages.stage import Reply
from refold.stages.summarise import find_rejection, is_facts_heading, strip_bullet
from refold.stages.truncate import Truncate
from refold.stages.verify import verify_words
from refold.tokens import TokenCounter

OPENING = "[历史对话摘要]"
FACTS_MAX = 50
SUMMARY_TOKENS_MAX = 800
# Of one tool output, if a caller cuts it with ``truncate_tool_output``.
TOOL_CHARS_MAX = 3_000
# Even a good summary of a few short messages may be longer than they are.
ANSWER_CHARS_MIN = 2_000


class CountsMessages(Protocol):
    """Anything that counts a list of provider messages."""

    def count_messages(self, messages: Sequence[object]) -> int: ...


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """A compressed conversation. ``by`` is "llm" or "extract" (rules); ``error`` says why a model did not write it."""

    compressed_messages: list[object]
    recent_messages: list[object]
    archived_messages: list[object]
    summary: str
    key_facts: list[str]
    original_token_count: int
    compressed_token_count: int
    by: str = "llm"
    error: Reason = NO_REASON


class ContextCompressor:
    """Keeps the newest messages whole and summarises the rest, with a model if there is one."""

    def __init__(
        self,
        llm: Completes | None = None,
        token_counter: CountsMessages | None = None,
        *,
        llm_service: Completes | None = None,
    ) -> None:
        self.llm: Any = need_model(llm or llm_service)
        self.token_counter = token_counter or TokenCounter()
        self.last_error = NO_REASON

    async def compress(self, messages: Sequence[object], retention_count: int) -> CompressionResult:
        """Archive all but the newest ``retention_count`` messages.

        The cut moves back to where no call loses its result. System messages are never archived, except for an
        earlier summary of this kind, which the new one takes in. With no more messages than are retained, nothing is
        archived.
        """
        _check_count(retention_count)
        self.last_error = NO_REASON
        form = detect(messages)
        parsed = parse_messages(form, messages)
        cut = max((at for at in find_cuts(parsed) if at <= len(parsed) - retention_count), default=0)
        archived = [message for message in parsed[:cut] if message.role != "system" or _is_summary(message)]
        system = [message.raw for message in parsed[:cut] if message.role == "system" and not _is_summary(message)]
        recent = [message.raw for message in parsed[cut:]]
        if all(_is_summary(message) for message in archived):
            archived, recent = [], [*(message.raw for message in archived), *recent]
        summary, facts, by = await self._sum_up(archived) if archived else ("", [], "extract")
        compressed = [*system, *(self._build_compressed_messages(recent, summary, form) if archived else recent)]
        return CompressionResult(
            compressed_messages=compressed,
            recent_messages=recent,
            archived_messages=[message.raw for message in archived],
            summary=summary,
            key_facts=facts,
            original_token_count=self.token_counter.count_messages(messages),
            compressed_token_count=self.token_counter.count_messages(compressed),
            by=by,
            error=self.last_error,
        )

    async def _sum_up(self, archived: Sequence[Message]) -> tuple[str, list[str], str]:
        """Return the summary, the facts, and who wrote the summary."""
        language = detect_said(reversed(archived))
        counter = TokenCounter()
        options = RecordOptions(tokens_max=SUMMARY_TOKENS_MAX, style="short", opening=OPENING)
        record = write_messages(archived, options, counter.count_text, language)
        size = sum(len(part.text) for message in archived for part in message.parts)
        summary = await self._ask(write_archive_prompt(archived, language=language), size)
        listed = await self._ask(write_facts_prompt(archived, language=language), size)
        ground = Ground([said for message in archived for said in _read_back(message)])
        stated = _parse_facts(verify_words(neutralise(listed), ground).text)
        facts = stated or [fact.text for fact in record.fold.facts]
        # Sentences that name something nobody said, or attribute a tool's text to a person, are dropped.
        words = verify_words(neutralise(summary), ground).text
        return words or record.fold.summary, facts[:FACTS_MAX], "llm" if words else "extract"

    def truncate_tool_output(self, text: str, chars_max: int = TOOL_CHARS_MAX) -> str:
        """Return a tool's output cut to ``chars_max`` characters: its beginning, the exact gap, and its end."""
        return Truncate(chars_max=chars_max).cut(text, "").replace(f" {mark('')}", "")

    def _build_summary_prompt(self, messages: Sequence[object]) -> str:
        """Return the question for the summary of messages."""
        parsed = parse_messages(detect(messages), messages)
        return write_archive_prompt(parsed, language=detect_said(reversed(parsed)))

    def _build_fact_extraction_prompt(self, messages: Sequence[object]) -> str:
        """Return the question for the facts in messages."""
        parsed = parse_messages(detect(messages), messages)
        return write_facts_prompt(parsed, language=detect_said(reversed(parsed)))

    async def _ask(self, prompt: str, chars_max: int) -> str:
        """Return the model's answer; empty, so that the extract is used, if it fails or is longer than its source."""
        if self.llm is None:
            return ""
        try:
            answer = await self.llm.complete(prompt)
        except Exception as error:  # noqa: BLE001 - whatever a caller's own client raises must not lose the conversation
            self.last_error = because.ERROR(error=type(error).__name__, detail=str(error))
            return ""
        text = str(answer.content or "").strip()
        reason = getattr(answer, "finish_reason", "stop")
        reply = Reply(text, reason if isinstance(reason, str) else "stop")
        if text and (wrong := find_rejection(reply, Question(prompt, prompt.partition("\n\n")[0]))):
            self.last_error = wrong
            return ""
        if len(text) > max(chars_max, ANSWER_CHARS_MIN):
            self.last_error = because.ANSWER_LONGER(chars=len(text), source=chars_max)
            return ""
        return text

    def _build_compressed_messages(
        self, recent_messages: Sequence[object], summary: str, form: Format | None = None
    ) -> list[object]:
        """Return the summary as a message of the conversation's format, followed by the recent messages."""
        # The recent messages alone may not show the format: all calls may be archived.
        form = form or detect(recent_messages)
        after = parse_messages(form, recent_messages[:1])
        role = form.allow_role("system", None, after[0].role if after else None)
        closing = CLOSING[detect_language([summary])]
        return [form.write_summary(f"{OPENING}\n{summary}\n\n{closing}", role), *recent_messages]


def _is_summary(message: Message) -> bool:
    """Return whether a system message is a summary that this compressor wrote before."""
    return message.role == "system" and any(part.text.startswith(OPENING) for part in message.parts)


def _read_back(message: Message) -> list[Message]:
    """Return an earlier summary as what each side said in it; a model's prose, which was checked then, is of both.

    Otherwise the next summary could repeat nothing of it: the messages behind it are no longer here.
    """
    if not _is_summary(message):
        return [message]
    lines = strip_record("\n".join(part.text for part in message.parts), (OPENING,)).splitlines()
    sides = [(line, sign, role) for line in lines if line for sign, role in (("U> ", "user"), ("A> ", "assistant"))]
    said = [
        {"role": role, "content": line.removeprefix(sign)}
        for line, sign, role in sides
        if line[1:3] != "> " or line.startswith(sign)
    ]
    return parse_messages(detect([]), said)


def _check_count(count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigError(f"retention_count is {count!r}; give a whole number of messages, 0 or more")


def _parse_facts(text: str) -> list[str]:
    """Return one fact a line, without bullets and numbers in front."""
    lines = (strip_bullet(line) for line in text.splitlines() if not is_facts_heading(line))
    return [line for line in lines if line]
