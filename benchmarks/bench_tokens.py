"""Counting against the reference encoder, in one run: ratios on text that no cache has seen, growth on hostile text.

Each sample is made or taken afresh and counted once by each side, in turns, so that neither profits from a piece it
met before. Prints Markdown on standard output; exits by itself in well under two minutes.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import statistics
import string
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from refold.tokens import TokenCounter, counter_for
from tests.rigs.oracle import load_oracle

SAMPLE_CHARS = 120_000
ROUNDS = 6
DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SIZES = (100_000, 1_000_000, 10_000_000)

Maker = Callable[[random.Random], Iterator[str]]


def make_word(dice: random.Random) -> str:
    return "".join(dice.choices("etaoinshrdlcumwfgypbvk", k=dice.randint(2, 11)))


def make_words(dice: random.Random) -> Iterator[str]:
    """Sentences of words that exist in no language: the worst case, no piece comes twice."""
    while True:
        yield " ".join(make_word(dice) for _ in range(SAMPLE_CHARS // 7))


def make_chinese(dice: random.Random) -> Iterator[str]:
    while True:
        yield "".join(
            "，" if dice.random() < 0.1 else chr(dice.randint(0x4E00, 0x9FA5)) for _ in range(SAMPLE_CHARS // 3)
        )


def make_json(dice: random.Random) -> Iterator[str]:
    while True:
        rows = [
            {make_word(dice): dice.random(), "id": dice.getrandbits(32), "text": make_word(dice)} for _ in range(1_500)
        ]
        yield json.dumps(rows)


def make_code(dice: random.Random) -> Iterator[str]:
    while True:
        yield "\n".join(
            f"    def {make_word(dice)}_{make_word(dice)}(self, {make_word(dice)}: int) -> str:\n"
            f"        return self.{make_word(dice)}[{dice.randint(0, 9_999)}].{make_word(dice)}()\n"
            for _ in range(900)
        )


def make_base64(dice: random.Random) -> Iterator[str]:
    while True:
        yield base64.b64encode(dice.randbytes(SAMPLE_CHARS * 3 // 4)).decode()


def read_recorded(name: str, wanted: Callable[[str], bool] = bool) -> Iterator[str]:
    """Yield slices of recorded sessions, none twice."""
    pending: list[str] = []
    size = 0
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            messages = record.get("messages") or [{"content": record.get("text") or record.get("content")}]
            for message in messages:
                text = message.get("content")
                if isinstance(text, str) and wanted(text):
                    pending.append(text)
                    size += len(text)
                if size >= SAMPLE_CHARS:
                    yield "\n".join(pending)[:SAMPLE_CHARS]
                    pending, size = [], 0


def list_kinds(dice: random.Random) -> dict[str, Iterator[str]]:
    kinds: dict[str, Iterator[str]] = {}
    if DATA.is_dir():
        kinds |= {
            "English (chats)": read_recorded("locomo"),
            "Chinese (dialogues)": read_recorded("zh_long_concat"),
            "JSON (tool outputs)": read_recorded("bfcl_long_replay", lambda text: text[:1] in "{["),
            "code (coding sessions)": read_recorded("swe_mini"),
        }
    else:
        print("no recorded sessions at ../shared/data: made-up text only", file=sys.stderr)
    makers: dict[str, Maker] = {
        "words that do not exist": make_words,
        "random ideographs": make_chinese,
        "JSON of random keys": make_json,
        "code of random names": make_code,
        "base64": make_base64,
    }
    return kinds | {name: make(dice) for name, make in makers.items()}


def measure(count: Callable[[str], int], text: str) -> tuple[float, int]:
    start = time.perf_counter()
    tokens = count(text)
    return time.perf_counter() - start, tokens


def compare(reference: Any, counter: TokenCounter, texts: Iterator[str]) -> tuple[float, float, float]:
    """Return megabytes a second of both sides and the median ratio; stop if a count differs."""
    ratios, bytes_read, ours_s, theirs_s = [], 0, 0.0, 0.0
    for round_number, text in enumerate(islice(texts, ROUNDS)):
        sides = [lambda t: len(reference.encode(t, disallowed_special=())), counter.count_text]
        order = (0, 1) if round_number % 2 else (1, 0)
        took: dict[int, tuple[float, int]] = {side: measure(sides[side], text) for side in order}
        if took[0][1] != took[1][1]:
            raise SystemExit(f"counts differ: {took[0][1]} by the reference, {took[1][1]} by us")
        theirs_s, ours_s = theirs_s + took[0][0], ours_s + took[1][0]
        ratios.append(took[0][0] / took[1][0])
        bytes_read += len(text.encode())
    return bytes_read / theirs_s / 1e6, bytes_read / ours_s / 1e6, statistics.median(ratios)


def print_ratios(encoding: str) -> None:
    reference, counter = load_oracle(encoding), TokenCounter(encoding)
    warm = "warm up, 12 {} 你好\n" * 400
    reference.encode(warm), counter.count_text(warm)
    print(f"\n{encoding}:\n\n| never-seen text | tiktoken MB/s | refold MB/s | ratio |\n|---|---|---|---|")
    for kind, texts in list_kinds(random.Random(encoding)).items():
        theirs, ours, ratio = compare(reference, counter, texts)
        print(f"| {kind} | {theirs:.1f} | {ours:.1f} | {ratio:.1f}x |", flush=True)


def print_growth(encoding: str) -> None:
    counter, dice = TokenCounter(encoding), random.Random(7)
    counter.count_text("warm up 你好" * 400)
    hostile: dict[str, Callable[[int], str]] = {
        "one letter": lambda size: "a" * size,
        "spaces": lambda size: " " * size,
        "line ends": lambda size: "\n" * size,
        "dashes": lambda size: "-" * size,
        "base64": lambda size: base64.b64encode(dice.randbytes(size * 3 // 4)).decode(),
        "letters without a blank": lambda size: "".join(dice.choices(string.ascii_lowercase, k=size)),
    }
    print(
        f"\n{encoding}, milliseconds:\n\n| hostile text | 100 KB | 1 MB | 10 MB | 10 MB / 1 MB |\n|---|---|---|---|---|"
    )
    for kind, make in hostile.items():
        times = [min(measure(counter.count_text, make(size))[0] for _ in range(3)) * 1e3 for size in SIZES]
        print(f"| {kind} | {times[0]:.1f} | {times[1]:.1f} | {times[2]:.1f} | {times[2] / times[1]:.0f}x |", flush=True)


def print_message_cost() -> None:
    message = {"role": "user", "content": "Hello, how can I help you today?"}
    rows = []
    for name in ("o200k_base", "estimate:claude", "chars/4"):
        counter: Any = counter_for(None, name)
        counter.count_message(message)
        start = time.perf_counter()
        for _ in range(20_000):
            counter.count_message(message)
        rows.append(f"{name} {(time.perf_counter() - start) / 20_000 * 1e6:.1f} µs")
    print(f"\nOne short message, read and counted: {', '.join(rows)}.")


def main() -> None:
    print(
        "## Counting tokens\n\n`python benchmarks/bench_tokens.py`. Every count equals that of tiktoken, the reference."
    )
    for encoding in ("cl100k_base", "o200k_base"):
        print_ratios(encoding)
    print_growth("o200k_base")
    print_message_cost()


if __name__ == "__main__":
    main()
