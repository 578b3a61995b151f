"""``refold count``: the tokens of a conversation, per message, per role and in total.

Tool outputs, the system prompt and tool definitions are counted separately. ``refold compact`` uses the same counts.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from refold.cli.app import app, format_examples
from refold.cli.input import AsJson, File, Format, Model, read_document
from refold.cli.output import clean_line, make_console, make_table, note_broken, write_json
from refold.cli.words import count_things, tr, translate, use_language

if TYPE_CHECKING:
    from refold.conversation.message import Message
    from refold.conversation.view import Lens
    from refold.formats import Conversation
    from refold.tokens import Counter


@dataclass(frozen=True, slots=True)
class MessageTokens:
    """The tokens of one message; ``output_tokens`` is the part of them that is tool results."""

    index: int
    role: str
    holds: str
    begins: str
    tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ConversationTokens:
    """All counts of a conversation. ``by_role`` excludes tool outputs, which are counted separately."""

    format: str
    model: str
    counter: str
    margin: float
    window: int
    lines: tuple[MessageTokens, ...]
    by_role: dict[str, int]
    tool_outputs: int
    system: int
    tools: int
    framing: int
    total: int


@app.command(epilog=format_examples("refold count session.json", "cat request.json | refold count - --model gpt-5"))
def count(file: File, model: Model = None, format: Format = None, as_json: AsJson = False) -> None:  # noqa: A002
    """Count the tokens of a conversation, per message and per role."""
    from refold.config import load_config
    from refold.config.values import window_of
    from refold.readers import find_conversations
    from refold.tokens import counter_for, model_info

    config = load_config(call={"model": model})
    use_language(config.language)
    document = read_document(file)
    found: dict[str, ConversationTokens] = {}
    for title, conversation in find_conversations(document.value, document.place, format):
        name = config.model or conversation.model or ""
        counter = counter_for(name or None, config.tokenizer)
        window = window_of(config, name) or model_info(name or None).window
        found[title] = count_conversation(conversation, counter, name, window)
    note_broken(document.broken)
    first = next(iter(found.values()))
    if as_json:
        write_json(asdict(first) if len(found) == 1 else {title: asdict(one) for title, one in found.items()})
    elif len(found) == 1:
        _show_one(first, tr("standard input") if file == "-" else Path(file).name)
    else:
        _show_all(found)


def _show_all(counted: Mapping[str, ConversationTokens]) -> None:
    """Print one line per conversation."""
    table = make_table("conversation", "format", "messages", "tokens", numbers=("messages", "tokens"))
    for title, one in counted.items():
        table.add_row(clean_line(title, 60), one.format, f"{len(one.lines):,}", f"{one.total:,}")
    table.add_section()
    messages, tokens = (sum(len(one.lines) for one in counted.values()), sum(one.total for one in counted.values()))
    table.add_row(tr("total"), "", f"{messages:,}", f"{tokens:,}")
    make_console(err=False).print(table)


def count_conversation(conversation: Conversation, counter: Counter, model: str, window: int) -> ConversationTokens:
    """Return the tokens of a conversation, message by message."""
    from refold.conversation.view import Lens
    from refold.formats import parse_messages
    from refold.tokens.counter import REPLY_TOKENS

    form = conversation.format
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, conversation.messages)
    lines = tuple(_count_message(at, message, lens) for at, message in enumerate(messages))
    by_role: Tally[str] = Tally()
    for line in lines:
        by_role[line.role] += line.tokens - line.output_tokens
    system = counter.count_text(form.read_system(conversation.system))
    tools = counter.count_tools(conversation.tools)
    return ConversationTokens(
        format=form.name,
        model=model,
        counter=counter.name,
        margin=counter.margin,
        window=window,
        lines=lines,
        by_role={role: tokens for role, tokens in by_role.items() if tokens},
        tool_outputs=sum(line.output_tokens for line in lines),
        system=system,
        tools=tools,
        framing=REPLY_TOKENS,
        total=REPLY_TOKENS + system + tools + sum(line.tokens for line in lines),
    )


def _count_message(at: int, message: Message, lens: Lens) -> MessageTokens:
    tokens = lens.plain(message).tokens
    results = [part for part in message.parts if part.kind == "result"]
    # A message that holds only results counts as tool output, framing included.
    if results and len(results) == len(message.parts):
        outputs = tokens
    else:
        outputs = min(tokens, sum(lens.count_bare(part) for part in results))
    calls = [part.name for part in message.parts if part.kind == "call"]
    kinds = [f"call {name}" for name in calls[:3]] + (["…"] if len(calls) > 3 else [])
    kinds += sorted({part.kind for part in message.parts} - {"call", "text"})
    text = next((part.text for part in message.parts if part.kind in ("text", "result") and part.text.strip()), "")
    return MessageTokens(
        at, message.role, ", ".join(kinds) or "text", text[:200].encode("utf-8", "replace").decode(), tokens, outputs
    )


def _show_one(counted: ConversationTokens, title: str) -> None:
    """Print the counts of one conversation."""
    from rich.text import Text

    console = make_console(err=False)
    if counted.lines:
        table = make_table("#", "role", "tokens", "holds", "begins", numbers=("#", "tokens"), wide=("begins",))
        for line in counted.lines:
            begins = Text(clean_line(line.begins, 120), style="dim")
            table.add_row(str(line.index), line.role, f"{line.tokens:,}", Text(clean_line(line.holds, 24)), begins)
        console.print(table)
        console.print()
    totals = make_table("", "tokens", "share", numbers=("tokens", "share"))
    rows = [("system prompt", counted.system), ("tools", counted.tools)]
    rows += [*sorted(counted.by_role.items()), ("tool outputs", counted.tool_outputs), ("framing", counted.framing)]
    for name, tokens in rows:
        if tokens:
            totals.add_row(translate(name), f"{tokens:,}", f"{tokens / counted.total:.1%}".replace("%", " %"))
    totals.add_section()
    totals.add_row(Text(tr("total"), style="bold"), Text(f"{counted.total:,}", style="bold green"), "")
    console.print(totals)
    console.print()
    margin = f"{counted.margin:.0%}".replace("%", " %")
    estimate = tr(", which may be {margin} too low", margin=margin) if counted.margin else ""
    model = tr("the window of {model}", model=counted.model) if counted.model else tr("a window")
    share = f"{counted.total / counted.window:.1%}".replace("%", " %")
    console.print(Text(f"{clean_line(title, 60)}: {counted.format}, {count_things(len(counted.lines), 'message')}"))
    console.print(
        Text(
            tr(
                "{share} of {model} of {window:,} tokens, counted by {counter}{estimate}",
                share=share,
                model=clean_line(model, 60),
                window=counted.window,
                counter=counted.counter,
                estimate=estimate,
            )
        )
    )
