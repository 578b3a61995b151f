"""Conversations that grow turn by turn, with messages of ordinary sizes, in English and in Chinese."""

import json
from collections.abc import Iterator
from typing import Any

# Nothing here refers to earlier messages: recalled text is tested elsewhere.
SENTENCES = {
    "en": "The garden needs water and some shade, and the seeds go into warm soil.",
    "zh": "花园需要浇水，也需要一些阴凉，种子要放进温暖的土里。",
}
# How often the sentence is said, message by message.
SIZES = {"short": (1,), "long": (9,), "mixed": (1, 3, 1, 12, 2, 5), "pages": (20, 80, 60, 120)}


def say(at: int, size: str, language: str) -> dict[str, str]:
    """Return message ``at`` of a conversation."""
    sentence = SENTENCES[language]
    times = SIZES[size][at % len(SIZES[size])]
    return {"role": "user" if at % 2 == 0 else "assistant", "content": f"{at}: {' '.join([sentence] * times)}"}


def grow(size: str, language: str, count: int = 320) -> Iterator[list[dict[str, str]]]:
    """Yield the whole history at each request of a conversation, as a stateless client resends it."""
    history: list[dict[str, str]] = []
    for at in range(count):
        history.append(say(at, size, language))
        if at % 2 == 0:
            yield list(history)


def work(turns: int = 4, steps: int = 25, language: str = "en") -> Iterator[list[dict[str, Any]]]:
    """Yield the history at each request of an agent that takes many steps for each message of a person."""
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Task {turn}: {SENTENCES[language]} Look at part {turn}."})
        for step in range(steps):
            yield list(history)
            name = f"beds/row_{turn}_{step}.txt"
            call = {"name": "read_file", "arguments": json.dumps({"path": name})}
            asked = [{"id": f"call_{turn}_{step}", "type": "function", "function": call}]
            history.append({"role": "assistant", "content": f"I read {name} next.", "tool_calls": asked})
            output = "\n".join(f"{line}: plot {turn}.{step}.{line} has {SENTENCES[language]}" for line in range(20))
            history.append({"role": "tool", "tool_call_id": f"call_{turn}_{step}", "content": output})
        yield list(history)
        history.append({"role": "assistant", "content": f"Part {turn} is done: {steps} rows were read."})
