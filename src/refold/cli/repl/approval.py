"""Asks the user before a tool writes or runs. All arguments are shown: nothing can hide past the end of a line."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

from refold.agent import Tool
from refold.agent.tools import Approve
from refold.cli.repl.screen import Screen
from refold.cli.words import tr
from refold.llm.port import ToolCall

if TYPE_CHECKING:
    from refold.cli.repl.keyboard import Keyboard

SHOWN_CHARS = 4_000
# Shorter calls are shown in full by the line that announces them.
LINE_CHARS = 90
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def make_approve(screen: Screen, keyboard: Keyboard) -> Approve:
    """Return the approval callback: one question at a time, none for tools that the user always allows."""
    always: set[str] = set()
    one_at_a_time = asyncio.Lock()

    async def approve(call: ToolCall, tool: Tool) -> bool:
        async with one_at_a_time:
            if tool.name in always:
                return True
            await asyncio.sleep(0.05)  # Lets the line that announces the call appear first.
            with screen.holding():
                if details := describe_call(call):
                    screen.out.print(details, style="bold", highlight=False)
                answer = await keyboard.ask(tr("run it? [y]es, [a]lways, [N]o: "))
            if answer == "a":
                always.add(tool.name)
            return answer in ("y", "a")

    return approve


def describe_call(call: ToolCall) -> str:
    """Return a call argument by argument, with hidden characters visible; empty if its announcement shows it all."""
    if len(call.arguments) <= LINE_CHARS and "\\" not in call.arguments and not _HIDDEN.search(call.arguments):
        return ""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        given = call.arguments
    if not isinstance(given, dict):
        given = {"arguments": given}
    lines = [tr("{tool} wants to run with", tool=call.name)]
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"  {name}:" if "\n" in text else f"  {name}: {show_text(text)}"]
        lines += [f"    {row}" for row in show_text(text).split("\n")] if "\n" in text else []
    return "\n".join(lines)


def show_text(text: str) -> str:
    """Return text with hidden characters escaped; the middle of long text is replaced by its length."""
    visible = _HIDDEN.sub(lambda found: found[0].encode("unicode_escape", "backslashreplace").decode(), text)
    if len(visible) <= SHOWN_CHARS:
        return visible
    head, tail = visible[: SHOWN_CHARS // 2], visible[-SHOWN_CHARS // 2 :]
    return head + tr("\n… {count:,} characters are not shown here …\n", count=len(visible) - SHOWN_CHARS) + tail
