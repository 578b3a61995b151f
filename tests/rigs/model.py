"""Conversations for the tests of folds by a model, and the answers of models good and bad."""

from __future__ import annotations

import json
from typing import Any

from refold.conversation.message import Message
from refold.formats import detect, parse_messages

GOOD = (
    "## Project Overview\n- The user wants the import to work.\n## Current Status\n- The logs were read one after the "
    "other.\n## Pending Tasks\n- Find the cause."
)

TALKED = (
    "## Project Overview\n- The plan for the garden was explained step by step.\n## Current Status\n"
    "- It is about soil and water."
)


def says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def parse(raws: list[Any]) -> list[Message]:
    return parse_messages(detect(raws), raws)


def working(
    count: int, *, ask: str = "Why does import_orders fail since release 4.17.2?", lines: int = 12
) -> list[Any]:
    """A question, and the steps of an agent that looks for the answer."""
    messages: list[Any] = [says("user", ask)]
    for at in range(count):
        arguments = json.dumps({"path": f"logs/worker_{at:03d}.log"})
        call = {"id": f"call_{at}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        text = "\n".join(f"line {line}: order {at * 100 + line + 1000} was put off" for line in range(lines))
        messages.append({"role": "assistant", "content": f"Log {at} comes next.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{at}", "content": text})
    return messages


def chatting(count: int, language: str = "en") -> list[Any]:
    """People who talk: a user and an assistant, turn by turn."""
    asks = {
        "en": "Please explain step {} of the plan for the garden.",
        "zh": "请说明花园计划的第{}步，我想知道怎么做。",
    }
    replies = {
        "en": "Step {} is about soil and water, and it takes a while to do it well in spring.",
        "zh": "第{}步讲的是土壤和浇水，春天要做好需要一些时间，不要着急。",
    }
    return [
        says("user" if at % 2 == 0 else "assistant", (asks if at % 2 == 0 else replies)[language].format(at // 2))
        for at in range(count)
    ]
