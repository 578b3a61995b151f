"""A fold never contains an identifier that its source does not contain, whatever the model makes up.

The extractor here shares nothing with the verifier: it splits by spaces and punctuation, by rules of its own.
"""

from __future__ import annotations

import json
import random
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.stages.stage import Ask, Reply
from tests.rigs.effort import first_of
from tests.rigs.recorded import read_records

SETS = ("swe_mini", "tau_airline", "agent_long", "zh_long_concat")
SESSIONS_MAX = 6
HEADINGS = ("Technical Context", "Project Overview", "Code Changes", "Current Status", "Key Decisions")
PARTS = ("user", "order", "cache", "token", "parse", "queue", "index", "render", "payment", "login", "retry", "batch")


def make_up(dice: random.Random, known: list[str]) -> str:
    """One thing that a model might invent: new, or one character away from something real."""
    one, two = dice.sample(PARTS, 2)
    number = dice.randrange(100, 10_000_000)
    made = [
        f"src/{one}/{two}_{number % 97}.py",
        f"{one}_{two}_{number}",
        f"{one}{two.title()}{number % 9}Handler",
        f"{number}",
        f"{number:,}",
        f"${number}.{number % 90 + 10}",
        f"#{number}",
        f"{one.upper()}-{number}",
        f"{number:x}{number:x}ab12",
        f"{one}.{two}.{one}s()",
        f"--{one}-{two}-{number}",
        f"https://{one}.example/{two}/{number}",
        f"{one}.{two}{number}@mail.example",
        f"20{number % 90 + 10}-0{number % 9 + 1}-1{number % 10}",
        f"C:\\{one}\\{two}{number}.txt",
    ]
    if known:
        real = dice.choice(known)
        at = dice.randrange(len(real))
        made.append(f"{real[:at]}{dice.choice('abcxyz_079')}{real[at + 1 :]}")
    return dice.choice(made)


def hallucinate(ask: Ask, seed: int) -> Reply:
    """Mix true words with made-up ones, in both languages and several forms of markup."""
    dice = random.Random(seed)
    known = [word for word in re.findall(r"[\w./-]{6,40}", ask.prompt) if re.search(r"[_./\d]", word)][:400]
    lines = []
    for heading in HEADINGS:
        lines.append(f"## {heading}")
        for _ in range(dice.randrange(2, 6)):
            thing = make_up(dice, known) if dice.random() < 0.4 else (dice.choice(known) if known else "it")
            form = dice.choice(
                (
                    "- The work on {} is done.",
                    "- 已经修改了{}，没有问题。",
                    "The user asked about `{}`. It was fine.",
                    "- **{}**: checked; see ({}).",
                    "- Nothing else was found. All is well.",
                    "* Step: {}，然后继续",
                )
            )
            lines.append(form.replace("{}", thing))
    return Reply("\n".join(lines))


def find_identifiers(text: str) -> set[str]:
    """Return what looks like an identifier, a path or a number, by this test's own lights."""
    found: set[str] = set()
    text = re.sub(r"[\u3400-\u9fff]+", " ", text)
    for word in re.split(r"[\s\"'`()\[\]{}<>|,;!?*，。；：、！？（）《》“”]+", text):
        word = word.strip(".:-=+&/\\")
        digits = sum(char.isdigit() for char in word)
        if digits >= 3 or ("_" in word and len(word) > 3) or ("/" in word and "." in word):
            found.add(word)
    found.update(re.findall(r"[0-9]{3,}", text))
    return {one for one in found if len(one) >= 3}


def read_source(messages: list[Any]) -> str:
    """Return all that was said, called and answered, as plain text, escapes undone."""
    pieces: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, str):
            pieces.append(value)
            if "\\" in value:
                pieces.append(value.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\"))
        elif isinstance(value, dict):
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(messages)
    return "\n".join(pieces)


def check_fold(session: list[Any], seed: int) -> None:
    config = refold.CompressionConfig(fold={"summariser": "llm"}, ladder=["fold", "window", "clamp"])
    calls = iter(range(seed * 1_000, seed * 1_000 + 1_000))
    whole = refold.TokenCounter().count_messages(session)
    prepared = refold.compress(
        session, max(2_500, whole // 3), config=config, answer=lambda ask: hallucinate(ask, next(calls))
    )
    source = read_source(session)
    joined = source.replace(",", "")
    for edit in prepared.edits:
        if edit.fold is None or edit.fold.by != "llm":
            continue
        # The frame names counts and handles of its own; the words and the index are between its lines.
        words = "\n".join(edit.text.splitlines()[1:-1])
        words = re.sub(r"\b[mf]:[0-9a-f]{6,8}(?:\.\d+)?\b", "", words)
        words = re.sub(r"\[…+ .*?\]", "", words)
        invented = {one for one in find_identifiers(words) if one not in source and one.replace(",", "") not in joined}
        assert invented == set()


def test_the_hallucinating_model_would_be_caught_by_this_test() -> None:
    reply = hallucinate(Ask("user: please fix src/auth.py and test_login", 100), 3)
    source = "user: please fix src/auth.py and test_login"
    assert {one for one in find_identifiers(reply.text) if one not in source}


@pytest.mark.parametrize("seed", first_of(range(4), 1))
def test_a_fold_names_nothing_that_its_source_does_not_have(seed: int, project_root: Path) -> None:
    example = json.loads((project_root / "examples" / "sessions" / "coding_agent.json").read_text("utf-8"))
    check_fold(example["messages"], seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SETS)
def test_folds_of_recorded_sessions_name_nothing_that_their_source_does_not_have(
    name: str, seed: int, shared_data: Path
) -> None:
    for record in islice(read_records(shared_data, name), SESSIONS_MAX):
        check_fold(record["messages"], seed)
