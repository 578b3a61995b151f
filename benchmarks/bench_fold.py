"""Folds by a model: values in view, the cost of a summary, and how good facts by rule are.

The summariser is a scripted, mediocre one: the first sentence of each message, under two of the headings. Sessions are
replayed at 40% of their tokens, with and without the index of exact values. Facts are counted against a small set
that was labelled by hand (tests/data/facts_labelled.jsonl).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from refold.config import CompressionConfig
from refold.conversation.message import Part
from refold.conversation.view import Lens, View, apply
from refold.formats import detect, parse_messages
from refold.ladder.plan import detect_view_language
from refold.ladder.run import climb, drive
from refold.reading.events import Statement, Utterance
from refold.reading.facts import classify_fact
from refold.reading.words import read_words
from refold.stages.fold import Fold
from refold.stages.stage import Ask, Goal, Reply
from refold.tokens import counter_for

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
LABELLED = ROOT / "tests" / "data" / "facts_labelled.jsonl"
SETS = ("tau_airline", "swe_mini", "agent_long", "bfcl_long_replay")
SHARE, FLOOR_TOKENS = 0.4, 1_500
_MESSAGE = re.compile(r"^(?:user|assistant): (.+)$", re.M)
_SENTENCE = re.compile(r".{1,200}?(?:[.!?](?=\s|$)|[。！？]|$)")


class Mediocre:
    """Answers with the first sentence of each message of the record, newest last, and counts what that costs."""

    def __init__(self) -> None:
        self.count = counter_for("gpt-4o", None).count_text
        self.tokens_in = self.tokens_out = self.calls = 0

    def __call__(self, ask: Ask) -> Reply:
        said = [found[0] for line in _MESSAGE.findall(ask.prompt) if (found := _SENTENCE.match(line.strip()))]
        lines, room = [], ask.tokens_max * 5 // 6 - 40
        for sentence in reversed(said):
            room -= self.count(f"- {sentence}\n")
            if room < 0:
                break
            lines.append(f"- {sentence}")
        half = len(lines) // 2
        old, new = lines[half:][::-1] or ["- Nothing."], lines[:half][::-1] or ["- Nothing."]
        text = "\n".join(["## Project Overview", *old, "## Current Status", *new])
        self.tokens_in += self.count(ask.prompt)
        self.tokens_out += self.count(text)
        self.calls += 1
        return Reply(text)


def read_sessions(name: str, half: str, most: int) -> Iterator[dict[str, Any]]:
    taken = 0
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            session = json.loads(line)
            side = "tune" if hashlib.sha256(session["id"].encode()).digest()[0] % 2 else "held"
            if half in (side, "all") and session.get("probes") and taken < most:
                taken += 1
                yield session


def find_goal(view: View, whole: View) -> Goal:
    """Return a window of 40% of the whole session, or what may not be folded and a little."""
    system = view.fixed_tokens + sum(item.tokens for item in view.items if item.role == "system")
    users = [item.tokens for item in view.items if item.role == "user"]
    window = max(int(whole.tokens * SHARE), system + (users[-1] if users else 0) + FLOOR_TOKENS)
    return Goal(target=window, hard=window, language=detect_view_language(view))


def measure_session(session: dict[str, Any], stage: Fold, model: Mediocre) -> Counter[str]:
    """Fold before each probe, and count which probes are still in view, and what the folds freed."""
    raws = session["messages"]
    form = detect(raws, system=None, tools=None, name="openai-chat")
    counter = counter_for("gpt-4o", None)
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, raws)
    whole = apply(messages, (), lens)
    seen: Counter[str] = Counter()
    for step in sorted({probe["step"] for probe in session["probes"]}):
        view = apply(messages[:step], (), lens)
        goal = find_goal(view, whole)
        if view.tokens > goal.hard:
            before = view.tokens
            climbed = drive(climb(view, goal, (stage,)), model)
            view = climbed.view
            seen["folds"] += 1
            seen["freed"] += before - view.tokens
            by = [edit.fold.by for edit in climbed.edits if edit.fold]
            seen["by a model"] += by.count("llm")
            seen["by rule"] += by.count("extract")
        text = "\n".join(part.text for item in view.items for part in item.parts)
        for probe in (one for one in session["probes"] if one["step"] == step):
            if probe["n_sources"] == 1 and not probe["in_assistant_text"]:
                seen["strict"] += 1
                seen["strict found"] += probe["value"] in text
    return seen


def show_folds(half: str, sets: list[str], most: int) -> None:
    print("## Values in view, and what a fold costs (`benchmarks/bench_fold.py`)\n")
    print(
        f"Sessions: the {half} half, folded at {SHARE:.0%} of their tokens before each probe, by a mediocre summariser "
        "(the first sentence of each message). *strict*: probes with one single earlier copy. Costs are tokens of the "
        "summariser over all folds.\n"
    )
    print(
        "| sessions | written by | index | strict, % in view | folds | by a model | tokens in | out | freed | "
        "in + out per freed |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    base = replace(CompressionConfig().fold, standing_share=0.0)
    stages = (
        ("a model", "yes", replace(base, summariser="llm")),
        ("a model", "no", replace(base, summariser="llm", index_tokens_max=0)),
        ("rules", "yes", base),
    )
    for name in sets:
        for by, index, stage in stages:
            model, total = Mediocre(), Counter[str]()
            for session in read_sessions(name, half, most):
                total += measure_session(session, stage, model)
                print(".", end="", file=sys.stderr, flush=True)
            share = 100 * total["strict found"] / max(1, total["strict"])
            spent = (model.tokens_in + model.tokens_out) / max(1, total["freed"])
            cells = [name, by, index, f"{share:.1f} ({total['strict']})", f"{total['folds']}", f"{total['by a model']}"]
            cells += [f"{model.tokens_in:,}", f"{model.tokens_out:,}", f"{total['freed']:,}", f"{spent:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


def show_facts() -> None:
    """Count facts by rule over sentences that were labelled before the rules were tuned to some of them."""
    rows = [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").splitlines() if line.strip()]
    print("\n## Facts by rule, against sentences labelled by hand\n")
    print(
        f"{len(rows)} sentences of our own. Those *held back* were labelled before these rules were made and did not "
        "shape them; the others did.\n"
    )
    print("| language | part | sentences | facts | precision | recall | of those found, right kind |")
    print("|---|---|---|---|---|---|---|")
    for language in ("en", "zh"):
        for part, names in (("held back", ("held",)), ("the others", ("first", "tune"))):
            mine = [row for row in rows if row["lang"] == language and row["part"] in names]
            print(f"| {' | '.join([language, part, *count_facts(mine)])} |")


def _classify(text: str, role: str) -> str | None:
    events = read_words(Part("text", text), 0, "person" if role == "user" else "assistant")
    said = (classify_fact(event) for event in events if isinstance(event, Utterance | Statement))
    return next((kind for kind in said if kind is not None), None)


def count_facts(rows: list[dict[str, Any]]) -> list[str]:
    """Return sentences, facts, precision, recall, and the share of what was found that has its kind."""
    found = [(row["kind"], _classify(row["text"], row["role"])) for row in rows]
    labelled = sum(kind is not None for kind, _ in found)
    said = sum(guess is not None for _, guess in found)
    right = sum(kind is not None and guess is not None for kind, guess in found)
    same = sum(kind is not None and kind == guess for kind, guess in found)
    shares = (right / max(1, said), right / max(1, labelled), same / max(1, right))
    return [str(len(rows)), str(labelled), *(f"{share:.2f}" for share in shares)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tune", "held", "all"), default="held")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--sessions", type=int, default=20)
    arguments = parser.parse_args()
    if DATA.is_dir():
        show_folds(arguments.half, arguments.sets, arguments.sessions)
    else:
        print("No recorded sessions at ../shared/data: folds were not measured.")
    show_facts()


if __name__ == "__main__":
    main()
