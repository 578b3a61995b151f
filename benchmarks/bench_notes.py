"""What a model's notes cost, as a share of the conversation's own bill, on recorded sessions.

Each session is sent request by request through the manager to a scripted provider with a real prefix cache: it bills
tokens by the bytes that it has seen before. A note has 500 tokens, about 15 lines. ``cached`` asks on the conversation
as it was sent, ``as text`` sends the span again as a prompt of its own, as every call did before. Prints Markdown.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager, TokenCounter
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatRequest
from refold.llm.summariser import Summariser
from refold.testing import ScriptedProvider
from refold.testing.script import RecordedRequest
from refold.tokens.models import model_info

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
# Two sessions of coding agents and a long one of a person with an agent; the window of each is a share of its tokens.
SESSIONS = (("swe_mini", 1, 0.4), ("agent_long", 9, 0.3), ("agent_long", 12, 0.3))
MODEL = "gpt-5.1"
NOTE_TOKENS = 500


def read_session(name: str, at: int) -> dict[str, Any]:
    """Return one recorded session."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return next(json.loads(line) for number, line in enumerate(lines) if number == at)


def is_note(request: RecordedRequest) -> bool:
    """Return whether a request asks for a note."""
    return "Write the note by which" in request.prompt or "请写一份记录" in request.prompt


def answer(request: RecordedRequest) -> str:
    """Return a note of the usual size that quotes the assistant, or a short answer."""
    if not is_note(request):
        return "ok"
    said = [str(one.get("content") or "") for one in request.messages if one.get("role") == "assistant"]
    said += re.findall(r"^\[\d+\] assistant: (.{20,300})", request.prompt, re.M)
    lines = [f"A> {text.strip().splitlines()[0][:160]}" for text in said if text.strip()]
    note = "## Findings and decisions\n" + "\n".join(lines * 20)
    return note[: len(note) * NOTE_TOKENS // TokenCounter().count_text(note)]


async def run(record: dict[str, Any], share: float) -> dict[str, float]:
    """Return the bill of a session, in dollars: the conversation and its notes."""
    messages = [one for one in record["messages"] if one["role"] != "user" or one.get("content")]
    tools = record.get("tools") or None
    counter = TokenCounter()
    whole, spoken = counter.count_messages(messages), 0
    config = CompressionConfig(window=max(4_000, int(whole * share)), reserve=1_000, model=MODEL, background=False)
    with ScriptedProvider(answer, caches=True) as provider, tempfile.TemporaryDirectory() as folder:
        model = OpenAIModel(MODEL, "key", provider.openai_url, 60.0)
        manager = ContextCompressionManager(config, Path(folder), llm=model)
        for at, message in enumerate(messages):
            if message["role"] != "assistant" or not at:
                continue
            prepared = await manager.prepare_context("s", messages[:at], tools=tools, model=MODEL)
            await model.follow(ChatRequest(prepared.messages, "", tools or []), 500)
            spoken += counter.count_message(message)
        manager.close()
        prices, read = model_info(MODEL).prices, model_info(MODEL).cache.read
        assert prices is not None
        bill = {"conversation": spoken * prices.output / 1e6, "notes": 0.0, "calls": 0.0}
        for request, usage in zip(provider.requests, provider.usages, strict=True):
            cost = (usage.input - usage.cached * (1 - read)) * prices.input + usage.output * prices.output
            bill["notes" if is_note(request) else "conversation"] += cost / 1e6
            bill["calls"] += is_note(request)
            if is_note(request) and "-v" in sys.argv:
                print(f"{usage.input:,} tokens, {usage.cached:,} cached, {usage.output:,} written", file=sys.stderr)
        return bill


def main() -> None:
    """Print the table."""
    print("## Notes (`benchmarks/bench_notes.py`)\n")
    if not DATA.is_dir():
        print("No recorded sessions at ../shared/data: not measured.")
        return
    print("| session | notes | conversation | as text | cached |\n|---|---|---|---|---|")
    find = Summariser._find_follow
    for name, at, share in SESSIONS:
        record = read_session(name, at)
        Summariser._find_follow = lambda *_: None  # type: ignore[method-assign]
        plain = asyncio.run(run(record, share))
        Summariser._find_follow = find  # type: ignore[method-assign]
        cached = asyncio.run(run(record, share))
        shares = " | ".join(f"{one['notes'] / one['conversation']:.0%}" for one in (plain, cached))
        print(f"| {record['id']} | {cached['calls']:.0f} | ${cached['conversation']:.4f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
