"""Conversations for the manager's tests, and a model with scripted answers."""

import json
from types import SimpleNamespace
from typing import Any

from refold import CompressionConfig

# A window small enough that a few steps fill it.
SMALL = CompressionConfig(window=4_000, reserve=500)


def chat(count: int, words: str = "message number {} says a few words") -> list[Any]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": words.format(at)} for at in range(count)]


def steps(count: int, *, start: int = 0, lines: int = 20) -> list[Any]:
    """Steps of an agent: a call and its result, without a user message."""
    messages: list[Any] = []
    for step in range(start, start + count):
        arguments = json.dumps({"path": f"logs/{step}.log"})
        call = {"id": f"call_{step}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        text = "\n".join(
            f"{step:02d}:{line:02d} worker {line * 7 + step} finished in {line} ms" for line in range(lines)
        )
        messages.append({"role": "assistant", "content": f"I look at log {step}.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": text})
    return messages


def agent(count: int, *, lines: int = 20) -> list[Any]:
    """A question and the steps of an agent."""
    return [{"role": "user", "content": "Why does the build of release 4.17.2 fail?"}, *steps(count, lines=lines)]


class Model:
    """Answers every prompt with the next text, or fails; the last one is repeated."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    async def complete(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return SimpleNamespace(content=answer)
